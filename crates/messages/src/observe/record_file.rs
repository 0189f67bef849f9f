//! Where sampled requests are written down: handed to the thread that writes the record file, without ever waiting for it.

use crate::config::RecordsConfig;
use clock::Clock;
use records::{Program, Row, RowSender, Writer, WriterTotals, is_sampled};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Rows wait at most this long for others to be handed over with.
pub(crate) const HAND_OVER_WITHIN: Duration = Duration::from_millis(100);

/// The way to the record file; nowhere when none is asked for.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    sender: Option<Mutex<Option<RowSender>>>,
}

/// The record file's end of it.
#[derive(Debug, Default)]
pub(crate) struct RecordFile {
    writer: Option<Writer>,
}

impl Rows {
    /// Begins a file, if there shall be one.
    pub(crate) fn begin(config: Option<&RecordsConfig>, clock: &Clock) -> io::Result<(Rows, RecordFile)> {
        let Some(config) = config else { return Ok((Rows::default(), RecordFile::default())) };
        let writer = Writer::create(&config.directory, Program::Messages, config.sample, clock)?;
        let sender = Some(Mutex::new(Some(writer.sender())));
        Ok((Rows { sender }, RecordFile { writer: Some(writer) }))
    }

    /// Keeps a row if it is one of those that are kept.
    pub(crate) fn push(&self, row: &Row, stamps: &[u64]) {
        self.with(|sender| {
            if is_sampled(row.port, row.sequence, sender.sample()) {
                sender.push(row, stamps);
            }
        });
    }

    /// Hands over what has gathered.
    pub(crate) fn flush(&self) {
        self.with(RowSender::flush);
    }

    /// Rows that were dropped because the disk did not keep up.
    pub(crate) fn dropped(&self) -> u64 {
        let mut dropped = 0;
        self.with(|sender| dropped = sender.dropped());
        dropped
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        if let Some(sender) = &self.sender {
            drop(sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    fn with(&self, act: impl FnOnce(&mut RowSender)) {
        if let Some(sender) = &self.sender
            && let Some(sender) = sender.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            act(sender);
        }
    }
}

impl RecordFile {
    /// Completes the file; what became of the rows.
    ///
    /// # Errors
    /// When the disk refused something.
    pub(crate) fn close(self) -> io::Result<Option<WriterTotals>> {
        self.writer.map(|writer| writer.close(0)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::Nanos;
    use records::Header;
    use std::path::PathBuf;

    #[test]
    fn a_full_disk_makes_nobody_wait() {
        let header = Header::new(Program::Messages, 1, Nanos(1), 1);
        let writer = Writer::begin(PathBuf::from("/dev/full"), &header).unwrap();
        let rows = Rows { sender: Some(Mutex::new(Some(writer.sender()))) };
        let file = RecordFile { writer: Some(writer) };
        for sequence in 0..100_000 {
            rows.push(&Row { sequence, ..Row::default() }, &[1; clock::STAGES]);
        }
        assert!(rows.dropped() > 0);
        rows.end();
        rows.push(&Row::default(), &[1; clock::STAGES]);
        let line = file.close().unwrap_err().to_string();
        assert!(line.starts_with("/dev/full: ") && !line.contains('\n'), "{line}");
    }
}
