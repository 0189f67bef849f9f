//! The file of --seconds-file: one line for each second, written when the second has passed.

use load::{Second, second_line};
use records::report;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use crate::load_command::output::create;

/// The file, and how many seconds it has.
#[derive(Debug)]
pub(super) struct SecondsFile {
    path: PathBuf,
    /// None after a line could not be written.
    file: Option<File>,
    written: usize,
}

impl SecondsFile {
    /// Creates the file before the run, so that a mistyped path does not waste it.
    pub(super) fn create(path: PathBuf) -> Result<SecondsFile, String> {
        let file = create(&path)?;
        Ok(SecondsFile { path, file: Some(file), written: 0 })
    }

    /// Writes the line of the next second in one call, so that a reader sees whole lines. A failure does not end the
    /// run, whose summary has all seconds; it is reported once.
    pub(super) fn add(&mut self, second: &Second) {
        let Some(file) = &mut self.file else { return };
        let written =
            second_line(second).and_then(|line| file.write_all(line.as_bytes()).map_err(|error| error.to_string()));
        match written {
            Ok(()) => self.written += 1,
            Err(reason) => {
                report(format_args!(
                    "waystage: note: {}: {reason}; later seconds are not written",
                    self.path.display()
                ));
                self.file = None;
            }
        }
    }

    /// Writes the seconds at the end of the run, which no thread has reported as passed.
    pub(super) fn finish(mut self, seconds: &[Second]) {
        seconds.iter().skip(self.written).for_each(|second| self.add(second));
    }

    /// Removes the file of a run without a summary.
    pub(super) fn discard(self) {
        let _ = fs::remove_file(self.path);
    }
}
