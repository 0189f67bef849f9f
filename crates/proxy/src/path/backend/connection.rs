//! Stations 7 and 8. One connection to one backend: requests go out in order, replies are matched first in, first out.
//! Answers jobs by their number; does not know that sessions exist.
//!
//! ```text
//!   Closed --retry--> Opening (connect, then `version` must be answered) --> Open
//!     ^                 |  ^ impatient: requests are refused meanwhile        | |
//!     |                 |  | patient (first time, idle close): they queue     | |
//!     |                 |  +-- idle, and another connection was late ---------+ |
//!     +-----------------+---- timeout, lost, out of step: all that wait fail ---+
//! ```

use crate::observe::counters::{BackendCounters, LoopCounters};
use crate::path::backend::in_flight::{InFlight, Pending};
use crate::path::backend::match_reply::{Expect, ReplyMatch, match_reply};
use crate::path::backend::retry::{PAUSE_MAX, Retry};
use crate::path::backend::server::{Backend, Failure};
use crate::path::job::LegRef;
use crate::path::jobs::AnsweredJobs;
use clock::{Clock, Nanos};
use net::{Buffers, Connection, Endpoint, Filled, Poller, Token, is_tls_failure};
use records::Outcome;
use std::sync::Arc;
use wire::{ParsedReply, parse_reply};

/// Bytes read from one backend before others get their turn.
const READ_BUDGET_BYTES: usize = 1 << 20;
/// What a backend must answer before it is used.
const PROBE: &[u8] = b"version\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { retry_at: Nanos },
    Opening { is_patient: bool },
    Open,
}

/// One connection of one loop to one backend, which it opens again whenever it is lost.
#[derive(Debug)]
pub(crate) struct BackendConnection {
    peer: Backend,
    token: Token,
    state: State,
    connection: Option<Connection>,
    in_flight: InFlight,
    /// The head's reply has become too large: the rest of it is dropped.
    is_dropping: bool,
    /// Whether this connection has answered a request, and not only the probe.
    has_answered: bool,
    opened: Nanos,
    /// Requests begun on this connection.
    sequence: u32,
    port: u16,
    retry: Retry,
    /// Its backend is at another address: it takes nothing more.
    is_leaving: bool,
    counters: Arc<LoopCounters>,
    /// What this connection has added to the gauges: whether it is up, and what it has in flight.
    published: (u64, u64),
}

impl BackendConnection {
    /// A connection that is not open yet and will be at the first tick. Its readiness is reported under `token`.
    pub(crate) fn new(peer: Backend, token: Token, counters: Arc<LoopCounters>) -> BackendConnection {
        BackendConnection {
            peer,
            token,
            state: State::Closed { retry_at: Nanos::UNSET },
            connection: None,
            in_flight: InFlight::default(),
            is_dropping: false,
            has_answered: false,
            opened: Nanos::UNSET,
            sequence: 0,
            port: 0,
            retry: Retry::default(),
            is_leaving: false,
            counters,
            published: (0, 0),
        }
    }

    /// Starts to connect. When `is_patient`, requests are queued meanwhile.
    pub(crate) fn open(&mut self, poller: &Poller, is_patient: bool, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let connection = self.peer.endpoint.as_ref().and_then(|endpoint| {
            let mut connection = Connection::open(endpoint).ok()?;
            poller.add(&mut connection, self.token).ok().map(|()| connection)
        });
        (self.sequence, self.is_dropping, self.has_answered, self.opened) = (0, false, false, now);
        self.state = State::Opening { is_patient };
        match connection {
            Some(connection) => {
                self.port = connection.local_address().map_or(0, |address| address.port());
                self.connection = Some(connection);
                self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
            }
            None => self.fail(Outcome::BackendDown, answered, now),
        }
    }

    /// Whether a request would be taken now; if not, why.
    pub(crate) fn admits(&self) -> Result<(), Outcome> {
        let waiting_bytes = self.connection.as_ref().map_or(0, |connection| connection.outbox.waiting_bytes());
        match self.state {
            State::Closed { .. } | State::Opening { is_patient: false } => Err(Outcome::BackendDown),
            _ if self.is_leaving => Err(Outcome::BackendDown),
            _ if self.waiting() >= self.peer.limits.window || waiting_bytes >= self.peer.limits.buffer_bytes => {
                Err(Outcome::Overloaded)
            }
            _ => Ok(()),
        }
    }

    /// Requests that wait for an answer, the probe not counted.
    pub(crate) fn waiting(&self) -> usize {
        self.in_flight.len() - usize::from(!self.in_flight.is_empty() && self.state != State::Open)
    }

    /// Takes a request for one leg of a job, or refuses it at once.
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
        self.counters().sent_bytes.add(bytes);
    }

    /// Fails a leg that was not sent, and counts why.
    pub(crate) fn refuse(&self, leg: LegRef, outcome: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        self.counters().note(outcome);
        answered.leg_failed(leg, &self.peer.name, outcome, now);
    }

    /// Appends a request to the connection's stream; returns its length.
    fn push(&mut self, leg: Option<LegRef>, expect: Expect, now: Nanos, encode: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let Some(connection) = &mut self.connection else { return 0 };
        let before = connection.outbox.queued_total();
        connection.outbox.append(encode);
        let end = connection.outbox.queued_total();
        let deadline = now + self.peer.limits.timeout(expect);
        self.in_flight.push(Pending { leg, expect, begin: before, end, deadline });
        self.sequence = self.sequence.wrapping_add(1);
        end - before
    }

    /// Writes what has gathered in this turn; true when the connection was lost by it.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, clock: &Clock) -> bool {
        let Some(connection) = self.connection.as_mut().filter(|connection| !connection.outbox.is_empty()) else {
            return false;
        };
        let is_lost = connection.flush().is_err();
        // Also when the connection is lost: what the kernel has taken may be carried out.
        let written = connection.outbox.written_total();
        self.in_flight.mark_sent(written, answered.jobs, clock.now());
        if is_lost {
            self.fail(Outcome::BackendLost, answered, clock.now());
        }
        is_lost
    }

    /// Takes note of readiness; the reading is done in the loop's turn.
    pub(crate) fn on_ready(&mut self, ready: net::Ready, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let Some(connection) = &mut self.connection else { return };
        connection.on_ready(ready.readable, ready.writable, ready.closing);
        if self.state != State::Open && ready.writable && connection.connect_error().is_some() {
            self.fail(Outcome::BackendDown, answered, now);
        }
    }

    /// Whether there may be something to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_readable)
    }

    /// Whether there is something that the kernel has not taken.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.outbox.is_empty())
    }

    /// Reads up to the budget and matches the replies.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, answered: &mut AnsweredJobs<'_>, clock: &Clock) {
        let Some(connection) = &mut self.connection else { return };
        let filled = connection.fill(buffers, READ_BUDGET_BYTES);
        let now = clock.now();
        if self.match_replies(answered, now).is_err() {
            return self.fail(Outcome::BackendLost, answered, now);
        }
        self.counters().tls_failed.add(u64::from(filled.as_ref().is_err_and(is_tls_failure)));
        match filled {
            Ok(Filled::Closed) | Err(_) if self.may_reopen_at_once(now) => {
                self.retry.succeeded();
                self.state = State::Closed { retry_at: Nanos::UNSET };
            }
            Ok(Filled::Closed) | Err(_) => self.fail(Outcome::BackendLost, answered, now),
            Ok(_) => {
                if let Some(connection) = &mut self.connection {
                    connection.inbox.release(buffers);
                    connection.outbox.release();
                }
            }
        }
    }

    /// Takes replies off the inbox and gives each to the job whose turn it is. An error: the stream is out of step.
    fn match_replies(&mut self, answered: &mut AnsweredJobs<'_>, now: Nanos) -> Result<(), OutOfStep> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let written = connection.outbox.written_total();
        // The inbox is taken out of the connection so that its bytes can be lent while the rest of the backend changes.
        let mut inbox = std::mem::take(&mut connection.inbox);
        let mut used = 0;
        let outcome = loop {
            let unread = &inbox.filled()[used..];
            if unread.is_empty() {
                break Ok(());
            }
            // Nobody waits, or not one byte of the next request has left: whatever this is, it is no reply.
            let Some(head) = self.in_flight.head().filter(|head| head.begin < written) else { break Err(OutOfStep) };
            let (reply, consumed) = match parse_reply(unread, &self.peer.limits.wire) {
                ParsedReply::Incomplete => break Ok(()),
                ParsedReply::Broken(_) => break Err(OutOfStep),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            used += consumed;
            match match_reply(head.expect, &reply) {
                ReplyMatch::More => self.bring(&unread[..consumed], answered, now),
                ReplyMatch::Done { outcome, closes } => {
                    self.is_dropping |= consumed > self.peer.limits.reply_bytes;
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

    /// Adds a value to the head's reply, unless that has become too large; a reply that makes progress is not late.
    fn bring(&mut self, value: &[u8], answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let leg = self.in_flight.extend_head(now + self.peer.limits.timeouts.read);
        self.counters().received_bytes.add(value.len() as u64);
        let Some(LegRef { job, leg }) = leg else { return };
        let job = answered.jobs.get(job);
        if !self.is_dropping && job.leg_brought(leg, value) > self.peer.limits.reply_bytes {
            job.leg_forgets(leg);
            self.is_dropping = true;
        }
    }

    /// Completes the head's reply with its last line.
    fn answer(&mut self, last_line: &[u8], outcome: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let Some((head, is_unsent)) = self.in_flight.pop() else { return };
        let Some(leg) = head.leg else {
            self.state = State::Open;
            // Only the first probe of a connection opens it.
            return self.counters().connects.add(u64::from(head.begin == 0));
        };
        self.counters().replies.add(1);
        self.counters().received_bytes.add(last_line.len() as u64);
        self.has_answered = true;
        self.retry.succeeded();
        if is_unsent {
            answered.jobs.get(leg.job).leg_sent(leg.leg, now);
        }
        if std::mem::take(&mut self.is_dropping) {
            self.counters().note(Outcome::Overloaded);
            answered.leg_failed(leg, &self.peer.name, Outcome::Overloaded, now);
        } else {
            self.counters().note(outcome);
            answered.leg_answered(leg, last_line, outcome, now);
        }
    }

    /// Whether the server has merely closed a connection that was of use and has nothing waiting. One that closes
    /// every connection as soon as it is open must not be called again and again without a pause.
    fn may_reopen_at_once(&self, now: Nanos) -> bool {
        let was_of_use = self.has_answered || now >= self.opened + PAUSE_MAX;
        self.state == State::Open && self.in_flight.is_empty() && was_of_use
    }

    /// Closes the connection and fails everything that waits on it, so that a late reply is never taken for another's.
    fn fail(&mut self, cause: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let counters = self.counters();
        match cause {
            Outcome::Timeout => counters.timeouts.add(1),
            _ => counters.lost.add(1),
        }
        self.report();
        self.close(cause, answered, now);
        self.state = State::Closed { retry_at: self.retry.failed(now, self.token.0) };
    }

    /// Ends the connection, and with it everything that waits on it.
    pub(crate) fn close(&mut self, cause: Outcome, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        self.connection = None;
        self.state = State::Closed { retry_at: Nanos::NEVER };
        self.is_dropping = false;
        for pending in self.in_flight.drain() {
            let outcome = match cause {
                Outcome::Timeout if pending.deadline > now => Outcome::BackendLost,
                cause => cause,
            };
            if let Some(leg) = pending.leg {
                self.counters.backends[self.peer.index as usize].note(outcome);
                answered.leg_failed(leg, &self.peer.name, outcome, now);
            }
        }
    }

    /// When something must be done although nothing becomes ready.
    pub(crate) fn deadline(&self) -> Nanos {
        let retry_at = match self.state {
            State::Closed { retry_at } if !self.is_leaving => retry_at,
            _ => Nanos::NEVER,
        };
        retry_at.min(self.in_flight.head().map_or(Nanos::NEVER, |pending| pending.deadline))
    }

    /// Does what is due; true when an answer was late.
    pub(crate) fn tick(&mut self, poller: &Poller, answered: &mut AnsweredJobs<'_>, now: Nanos) -> bool {
        let is_late = self.in_flight.head().is_some_and(|pending| pending.deadline <= now);
        if is_late {
            self.fail(Outcome::Timeout, answered, now);
        }
        match self.state {
            State::Closed { retry_at } if retry_at <= now && !self.is_leaving => {
                self.connection = None;
                self.open(poller, self.retry.is_fresh(), answered, now);
            }
            _ => {}
        }
        is_late
    }

    /// Refuses requests until a new probe is answered, if nothing is in flight: another connection to this backend was
    /// late, and whoever came next would wait for a time-out of his own.
    pub(crate) fn doubt(&mut self, now: Nanos) {
        if self.state == State::Open && self.in_flight.is_empty() {
            self.state = State::Opening { is_patient: false };
            self.push(None, Expect::Probe, now, |out| out.extend_from_slice(PROBE));
        }
    }

    /// Which backend this is a connection to.
    pub(crate) fn index(&self) -> u16 {
        self.peer.index
    }

    /// Whether this connection has answered a request.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Opens a closed connection at the next tick, and lets requests queue for it: another one to this backend is of use.
    pub(crate) fn retry_at_once(&mut self) {
        if let State::Closed { .. } = self.state {
            self.retry.succeeded();
            self.state = State::Closed { retry_at: Nanos::UNSET };
        }
    }

    /// Publishes its part of the gauges.
    pub(crate) fn publish(&mut self) {
        let is_up = u64::from(self.admits() != Err(Outcome::BackendDown));
        let (before, after) = (self.published, (is_up, self.waiting() as u64));
        self.counters().connection_up(before.0, after.0);
        self.counters().in_flight.change(before.1, after.1);
        self.published = after;
    }

    fn counters(&self) -> &BackendCounters {
        &self.counters.backends[self.peer.index as usize]
    }
}

impl BackendConnection {
    /// Goes to another address. What is in flight is returned, as a connection that takes nothing more.
    pub(crate) fn move_to(
        &mut self,
        endpoint: Endpoint,
        poller: &Poller,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) -> Option<BackendConnection> {
        if self.peer.endpoint.as_ref() == Some(&endpoint) {
            return None;
        }
        self.peer.endpoint = Some(endpoint);
        match self.state {
            // It waits out its pause, so that addresses of which none can be reached are not tried without end.
            State::Closed { .. } => return None,
            State::Opening { .. } | State::Open => {}
        }
        if self.waiting() == 0 {
            self.close(Outcome::BackendLost, answered, now);
            self.retry.succeeded();
            self.open(poller, true, answered, now);
            return None;
        }
        let fresh = BackendConnection::new(self.peer.clone(), self.token, self.counters.clone());
        let mut old = std::mem::replace(self, fresh);
        old.is_leaving = true;
        self.open(poller, true, answered, now);
        Some(old)
    }

    /// Lets readiness be reported under another token; false when the kernel refuses.
    pub(crate) fn rename(&mut self, poller: &Poller, token: Token) -> bool {
        self.token = token;
        self.connection.as_mut().is_none_or(|connection| poller.rename(connection, token).is_ok())
    }

    /// Whether it takes nothing more and has nothing left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_leaving && self.in_flight.is_empty()
    }

    /// Tells that it was lost or could not be opened.
    fn report(&self) {
        if let Some(endpoint) = self.peer.endpoint.clone().filter(|_| !self.is_leaving) {
            let is_unreachable = self.state != State::Open;
            self.peer.reporter.report(Failure { backend: self.peer.index, endpoint, is_unreachable });
        }
    }
}

/// The connection cannot be trusted any more.
struct OutOfStep;
