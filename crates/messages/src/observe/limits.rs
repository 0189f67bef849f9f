//! Counts how often a limit was reached. docs/messages-limits.md lists all limits, also those that other counters count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of what one request asks for. The request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestLimit {
    BatchLimit,
    LongPollLimit,
    DelayLimit,
    ExpiryLimit,
    LeaseLimit,
    /// A fixed limit of the interface.
    Interface,
}

/// The label `limit` of each [`RequestLimit`].
pub(crate) const REQUEST_LIMIT_LABELS: [&str; 6] =
    ["batch-limit", "long-poll-limit", "delay-limit", "expiry-limit", "lease-limit", "interface"];

/// A limit at which something is postponed, cut, dropped or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    StatementMessages,
    StatementBytes,
    /// Fetches that are left for the next batch.
    Memory,
    /// Fetches that wait until others of their client have ended.
    MemoryPerClient,
    StatementTimeout,
    LockTimeout,
    KeyLockTimeout,
    /// Requests that are not tried one by one any more.
    LockWaits,
    FetchTries,
    NackTries,
    AcknowledgementTries,
    QueueCount,
    QueueLookups,
    LowWaterMarks,
    Notifications,
    PeerQueues,
    /// Checks of the database and of its processes.
    Checks,
    Terminations,
    /// Replies to connections over `connections-max`.
    RefusalReplies,
}

/// The label `limit` of each [`Limit`].
pub(crate) const LIMIT_LABELS: [&str; 19] = [
    "statement-messages",
    "statement-bytes",
    "memory",
    "memory-per-client",
    "statement-timeout",
    "lock-timeout",
    "key-lock-timeout",
    "lock-waits",
    "fetch-tries",
    "nack-tries",
    "acknowledgement-tries",
    "queue-count",
    "queue-lookups",
    "low-water-marks",
    "notifications",
    "peer-queues",
    "checks",
    "terminations",
    "refusal-replies",
];

/// The counters of a service.
#[derive(Debug, Default)]
pub(crate) struct LimitCounts {
    refused: [AtomicU64; REQUEST_LIMIT_LABELS.len()],
    reached: [AtomicU64; LIMIT_LABELS.len()],
}

impl LimitCounts {
    /// A request was refused because of this limit.
    pub(crate) fn refuse(&self, limit: RequestLimit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// This limit was reached.
    pub(crate) fn reach(&self, limit: Limit) {
        self.reach_for(limit, 1);
    }

    /// This limit was reached for several requests, messages or queues.
    pub(crate) fn reach_for(&self, limit: Limit, number: usize) {
        self.reached[limit as usize].fetch_add(number as u64, Ordering::Relaxed);
    }

    /// The numbers of refused requests, in the order of [`REQUEST_LIMIT_LABELS`].
    pub(crate) fn refused(&self) -> [u64; REQUEST_LIMIT_LABELS.len()] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// How often each limit was reached, in the order of [`LIMIT_LABELS`].
    pub(crate) fn reached(&self) -> [u64; LIMIT_LABELS.len()] {
        self.reached.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_kind_has_the_last_label() {
        assert_eq!(REQUEST_LIMIT_LABELS[RequestLimit::Interface as usize..], ["interface"]);
        assert_eq!(LIMIT_LABELS[Limit::RefusalReplies as usize..], ["refusal-replies"]);
        let counts = LimitCounts::default();
        counts.reach_for(Limit::LockWaits, 3);
        counts.reach(Limit::LockWaits);
        counts.refuse(RequestLimit::LeaseLimit);
        assert_eq!((counts.reached().iter().sum::<u64>(), counts.reached()[7], counts.refused()[4]), (4, 4, 1));
    }
}
