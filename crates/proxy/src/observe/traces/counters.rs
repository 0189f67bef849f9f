//! What is known about the spans of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The event loops count what is dropped; the thread that sends counts everything else.
#[derive(Debug, Default)]
pub(crate) struct TraceCounters {
    /// Requests whose spans a collector has accepted.
    pub(crate) exported: AtomicU64,
    /// Requests for which the queue had no room.
    pub(crate) dropped: AtomicU64,
    /// Requests whose spans were given up.
    pub(crate) failed: AtomicU64,
    /// Spans that a collector has reported as rejected.
    pub(crate) rejected_spans: AtomicU64,
    /// Attempts to send that failed.
    pub(crate) failed_attempts: AtomicU64,
    /// Why the last attempt failed, for the log.
    problem: Mutex<String>,
}

impl TraceCounters {
    /// Adds the counts of another configuration.
    pub(crate) fn add(&self, other: &TraceCounters) {
        let TraceCounters { exported, dropped, failed, rejected_spans, failed_attempts, problem: _ } = other;
        for (to, from) in [
            (&self.exported, exported),
            (&self.dropped, dropped),
            (&self.failed, failed),
            (&self.rejected_spans, rejected_spans),
            (&self.failed_attempts, failed_attempts),
        ] {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Counts an attempt that failed for this reason.
    #[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "nothing is sent"))]
    pub(crate) fn attempt_failed(&self, reason: String) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        self.failed_attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// Why the last attempt failed.
    pub(crate) fn problem(&self) -> String {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
