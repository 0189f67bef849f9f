//! Steps 2 and 9. A client's connection: reads bytes, parses requests, and writes the replies in the order of the requests.
//!
//! While a client does not read its replies, or has too many requests in flight, the proxy does not read from it.

use crate::path::core::{Arrival, Core};
use crate::path::job::{JobId, SessionRef};
use crate::path::order::Access;
use clock::Nanos;
use net::{Buffers, Connection, Filled, is_tls_failure};
use records::Outcome;
use std::collections::VecDeque;
use wire::{Meta, MetaFlags, ParsedRequest, Request, RequestError, Verb, parse_request};

/// The most bytes read from one client before other clients get their turn.
const READ_BUDGET_BYTES: usize = 256 * 1024;
/// A reply of at least this size is moved to the connection instead of copied.
const MOVED_BYTES: usize = 16 * 1024;
/// The most bytes that a client may still send after its last reply before the proxy resets the connection.
const DROPPED_BYTES_MAX: usize = 4 << 20;
/// The expected size of a client's replies before the first one.
const FIRST_REPLY_BYTES: usize = 4096;

/// One client.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    slot: u32,
    number: u32,
    port: u16,
    next_sequence: u32,
    /// Jobs whose reply is not in the output buffer yet, in the order of the requests.
    order: VecDeque<JobId>,
    /// Jobs whose reply is in the output buffer but not yet written, each with the offset at which the reply ends.
    unflushed: VecDeque<(JobId, u64)>,
    /// The number of bytes of a refused value that are still to be received and dropped.
    swallow: u64,
    /// When the last read returned.
    received: Nanos,
    /// No more requests are accepted: after `quit`, an unparsable request or the end of the input.
    is_ending: bool,
    is_paused: bool,
    /// The access of the requests in `order`, apart from those that the proxy answers itself.
    in_flight_access: Access,
    /// The access of a request that is blocked until all earlier requests are answered.
    blocked: Option<Access>,
    /// Nothing more is read, because the client has closed its side or the proxy drains. Requests that were read are answered.
    is_input_done: bool,
    has_peer_closed: bool,
    /// All replies are delivered. Input is dropped until the client closes its side.
    is_closing: bool,
    droppable_bytes: usize,
    /// The expected size of a reply, estimated from the last ones.
    reply_bytes: usize,
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
    /// A session for a connection that was just accepted.
    pub(crate) fn new(connection: Connection, slot: u32, number: u32) -> Session {
        let port = connection.peer_address().map_or(0, |address| address.port());
        Session {
            connection,
            slot,
            number,
            port,
            next_sequence: 0,
            order: VecDeque::new(),
            unflushed: VecDeque::new(),
            swallow: 0,
            received: Nanos::UNSET,
            is_ending: false,
            is_paused: false,
            in_flight_access: Access::Local,
            blocked: None,
            is_input_done: false,
            has_peer_closed: false,
            is_closing: false,
            droppable_bytes: DROPPED_BYTES_MAX,
            reply_bytes: FIRST_REPLY_BYTES,
        }
    }

    /// The connection's number, which is unique within the process.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The name by which jobs refer to this session.
    pub(crate) fn reference(&self) -> SessionRef {
        SessionRef { slot: self.slot, connection: self.number }
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Whether this client can move to a loop of the new configuration: no reply is outstanding, and none of its jobs is left. A
    /// job of an acknowledged write is left until all replicas have answered: the next write uses another loop's connection and
    /// could overtake it.
    pub(crate) fn may_move(&self, core: &Core) -> bool {
        core.settings.is_moving && self.is_quiet() && core.jobs.clients.jobs_of(self.reference()) == 0
    }

    fn is_quiet(&self) -> bool {
        let is_delivered = self.order.is_empty() && self.unflushed.is_empty() && self.connection.outbox.is_empty();
        let is_open = !self.is_ending && !self.is_input_done && !self.is_closing && !self.connection.is_handshaking();
        is_delivered && is_open && self.swallow == 0
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
            self.droppable_bytes = self.droppable_bytes.checked_sub(dropped).ok_or(Gone)?;
            return Ok(if self.connection.is_readable() { Progress::More } else { Progress::Nothing });
        }
        if self.is_ending || self.is_input_done {
            return Ok(Progress::Nothing);
        }
        if self.blocked.is_some() {
            return Ok(Progress::Nothing);
        }
        if !self.has_room(core) {
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
        self.connection.outbox.release();
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
        self.receive(buffers, core)
    }

    /// Stops reading. Requests that were read are still answered.
    pub(crate) fn stop_reading(&mut self, core: &mut Core) {
        self.is_input_done = true;
        self.take_requests(core);
    }

    /// Whether the client sends no more requests and all replies are delivered.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_ending && self.order.is_empty() && self.unflushed.is_empty() && self.connection.outbox.is_empty()
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

    /// Whether there is room for one more reply. The replies to requests in flight count with their expected size.
    fn has_room(&self, core: &Core) -> bool {
        let expected = (self.order.len() * self.reply_bytes) as u64;
        // A client that sends no more is not moved: its last requests are answered here.
        (!core.settings.is_moving || self.is_input_done)
            && self.order.len() + self.unflushed.len() < core.settings.client_window
            && (self.order.is_empty() || expected < core.settings.client_buffer_bytes)
            && self.connection.outbox.waiting_bytes() < core.settings.client_buffer_bytes
    }

    /// Whether a request with this access may be sent now, without overtaking an earlier one that it depends on.
    fn may_take(&self, kind: Access, core: &Core) -> bool {
        let overlap = core.settings.overlap;
        let is_after_late_writes = || !core.jobs.clients.has_late_writes(self.reference());
        (self.order.is_empty() || overlap.allows(self.in_flight_access, kind))
            && (!overlap.waits_for_late_writes(kind) || is_after_late_writes())
    }

    /// Parses and submits the requests in the inbox as long as there is room for their replies.
    fn take_requests(&mut self, core: &mut Core) {
        // The inbox is moved out of the connection, so that requests can borrow its bytes while the session changes.
        let mut inbox = std::mem::take(&mut self.connection.inbox);
        let mut used = self.swallow(inbox.filled().len());
        if self.blocked.take().is_some() {
            core.jobs.clients.set_blocked(self.reference(), false);
        }
        while !self.is_ending && self.swallow == 0 && used < inbox.filled().len() && self.has_room(core) {
            match parse_request(&inbox.filled()[used..], &core.settings.wire) {
                ParsedRequest::Incomplete => break,
                ParsedRequest::Request { request, consumed } => {
                    let kind = Access::of(&request).expecting(self.reply_bytes, core.settings.overlap);
                    if !self.may_take(kind, core) {
                        self.blocked = Some(kind);
                        core.jobs.clients.set_blocked(self.reference(), true);
                        core.journal.counters.order_waits.add(1);
                        break;
                    }
                    if self.order.is_empty() || kind != Access::Local {
                        self.in_flight_access = kind;
                    }
                    used += consumed;
                    let verb = request.verb();
                    self.is_ending |= verb == Verb::Quit;
                    let arrival = self.arrival(verb, request.noreply() || verb == Verb::Quit, consumed);
                    let arrival = Arrival { is_bulk: kind == Access::BulkRead, ..arrival };
                    self.order.push_back(core.submit(arrival, &request));
                }
                ParsedRequest::Invalid { error, consumed, swallow } => {
                    let line = &inbox.filled()[used..used + consumed];
                    used += consumed;
                    self.refuse(&error, line, core);
                    self.swallow = swallow;
                    used += self.swallow(inbox.filled().len() - used);
                }
                ParsedRequest::Close { error } => {
                    if let Some(error) = error {
                        self.refuse(&error, b"", core);
                    }
                    self.is_ending = true;
                }
            }
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

    /// Stops reading until replies have been written.
    fn pause(&mut self, core: &Core) {
        if !self.is_paused {
            core.journal.counters.clients_paused.add(1);
        }
        self.is_paused = true;
    }

    /// Drops the bytes of a refused value; returns how many of the `available` bytes belonged to it.
    fn swallow(&mut self, available: usize) -> usize {
        let count = self.swallow.min(available as u64);
        self.swallow -= count;
        count as usize
    }

    /// Answers an invalid request with its error line.
    fn refuse(&mut self, error: &RequestError, line: &[u8], core: &mut Core) {
        let id = core.begin(self.arrival(Verb::Invalid, error.noreply(), line.len()));
        self.order.push_back(id);
        let job = core.jobs.get(id);
        job.outcome = Outcome::ClientError;
        if let Some(deletion) = deletion(error, line) {
            job.reply_override = Some(error.line());
            self.in_flight_access = Access::Write;
            return core.dispatch(id, &deletion);
        }
        job.reply.extend_from_slice(error.line());
        job.is_done = true;
    }

    /// The next request of this client, with the next sequence number.
    fn arrival(&mut self, verb: Verb, is_quiet: bool, request_bytes: usize) -> Arrival {
        let (port, sequence, received) = (self.port, self.next_sequence, self.received);
        self.next_sequence = self.next_sequence.wrapping_add(1);
        Arrival { session: self.reference(), port, sequence, received, verb, is_quiet, is_bulk: false, request_bytes }
    }

    /// Writes the replies that are complete, in the order of the requests. A job ends when the kernel has accepted its last byte.
    pub(crate) fn reply(&mut self, core: &mut Core) -> Result<(), Gone> {
        while let Some(&id) = self.order.front() {
            let job = core.jobs.get(id);
            if !job.is_done {
                break;
            }
            self.order.pop_front();
            if !job.is_quiet {
                let reply_bytes = job.reply.len();
                job.reply_bytes = reply_bytes as u32;
                // The estimate rises at once and falls slowly, because a large value is often followed by others.
                self.reply_bytes = reply_bytes.max(self.reply_bytes - self.reply_bytes / 16);
                core.journal.counters.replied_bytes.add(job.reply.len() as u64);
                if job.reply.len() >= MOVED_BYTES {
                    self.connection.outbox.append_owned(std::mem::take(&mut job.reply));
                } else {
                    self.connection.outbox.append(|out| out.extend_from_slice(&job.reply));
                }
                core.jobs.reply_moved(id);
            }
            self.unflushed.push_back((id, self.connection.outbox.queued_total()));
        }
        if self.unflushed.is_empty() {
            return Ok(());
        }
        self.connection.flush().map_err(|_| Gone)?;
        let (written, now) = (self.connection.outbox.written_total(), core.clock.now());
        while let Some(&(id, end)) = self.unflushed.front() {
            if end > written {
                break;
            }
            self.unflushed.pop_front();
            core.journal.end(&mut core.jobs, id, now);
        }
        Ok(())
    }

    /// Ends the finished jobs of a client that is gone. Jobs in flight end when they are answered.
    pub(crate) fn abandon(&mut self, core: &mut Core) {
        let now = core.clock.now();
        for (id, _) in self.unflushed.drain(..) {
            core.journal.end_undelivered(&mut core.jobs, id, now);
        }
        for id in self.order.drain(..) {
            if core.jobs.get(id).is_done {
                core.journal.end_undelivered(&mut core.jobs, id, now);
            }
        }
    }
}

/// The delete that must follow a refused value, if the command was a `set` (or an `ms` that sets) with a value that is too large.
/// memcached deletes the old value when it refuses a new one, so that no client reads a value that was meant to be replaced; a
/// proxy that refuses the new value itself must therefore send a delete. `line` is the command without its value.
pub(crate) fn deletion<'l>(error: &RequestError, line: &'l [u8]) -> Option<Request<'l>> {
    if error.reason() != RequestError::ValueTooLarge {
        return None;
    }
    let mut words = line.split(|&byte| matches!(byte, b' ' | b'\r' | b'\n')).filter(|word| !word.is_empty());
    let (command, key) = (words.next()?, words.next()?);
    match command {
        b"set" => Some(Request::Delete { key, noreply: false }),
        b"ms" => {
            let sets = |word: &[u8]| !word.starts_with(b"M") || word.eq_ignore_ascii_case(b"MS");
            let mut is_base64 = false;
            for flag in words.skip(1) {
                is_base64 |= flag == b"b";
                if !sets(flag) {
                    return None;
                }
            }
            let flags = MetaFlags::new(if is_base64 { b"b" } else { b"" });
            Some(Request::Meta(Meta { verb: Verb::Md, key, flags, left_out: b"", value: b"" }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_set_deletes_the_old_value() {
        let delete = |line: &[u8]| {
            let mut bytes = Vec::new();
            deletion(&RequestError::ValueTooLarge, line)?.encode(&mut bytes);
            Some(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(delete(b"set k 0 0 99999999\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(delete(b"set  k 0 0 99999999 noreply\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(delete(b"ms k 99999999 T0 q\r\n").as_deref(), Some("md k\r\n"));
        assert_eq!(delete(b"ms a2s= 99999999 MS b\n").as_deref(), Some("md a2s= b\r\n"));
        for line in
            ["add k 0 0 99999999\r\n", "append k 0 0 99999999\r\n", "ms k 99999999 MA\r\n", "ms k 99999999 ME b\r\n"]
        {
            assert_eq!(delete(line.as_bytes()), None, "{line}");
        }
        assert_eq!(deletion(&RequestError::BadKey, b"set k 0 0 1\r\n"), None);
    }
}
