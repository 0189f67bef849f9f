//! Connections to addresses that a backend has left, because its name resolves to another one. They accept no requests, and close
//! when their requests in flight are answered.

use crate::path::backend::connection::BackendConnection;
use crate::path::jobs::AnsweredJobs;
use clock::{Clock, Nanos};
use net::{Buffers, Poller, Ready, Token};
use records::Outcome;
use slab::Slab;

/// The lowest token of a draining connection. No valid configuration has as many numbered connections.
const FIRST: usize = 1 << 19;

/// The draining connections. There are few, and usually none.
#[derive(Debug, Default)]
pub(crate) struct DrainingConnections {
    list: Slab<BackendConnection>,
}

impl DrainingConnections {
    /// Whether a token belongs to a draining connection.
    pub(crate) fn owns(token: Token) -> bool {
        token.0 >= FIRST
    }

    /// Adds a connection.
    pub(crate) fn add(
        &mut self,
        mut backend: BackendConnection,
        poller: &Poller,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) {
        let entry = self.list.vacant_entry();
        if !backend.set_token(poller, Token(FIRST + entry.key())) {
            backend.close(Outcome::BackendLost, answered, now);
        }
        entry.insert(backend);
    }

    /// Records readiness.
    pub(crate) fn on_ready(&mut self, event: Ready, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if let Some(backend) = self.list.get_mut(event.token.0 - FIRST) {
            backend.on_ready(event, answered, now);
        }
    }

    /// Reads from the readable connections.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        for (_, backend) in self.list.iter_mut().filter(|(_, backend)| backend.is_readable()) {
            backend.receive(buffers, answered, clock);
        }
    }

    /// Times out where that is due.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        for (_, backend) in self.list.iter_mut().filter(|(_, backend)| backend.deadline() <= now) {
            backend.tick(poller, answered, now);
        }
    }

    /// The time of the next timeout.
    pub(crate) fn deadline(&self) -> Nanos {
        self.list.iter().map(|(_, backend)| backend.deadline()).min().unwrap_or(Nanos::NEVER)
    }

    /// Writes the requests that are left.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        for (_, backend) in &mut self.list {
            backend.flush(answered, clock);
        }
    }

    /// Whether a connection may have more to read than its turn allowed.
    pub(crate) fn is_readable(&self) -> bool {
        self.list.iter().any(|(_, backend)| backend.is_readable())
    }

    /// Publishes the gauges, and removes the connections that have drained.
    pub(crate) fn end_turn(&mut self) {
        self.list.retain(|_, backend| {
            backend.publish();
            !backend.is_drained()
        });
    }

    /// Closes every connection, and fails all requests in flight.
    pub(crate) fn close(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        for (_, backend) in &mut self.list {
            backend.close(Outcome::BackendLost, answered, now);
        }
    }
}
