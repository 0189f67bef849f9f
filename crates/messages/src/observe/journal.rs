//! Where every request ends: counted by operation and status, and its times put into histograms.

use crate::observe::record_file::Rows;
use clock::{INTERVALS, Interval, Stage, StageClock};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// Kinds of operation that are told apart.
pub(crate) const KINDS: [&str; 7] = ["send", "pop", "receive", "lease", "peek", "queues", "other"];
/// Where a message goes that is due: back to its queue, to that for dead letters, or away.
pub(crate) const MOVES: [&str; 3] = ["queue", "dead_letters", "nowhere"];
/// The whole time is kept beside the intervals.
pub(crate) const SERIES: usize = INTERVALS.len() + 1;
const LONGEST_NS: u64 = 600_000_000_000;
const DIGITS: u8 = 2;

/// Times of one kind of operation and one interval.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    pub(crate) histogram: Histogram<u64>,
    /// A histogram only knows it roughly.
    pub(crate) sum_ns: u64,
}

/// Everything that was counted.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// `[kind][interval]`; the last of each kind is the total.
    pub(crate) times: Vec<Vec<Times>>,
    /// Requests by kind and HTTP status.
    pub(crate) requests: BTreeMap<(&'static str, u16), u64>,
    pub(crate) batches: u64,
    pub(crate) batched_requests: u64,
    pub(crate) connects: u64,
    pub(crate) connect_failures: u64,
    /// Records that the disk was too slow for.
    pub(crate) records_dropped: u64,
    /// Messages that were due, by [`MOVES`].
    pub(crate) moved: [u64; MOVES.len()],
}

/// The book.
#[derive(Debug)]
pub(crate) struct Journal {
    counts: Mutex<Counts>,
    /// Where records go.
    pub(crate) rows: Rows,
}

impl Journal {
    /// An empty book.
    pub(crate) fn new(rows: Rows) -> Journal {
        #[allow(clippy::expect_used, reason = "the bounds are constants and legal")]
        let empty = || Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("legal bounds");
        let times = |_| (0..SERIES).map(|_| Times { histogram: empty(), sum_ns: 0 }).collect();
        Journal {
            counts: Mutex::new(Counts {
                times: KINDS.iter().map(times).collect(),
                requests: BTreeMap::new(),
                batches: 0,
                batched_requests: 0,
                connects: 0,
                connect_failures: 0,
                records_dropped: 0,
                moved: [0; MOVES.len()],
            }),
            rows,
        }
    }

    /// Ends a request whose clock is finished.
    pub(crate) fn end(&self, kind: &'static str, status: u16, clock: &StageClock) {
        let intervals = clock.intervals_ns().into_iter().chain([clock.total_ns()]);
        let kind_index = KINDS.iter().position(|name| *name == kind).unwrap_or(KINDS.len() - 1);
        let mut counts = self.lock();
        *counts.requests.entry((kind, status)).or_default() += 1;
        for (times, time_ns) in counts.times[kind_index].iter_mut().zip(intervals) {
            times.histogram.saturating_record(time_ns);
            times.sum_ns += time_ns;
        }
    }

    /// Notes what one connection does at once.
    pub(crate) fn count_batch(&self, requests: usize) {
        let mut counts = self.lock();
        counts.batches += 1;
        counts.batched_requests += requests as u64;
    }

    /// A lane has a connection again.
    pub(crate) fn count_connect(&self) {
        self.lock().connects += 1;
    }

    /// A connection could not be made or did not hold.
    pub(crate) fn note_connect_failure(&self, reason: &str) {
        let first = {
            let mut counts = self.lock();
            counts.connect_failures += 1;
            counts.connect_failures
        };
        // A database that is down for long shall not fill a log.
        if first.is_power_of_two() {
            eprintln!("waystage: messages: the database cannot be reached (failure {first}): {reason}");
        }
    }

    /// Notes messages that were due, by [`MOVES`].
    pub(crate) fn count_moved(&self, to: usize, messages: u64) {
        self.lock().moved[to] += messages;
    }

    /// A copy.
    pub(crate) fn counts(&self) -> Counts {
        let records_dropped = self.rows.dropped();
        Counts { records_dropped, ..self.lock().clone() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The intervals that requests have here, with their place; nothing is routed.
pub(crate) fn intervals() -> impl Iterator<Item = (usize, &'static Interval)> {
    INTERVALS.iter().enumerate().filter(|(_, interval)| interval.to != Stage::Routed)
}

/// The header `Server-Timing` for a finished clock, in milliseconds.
pub(crate) fn server_timing(clock: &StageClock) -> String {
    let times_ns = clock.intervals_ns();
    let mut text = String::with_capacity(128);
    for (index, interval) in intervals() {
        put_ms(&mut text, interval.name, times_ns[index]);
        text.push_str(", ");
    }
    put_ms(&mut text, "total", clock.total_ns());
    text
}

/// On every reply, so without going through floating point.
fn put_ms(text: &mut String, name: &str, time_ns: u64) {
    let time_us = (time_ns + 500) / 1000;
    // Writing into a string cannot fail.
    let _ = write!(text, "{name};dur={}.{:03}", time_us / 1000, time_us % 1000);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::Nanos;

    #[test]
    fn the_header_names_every_interval_but_the_one_that_is_not_passed() {
        let mut clock = StageClock::started(Nanos(1_000_000));
        clock.stamp(Stage::Parsed, Nanos(1_500_000));
        clock.stamp(Stage::Replied, Nanos(4_000_000));
        clock.finish();
        let expected = "parse;dur=0.500, admit;dur=0.000, queue;dur=0.000, send;dur=0.000, backend;dur=0.000, \
                        reply;dur=2.500, total;dur=3.000";
        assert_eq!(server_timing(&clock), expected);
        let journal = Journal::new(Rows::default());
        journal.end("send", 201, &clock);
        let counts = journal.counts();
        assert_eq!(counts.requests[&("send", 201)], 1);
        assert_eq!(counts.times[0][SERIES - 1].sum_ns, 3_000_000);
    }
}
