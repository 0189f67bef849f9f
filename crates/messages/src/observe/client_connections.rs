//! Counts of the clients' connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a client's time was up, as in the label `what`.
pub(crate) const LATE: [&str; 4] = ["idle", "head", "body", "unread"];
/// Places among them.
pub(crate) const IDLE: usize = 0;
pub(crate) const HEAD: usize = 1;
pub(crate) const BODY: usize = 2;
pub(crate) const UNREAD: usize = 3;

/// What came, what is there, what was refused.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    max: u64,
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    tls_failed: AtomicU64,
    accept_pauses: AtomicU64,
    late: [AtomicU64; LATE.len()],
}

/// A copy of the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionCounts {
    pub(crate) max: u64,
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) tls_failed: u64,
    pub(crate) accept_pauses: u64,
    pub(crate) late: [u64; LATE.len()],
}

/// An open connection; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Open(std::sync::Arc<Connections>);

impl Connections {
    /// So many at most.
    pub(crate) fn new(max: usize) -> Connections {
        Connections { max: max as u64, ..Connections::default() }
    }

    /// A new connection; none when there are too many.
    pub(crate) fn enter(self: &std::sync::Arc<Connections>) -> Option<Open> {
        // Only the loop that accepts comes here.
        if self.open.load(Ordering::Relaxed) >= self.max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(Open(self.clone()))
    }

    /// TLS failed.
    pub(crate) fn note_tls_failure(&self) {
        self.tls_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The kernel had no descriptor left.
    pub(crate) fn note_accept_pause(&self) {
        self.accept_pauses.fetch_add(1, Ordering::Relaxed);
    }

    /// A client's time was up, by [`LATE`].
    pub(crate) fn note_late(&self, what: usize) {
        self.late[what].fetch_add(1, Ordering::Relaxed);
    }

    /// A copy.
    pub(crate) fn counts(&self) -> ConnectionCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConnectionCounts {
            max: self.max,
            open: get(&self.open),
            accepted: get(&self.accepted),
            refused: get(&self.refused),
            tls_failed: get(&self.tls_failed),
            accept_pauses: get(&self.accept_pauses),
            late: std::array::from_fn(|what| get(&self.late[what])),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
