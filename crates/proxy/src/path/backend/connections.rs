//! All connections of one event loop to its backends, by number. In each turn only the active ones are visited, so that idle
//! connections cost nothing. Knows no queues and slots: the caller names the connection.

use crate::path::backend::connection::{BackendConnection, TimedOut};
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
    /// Connections to addresses that their backend has left.
    draining: DrainingConnections,
    /// The numbers of the connections with an event in this turn, each once.
    active: Vec<usize>,
    is_active: Vec<bool>,
    /// By backend: the timeouts in a row on all its connections.
    silences: Vec<Silences>,
    /// No timeout or retry is due before.
    next_due: Nanos,
}

/// Timeouts of one backend without a reply between.
#[derive(Clone, Debug, Default)]
struct Silences {
    count: u32,
    last: Nanos,
}

impl Connections {
    /// These connections, which are opened in the first turn. The number of a connection is its token.
    pub(crate) fn new(list: Vec<BackendConnection>) -> Connections {
        let is_active = vec![false; list.len()];
        let backends = list.iter().map(|connection| usize::from(connection.index()) + 1).max().unwrap_or(0);
        Connections {
            list,
            draining: DrainingConnections::default(),
            active: Vec::new(),
            is_active,
            silences: vec![Silences::default(); backends],
            next_due: Nanos::UNSET,
        }
    }

    /// The connection with this number.
    pub(crate) fn get(&self, connection: usize) -> &BackendConnection {
        &self.list[connection]
    }

    /// The connections with an event since the end of the last turn.
    pub(crate) fn active(&self) -> &[usize] {
        &self.active
    }

    fn activate(&mut self, connection: usize) {
        if !std::mem::replace(&mut self.is_active[connection], true) {
            self.active.push(connection);
        }
    }

    /// Records readiness. The event loop reads later in its turn.
    pub(crate) fn on_ready(&mut self, event: Ready, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if DrainingConnections::owns(event.token) {
            return self.draining.on_ready(event, answered, now);
        }
        let connection = event.token.0;
        self.list[connection].on_ready(event, answered, now);
        self.activate(connection);
        self.note_due(connection);
    }

    /// Reads from the readable connections.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        for at in 0..self.active.len() {
            let connection = self.active[at];
            let backend = &mut self.list[connection];
            if !backend.is_readable() {
                continue;
            }
            let had_answered = backend.has_answered();
            backend.receive(buffers, answered, clock);
            if backend.take_replied() {
                self.silences[usize::from(backend.index())].count = 0;
            }
            if backend.has_answered() && !had_answered {
                self.reconnect_others(connection);
            }
            self.note_due(connection);
        }
        self.draining.receive(buffers, answered, clock);
    }

    /// Moves all connections of a backend to another address. Requests in flight are still answered on the old connections.
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
                    self.draining.add(old, poller, answered, now);
                }
                self.activate(connection);
                self.note_due(connection);
            }
        }
        self.next_due = self.next_due.min(self.draining.deadline());
    }

    /// Reconnects the other connections to a backend without a pause, because this one has answered its first request.
    fn reconnect_others(&mut self, working: usize) {
        let index = self.list[working].index();
        for connection in (0..self.list.len()).filter(|&other| other != working) {
            if self.list[connection].index() == index {
                self.list[connection].reconnect_now();
                self.note_due(connection);
            }
        }
    }

    /// Whether a request of a client waits for this backend that has not timed out.
    fn has_waiting(&self, backend: u16) -> bool {
        self.list.iter().any(|connection| connection.index() == backend && connection.has_waiting())
    }

    /// Counts requests that have timed out on one connection. If the backend has not answered on any connection for too often in a row,
    /// it is given up: all its connections with late requests are closed, and the idle ones must answer a probe.
    fn note_silence(&mut self, timed_out: usize, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let index = self.list[timed_out].index();
        let silences = &mut self.silences[usize::from(index)];
        // Requests that time out at the same time, on several connections too, count once.
        if silences.last != now {
            *silences = Silences { count: silences.count.saturating_add(1), last: now };
        }
        if silences.count < self.list[timed_out].failures() {
            return;
        }
        for connection in 0..self.list.len() {
            if self.list[connection].index() == index {
                self.list[connection].give_up_or_probe(answered, now);
                self.activate(connection);
                self.note_due(connection);
            }
        }
    }

    /// Probes the other idle connections to a backend, because this one was given up.
    fn probe_others(&mut self, timed_out: usize, now: Nanos) {
        let index = self.list[timed_out].index();
        for connection in (0..self.list.len()).filter(|&other| other != timed_out) {
            if self.list[connection].index() == index {
                self.list[connection].probe_again(now);
                self.activate(connection);
                self.note_due(connection);
            }
        }
    }

    /// Times out and reconnects, where that is due.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        if self.next_due > now {
            return;
        }
        self.draining.tick(poller, answered, now);
        self.next_due = self.draining.deadline();
        for connection in 0..self.list.len() {
            if self.list[connection].deadline() <= now {
                self.activate(connection);
                match self.list[connection].tick(poller, answered, now) {
                    TimedOut::Nothing => {}
                    TimedOut::Late => self.note_silence(connection, answered, now),
                    // A request on another connection will time out, and count, if the silence goes on.
                    TimedOut::Silence if self.has_waiting(self.list[connection].index()) => {}
                    TimedOut::Silence => self.note_silence(connection, answered, now),
                    TimedOut::GivenUp => self.probe_others(connection, now),
                }
            }
            self.note_due(connection);
        }
    }

    /// The time of the next timeout or retry. It may be too early, but never too late.
    pub(crate) fn deadline(&self) -> Nanos {
        self.next_due
    }

    fn note_due(&mut self, connection: usize) {
        self.next_due = self.next_due.min(self.list[connection].deadline());
    }

    /// Appends the request that `encode` writes to a connection, for one leg of a job, or refuses it at once.
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
        // `flush`, which follows in the same turn, notes when the request times out.
        self.activate(connection);
    }

    /// Lets a bulk connection open, if it is closed, because a request is meant for it.
    pub(crate) fn wake(&mut self, connection: usize, now: Nanos) {
        self.list[connection].wake(now);
        self.note_due(connection);
    }

    /// Fails a leg that was not sent.
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

    /// Writes the requests of this turn. Returns whether a connection was lost.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, clock: &Clock) -> bool {
        let mut is_lost = false;
        for at in 0..self.active.len() {
            let connection = self.active[at];
            is_lost |= self.list[connection].flush(answered, clock);
            self.note_due(connection);
        }
        self.draining.flush(answered, clock);
        is_lost
    }

    /// Whether a connection may have more to read than its turn allowed.
    pub(crate) fn is_readable(&self) -> bool {
        self.active.iter().any(|&connection| self.list[connection].is_readable()) || self.draining.is_readable()
    }

    /// Publishes the gauges of the active connections. Those with more to read or to write stay active: a request may have been
    /// added after the last write of the turn.
    pub(crate) fn end_turn(&mut self) {
        self.draining.end_turn();
        let Connections { list, active, is_active, .. } = self;
        active.retain(|&connection| {
            list[connection].publish();
            is_active[connection] = list[connection].is_readable() || list[connection].has_unwritten();
            is_active[connection]
        });
    }

    /// Closes every connection, and fails all requests in flight.
    pub(crate) fn close(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        for connection in 0..self.list.len() {
            self.list[connection].close(Outcome::BackendLost, answered, now);
            self.activate(connection);
        }
        self.draining.close(answered, now);
    }
}
