//! A row of a trace, and the receiving end of the queue from which one thread takes its rows.
//! Knows nothing of files: pieces of rows arrive and go back empty.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

/// memcached interprets a longer time to live as a date.
const EXPIRY_S_MAX: u32 = 60 * 60 * 24 * 30;

/// The operation of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the operations of the protocol")]
pub enum TraceOperation {
    Get,
    Gets,
    Set,
    Add,
    Replace,
    Cas,
    Append,
    Prepend,
    Delete,
    Incr,
    Decr,
}

/// One request of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow<'a> {
    /// When the row is due, in nanoseconds after the first row.
    pub at_ns: u64,
    /// The key, as in the trace: 1 to 250 bytes that the protocol allows.
    pub key: &'a [u8],
    /// Bytes of the value that was written, or returned at the time of the recording.
    pub value_bytes: u32,
    /// The operation.
    pub operation: TraceOperation,
    /// The time to live in seconds, as recorded; 0 is unlimited.
    pub ttl_s: u32,
    /// The number of the client in the trace.
    pub client: u64,
}

/// The result of taking a row from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// The next row of this thread.
    Row(TraceRow<'a>),
    /// No row yet, because the reader is behind. Try again.
    Pending,
    /// No more rows: the trace is over or cannot be read further. [`super::TraceReader::error`] returns the reason.
    End,
}

/// The rows of one thread, in the order of the file and of their times.
///
/// All threads must take their rows at the same time, because the reader waits for the slowest.
#[derive(Debug)]
pub struct TraceRows {
    full: Receiver<Piece>,
    empty: Sender<Piece>,
    piece: Piece,
    at: usize,
}

/// Rows of one thread, contiguous in memory.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) rows: Vec<Stored>,
    pub(super) keys: Vec<u8>,
}

/// A row without its key, which is among the keys of the piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) at_ns: u64,
    pub(super) client: u64,
    pub(super) key_start: u32,
    /// Its position among the rows of all threads in the same piece.
    pub(super) order: u32,
    pub(super) value_bytes: u32,
    pub(super) ttl_s: u32,
    pub(super) key_bytes: u8,
    pub(super) operation: TraceOperation,
}

impl TraceOperation {
    /// All operations, by their names in the trace.
    pub const ALL: [(&'static str, TraceOperation); 11] = [
        ("get", TraceOperation::Get),
        ("gets", TraceOperation::Gets),
        ("set", TraceOperation::Set),
        ("add", TraceOperation::Add),
        ("replace", TraceOperation::Replace),
        ("cas", TraceOperation::Cas),
        ("append", TraceOperation::Append),
        ("prepend", TraceOperation::Prepend),
        ("delete", TraceOperation::Delete),
        ("incr", TraceOperation::Incr),
        ("decr", TraceOperation::Decr),
    ];

    /// The operation with this name.
    pub fn named(name: &[u8]) -> Option<TraceOperation> {
        TraceOperation::ALL.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, operation)| *operation)
    }

    /// Whether it sends a value of `value_bytes` to the server.
    pub fn carries_value(self) -> bool {
        use TraceOperation::{Add, Append, Cas, Prepend, Replace, Set};
        matches!(self, Set | Add | Replace | Cas | Append | Prepend)
    }
}

impl fmt::Display for TraceOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = TraceOperation::ALL.iter().find(|(_, operation)| operation == self).map_or("", |(name, _)| name);
        formatter.write_str(name)
    }
}

impl TraceRow<'_> {
    /// The time to live for memcached: at most thirty days, because memcached interprets anything longer as a date.
    pub fn expiry_s(&self) -> u32 {
        self.ttl_s.min(EXPIRY_S_MAX)
    }
}

impl Piece {
    /// Removes the rows and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
    }

    fn row(&self, at: usize) -> Option<TraceRow<'_>> {
        let stored = self.rows.get(at)?;
        let key_start = stored.key_start as usize;
        Some(TraceRow {
            at_ns: stored.at_ns,
            key: &self.keys[key_start..key_start + stored.key_bytes as usize],
            value_bytes: stored.value_bytes,
            operation: stored.operation,
            ttl_s: stored.ttl_s,
            client: stored.client,
        })
    }
}

impl TraceRows {
    /// Rows from `full`. Empty pieces go back through `empty`.
    pub(super) fn new(full: Receiver<Piece>, empty: Sender<Piece>) -> TraceRows {
        TraceRows { full, empty, piece: Piece::default(), at: 0 }
    }

    /// The next row, without removing it; see [`TraceRows::advance`]. Never waits.
    pub fn peek(&mut self) -> Next<'_> {
        while self.at == self.piece.rows.len() {
            match self.full.try_recv() {
                Ok(piece) => self.turn_to(piece),
                Err(TryRecvError::Empty) => return Next::Pending,
                Err(TryRecvError::Disconnected) => return Next::End,
            }
        }
        self.current()
    }

    /// Like [`TraceRows::peek`], but waits up to `longest` for a row.
    pub fn wait(&mut self, longest: Duration) -> Next<'_> {
        while self.at == self.piece.rows.len() {
            match self.full.recv_timeout(longest) {
                Ok(piece) => self.turn_to(piece),
                Err(RecvTimeoutError::Timeout) => return Next::Pending,
                Err(RecvTimeoutError::Disconnected) => return Next::End,
            }
        }
        self.current()
    }

    /// Removes the row that was returned last.
    pub fn advance(&mut self) {
        self.at = (self.at + 1).min(self.piece.rows.len());
    }

    fn current(&self) -> Next<'_> {
        self.piece.row(self.at).map_or(Next::Pending, Next::Row)
    }

    fn turn_to(&mut self, piece: Piece) {
        let mut past = std::mem::replace(&mut self.piece, piece);
        self.at = 0;
        past.clear();
        // The reader may have ended; nothing needs the memory then.
        let _ = self.empty.send(past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn rows_are_taken_in_order_over_pieces() {
        let (full_in, full) = mpsc::channel();
        let (empty, empty_out) = mpsc::channel();
        let mut rows = TraceRows::new(full, empty);
        assert_eq!(rows.peek(), Next::Pending);
        for (at_ns, key) in [(1, "a"), (2, "bc")] {
            let stored = Stored {
                at_ns,
                client: 3,
                key_start: 0,
                order: 0,
                value_bytes: 4,
                ttl_s: u32::MAX,
                key_bytes: key.len() as u8,
                operation: TraceOperation::Get,
            };
            full_in.send(Piece { rows: vec![stored], keys: key.into() }).unwrap();
            // A piece may contain no rows for this thread.
            full_in.send(Piece::default()).unwrap();
        }
        let Next::Row(row) = rows.peek() else { panic!("there is a row") };
        assert_eq!((row.at_ns, row.key, row.expiry_s()), (1, b"a".as_slice(), 2_592_000));
        rows.advance();
        rows.advance();
        assert!(matches!(rows.wait(Duration::from_secs(10)), Next::Row(TraceRow { key: b"bc", .. })));
        rows.advance();
        assert_eq!(rows.peek(), Next::Pending);
        drop(full_in);
        assert_eq!(rows.peek(), Next::End);
        assert_eq!(rows.wait(Duration::ZERO), Next::End);
        assert!(empty_out.try_iter().all(|piece| piece.rows.is_empty()));
    }

    #[test]
    fn operations_have_the_names_of_the_format() {
        for (name, operation) in TraceOperation::ALL {
            assert_eq!((TraceOperation::named(name.as_bytes()), operation.to_string()), (Some(operation), name.into()));
        }
        assert_eq!(TraceOperation::named(b"GET"), None);
    }
}
