//! Counts every request when it ends, by operation and status, and adds its times to histograms.

use crate::database::error::{DatabaseError, one_line};
use crate::database::storage::{FAULT_LABELS, StorageFault};
use crate::observe::record_file::RecordSink;
use clock::{INTERVALS, Interval, Stage, StageClock};
use hdrhistogram::Histogram;
use records::report;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The values of the label `operation`.
pub(crate) const OPERATION_LABELS: [&str; 7] = ["send", "pop", "receive", "lease", "peek", "queues", "other"];
/// The outcomes for a message whose lease, delay or expiry has ended: it is visible again, it moves to the dead-letter queue, it
/// is deleted, or it waits for the queue's backoff.
pub(crate) const DUE_OUTCOMES: [&str; 4] = ["visible", "dead_lettered", "deleted", "postponed"];
/// The intervals of a request, and its total time.
pub(crate) const SERIES: usize = INTERVALS.len() + 1;
const LONGEST_NS: u64 = 600_000_000_000;
const DIGITS: u8 = 2;

/// Times of one operation in one interval.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    pub(crate) histogram: Histogram<u64>,
    /// The exact sum. The histogram has rounded values.
    pub(crate) sum_ns: u64,
}

/// All counters.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// `[operation][interval]`; the last interval is the total time.
    pub(crate) times: Vec<Vec<Times>>,
    pub(crate) requests: BTreeMap<(&'static str, u16), u64>,
    pub(crate) batches: u64,
    pub(crate) batched_requests: u64,
    pub(crate) connects: u64,
    pub(crate) connect_failures: u64,
    /// Messages that the database refused to redeliver.
    pub(crate) redelivery_failures: u64,
    /// Batches of requests and rounds of background loops that failed because a privilege or a table is missing.
    pub(crate) table_errors: u64,
    /// Batches and rounds that failed because of the server's storage, by [`FAULT_LABELS`].
    pub(crate) storage_errors: [u64; FAULT_LABELS.len()],
    /// Batches whose commit waited too long for a synchronous standby.
    pub(crate) replication_timeouts: u64,
    /// Records dropped because the disk was too slow.
    pub(crate) records_dropped: u64,
    /// Messages whose lease, delay or expiry has ended, by [`DUE_OUTCOMES`].
    pub(crate) due: [u64; DUE_OUTCOMES.len()],
}

/// Counters and records of all requests.
#[derive(Debug)]
pub(crate) struct Journal {
    counts: Mutex<Counts>,
    pub(crate) rows: RecordSink,
}

impl Journal {
    pub(crate) fn new(rows: RecordSink) -> Journal {
        #[allow(clippy::expect_used, reason = "the bounds are constants and legal")]
        let empty = || Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("legal bounds");
        let times = |_| (0..SERIES).map(|_| Times { histogram: empty(), sum_ns: 0 }).collect();
        Journal {
            counts: Mutex::new(Counts {
                times: OPERATION_LABELS.iter().map(times).collect(),
                requests: BTreeMap::new(),
                batches: 0,
                batched_requests: 0,
                connects: 0,
                connect_failures: 0,
                redelivery_failures: 0,
                table_errors: 0,
                storage_errors: [0; FAULT_LABELS.len()],
                replication_timeouts: 0,
                records_dropped: 0,
                due: [0; DUE_OUTCOMES.len()],
            }),
            rows,
        }
    }

    /// Counts a request whose clock has finished.
    pub(crate) fn end(&self, operation: &'static str, status: u16, clock: &StageClock) {
        let intervals = clock.intervals_ns().into_iter().chain([clock.total_ns()]);
        let index = OPERATION_LABELS.iter().position(|name| *name == operation).unwrap_or(OPERATION_LABELS.len() - 1);
        let mut counts = self.lock();
        *counts.requests.entry((operation, status)).or_default() += 1;
        for (times, time_ns) in counts.times[index].iter_mut().zip(intervals) {
            times.histogram.saturating_record(time_ns);
            times.sum_ns += time_ns;
        }
    }

    /// Counts a request whose head was refused with this status. It has no stages.
    pub(crate) fn count_refused_head(&self, status: u16) {
        *self.lock().requests.entry(("other", status)).or_default() += 1;
    }

    /// Counts the requests that one connection took together.
    pub(crate) fn count_batch(&self, requests: usize) {
        let mut counts = self.lock();
        counts.batches += 1;
        counts.batched_requests += requests as u64;
    }

    /// A lane has connected again.
    pub(crate) fn count_connect(&self) {
        self.lock().connects += 1;
    }

    /// A connection could not be made, or broke.
    pub(crate) fn note_connect_failure(&self, reason: &str) {
        let first = {
            let mut counts = self.lock();
            counts.connect_failures += 1;
            counts.connect_failures
        };
        // Logs ever more rarely, so that a long outage does not fill the log.
        if first.is_power_of_two() {
            report(format_args!("waystage: messages: the database is unreachable (failure {first}): {reason}"));
        }
    }

    /// A statement failed because a privilege or a table is missing, or a table was changed.
    pub(crate) fn note_table_error(&self, reason: &str) {
        let number = {
            let mut counts = self.lock();
            counts.table_errors += 1;
            counts.table_errors
        };
        if number.is_power_of_two() {
            report(format_args!("waystage: messages: the database refuses a statement (failure {number}): {reason}"));
        }
    }

    /// A statement failed because of the server's storage.
    pub(crate) fn note_storage_error(&self, fault: StorageFault, reason: &str) {
        let number = {
            let count = &mut self.lock().storage_errors[fault as usize];
            *count += 1;
            *count
        };
        if number.is_power_of_two() {
            report(format_args!("waystage: messages: the database's storage fails (failure {number}): {reason}"));
        }
    }

    /// A round of a background loop has failed.
    pub(crate) fn note_loop_failure(&self, error: &DatabaseError) {
        match error.storage_fault() {
            Some(fault) => self.note_storage_error(fault, &one_line(error)),
            None if error.is_about_tables() => self.note_table_error(&error.to_string()),
            None => self.note_connect_failure(&one_line(error)),
        }
    }

    /// The database refuses to redeliver a message. The redelivery tries it again later.
    pub(crate) fn note_stuck_message(&self, queue: i32, id: i64, reason: &str) {
        let number = {
            let mut counts = self.lock();
            counts.redelivery_failures += 1;
            counts.redelivery_failures
        };
        if number.is_power_of_two() {
            report(format_args!(
                "waystage: messages: message {id} of queue number {queue} cannot be redelivered (failure {number}): {reason}"
            ));
        }
    }

    /// A commit waited too long for a synchronous standby.
    pub(crate) fn count_replication_timeout(&self) {
        self.lock().replication_timeouts += 1;
    }

    /// Counts messages whose lease, delay or expiry has ended, by the index of the outcome in [`DUE_OUTCOMES`].
    pub(crate) fn count_due(&self, to: usize, messages: u64) {
        self.lock().due[to] += messages;
    }

    pub(crate) fn counts(&self) -> Counts {
        let records_dropped = self.rows.dropped();
        Counts { records_dropped, ..self.lock().clone() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The intervals of a request here, with their indices. Messages are not routed, so that interval is left out.
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

/// Without the standard formatting, because every reply has seven of these times. They took a tenth of the service's instructions.
fn put_ms(text: &mut String, name: &str, time_ns: u64) {
    let time_us = (time_ns + 500) / 1000;
    let mut digits = itoa::Buffer::new();
    text.push_str(name);
    text.push_str(";dur=");
    text.push_str(digits.format(time_us / 1000));
    text.push('.');
    // The leading one keeps the zeros of the fraction.
    text.push_str(&digits.format(1000 + time_us % 1000)[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::Nanos;

    #[test]
    fn the_header_names_every_interval_except_those_not_passed() {
        let mut clock = StageClock::started(Nanos(1_000_000));
        clock.stamp(Stage::Parsed, Nanos(1_500_000));
        clock.stamp(Stage::Replied, Nanos(13_456_789));
        clock.finish();
        let expected = "parse;dur=0.500, admit;dur=0.000, queue;dur=0.000, send;dur=0.000, backend;dur=0.000, \
                        reply;dur=11.957, total;dur=12.457";
        assert_eq!(server_timing(&clock), expected);
        let journal = Journal::new(RecordSink::default());
        journal.end("send", 201, &clock);
        let counts = journal.counts();
        assert_eq!(counts.requests[&("send", 201)], 1);
        assert_eq!(counts.times[0][SERIES - 1].sum_ns, 12_456_789);
    }
}
