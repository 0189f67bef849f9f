//! Connections to addresses at which a backend is no more: they take nothing, and end when what they wait for has come.

use crate::path::backend::connection::BackendConnection;
use crate::path::jobs::AnsweredJobs;
use clock::{Clock, Nanos};
use net::{Buffers, Poller, Ready, Token};
use records::Outcome;
use slab::Slab;

/// Tokens from here on, up to the loop's own: more than the numbered connections of any configuration that passes its check.
const FIRST: usize = 1 << 19;

/// The connections; there are few, and seldom any.
#[derive(Debug, Default)]
pub(crate) struct DrainingConnections {
    list: Slab<BackendConnection>,
}

impl DrainingConnections {
    /// Whether a token is one of theirs.
    pub(crate) fn owns(token: Token) -> bool {
        token.0 >= FIRST
    }

    /// Takes one in.
    pub(crate) fn add(
        &mut self,
        mut backend: BackendConnection,
        poller: &Poller,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) {
        let entry = self.list.vacant_entry();
        if !backend.rename(poller, Token(FIRST + entry.key())) {
            backend.close(Outcome::BackendLost, answered, now);
        }
        entry.insert(backend);
    }

    /// Takes note of readiness.
    pub(crate) fn on_ready(&mut self, event: Ready, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if let Some(backend) = self.list.get_mut(event.token.0 - FIRST) {
            backend.on_ready(event, answered, now);
        }
    }

    /// Reads from those that may have something.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        for (_, backend) in self.list.iter_mut().filter(|(_, backend)| backend.is_readable()) {
            backend.receive(buffers, answered, clock);
        }
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        for (_, backend) in self.list.iter_mut().filter(|(_, backend)| backend.deadline() <= now) {
            backend.tick(poller, answered, now);
        }
    }

    /// When something must be done although nothing becomes ready.
    pub(crate) fn deadline(&self) -> Nanos {
        self.list.iter().map(|(_, backend)| backend.deadline()).min().unwrap_or(Nanos::NEVER)
    }

    /// Writes what has gathered.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        for (_, backend) in &mut self.list {
            backend.flush(answered, clock);
        }
    }

    /// Whether one may have more to read than its turn allowed.
    pub(crate) fn is_readable(&self) -> bool {
        self.list.iter().any(|(_, backend)| backend.is_readable())
    }

    /// Publishes the gauges, and lets go of those that are over.
    pub(crate) fn end_turn(&mut self) {
        self.list.retain(|_, backend| {
            backend.publish();
            !backend.is_over()
        });
    }

    /// Ends every connection, and with it what waits on it.
    pub(crate) fn close(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        for (_, backend) in &mut self.list {
            backend.close(Outcome::BackendLost, answered, now);
        }
    }
}
