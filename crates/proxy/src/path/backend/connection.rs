//! Steps 6 and 7. One connection to one backend: writes requests in order, and matches each reply with the oldest unanswered request.
//! Answers legs by the numbers of their jobs; knows no sessions.
//!
//! ```text
//!   Closed --retry--> Opening (connect, then `version` must be answered) --> Open
//!     ^                 |  ^ impatient: refuses requests meanwhile            | |
//!     |                 |  | patient (first time, idle close): buffers them    | |
//!     |                 |  +-- idle, and another connection timed out ---------+ |
//!     +-----------------+---- timeout, lost, out of step: all in flight fail ----+
//! ```

use crate::observe::counters::{BackendCounters, LoopCounters};
use crate::path::backend::in_flight::{InFlight, Pending};
use crate::path::backend::match_reply::{Expect, ReplyMatch, match_reply};
use crate::path::backend::requested::is_requested;
use crate::path::backend::retry::{PAUSE_MAX, Retry};
use crate::path::backend::server::{Backend, Failure, Purpose};
use crate::path::job::LegRef;
use crate::path::jobs::AnsweredJobs;
use clock::{Clock, Nanos};
use net::{Buffers, Connection, Endpoint, Filled, Poller, Token, is_tls_failure};
use records::Outcome;
use std::sync::Arc;
use std::time::Duration;
use wire::{ParsedReply, Reply, parse_reply};

/// The most bytes read from one backend before others get their turn.
const READ_BUDGET_BYTES: usize = 1 << 20;
/// A bulk connection that was not used for this long is closed.
const BULK_IDLE: Duration = Duration::from_secs(5);
/// The probe that a backend must answer before it receives requests.
const PROBE: &[u8] = b"version\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { retry_at: Nanos },
    Opening { is_patient: bool },
    Open,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// A request was not answered in time.
    Timeout,
    /// A reply did not fit its request.
    OutOfStep,
    /// The peer has closed it, or it broke.
    Lost,
    /// It could not be opened.
    Unreachable,
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
    published: (u64, u64),
}

impl BackendConnection {
    /// A connection that is opened at the first tick or, for `Purpose::Bulk`, after `wake`. The poller reports its readiness under
    /// `token`.
    pub(crate) fn new(
        backend: Backend,
        purpose: Purpose,
        token: Token,
        counters: Arc<LoopCounters>,
    ) -> BackendConnection {
        let retry_at = if purpose == Purpose::Bulk { Nanos::NEVER } else { Nanos::UNSET };
        BackendConnection {
            backend,
            purpose,
            token,
            state: State::Closed { retry_at },
            connection: None,
            in_flight: InFlight::default(),
            is_discarding: false,
            has_answered: false,
            opened: Nanos::UNSET,
            used: Nanos::UNSET,
            sequence: 0,
            port: 0,
            retry: Retry::default(),
            is_draining: false,
            counters,
            published: (0, 0),
        }
    }

    /// Starts to connect. If `is_patient`, requests are buffered meanwhile; otherwise they are refused.
    pub(crate) fn open(&mut self, poller: &Poller, is_patient: bool, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let connection = self.backend.endpoint.as_ref().and_then(|endpoint| {
            let mut connection = Connection::open(endpoint).ok()?;
            poller.add(&mut connection, self.token).ok().map(|()| connection)
        });
        (self.sequence, self.is_discarding, self.has_answered, self.opened) = (0, false, false, now);
        self.state = State::Opening { is_patient };
        match connection {
            Some(connection) => {
                self.port = connection.local_address().map_or(0, |address| address.port());
                self.connection = Some(connection);
                self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
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

    /// The number of requests that wait for a reply, without the probe.
    pub(crate) fn waiting(&self) -> usize {
        self.in_flight.len() - usize::from(!self.in_flight.is_empty() && self.state != State::Open)
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
        let deadline = now + self.backend.limits.timeout(expect);
        self.in_flight.push(Pending { leg, expect, begin: before, end, deadline });
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
        let Some(connection) = &mut self.connection else { return };
        let filled = connection.fill(buffers, READ_BUDGET_BYTES);
        let now = clock.now();
        if self.match_replies(answered, now).is_err() {
            return self.fail(Loss::OutOfStep, answered, now);
        }
        self.counters().tls_failed.add(u64::from(filled.as_ref().is_err_and(is_tls_failure)));
        match filled {
            Ok(Filled::Closed) | Err(_) if self.may_reopen_at_once(now) => {
                self.retry.succeeded();
                self.state = State::Closed { retry_at: Nanos::UNSET };
            }
            Ok(Filled::Closed) | Err(_) => self.fail(Loss::Lost, answered, now),
            Ok(_) => {
                if let Some(connection) = &mut self.connection {
                    connection.inbox.release(buffers);
                    connection.outbox.release();
                }
            }
        }
    }

    /// Matches each reply in the inbox with the oldest request in flight. Fails if a reply does not fit its request.
    fn match_replies(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) -> Result<(), OutOfStep> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let written = connection.outbox.written_total();
        // The inbox is moved out of the connection, so that replies can borrow its bytes while the connection changes.
        let mut inbox = std::mem::take(&mut connection.inbox);
        let mut used = 0;
        let outcome = loop {
            let unread = &inbox.filled()[used..];
            if unread.is_empty() {
                break Ok(());
            }
            // No request is in flight, or no byte of the oldest one was written: these bytes are not a reply.
            let Some(head) = self.in_flight.head().filter(|head| head.begin < written) else { break Err(OutOfStep) };
            let (reply, consumed) = match parse_reply(unread, &self.backend.limits.wire) {
                ParsedReply::Incomplete => break Ok(()),
                ParsedReply::Broken(_) => break Err(OutOfStep),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            used += consumed;
            if !fits(head, &reply, answered) {
                break Err(OutOfStep);
            }
            match match_reply(head.expect, &reply) {
                ReplyMatch::More => self.add_value(&unread[..consumed], answered, now),
                ReplyMatch::Done { outcome, closes } => {
                    self.is_discarding |= consumed > self.backend.limits.reply_bytes;
                    self.answer(&unread[..consumed], outcome, answered, now);
                    if closes {
                        break Err(OutOfStep);
                    }
                }
                ReplyMatch::OutOfStep => break Err(OutOfStep),
            }
        };
        inbox.consume(used);
        if let Some(connection) = &mut self.connection {
            connection.inbox = inbox;
        }
        outcome
    }

    /// Adds a value to the reply of the oldest request, unless that has become too large. A reply that makes progress gets more time.
    fn add_value(&mut self, value: &[u8], answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let leg = self.in_flight.extend_head(now + self.backend.limits.timeouts.read);
        self.counters().received_bytes.add(value.len() as u64);
        let Some(leg) = leg else { return };
        if !self.is_discarding && answered.jobs.add_leg_value(leg, value) > self.backend.limits.reply_bytes {
            answered.jobs.discard_leg_reply(leg);
            self.is_discarding = true;
        }
    }

    /// Completes the reply of the oldest request with its last line.
    fn answer(&mut self, last_line: &[u8], outcome: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let Some((head, is_unsent)) = self.in_flight.pop() else { return };
        let Some(leg) = head.leg else {
            self.state = State::Open;
            // Later probes do not open the connection.
            return self.counters().connects.add(u64::from(head.begin == 0));
        };
        self.counters().replies.add(1);
        self.counters().received_bytes.add(last_line.len() as u64);
        self.has_answered = true;
        self.retry.succeeded();
        if is_unsent {
            answered.jobs.get(leg.job).leg_sent(leg.leg, now);
        }
        if std::mem::take(&mut self.is_discarding) {
            self.counters().note(Outcome::Overloaded);
            answered.leg_failed(leg, &self.backend.name, Outcome::Overloaded, now);
        } else {
            self.counters().note(outcome);
            answered.leg_answered(leg, last_line, outcome, now);
        }
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
        };
        counter.add(1);
        self.report();
        self.close(outcome, answered, now);
        self.state = State::Closed { retry_at: self.retry.failed(now, self.token.0) };
    }

    /// Closes the connection, and fails all requests in flight on it.
    pub(crate) fn close(&mut self, cause: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        self.connection = None;
        self.state = State::Closed { retry_at: Nanos::NEVER };
        self.is_discarding = false;
        for pending in self.in_flight.drain() {
            let outcome = match cause {
                Outcome::Timeout if pending.deadline > now => Outcome::BackendLost,
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
        retry_at.min(self.in_flight.head().map_or_else(|| self.unused_at(), |pending| pending.deadline))
    }

    /// Times out or reconnects, if that is due. Returns whether a request has timed out.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) -> bool {
        let is_timed_out = self.in_flight.head().is_some_and(|pending| pending.deadline <= now);
        if is_timed_out {
            self.fail(Loss::Timeout, answered, now);
        }
        if self.in_flight.is_empty() && self.unused_at() <= now {
            self.close(Outcome::BackendLost, answered, now);
        }
        match self.state {
            State::Closed { retry_at } if retry_at <= now && !self.is_draining => {
                self.connection = None;
                self.open(poller, self.retry.is_fresh(), answered, now);
            }
            _ => {}
        }
        is_timed_out
    }

    /// If the connection is idle, refuses requests until a new probe is answered: another connection to this backend has timed out,
    /// and the next request here might time out as well.
    pub(crate) fn probe_again(&mut self, now: Nanos) {
        if self.state == State::Open && self.in_flight.is_empty() {
            self.state = State::Opening { is_patient: false };
            self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
        }
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
        let is_up = self.purpose == Purpose::Requests && self.admits() != Err(Outcome::BackendDown);
        let is_up = u64::from(is_up);
        let (before, after) = (self.published, (is_up, self.waiting() as u64));
        self.counters().connection_up(before.0, after.0);
        self.counters().in_flight.change(before.1, after.1);
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

/// Whether the keys and opaques of a reply are those that its request has requested. If not, the values before it are not trusted
/// either.
fn fits(head: &Pending, reply: &Reply<'_>, answered: &mut AnsweredJobs<'_>) -> bool {
    let (Some(LegRef { job, leg }), Reply::Value(_) | Reply::Meta { .. } | Reply::MetaValue { .. }) = (head.leg, reply)
    else {
        return true;
    };
    let job = answered.jobs.get(job);
    let fits = is_requested(job, leg, head.expect, reply);
    if !fits {
        job.discard_leg_reply(leg);
    }
    fits
}

/// Connections for bulk reads.
impl BackendConnection {
    /// Records that a request is meant for this connection, which is opened at the next tick if it is closed for lack of use.
    pub(crate) fn wake(&mut self, now: Nanos) {
        self.used = now;
        if let State::Closed { retry_at: Nanos::NEVER } = self.state {
            self.state = State::Closed { retry_at: Nanos::UNSET };
        }
    }

    /// Whether it is open, and a request would be accepted now.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open && self.admits().is_ok()
    }

    /// When it is closed for lack of use, if no request is in flight.
    fn unused_at(&self) -> Nanos {
        match self.state {
            State::Closed { retry_at: Nanos::NEVER } => Nanos::NEVER,
            _ if self.purpose == Purpose::Bulk => self.used + BULK_IDLE,
            _ => Nanos::NEVER,
        }
    }
}

/// The replies no longer fit the requests: the connection must be closed.
struct OutOfStep;
