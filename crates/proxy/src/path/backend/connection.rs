//! Steps 6 and 7. One connection to one backend: writes requests in order, and matches each reply with the oldest unanswered request.
//! Answers legs by the numbers of their jobs; knows no sessions.
//!
//! ```text
//!   Closed --retry--> Opening (connect, log in if required, then `version` must be answered) --> Open
//!     ^                 |  ^ impatient: refuses requests meanwhile                              | |
//!     |                 |  | patient (first time, idle close): buffers them                      | |
//!     |                 |  +-- idle, and another connection was given up ------------------------+ |
//!     +-----------------+---- given up, lost, out of step, login refused: all in flight fail ------+
//! ```

mod bulk;
mod replies;
mod timeouts;

use crate::observe::counters::{BackendCounters, LoopCounters, Loss};
use crate::path::backend::carried::Carried;
use crate::path::backend::in_flight::{InFlight, Pending};
use crate::path::backend::match_reply::Expect;
use crate::path::backend::retry::{PAUSE_MAX, Retry};
use crate::path::backend::server::{Backend, Failure, Purpose};
use crate::path::job::LegRef;
use crate::path::jobs::AnsweredJobs;
use clock::{Clock, Nanos};
use net::{Buffers, Connection, Endpoint, Filled, Poller, Token, is_tls_failure};
use records::Outcome;
use std::sync::Arc;

/// The most bytes read from one backend before others get their turn.
const READ_BUDGET_BYTES: usize = 1 << 20;
/// The probe that a backend must answer before it receives requests.
const PROBE: &[u8] = b"version\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { retry_at: Nanos },
    Opening { is_patient: bool },
    Open,
}

/// What a look at the timeouts has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedOut {
    Nothing,
    /// Requests have failed. Their late replies will be read and dropped.
    Late,
    /// No request has failed, but the silence after the last timeout has lasted for another one.
    Silence,
    /// The connection was given up.
    GivenUp,
}

/// One connection of one event loop to one backend. It is reopened whenever it is lost.
#[derive(Debug)]
pub(crate) struct BackendConnection {
    backend: Backend,
    purpose: Purpose,
    token: Token,
    state: State,
    connection: Option<Connection>,
    in_flight: InFlight,
    /// The reply to the oldest request has become too large, and the rest of it is discarded.
    is_discarding: bool,
    /// How many bytes follow of a value that is larger than a reply may be.
    to_skip: usize,
    /// The number of times in a row that requests have timed out, without a reply between.
    silences: u32,
    /// Whether a reply was completed since the caller last asked.
    has_replied: bool,
    /// Requests of the connection before, of which no byte was written.
    carried: Option<Box<Carried>>,
    /// Whether a request was answered on this connection, not only the probe.
    has_answered: bool,
    opened: Nanos,
    /// When a request was last meant for this connection; only for `Purpose::Bulk`.
    used: Nanos,
    /// The number of requests so far on this connection.
    sequence: u32,
    port: u16,
    retry: Retry,
    /// The backend has moved to another address: this connection accepts no more requests.
    is_draining: bool,
    counters: Arc<LoopCounters>,
    /// What this connection has contributed to the gauges: whether it is up, and its requests in flight.
    published: (u64, u64, u64),
}

impl BackendConnection {
    /// A connection that is opened at the first tick or, for `Purpose::Bulk`, after `wake`; never if the backend is drained. The poller reports its readiness under
    /// `token`.
    pub(crate) fn new(
        backend: Backend,
        purpose: Purpose,
        token: Token,
        counters: Arc<LoopCounters>,
    ) -> BackendConnection {
        let waits = purpose == Purpose::Bulk || backend.is_drained;
        let retry_at = if waits { Nanos::NEVER } else { Nanos::UNSET };
        BackendConnection {
            backend,
            purpose,
            token,
            state: State::Closed { retry_at },
            connection: None,
            in_flight: InFlight::default(),
            is_discarding: false,
            to_skip: 0,
            silences: 0,
            has_replied: false,
            carried: None,
            has_answered: false,
            opened: Nanos::UNSET,
            used: Nanos::UNSET,
            sequence: 0,
            port: 0,
            retry: Retry::default(),
            is_draining: false,
            counters,
            published: (0, 0, 0),
        }
    }

    /// Starts to connect. If `is_patient`, requests are buffered meanwhile; otherwise they are refused.
    pub(crate) fn open(&mut self, poller: &Poller, is_patient: bool, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let connection = self.backend.endpoint.as_ref().and_then(|endpoint| {
            let mut connection = Connection::open(endpoint).ok()?;
            if !self.backend.limits.keepalive.is_zero() {
                connection.set_keepalive(self.backend.limits.keepalive);
            }
            poller.add(&mut connection, self.token).ok().map(|()| connection)
        });
        (self.sequence, self.is_discarding, self.has_answered, self.opened) = (0, false, false, now);
        (self.silences, self.to_skip) = (0, 0);
        self.state = State::Opening { is_patient };
        match connection {
            Some(connection) => {
                self.port = connection.local_address().map_or(0, |address| address.port());
                self.connection = Some(connection);
                if let Some(login) = self.backend.login.clone() {
                    self.push(None, Expect::Login, now, |out| out.extend_from_slice(login.request()));
                }
                self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
                self.resume_carried(answered, now);
            }
            None => self.fail(Loss::Unreachable, answered, now),
        }
    }

    /// Whether a request would be accepted now; if not, the reason.
    pub(crate) fn admits(&self) -> Result<(), Outcome> {
        let waiting_bytes = self.connection.as_ref().map_or(0, |connection| connection.outbox.waiting_bytes());
        match self.state {
            State::Closed { .. } | State::Opening { is_patient: false } => Err(Outcome::BackendDown),
            _ if self.is_draining => Err(Outcome::BackendDown),
            _ if self.waiting() >= self.backend.limits.window || waiting_bytes >= self.backend.limits.buffer_bytes => {
                Err(Outcome::Overloaded)
            }
            _ => Ok(()),
        }
    }

    /// The number of requests that wait for a reply, late ones included, without the login and the first probe.
    pub(crate) fn waiting(&self) -> usize {
        let carried = self.carried.as_ref().map_or(0, |carried| carried.requests.len());
        let opening = if self.state == State::Open { 0 } else { self.in_flight.opening_len() };
        carried + self.in_flight.len() - opening
    }

    /// Appends the request of one leg to the connection's output, or refuses it at once.
    pub(crate) fn enqueue(
        &mut self,
        leg: LegRef,
        expect: Expect,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Err(outcome) = self.admits() {
            return self.refuse(leg, outcome, answered, now);
        }
        let (sequence, port) = (self.sequence, self.port);
        let bytes = self.push(Some(leg), expect, now, encode);
        let slot = answered.jobs.get(leg.job).leg(leg.leg);
        slot.backend_sequence = sequence;
        slot.backend_port = port;
        slot.request_bytes = bytes as u32;
        self.counters().requests.add(1);
        if self.purpose == Purpose::Bulk {
            self.counters().bulk_requests.add(1);
        }
        self.counters().sent_bytes.add(bytes);
    }

    /// Fails a leg that was not sent, and counts the reason.
    pub(crate) fn refuse(&self, leg: LegRef, outcome: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        self.counters().note(outcome);
        answered.leg_failed(leg, &self.backend.name, outcome, now);
    }

    /// Appends a request to the output; returns its length.
    fn push(&mut self, leg: Option<LegRef>, expect: Expect, now: Nanos, encode: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let Some(connection) = &mut self.connection else { return 0 };
        let before = connection.outbox.queued_total();
        connection.outbox.append(encode);
        let end = connection.outbox.queued_total();
        self.in_flight.push(Pending::new(leg, expect, before, end, now));
        self.sequence = self.sequence.wrapping_add(1);
        end - before
    }

    /// Writes the requests of this turn. Returns whether the connection was lost.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, clock: &Clock) -> bool {
        let Some(connection) = self.connection.as_mut().filter(|connection| !connection.outbox.is_empty()) else {
            return false;
        };
        let is_lost = connection.flush().is_err();
        // Also if the connection is lost: the backend may still apply the requests that the kernel has accepted.
        let written = connection.outbox.written_total();
        self.in_flight.mark_sent(written, answered.jobs, clock.now());
        if is_lost {
            self.fail(Loss::Lost, answered, clock.now());
        }
        is_lost
    }

    /// Records readiness. The event loop reads later in its turn.
    pub(crate) fn on_ready(&mut self, ready: net::Ready, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let Some(connection) = &mut self.connection else { return };
        connection.on_ready(ready.readable, ready.writable, ready.closing);
        if self.state != State::Open && ready.writable && connection.connect_error().is_some() {
            self.fail(Loss::Unreachable, answered, now);
        }
    }

    /// Whether there may be something to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_readable)
    }

    /// Whether there are bytes that the kernel has not accepted.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.outbox.is_empty())
    }

    /// Reads up to the budget, and matches the replies with the requests.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        let mut received = 0;
        while let Some(count) = self.receive_once(buffers, answered, clock) {
            received += count;
            if received >= READ_BUDGET_BYTES {
                break;
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.inbox.release(buffers);
            connection.outbox.release();
        }
    }

    /// Reads until the socket is empty or the buffer is full, and matches the replies. Returns the number of bytes if there may be more.
    ///
    /// Replies are matched before the next read, because a buffer that is full would have to grow for it. If the buffer ends within a
    /// large value, its length is known after that, and it gets a buffer of its own.
    fn receive_once(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) -> Option<usize> {
        let connection = self.connection.as_mut()?;
        let unread = connection.inbox.filled().len();
        let filled = connection.fill(buffers, 1);
        let received = connection.inbox.filled().len() - unread;
        let now = clock.now();
        if received > 0 {
            self.in_flight.note_received(now);
        }
        if let Err(loss) = self.match_replies(answered, now) {
            self.fail(loss, answered, now);
            return None;
        }
        self.counters().tls_failed.add(u64::from(filled.as_ref().is_err_and(is_tls_failure)));
        match filled {
            Ok(Filled::More) => return Some(received),
            Ok(Filled::Drained) => {}
            Ok(Filled::Closed) | Err(_) if self.may_reopen_at_once(now) => {
                self.retry.succeeded();
                self.state = State::Closed { retry_at: Nanos::UNSET };
            }
            Ok(Filled::Closed) | Err(_) => self.fail(Loss::Lost, answered, now),
        }
        None
    }

    /// Whether the server has closed an idle connection that has answered requests or was open for a while. A server that closes
    /// every connection at once is reconnected with pauses only.
    fn may_reopen_at_once(&self, now: Nanos) -> bool {
        let was_useful = self.has_answered || now >= self.opened + PAUSE_MAX;
        self.state == State::Open && self.in_flight.is_empty() && was_useful
    }

    /// Closes the connection and fails all requests in flight on it, so that a late reply is never matched with a later request.
    fn fail(&mut self, loss: Loss, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let counters = self.counters();
        let (counter, outcome) = match loss {
            Loss::Timeout => (&counters.timeouts, Outcome::Timeout),
            Loss::OutOfStep => (&counters.out_of_step, Outcome::BackendLost),
            Loss::Lost => (&counters.lost, Outcome::BackendLost),
            Loss::Unreachable => (&counters.lost, Outcome::BackendDown),
            // Requests may have been sent behind the login.
            Loss::LoginRefused | Loss::LoginRequired => (&counters.unauthenticated, Outcome::BackendLost),
        };
        counter.add(1);
        counters.last_loss.set(loss as u64);
        // An address that requires authentication is not wrong.
        if !matches!(loss, Loss::LoginRefused | Loss::LoginRequired) {
            self.report();
        }
        if let Some(connection) = self.connection.as_ref().filter(|_| loss == Loss::Timeout) {
            connection.reset_on_close();
        }
        let carried = self.take_unwritten(loss);
        self.close(outcome, answered, now);
        let pause_until = self.retry.failed(now, self.token.0);
        self.state = State::Closed { retry_at: if carried.is_some() { Nanos::UNSET } else { pause_until } };
        self.carried = carried;
    }

    /// Takes the requests of which no byte was written out of a connection that has worked and is lost. They are sent once more.
    fn take_unwritten(&mut self, loss: Loss) -> Option<Box<Carried>> {
        let connection = self.connection.as_ref()?;
        let is_new_one_better = self.state == State::Open && self.has_answered && !self.is_draining;
        if !is_new_one_better || loss == Loss::Timeout {
            return None;
        }
        Carried::new(self.in_flight.take_unwritten(connection.outbox.written_total()), &connection.outbox)
    }

    /// Sends the requests of the connection before behind the probe.
    fn resume_carried(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let (Some(carried), Some(connection)) = (self.carried.take(), &mut self.connection) else { return };
        for mut pending in carried.move_to(&mut connection.outbox) {
            pending.accepted = now;
            if let Some(leg) = pending.leg {
                let slot = answered.jobs.get(leg.job).leg(leg.leg);
                (slot.backend_sequence, slot.backend_port) = (self.sequence, self.port);
            }
            self.sequence = self.sequence.wrapping_add(1);
            self.in_flight.push(pending);
            self.counters.backends[usize::from(self.backend.index)].carried_over.add(1);
        }
    }

    /// Closes the connection, and fails all requests in flight on it.
    pub(crate) fn close(&mut self, cause: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        self.connection = None;
        self.state = State::Closed { retry_at: Nanos::NEVER };
        self.is_discarding = false;
        let carried = self.carried.take().map(|carried| carried.requests).unwrap_or_default();
        let drained = self.in_flight.drain(&self.backend.limits, now);
        for (pending, is_due) in drained.into_iter().chain(carried.into_iter().map(|pending| (pending, false))) {
            let outcome = match cause {
                Outcome::Timeout if !is_due => Outcome::BackendLost,
                cause => cause,
            };
            if let Some(leg) = pending.leg {
                self.counters.backends[self.backend.index as usize].note(outcome);
                answered.leg_failed(leg, &self.backend.name, outcome, now);
            }
        }
    }

    /// The time of the next timeout or retry.
    pub(crate) fn deadline(&self) -> Nanos {
        let retry_at = match self.state {
            State::Closed { retry_at } if !self.is_draining => retry_at,
            _ => Nanos::NEVER,
        };
        let next =
            if self.in_flight.is_empty() { self.unused_at() } else { self.in_flight.deadline(&self.backend.limits) };
        retry_at.min(next)
    }

    /// The number of the backend.
    pub(crate) fn index(&self) -> u16 {
        self.backend.index
    }

    /// Whether a request was answered on this connection.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Reopens a closed connection at the next tick, and accepts requests meanwhile: another connection to this backend works.
    pub(crate) fn reconnect_now(&mut self) {
        if matches!(self.state, State::Closed { retry_at } if retry_at != Nanos::NEVER) {
            self.retry.succeeded();
            self.state = State::Closed { retry_at: Nanos::UNSET };
        }
    }

    /// Publishes this connection's contribution to the gauges.
    pub(crate) fn publish(&mut self) {
        let is_for_requests = self.purpose == Purpose::Requests;
        let is_up = u64::from(is_for_requests && self.admits() != Err(Outcome::BackendDown));
        let is_open = u64::from(is_for_requests && self.state == State::Open);
        let (before, after) = (self.published, (is_up, is_open, self.waiting() as u64));
        self.counters().connection_up(before.0, after.0);
        self.counters().is_open.change(before.1, after.1);
        self.counters().in_flight.change(before.2, after.2);
        self.published = after;
    }

    fn counters(&self) -> &BackendCounters {
        &self.counters.backends[self.backend.index as usize]
    }
}

impl BackendConnection {
    /// Reconnects to another address. If requests are in flight, returns the old connection, which drains.
    pub(crate) fn move_to(
        &mut self,
        endpoint: Endpoint,
        poller: &Poller,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) -> Option<BackendConnection> {
        if self.backend.endpoint.as_ref() == Some(&endpoint) {
            return None;
        }
        self.backend.endpoint = Some(endpoint);
        match self.state {
            // It keeps its pause, so that a list of unreachable addresses is not tried in a tight loop.
            State::Closed { .. } => return None,
            State::Opening { .. } | State::Open => {}
        }
        if self.waiting() == 0 {
            self.close(Outcome::BackendLost, answered, now);
            self.retry.succeeded();
            self.open(poller, true, answered, now);
            return None;
        }
        let fresh = BackendConnection::new(self.backend.clone(), self.purpose, self.token, self.counters.clone());
        let mut old = std::mem::replace(self, fresh);
        old.is_draining = true;
        self.open(poller, true, answered, now);
        Some(old)
    }

    /// Changes the token under which readiness is reported. Returns false if the kernel refuses.
    pub(crate) fn set_token(&mut self, poller: &Poller, token: Token) -> bool {
        self.token = token;
        self.connection.as_mut().is_none_or(|connection| poller.rename(connection, token).is_ok())
    }

    /// Whether it drains and no request is left in flight.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_draining && self.in_flight.is_empty()
    }

    /// Reports to the resolver that the connection was lost or could not be opened.
    fn report(&self) {
        // A server may refuse a second connection and still be reachable.
        let is_reported = !self.is_draining && self.purpose != Purpose::Bulk;
        if let Some(endpoint) = self.backend.endpoint.clone().filter(|_| is_reported) {
            let is_unreachable = self.state != State::Open;
            self.backend.reporter.report(Failure { backend: self.backend.index, endpoint, is_unreachable });
        }
    }
}
