//! All connections of one loop to its backends, numbered, and which of them something has happened to in this turn.
//! Only those are looked at, so that a turn costs what is going on, not how many connections there are.
//! Knows no queue and no slot: whoever sends names the connection.

use crate::path::backend::connection::BackendConnection;
use crate::path::backend::draining::DrainingConnections;
use crate::path::backend::match_reply::Expect;
use crate::path::job::LegRef;
use crate::path::jobs::AnsweredJobs;
use clock::{Clock, Nanos};
use net::{Buffers, Endpoint, Poller, Ready};
use records::Outcome;

/// The connections.
#[derive(Debug)]
pub(crate) struct Connections {
    list: Vec<BackendConnection>,
    /// Those to addresses at which their backend is no more.
    leaving: DrainingConnections,
    /// Numbers of the connections to look at, each once.
    active: Vec<usize>,
    is_active: Vec<bool>,
    /// Nothing is due before.
    next_due: Nanos,
}

impl Connections {
    /// These connections, which are opened in the first turn. A connection's number is its token.
    pub(crate) fn new(list: Vec<BackendConnection>) -> Connections {
        let is_active = vec![false; list.len()];
        Connections {
            list,
            leaving: DrainingConnections::default(),
            active: Vec::new(),
            is_active,
            next_due: Nanos::UNSET,
        }
    }

    /// The connection with this number.
    pub(crate) fn get(&self, connection: usize) -> &BackendConnection {
        &self.list[connection]
    }

    /// The connections that something has happened to since the last turn ended.
    pub(crate) fn active(&self) -> &[usize] {
        &self.active
    }

    fn activate(&mut self, connection: usize) {
        if !std::mem::replace(&mut self.is_active[connection], true) {
            self.active.push(connection);
        }
    }

    /// Takes note of readiness; the reading is done in the loop's turn.
    pub(crate) fn on_ready(&mut self, event: Ready, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if DrainingConnections::owns(event.token) {
            return self.leaving.on_ready(event, answered, now);
        }
        let connection = event.token.0;
        self.list[connection].on_ready(event, answered, now);
        self.activate(connection);
        self.note_due(connection);
    }

    /// Reads from those that may have something.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        for at in 0..self.active.len() {
            let connection = self.active[at];
            let backend = &mut self.list[connection];
            if !backend.is_readable() {
                continue;
            }
            let had_answered = backend.has_answered();
            backend.receive(buffers, answered, clock);
            if backend.has_answered() && !had_answered {
                self.retry_others(connection);
            }
            self.note_due(connection);
        }
        self.leaving.receive(buffers, answered, clock);
    }

    /// Takes all connections to a backend to another address. What is in flight is still answered by the old one.
    pub(crate) fn move_to(
        &mut self,
        backend: u16,
        endpoint: &Endpoint,
        poller: &Poller,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) {
        for connection in 0..self.list.len() {
            if self.list[connection].index() == backend {
                if let Some(old) = self.list[connection].move_to(endpoint.clone(), poller, answered, now) {
                    self.leaving.add(old, poller, answered, now);
                }
                self.activate(connection);
                self.note_due(connection);
            }
        }
        self.next_due = self.next_due.min(self.leaving.deadline());
    }

    /// A connection has answered its first request: others to this backend need not wait out their pauses.
    fn retry_others(&mut self, of_use: usize) {
        let index = self.list[of_use].index();
        for connection in (0..self.list.len()).filter(|&other| other != of_use) {
            if self.list[connection].index() == index {
                self.list[connection].retry_at_once();
                self.note_due(connection);
            }
        }
    }

    /// A connection was late: the idle others to this backend must show that it still answers.
    fn doubt_others(&mut self, late: usize, now: Nanos) {
        let index = self.list[late].index();
        for connection in (0..self.list.len()).filter(|&other| other != late) {
            if self.list[connection].index() == index {
                self.list[connection].doubt(now);
                self.activate(connection);
                self.note_due(connection);
            }
        }
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if self.next_due > now {
            return;
        }
        self.leaving.tick(poller, answered, now);
        self.next_due = self.leaving.deadline();
        for connection in 0..self.list.len() {
            if self.list[connection].deadline() <= now {
                self.activate(connection);
                if self.list[connection].tick(poller, answered, now) {
                    self.doubt_others(connection, now);
                }
            }
            self.note_due(connection);
        }
    }

    /// When something must be done although nothing becomes ready; or earlier, never later.
    pub(crate) fn deadline(&self) -> Nanos {
        self.next_due
    }

    fn note_due(&mut self, connection: usize) {
        self.next_due = self.next_due.min(self.list[connection].deadline());
    }

    /// Puts what `encode` writes on a connection, for one leg of a job, or refuses it at once.
    pub(crate) fn send(
        &mut self,
        connection: usize,
        leg: LegRef,
        expect: Expect,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.list[connection].enqueue(leg, expect, answered, now, encode);
        self.activate(connection);
        self.note_due(connection);
    }

    /// Fails a leg that is not sent.
    pub(crate) fn refuse(
        &self,
        connection: usize,
        leg: LegRef,
        outcome: Outcome,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) {
        self.list[connection].refuse(leg, outcome, answered, now);
    }

    /// Writes what has gathered; true when a connection was lost by it.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, clock: &Clock) -> bool {
        let mut is_lost = false;
        for at in 0..self.active.len() {
            let connection = self.active[at];
            is_lost |= self.list[connection].flush(answered, clock);
            self.note_due(connection);
        }
        self.leaving.flush(answered, clock);
        is_lost
    }

    /// Whether a connection may have more to read than its turn allowed.
    pub(crate) fn is_readable(&self) -> bool {
        self.active.iter().any(|&connection| self.list[connection].is_readable()) || self.leaving.is_readable()
    }

    /// Publishes the gauges of those that were looked at, and keeps the ones that have more to read, or to write: a request
    /// may have come when the turn's last writing was done.
    pub(crate) fn end_turn(&mut self) {
        self.leaving.end_turn();
        let Connections { list, active, is_active, .. } = self;
        active.retain(|&connection| {
            list[connection].publish();
            is_active[connection] = list[connection].is_readable() || list[connection].has_unwritten();
            is_active[connection]
        });
    }

    /// Ends every connection, and with it what waits on it.
    pub(crate) fn close(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        for connection in 0..self.list.len() {
            self.list[connection].close(Outcome::BackendLost, answered, now);
            self.activate(connection);
        }
        self.leaving.close(answered, now);
    }
}
