//! The state that a thread which simulates shares with the one that waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether replications must stop, and how many requests they have completed, including those of warm-ups.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    stop: AtomicBool,
    completed: AtomicU64,
}

impl Watch {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn restart(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, requests: u64) {
        self.completed.fetch_add(requests, Ordering::Relaxed);
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }
}
