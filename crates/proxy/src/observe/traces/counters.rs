//! What is known about the spans of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The event loops count what is queued and dropped; the thread that sends counts everything else.
#[derive(Debug, Default)]
pub(crate) struct TraceCounters {
    /// Requests that were put into the queue.
    pub(crate) queued: AtomicU64,
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
    /// Whether all requests of the queue are counted, because nobody waits for the thread any more.
    is_closed: Mutex<bool>,
}

impl TraceCounters {
    /// Adds the counts of another configuration.
    pub(crate) fn add(&self, other: &TraceCounters) {
        let TraceCounters { queued, exported, dropped, failed, rejected_spans, failed_attempts, .. } = other;
        for (to, from) in [
            (&self.queued, queued),
            (&self.exported, exported),
            (&self.dropped, dropped),
            (&self.failed, failed),
            (&self.rejected_spans, rejected_spans),
            (&self.failed_attempts, failed_attempts),
        ] {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Counts the requests of a message that was delivered or given up. Returns false if they are counted already.
    #[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "nothing is sent"))]
    pub(crate) fn finish(&self, requests: u64, is_delivered: bool) -> bool {
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_closed {
            let counter = if is_delivered { &self.exported } else { &self.failed };
            counter.fetch_add(requests, Ordering::Relaxed);
        }
        !*is_closed
    }

    /// Whether the requests that are left are counted already.
    #[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "nothing is sent"))]
    pub(crate) fn is_closed(&self) -> bool {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts all requests that are left as given up. The event loops have ended.
    pub(crate) fn close(&self) {
        let mut is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let [queued, exported, failed] =
            [&self.queued, &self.exported, &self.failed].map(|counter| counter.load(Ordering::Relaxed));
        self.failed.fetch_add(queued.saturating_sub(exported + failed), Ordering::Relaxed);
        *is_closed = true;
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
