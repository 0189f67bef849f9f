//! The number of client connections, its limit, and what happened to them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The timeouts of a client connection, as in the label `timeout`.
pub(crate) const TIMEOUTS: [&str; 5] = ["idle", "head", "body", "unread", "rate"];
/// Indices into [`TIMEOUTS`].
pub(crate) const IDLE: usize = 0;
pub(crate) const HEAD: usize = 1;
pub(crate) const BODY: usize = 2;
pub(crate) const UNREAD: usize = 3;
pub(crate) const RATE: usize = 4;

/// Counters of client connections.
#[derive(Debug, Default)]
pub(crate) struct ClientConnections {
    max: u64,
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    tls_failed: AtomicU64,
    accept_pauses: AtomicU64,
    timed_out: [AtomicU64; TIMEOUTS.len()],
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientConnectionCounts {
    pub(crate) max: u64,
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) tls_failed: u64,
    pub(crate) accept_pauses: u64,
    pub(crate) timed_out: [u64; TIMEOUTS.len()],
}

/// An open connection. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(std::sync::Arc<ClientConnections>);

impl ClientConnections {
    pub(crate) fn new(max: usize) -> ClientConnections {
        ClientConnections { max: max as u64, ..ClientConnections::default() }
    }

    /// Counts a new connection, or returns none if the limit is reached.
    pub(crate) fn enter(self: &std::sync::Arc<ClientConnections>) -> Option<OpenConnection> {
        // No race: only the accept loop calls this.
        if self.open.load(Ordering::Relaxed) >= self.max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(OpenConnection(self.clone()))
    }

    pub(crate) fn note_tls_failure(&self) {
        self.tls_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// `accept` failed because no file descriptor was left.
    pub(crate) fn note_accept_pause(&self) {
        self.accept_pauses.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an expired timeout, by its index in [`TIMEOUTS`].
    pub(crate) fn note_timeout(&self, timeout: usize) {
        self.timed_out[timeout].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> ClientConnectionCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientConnectionCounts {
            max: self.max,
            open: get(&self.open),
            accepted: get(&self.accepted),
            refused: get(&self.refused),
            tls_failed: get(&self.tls_failed),
            accept_pauses: get(&self.accept_pauses),
            timed_out: std::array::from_fn(|timeout| get(&self.timed_out[timeout])),
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
