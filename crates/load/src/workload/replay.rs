//! One thread's part of a trace in replay: takes rows when they are due and buffers them until their client sends them.
//! All rows of a key go to one client, so they keep their order. Knows no sockets.

use crate::workload::trace::{Next, TraceOperation, TraceRows};
use crate::workload::value;
use clock::Nanos;
use std::collections::HashSet;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The buffered rows of all clients of a thread. A replay that is this far behind takes no more rows until a client has
/// sent one.
const BUFFERED_MAX: usize = 16_384;
/// When the reader of the trace is behind, the replay polls it again after this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Values up to this length consist of digits, so that `incr` works on them. They contain too little to be verified.
const DIGITS_MAX: usize = 19;

/// A row that waits for its client.
#[derive(Debug)]
pub(crate) struct BufferedRow {
    pub(crate) operation: TraceOperation,
    pub(crate) key: Vec<u8>,
    /// The hash of the key, which is part of its values.
    pub(crate) name: u64,
    pub(crate) value_bytes: usize,
    pub(crate) expiry_s: u32,
    /// Whether values of the key can be verified against what the replay writes.
    pub(crate) is_checked: bool,
}

/// The rows of one thread.
#[derive(Debug)]
pub(crate) struct Replay {
    rows: TraceRows,
    start: Nanos,
    /// Whether rows are due as soon as their client can send them.
    is_unpaced: bool,
    clients: usize,
    buffered: usize,
    has_ended: bool,
    /// Keys whose values no longer are what a single row wrote.
    changed: HashSet<u64>,
}

/// The state of the next row of a trace.
#[derive(Debug)]
pub(crate) enum Due {
    /// It is due: its client, its time and the row.
    Row(usize, Nanos, BufferedRow),
    /// Nothing is due before this time.
    At(Nanos),
    /// The buffer is full until a client sends a row.
    Full,
    /// There are no more rows.
    Over,
}

impl Replay {
    /// Rows that are due from `start` on, for this many clients.
    pub(crate) fn new(rows: TraceRows, start: Nanos, is_unpaced: bool, clients: usize) -> Replay {
        Replay { rows, start, is_unpaced, clients, buffered: 0, has_ended: false, changed: HashSet::new() }
    }

    /// Whether rows have times of their own.
    pub(crate) fn is_paced(&self) -> bool {
        !self.is_unpaced
    }

    /// The row that is due now, or when to call again.
    pub(crate) fn next(&mut self, now: Nanos) -> Due {
        if self.buffered >= BUFFERED_MAX {
            return Due::Full;
        }
        let row = match self.rows.peek() {
            Next::Row(row) => row,
            Next::Pending => return Due::At(now + RETRY_INTERVAL),
            Next::End => {
                self.has_ended = true;
                return Due::Over;
            }
        };
        let due = if self.is_unpaced { now } else { Nanos(self.start.0.saturating_add(row.at_ns)) };
        if due > now {
            return Due::At(due);
        }
        let name = xxh3_64(row.key);
        use TraceOperation::{Append, Decr, Incr, Prepend};
        if matches!(row.operation, Append | Prepend | Incr | Decr) {
            self.changed.insert(name);
        }
        let buffered = BufferedRow {
            operation: row.operation,
            key: row.key.to_vec(),
            name,
            value_bytes: row.value_bytes as usize,
            expiry_s: row.expiry_s(),
            is_checked: self.changed.is_empty() || !self.changed.contains(&name),
        };
        // The low bits of the hash have chosen the thread.
        let client = (name >> 32) as usize % self.clients;
        self.rows.advance();
        self.buffered += 1;
        Due::Row(client, due, buffered)
    }

    /// Notes that buffered rows were sent or given up.
    pub(crate) fn rows_released(&mut self, rows: usize) {
        self.buffered -= rows;
    }

    /// Whether the last row has been sent.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.buffered == 0
    }
}

impl BufferedRow {
    /// Appends its value. It has the generator's usual format with its length as the version, so it can be verified to
    /// the byte.
    pub(crate) fn append_value(&self, out: &mut Vec<u8>) {
        if self.value_bytes > DIGITS_MAX {
            return value::make(self.name, self.value_bytes as u64, self.value_bytes, out);
        }
        out.extend((0..self.value_bytes).map(|at| b'1' + (self.name >> at) as u8 % 9));
    }
}

/// Whether a value that was read can be one that a replay wrote, by its length alone.
pub(crate) fn fits(data: &[u8]) -> bool {
    let length = data.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    !is_verified(data) || length == Some(data.len() as u64)
}

/// Whether a value of this length can be verified.
pub(crate) fn is_verified(data: &[u8]) -> bool {
    data.len() > DIGITS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::value::{Content, inspect};

    fn buffered(key: &[u8], value_bytes: usize) -> BufferedRow {
        let (operation, name) = (TraceOperation::Set, xxh3_64(key));
        BufferedRow { operation, key: key.to_vec(), name, value_bytes, expiry_s: 0, is_checked: true }
    }

    #[test]
    fn long_values_contain_their_key_and_length_and_short_ones_are_numbers() {
        for value_bytes in [20, 21, 64, 5000] {
            let buffered = buffered(b"some-key", value_bytes);
            let mut value = Vec::new();
            buffered.append_value(&mut value);
            assert_eq!(value.len(), value_bytes);
            assert!(fits(&value) && matches!(inspect(&value, buffered.name, value.len()), Content::Whole(_)));
            assert!(value_bytes == 20 || !fits(&value[..value_bytes - 1]), "a byte is missing");
            assert_eq!(inspect(&value, xxh3_64(b"another"), value.len()), Content::Wrong);
        }
        for value_bytes in 1..=DIGITS_MAX {
            let mut value = Vec::new();
            buffered(b"counter", value_bytes).append_value(&mut value);
            assert!(value.len() == value_bytes && value[0] != b'0' && value.iter().all(u8::is_ascii_digit));
            assert!(std::str::from_utf8(&value).unwrap().parse::<u64>().is_ok());
        }
    }
}
