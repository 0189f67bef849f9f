//! Lines on standard error. `eprintln!` would end the process if the reader of standard error has exited, as with
//! `waystage messages 2>&1 | head`; a line that nobody can read is dropped instead. It is in this crate because the writer of records
//! needs it, and every program has this crate.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes one line to standard error, in one piece.
pub fn report(line: Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
