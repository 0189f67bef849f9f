//! Collects rows into pieces, splits them by key among the threads, and sets their times. Knows nothing of lines and
//! threads.
//!
//! Timestamps are whole seconds. To spread the rows of a second evenly, their number must be known, so a piece is then
//! a whole second. Otherwise it ends after some thousand rows.

use super::config::{Timing, TraceConfig, WithinSecond};
use super::parse::ParsedRow;
use super::rows::{Piece, Stored};
use xxhash_rust::xxh3::xxh3_64;

/// Rows of a piece that need not be a whole second.
const PIECE_ROWS: usize = 8192;
/// Rows of a second that can be spread over it. They are kept in memory, together with two more seconds.
pub(super) const SECOND_ROWS_MAX: usize = 1 << 21;
const SECOND_NS: u64 = 1_000_000_000;

/// Collects rows for all threads.
#[derive(Debug)]
pub(super) struct Pieces {
    timing: Timing,
    /// Whether a piece is a whole second.
    is_second: bool,
    /// Rows that may still be handed out.
    rows_left: u64,
    rows: usize,
    /// The timestamp of the first row.
    first_ns: Option<u64>,
    /// The second of the collected rows.
    second: u64,
    /// Whether their timestamps have a fraction.
    has_fraction: bool,
    by_thread: Vec<Piece>,
}

/// The thread for the rows of a key. It is the same for all rows, so they keep their order.
pub(super) fn thread_of(key: &[u8], threads: usize) -> usize {
    (xxh3_64(key) % threads as u64) as usize
}

impl Pieces {
    pub(super) fn new(config: &TraceConfig, threads: usize) -> Pieces {
        Pieces {
            timing: config.timing,
            is_second: config.within_second == WithinSecond::Spread && config.timing != Timing::Max,
            rows_left: config.rows_max.unwrap_or(u64::MAX),
            rows: 0,
            first_ns: None,
            second: 0,
            has_fraction: false,
            by_thread: (0..threads).map(|_| Piece::default()).collect(),
        }
    }

    /// Whether to hand out the collected rows before taking a row with this timestamp.
    pub(super) fn is_whole(&self, timestamp_ns: u64) -> bool {
        if self.is_second {
            return self.rows > 0 && timestamp_ns / SECOND_NS != self.second;
        }
        self.rows >= PIECE_ROWS || self.rows as u64 >= self.rows_left
    }

    /// Whether the second has too many rows to be kept.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_second && self.rows > SECOND_ROWS_MAX
    }

    /// Whether as many rows have been handed out as allowed.
    pub(super) fn is_enough(&self) -> bool {
        self.rows_left == 0
    }

    /// Adds a row. If pieces are whole seconds, it must be of the same second as the rows before it.
    pub(super) fn take(&mut self, row: &ParsedRow<'_>) {
        let first_ns = *self.first_ns.get_or_insert(row.timestamp_ns);
        self.second = row.timestamp_ns / SECOND_NS;
        self.has_fraction |= row.has_fraction;
        let thread = thread_of(row.key, self.by_thread.len());
        let piece = &mut self.by_thread[thread];
        piece.rows.push(Stored {
            at_ns: row.timestamp_ns - first_ns,
            client: row.client,
            key_start: piece.keys.len() as u32,
            order: self.rows as u32,
            value_bytes: row.value_bytes,
            ttl_s: row.ttl_s,
            key_bytes: row.key.len() as u8,
            operation: row.operation,
        });
        piece.keys.extend_from_slice(row.key);
        self.rows += 1;
    }

    /// Sets the times of the collected rows and returns one piece for each thread, to be taken or cleared. Rows above
    /// the allowed number are dropped.
    pub(super) fn finish(&mut self) -> &mut [Piece] {
        let spreads = self.is_second && !self.has_fraction;
        let begin_ns = (self.second * SECOND_NS).saturating_sub(self.first_ns.unwrap_or_default());
        for piece in &mut self.by_thread {
            let kept = piece.rows.partition_point(|row| u64::from(row.order) < self.rows_left);
            piece.rows.truncate(kept);
            for row in &mut piece.rows {
                if spreads {
                    row.at_ns = begin_ns + u64::from(row.order) * SECOND_NS / self.rows as u64;
                }
                row.at_ns = self.timing.replayed_ns(row.at_ns);
            }
        }
        self.rows_left = self.rows_left.saturating_sub(self.rows as u64);
        (self.rows, self.has_fraction) = (0, false);
        &mut self.by_thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::trace::parse::parse;

    /// The times of the rows with these timestamps, in order.
    fn times(config: &TraceConfig, timestamps: &[&str]) -> Vec<u64> {
        let mut pieces = Pieces::new(config, 1);
        let mut found = Vec::new();
        let mut collect = |pieces: &mut Pieces| {
            let piece = &mut pieces.finish()[0];
            found.extend(piece.rows.iter().map(|row| row.at_ns));
            piece.clear();
        };
        for timestamp in timestamps {
            let line = format!("{timestamp},k,1,0,0,get,0");
            let row = parse(line.as_bytes(), 1).unwrap();
            if pieces.is_whole(row.timestamp_ns) {
                collect(&mut pieces);
            }
            if pieces.is_enough() {
                break;
            }
            pieces.take(&row);
        }
        collect(&mut pieces);
        found
    }

    #[test]
    fn rows_of_a_second_are_spread_over_it() {
        let config = TraceConfig::new("t");
        let timestamps = ["7", "7", "7", "7", "9", "9", "10"];
        let quarters = [0, 250_000_000, 500_000_000, 750_000_000, 2_000_000_000, 2_500_000_000, 3_000_000_000];
        assert_eq!(times(&config, &timestamps), quarters);
        let twice = TraceConfig { timing: Timing::Scaled(2.0), ..config.clone() };
        assert_eq!(times(&twice, &timestamps), quarters.map(|at| at / 2));
        let as_recorded = TraceConfig { within_second: WithinSecond::AsRecorded, ..config.clone() };
        let recorded = [0, 0, 0, 0, 2_000_000_000, 2_000_000_000, 3_000_000_000];
        assert_eq!(times(&as_recorded, &timestamps), recorded);
        assert_eq!(times(&TraceConfig { timing: Timing::Max, ..config }, &timestamps), [0; 7]);
    }

    #[test]
    fn timestamps_with_fractions_are_kept() {
        let timestamps = ["7.5", "7.5", "7.75", "8", "8", "9", "9.25"];
        let expected = [0, 0, 250_000_000, 500_000_000, 1_000_000_000, 1_500_000_000, 1_750_000_000];
        assert_eq!(times(&TraceConfig::new("t"), &timestamps), expected);
    }

    #[test]
    fn the_last_second_of_a_piece_keeps_its_pace() {
        let config = TraceConfig { rows_max: Some(3), ..TraceConfig::new("t") };
        let expected = [0, 1_000_000_000, 1_250_000_000];
        assert_eq!(times(&config, &["0", "1", "1", "1", "1", "2"]), expected);
        let as_recorded = TraceConfig { within_second: WithinSecond::AsRecorded, ..config };
        assert_eq!(times(&as_recorded, &["0", "1", "1", "1", "1", "2"]), [0, 1_000_000_000, 1_000_000_000]);
    }
}
