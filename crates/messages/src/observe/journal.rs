//! Counts every request when it ends, by operation and status, and adds its times to histograms. Nothing takes a lock, so that scrapes of
//! the metrics delay no request.

use crate::database::error::{DatabaseError, one_line};
use crate::database::storage::{FAULT_LABELS, StorageFault};
use crate::observe::limits::{Limit, LimitCounts};
use crate::observe::record_file::RecordSink;
use crate::observe::stage_times::{OPERATION_LABELS, SERIES, StageTimes, Times};
use clock::{INTERVALS, Interval, Stage, StageClock};
use records::report;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The outcomes for a message whose lease, delay or expiry has ended: it is visible again, it moves to the dead-letter queue, it
/// is deleted, or it waits for the queue's backoff.
pub(crate) const DUE_OUTCOMES: [&str; 4] = ["visible", "dead_lettered", "deleted", "postponed"];
/// HTTP statuses are numbers from 100 to 599.
const STATUSES: usize = 500;
const STATUS_MIN: u16 = 100;

/// All counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// For each operation.
    pub(crate) times: Vec<[Times; SERIES]>,
    /// Operation, status and number of requests.
    pub(crate) requests: Vec<(&'static str, u16, u64)>,
    pub(crate) batches: u64,
    pub(crate) batched_requests: u64,
    pub(crate) connects: u64,
    pub(crate) connect_failures: u64,
    pub(crate) redelivery_failures: u64,
    pub(crate) table_errors: u64,
    pub(crate) storage_errors: [u64; FAULT_LABELS.len()],
    pub(crate) replication_timeouts: u64,
    /// Records dropped because the disk was too slow.
    pub(crate) records_dropped: u64,
    pub(crate) due: [u64; DUE_OUTCOMES.len()],
}

/// Counters and records of all requests.
#[derive(Debug)]
pub(crate) struct Journal {
    times: StageTimes,
    /// `[operation][status - 100]`.
    requests: Vec<[AtomicU64; STATUSES]>,
    batches: AtomicU64,
    batched_requests: AtomicU64,
    connects: AtomicU64,
    connect_failures: AtomicU64,
    /// Messages that the database refused to redeliver.
    redelivery_failures: AtomicU64,
    /// Batches of requests and rounds of background loops that failed because a privilege or a table is missing.
    table_errors: AtomicU64,
    /// Batches and rounds that failed because of the server's storage, by [`FAULT_LABELS`].
    storage_errors: [AtomicU64; FAULT_LABELS.len()],
    /// Batches whose commit waited too long for a synchronous standby.
    replication_timeouts: AtomicU64,
    /// Messages whose lease, delay or expiry has ended, by [`DUE_OUTCOMES`].
    due: [AtomicU64; DUE_OUTCOMES.len()],
    pub(crate) limits: Arc<LimitCounts>,
    pub(crate) rows: RecordSink,
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn add(count: &AtomicU64, number: u64) {
    count.fetch_add(number, Ordering::Relaxed);
}

/// Adds one, and returns the new number if it should be logged: ever more rarely, so that a long outage does not fill the log.
fn add_and_log(count: &AtomicU64) -> Option<u64> {
    Some(count.fetch_add(1, Ordering::Relaxed) + 1).filter(|number| number.is_power_of_two())
}

impl Journal {
    /// The connector to the database counts in the same `limits`.
    pub(crate) fn new(rows: RecordSink, limits: Arc<LimitCounts>) -> Journal {
        Journal {
            times: StageTimes::default(),
            requests: OPERATION_LABELS.iter().map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            batches: AtomicU64::default(),
            batched_requests: AtomicU64::default(),
            connects: AtomicU64::default(),
            connect_failures: AtomicU64::default(),
            redelivery_failures: AtomicU64::default(),
            table_errors: AtomicU64::default(),
            storage_errors: Default::default(),
            replication_timeouts: AtomicU64::default(),
            due: Default::default(),
            limits,
            rows,
        }
    }

    /// Counts a request whose clock has finished.
    pub(crate) fn end(&self, operation: &'static str, status: u16, clock: &StageClock) {
        let index = OPERATION_LABELS.iter().position(|name| *name == operation).unwrap_or(OPERATION_LABELS.len() - 1);
        self.count_request(index, status);
        self.times.add(index, clock);
    }

    /// Counts a request whose head was refused with this status. It has no stages.
    pub(crate) fn count_refused_head(&self, status: u16) {
        self.count_request(OPERATION_LABELS.len() - 1, status);
    }

    fn count_request(&self, operation: usize, status: u16) {
        let status = usize::from(status.saturating_sub(STATUS_MIN)).min(STATUSES - 1);
        add(&self.requests[operation][status], 1);
    }

    /// Counts the requests that one connection took together.
    pub(crate) fn count_batch(&self, requests: usize) {
        add(&self.batches, 1);
        add(&self.batched_requests, requests as u64);
    }

    /// A lane has connected again.
    pub(crate) fn count_connect(&self) {
        add(&self.connects, 1);
    }

    /// A connection could not be made, or broke.
    pub(crate) fn note_connect_failure(&self, reason: &str) {
        if let Some(number) = add_and_log(&self.connect_failures) {
            report(format_args!("waystage: messages: the database is unreachable (failure {number}): {reason}"));
        }
    }

    /// A statement failed because a privilege or a table is missing, or a table was changed.
    pub(crate) fn note_table_error(&self, reason: &str) {
        if let Some(number) = add_and_log(&self.table_errors) {
            report(format_args!("waystage: messages: the database refuses a statement (failure {number}): {reason}"));
        }
    }

    /// A statement failed because of the server's storage.
    pub(crate) fn note_storage_error(&self, fault: StorageFault, reason: &str) {
        if let Some(number) = add_and_log(&self.storage_errors[fault as usize]) {
            report(format_args!("waystage: messages: the database's storage fails (failure {number}): {reason}"));
        }
    }

    /// A round of a background loop has failed.
    pub(crate) fn note_loop_failure(&self, error: &DatabaseError) {
        if error.is_cancelled() {
            self.limits.reach(Limit::StatementTimeout);
        }
        match error.storage_fault() {
            Some(fault) => self.note_storage_error(fault, &one_line(error)),
            None if error.is_about_tables() => self.note_table_error(&error.to_string()),
            None => self.note_connect_failure(&one_line(error)),
        }
    }

    /// The database refuses to redeliver a message. The redelivery tries it again later.
    pub(crate) fn note_stuck_message(&self, queue: i32, id: i64, reason: &str) {
        if let Some(number) = add_and_log(&self.redelivery_failures) {
            report(format_args!(
                "waystage: messages: message {id} of queue number {queue} cannot be redelivered (failure {number}): {reason}"
            ));
        }
    }

    /// A commit waited too long for a synchronous standby.
    pub(crate) fn count_replication_timeout(&self) {
        add(&self.replication_timeouts, 1);
    }

    /// Counts messages whose lease, delay or expiry has ended, by the index of the outcome in [`DUE_OUTCOMES`].
    pub(crate) fn count_due(&self, to: usize, messages: u64) {
        add(&self.due[to], messages);
    }

    /// All counters. Requests that end meanwhile can be missing in some of them.
    pub(crate) fn counts(&self) -> Counts {
        let statuses = |(operation, counts): (&&'static str, &[AtomicU64; STATUSES])| {
            let numbers = counts.iter().map(read).zip(STATUS_MIN..).filter(|(number, _)| *number > 0);
            numbers.map(|(number, status)| (*operation, status, number)).collect::<Vec<_>>()
        };
        Counts {
            times: (0..OPERATION_LABELS.len()).map(|operation| self.times.of(operation)).collect(),
            requests: OPERATION_LABELS.iter().zip(&self.requests).flat_map(statuses).collect(),
            batches: read(&self.batches),
            batched_requests: read(&self.batched_requests),
            connects: read(&self.connects),
            connect_failures: read(&self.connect_failures),
            redelivery_failures: read(&self.redelivery_failures),
            table_errors: read(&self.table_errors),
            storage_errors: self.storage_errors.each_ref().map(read),
            replication_timeouts: read(&self.replication_timeouts),
            records_dropped: self.rows.dropped(),
            due: self.due.each_ref().map(read),
        }
    }
}

/// The intervals of a request here, with their indices. Messages are not routed, so that interval is left out.
pub(crate) fn intervals() -> impl Iterator<Item = (usize, &'static Interval)> {
    INTERVALS.iter().enumerate().filter(|(_, interval)| interval.to != Stage::Routed)
}

/// The header `Server-Timing` for a finished clock, in milliseconds.
pub(crate) fn server_timing(clock: &StageClock) -> Vec<u8> {
    let times_ns = clock.intervals_ns();
    let mut text = Vec::with_capacity(160);
    for (index, interval) in intervals() {
        put_ms(&mut text, interval.name, times_ns[index]);
        text.extend_from_slice(b", ");
    }
    put_ms(&mut text, "total", clock.total_ns());
    text
}

/// Without the standard formatting, because every reply has seven of these times. They took a tenth of the service's instructions.
fn put_ms(text: &mut Vec<u8>, name: &str, time_ns: u64) {
    let time_us = (time_ns + 500) / 1000;
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b";dur=");
    text.extend_from_slice(itoa::Buffer::new().format(time_us / 1000).as_bytes());
    let digit = |unit_us: u64| b"0123456789"[(time_us / unit_us % 10) as usize];
    text.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
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
        assert_eq!(String::from_utf8(server_timing(&clock)).unwrap(), expected);
        let journal = Journal::new(RecordSink::default(), Arc::default());
        journal.end("send", 201, &clock);
        let counts = journal.counts();
        assert_eq!(counts.requests, [("send", 201, 1)]);
        assert_eq!(counts.times[0][SERIES - 1].sum_ns, 12_456_789);
    }
}
