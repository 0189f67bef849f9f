//! Passes the records of sampled requests to the thread that writes the record file. A slow disk never delays a request.

use crate::config::RecordsConfig;
use clock::Clock;
use records::{Program, Row, RowSender, Writer, WriterTotals, is_sampled};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest time for which records are collected before they are passed on.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// The requests' end of the record file. Without `records` in the configuration it discards everything.
#[derive(Debug, Default)]
pub(crate) struct RecordSink {
    sender: Option<Mutex<Option<RowSender>>>,
    dropped: Arc<AtomicU64>,
}

/// The record file, which `close` completes.
#[derive(Debug, Default)]
pub(crate) struct RecordFile {
    writer: Option<Writer>,
}

impl RecordSink {
    /// Creates the record file, if one is configured.
    pub(crate) fn begin(config: Option<&RecordsConfig>, clock: &Clock) -> io::Result<(RecordSink, RecordFile)> {
        let Some(config) = config else { return Ok((RecordSink::default(), RecordFile::default())) };
        let writer = Writer::create(&config.directory, Program::Messages, config.sample, clock)?;
        let sink = RecordSink::of(&writer);
        Ok((sink, RecordFile { writer: Some(writer) }))
    }

    fn of(writer: &Writer) -> RecordSink {
        RecordSink { sender: Some(Mutex::new(Some(writer.sender()))), dropped: writer.dropped() }
    }

    /// Stores the record of a request if the request belongs to the sample.
    pub(crate) fn push(&self, row: &Row, stamps: &[u64]) {
        self.with(|sender| {
            if is_sampled(row.port, row.sequence, sender.sample()) {
                sender.push(row, stamps);
            }
        });
    }

    /// Passes on the collected records.
    pub(crate) fn flush(&self) {
        self.with(RowSender::flush);
    }

    /// Records dropped because the disk was too slow. Takes no lock.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// No more records will follow.
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
    /// Completes the file. Returns how many records were written and dropped.
    ///
    /// # Errors
    ///
    /// When the disk refused a write.
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
    fn a_full_disk_delays_no_request() {
        let header = Header::new(Program::Messages, 1, Nanos(1), 1);
        let writer = Writer::begin(PathBuf::from("/dev/full"), &header).unwrap();
        let rows = RecordSink::of(&writer);
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
