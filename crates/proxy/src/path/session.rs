//! Step 2. A client's connection: reads bytes, parses requests and submits them. The other files of this folder have its other
//! steps, among them step 9, which writes the replies.
//!
//! While a client does not read its replies, or has too many requests in flight, the proxy does not read from it.

mod allowed;
mod enter;
mod line_reply;
mod lines;
mod open_line;
mod queue;
mod rare;
mod read_again;
mod refuse;
mod replies;
mod timeouts;
mod visitor;

pub(crate) use visitor::NoHeader;

use crate::path::addresses::Permit;
use crate::path::core::{Arrival, Core};
use crate::path::job::{Job, JobId, SessionRef};
use crate::path::leg_request::is_read;
use crate::path::listeners::Listener;
use crate::path::messages::Admission;
use crate::path::order::Access;
use crate::path::session::open_line::{FIRST_KEY_BYTES, FIRST_KEYS_MAX, may_change_values};
use crate::path::session::queue::JobQueue;
use crate::path::session::rare::Rare;
use crate::path::session::visitor::Visitor;
use clock::Nanos;
use net::{Buffers, ClientAddress, Connection, Filled, is_tls_failure};
use wire::{ParsedRequest, Request, RequestError, Verb, parse_request};

/// The most bytes read from one client before other clients get their turn.
const READ_BUDGET_BYTES: usize = 256 * 1024;
/// The most bytes that a client may still send after its last reply before the proxy resets the connection.
const DROPPED_BYTES_MAX: usize = 4 << 20;

/// One client. There may be many thousands, most of them idle, so state that few clients need is boxed.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    slot: u32,
    number: u32,
    listener: Listener,
    port: u16,
    next_sequence: u32,
    admission: Admission,
    queue: JobQueue,
    /// When the last read returned.
    received: Nanos,
    /// When the client last read something, or had nothing to read.
    delivered: Nanos,
    visitor: Option<Box<Visitor>>,
    /// No more requests are accepted: after `quit`, an unparsable request or the end of the input.
    is_ending: bool,
    is_paused: bool,
    /// The event loop has listed it among those that may have a reply to write.
    is_listed: bool,
    /// The access of the requests that are not delivered, apart from those that the proxy answers itself.
    in_flight_access: Access,
    /// The access of a request that is blocked until all earlier requests are answered.
    blocked: Option<Access>,
    /// Nothing more is read, because the client has closed its side or the proxy drains. Requests that were read are answered.
    is_input_done: bool,
    has_peer_closed: bool,
    /// All replies are delivered. Input is dropped until the client closes its side.
    is_closing: bool,
    /// The number of keys that the requests that are not delivered read, and the bytes of these requests.
    keys_in_order: u32,
    request_bytes: usize,
    /// The expected size of a reply for each key, estimated from the last ones.
    key_bytes: u32,
    /// The most keys of this client in flight.
    keys_max: u32,
    /// The highest sequence number of a request that backends have answered; only where writes can fail over.
    last_answer: u32,
    /// The sequence number of the last request that may have changed a value.
    last_write: u32,
    /// Whether there was one.
    has_written: bool,
    rare: Rare,
}

/// What was taken of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// So many bytes.
    Bytes(usize),
    /// Nothing, until more has arrived.
    Incomplete,
    /// Nothing, until earlier requests are answered.
    Blocked,
}

/// What `receive` or `resume` has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No request was accepted.
    Nothing,
    /// Requests may have been accepted.
    Taken,
    /// There may be more to read in the next turn.
    More,
}

/// The client has closed its connection or sent too much: no reply can be delivered.
#[derive(Debug)]
pub(crate) struct Gone;

impl Session {
    /// A session for a connection that was just accepted, with its slot, its number and its listener.
    pub(crate) fn new(
        connection: Connection,
        (slot, number, listener): (u32, u32, Listener),
        (address, permit): (ClientAddress, Option<Permit>),
        now: Nanos,
    ) -> Session {
        let port = connection.client_address(address).map_or(0, |address| address.port());
        Session {
            connection,
            slot,
            number,
            listener,
            port,
            next_sequence: 0,
            admission: Admission::New,
            queue: JobQueue::default(),
            received: now,
            delivered: now,
            visitor: Visitor::new(address, permit),
            is_ending: false,
            is_paused: false,
            is_listed: false,
            in_flight_access: Access::Local,
            blocked: None,
            is_input_done: false,
            has_peer_closed: false,
            is_closing: false,
            keys_in_order: 0,
            request_bytes: 0,
            key_bytes: FIRST_KEY_BYTES,
            keys_max: FIRST_KEYS_MAX,
            last_answer: 0,
            last_write: 0,
            has_written: false,
            rare: Rare::default(),
        }
    }

    /// The connection's number, which is unique within the process.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The listener on which the client has connected.
    pub(crate) fn listener(&self) -> Listener {
        self.listener
    }

    /// The name by which jobs refer to this session.
    pub(crate) fn reference(&self) -> SessionRef {
        SessionRef { slot: self.slot, connection: self.number }
    }

    /// Records that the event loop has listed it. Returns whether it was not listed before.
    pub(crate) fn mark_listed(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Whether this client can move to a loop of the new configuration: the requests that were read are answered, and none of its jobs
    /// is left. A job of an acknowledged write is left until all replicas have answered: the next write uses another loop's connection
    /// and could overtake it. If the client reads too slowly, requests that were read and have no room move with it.
    ///
    /// Replies that the client has not read move with the connection, so their jobs end now.
    pub(crate) fn may_move(&mut self, core: &mut Core) -> bool {
        if !core.settings.is_moving || !self.is_quiet() {
            return false;
        }
        let now = core.clock.now();
        for &id in self.queue.delivered() {
            core.journal.end(&mut core.jobs, id, now);
        }
        self.queue.pop(self.queue.delivered_len());
        core.jobs.clients.jobs_of(self.reference()) == 0
    }

    fn is_quiet(&self) -> bool {
        let has_begun = !self.connection.is_handshaking() && !self.awaits_header();
        let is_open = !self.is_ending && !self.is_input_done && !self.is_closing && has_begun;
        self.queue.is_delivered() && is_open && !self.rare.is_in_request()
    }

    /// Records that backends have answered a request.
    pub(crate) fn note_answer(&mut self, sequence: u32) {
        if !self.has_answer_after(sequence) {
            self.last_answer = sequence;
        }
    }

    /// Whether backends have answered a request after this one.
    pub(crate) fn has_answer_after(&self, sequence: u32) -> bool {
        (self.last_answer.wrapping_sub(sequence) as i32) > 0
    }

    /// The jobs whose reply was not delivered, the last one first.
    pub(crate) fn latest_jobs(&self) -> impl Iterator<Item = JobId> {
        self.queue.newest_undelivered()
    }

    /// The connection, with the input that was not parsed yet.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Lets `resume` parse the input that came with a moved connection.
    pub(crate) fn begin_paused(&mut self) {
        self.is_paused = !self.connection.inbox.filled().is_empty();
    }

    /// Reads from the client, parses the requests and submits them.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, core: &mut Core) -> Result<Progress, Gone> {
        if self.is_closing {
            let dropped = self.connection.drop_input(buffers, READ_BUDGET_BYTES).ok_or(Gone)?;
            let rare = self.rare.change();
            rare.dropped_bytes += dropped;
            if rare.dropped_bytes > DROPPED_BYTES_MAX {
                return Err(Gone);
            }
            return Ok(if self.connection.is_readable() { Progress::More } else { Progress::Nothing });
        }
        if self.is_ending || self.is_input_done {
            return Ok(Progress::Nothing);
        }
        let is_handshaking = self.connection.is_handshaking();
        // A client that moves is served here with what was read, and reads no more.
        let is_moving = core.settings.is_moving && !is_handshaking && !self.rare.is_in_request();
        if self.blocked.is_some() || is_moving {
            return Ok(Progress::Nothing);
        }
        // A handshake and the rest of a refused value need no room.
        let needs_no_room = self.rare.get().swallow > 0 || is_handshaking;
        if !needs_no_room && !self.has_room(core) {
            self.pause(core);
            return Ok(Progress::Nothing);
        }
        let filled = self.connection.fill(buffers, READ_BUDGET_BYTES);
        self.received = core.clock.now();
        self.has_peer_closed |= matches!(filled, Ok(Filled::Closed));
        self.is_input_done |= self.has_peer_closed;
        // Requests received before the connection broke are valid: their writes are applied although no reply can be delivered.
        self.take_requests(core);
        self.connection.inbox.release(buffers);
        self.release();
        self.count_buffers(core);
        match filled {
            Ok(Filled::More) => Ok(Progress::More),
            Ok(_) => Ok(Progress::Taken),
            Err(error) => {
                core.journal.counters.clients_tls_failed.add(u64::from(is_tls_failure(&error)));
                Err(Gone)
            }
        }
    }

    /// Continues to parse and read the requests of a client that was paused or blocked, if it no longer is.
    pub(crate) fn resume(&mut self, buffers: &mut Buffers, core: &mut Core) -> Result<Progress, Gone> {
        let is_in_refused_value = self.is_paused && self.rare.get().swallow > 0;
        if is_in_refused_value && !self.is_input_done && self.connection.is_readable() {
            // The rest needs no room. It may have arrived before, and readiness is reported only once.
            return self.receive(buffers, core);
        }
        let may_resume = match self.blocked {
            Some(kind) => self.may_take(kind, core),
            None => self.is_paused,
        };
        if !may_resume || !self.has_room(core) {
            return Ok(Progress::Nothing);
        }
        self.take_requests(core);
        if self.is_paused || self.blocked.is_some() || !self.connection.is_readable() {
            return Ok(Progress::Taken);
        }
        // The requests that were taken may be complete already, also if nothing more is read.
        let progress = self.receive(buffers, core)?;
        Ok(if progress == Progress::Nothing { Progress::Taken } else { progress })
    }

    /// Takes no more requests, not even those that were read. The client is closed when it has its replies.
    pub(crate) fn leave(&mut self) {
        self.is_ending = true;
    }

    /// Stops reading. Requests that were read are still answered.
    pub(crate) fn stop_reading(&mut self, core: &mut Core) {
        self.is_input_done = true;
        self.take_requests(core);
    }

    /// Whether the client sends no more requests and all replies are delivered.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_ending && self.queue.is_empty() && self.connection.outbox.is_empty()
    }

    /// Whether the client has closed its side of the connection.
    pub(crate) fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    /// Closes the sending side of the connection. Returns true the first time.
    pub(crate) fn start_closing(&mut self) -> bool {
        self.connection.end_writing();
        !std::mem::replace(&mut self.is_closing, true)
    }

    /// Whether a request with this access may be sent now, without overtaking an earlier one that it depends on.
    fn may_take(&self, kind: Access, core: &Core) -> bool {
        let overlap = core.settings.overlap;
        let is_after_late_writes = || !core.jobs.clients.has_late_writes(self.reference());
        (self.queue.is_delivered() || overlap.allows(self.in_flight_access, kind))
            && (!overlap.waits_for_late_writes(kind) || is_after_late_writes())
    }

    /// Parses and submits the requests in the inbox as long as there is room for their replies.
    fn take_requests(&mut self, core: &mut Core) {
        // The inbox is moved out of the connection, so that requests can borrow its bytes while the session changes.
        let mut inbox = std::mem::take(&mut self.connection.inbox);
        let mut used = self.rare.swallow(inbox.filled().len());
        if self.blocked.take().is_some() {
            core.jobs.clients.set_blocked(self.reference(), false);
        }
        while !self.is_ending && self.rare.get().swallow == 0 && used < inbox.filled().len() && self.has_room(core) {
            let unread = &inbox.filled()[used..];
            let taken = match self.rare.get().line {
                Some(line) => self.take_part(line, unread, core),
                None => self.take_request(unread, core),
            };
            let Taken::Bytes(consumed) = taken else { break };
            used += consumed;
            used += self.rare.swallow(inbox.filled().len() - used);
        }
        if self.is_ending {
            used = inbox.filled().len();
        }
        inbox.consume(used);
        self.connection.inbox = inbox;
        self.is_paused = false;
        if self.blocked.is_some() {
            return;
        }
        if self.is_ending || self.has_room(core) {
            self.is_ending |= self.is_input_done;
        } else {
            self.pause(core);
        }
    }

    /// Parses and submits one request.
    fn take_request(&mut self, unread: &[u8], core: &mut Core) -> Taken {
        let command_bytes = core.settings.wire.command_bytes;
        if self.admission == Admission::New
            && let Some(taken) = self.enter(unread, core)
        {
            return taken;
        }
        match parse_request(unread, &core.settings.wire) {
            ParsedRequest::Incomplete if unread.len() < command_bytes => Taken::Incomplete,
            ParsedRequest::Incomplete => self.take_incomplete(unread, core),
            ParsedRequest::Request { request, consumed } => {
                if self.listener.commands.are_limited()
                    && let Some(taken) = self.refuse_command(&request, consumed, core)
                {
                    return taken;
                }
                if let Request::Get { verb, keys, .. } = &request
                    && keys.are_more_than(1)
                    && keys.are_more_than(self.keys_with_room(*verb, core))
                    && let Some(taken) = self.open_line(unread, core)
                {
                    return taken;
                }
                let access = self.access_of(&request, consumed == unread.len(), core);
                if !self.may_take(access, core) {
                    return self.block(access, core);
                }
                let verb = request.verb();
                self.is_ending |= verb == Verb::Quit;
                let arrival = self.arrival(verb, request.noreply() || verb == Verb::Quit, consumed);
                let arrival = Arrival { is_bulk: access == Access::BulkRead, ..arrival };
                self.note_access(&request, access, arrival.sequence);
                let id = core.submit(arrival, &request);
                self.push(id, core);
                Taken::Bytes(consumed)
            }
            ParsedRequest::Invalid { error, consumed, swallow } => {
                // The keys before an invalid one may have been sent if the line had arrived in pieces. It makes no difference.
                if error == RequestError::BadKey
                    && consumed > command_bytes
                    && let Some(taken) = self.open_line(unread, core)
                {
                    return taken;
                }
                if self.listener.commands.are_limited()
                    && let Some(taken) = self.refuse_value(&error, &unread[..consumed], swallow, core)
                {
                    return taken;
                }
                self.refuse_request(&error, &unread[..consumed], swallow, core)
            }
            ParsedRequest::Close { error } => {
                if error == Some(RequestError::LineTooLong)
                    && let Some(taken) = self.open_line(unread, core)
                {
                    return taken;
                }
                if let Some(error) = error {
                    self.refuse(&error, b"", core);
                }
                self.is_ending = true;
                Taken::Bytes(unread.len())
            }
        }
    }

    /// Takes the first part of a request that has not arrived completely, if it needs no more: of a line of keys, or of a value
    /// that cannot be held.
    fn take_incomplete(&mut self, unread: &[u8], core: &mut Core) -> Taken {
        if let Some(taken) = self.open_line(unread, core) {
            return taken;
        }
        if self.listener.commands.are_limited()
            && let Some(taken) = self.refuse_arriving(unread, core)
        {
            return taken;
        }
        self.refuse_large_value(unread, core)
    }

    /// Blocks a request until all earlier requests are answered.
    fn block(&mut self, access: Access, core: &mut Core) -> Taken {
        self.blocked = Some(access);
        core.jobs.clients.set_blocked(self.reference(), true);
        core.journal.counters.order_waits.add(1);
        Taken::Blocked
    }

    /// Remembers what the next requests must not overtake, and what must not be read again after this one.
    fn note_access(&mut self, request: &Request<'_>, access: Access, sequence: u32) {
        if self.queue.is_delivered() || access != Access::Local {
            self.in_flight_access = access;
        }
        if may_change_values(request, access) {
            (self.last_write, self.has_written) = (sequence, true);
        }
    }

    fn push(&mut self, id: JobId, core: &mut Core) {
        let job = core.jobs.get(id);
        let keys = keys_read(job);
        self.keys_in_order += keys;
        self.request_bytes += job.request_bytes as usize;
        self.queue.push(id);
        if self.is_unknown(core) {
            core.jobs.count_first_keys(id, keys as u16);
        }
    }

    /// Counts the bytes in the buffers of this session.
    fn count_buffers(&self, core: &mut Core) {
        let output = self.unread_bytes();
        let input = self.connection.inbox.held_bytes() + self.request_bytes;
        core.jobs.clients.buffers_changed(self.reference(), output, input);
    }

    /// Frees what an idle client does not need.
    fn release(&mut self) {
        self.connection.outbox.release();
        if self.queue.is_empty() && !self.is_closing {
            self.rare.release();
        }
    }

    /// Stops reading until replies have been written.
    fn pause(&mut self, core: &Core) {
        if !self.is_paused {
            core.journal.counters.clients_paused.add(1);
        }
        self.is_paused = true;
    }

    /// The next request of this client, with the next sequence number.
    fn arrival(&mut self, verb: Verb, is_quiet: bool, request_bytes: usize) -> Arrival {
        let sequence = self.take_sequence();
        self.arrival_of(sequence, verb, is_quiet, request_bytes)
    }

    fn take_sequence(&mut self) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    fn arrival_of(&self, sequence: u32, verb: Verb, is_quiet: bool, request_bytes: usize) -> Arrival {
        let (session, port, received) = (self.reference(), self.port, self.received);
        let (pool, is_bulk, is_part) = (self.listener.pool(), false, false);
        Arrival { session, pool, port, sequence, received, verb, is_quiet, is_bulk, is_part, request_bytes }
    }
}

/// The number of keys whose values a job returns.
fn keys_read(job: &Job) -> u32 {
    if is_read(job.verb) { job.keys.into() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be many thousands of idle clients.
    #[test]
    fn a_session_is_small() {
        assert!(
            size_of::<Session>() <= 240,
            "{} bytes, {} of the connection",
            size_of::<Session>(),
            size_of::<Connection>()
        );
    }
}
