//! The peers of the message service for `make bench-messages`, and the clients of all of them. Two programs in one:
//!
//! - `peers serve DATABASE CONNECTIONS`: pgmq's own SQL, and a plain table, each behind an HTTP handler with one statement for each
//!   request and so many connections. It prints its address.
//! - `peers drive ...`: clients in a closed loop, one message for each request; prints what they saw as JSON.

mod connection;
mod dead;
mod drive;
mod serve;
mod talk;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", database, connections] => serve::run(database, connections),
        ["drive", rest @ ..] => drive::run(rest),
        _ => Err("usage: peers serve DATABASE CONNECTIONS | peers drive ADDRESS TALK CLIENTS SECONDS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}
