//! Stations 2, 3 and 9. A client's connection: bytes become requests, requests become jobs, and replies leave in request order.
//!
//! A client that does not read its replies, or has too much in flight, is not read from until that has changed.

use crate::path::core::{Arrival, Core};
use crate::path::job::{JobId, SessionRef};
use crate::path::order::Access;
use clock::Nanos;
use net::{Buffers, Connection, Filled, is_tls_failure};
use records::Outcome;
use std::collections::VecDeque;
use wire::{Meta, MetaFlags, ParsedRequest, Request, RequestError, Verb, parse_request};

/// Bytes read from one client before others get their turn.
const READ_BUDGET_BYTES: usize = 256 * 1024;
/// A reply at least so large is moved to the connection, not copied.
const MOVED_BYTES: usize = 16 * 1024;
/// Bytes that a client may still send when it has got its last reply, before its connection is broken off.
const DROPPED_BYTES_MAX: usize = 4 << 20;
/// What a client's replies are expected to take before any is known.
const FIRST_REPLY_BYTES: usize = 4096;

/// One client.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    slot: u32,
    number: u32,
    port: u16,
    next_sequence: u32,
    /// Jobs whose turn has not come, in request order.
    order: VecDeque<JobId>,
    /// Jobs whose reply is on the connection, each with the offset at which it ends.
    unflushed: VecDeque<(JobId, u64)>,
    /// Bytes of a refused value that are still to arrive.
    swallow: u64,
    /// When the last read returned.
    received: Nanos,
    /// No more requests are taken: quit, half-closed, refused or draining.
    is_ending: bool,
    is_paused: bool,
    /// The kind of the requests in `order`; those that the proxy answers itself are of none.
    in_flight_access: Access,
    /// The kind of a request that must wait until all before it are answered.
    held: Option<Access>,
    /// Nothing more is read, since the client has closed its side or the proxy is draining; what has been read is answered.
    is_read_out: bool,
    has_peer_closed: bool,
    /// Everything is delivered; input is dropped until the client closes.
    is_leaving: bool,
    droppable_bytes: usize,
    /// What a reply is expected to take, learnt from the last ones.
    reply_bytes: usize,
}

/// What a session has got done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No request was taken.
    Nothing,
    /// Requests were taken.
    Taken,
    /// There may be more to read in the next turn.
    More,
}

/// The client is gone: nothing can be delivered any more.
#[derive(Debug)]
pub(crate) struct Gone;

impl Session {
    /// A client that has just been accepted.
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
            held: None,
            is_read_out: false,
            has_peer_closed: false,
            is_leaving: false,
            droppable_bytes: DROPPED_BYTES_MAX,
            reply_bytes: FIRST_REPLY_BYTES,
        }
    }

    /// The connection's number, which no other session of the process ever has.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    fn reference(&self) -> SessionRef {
        SessionRef { slot: self.slot, connection: self.number }
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Whether clients are to move and nothing of this one is under way, so that another loop may go on with the connection and
    /// what has been read of it. A copy may still be late with a write that has been acknowledged; the next write would overtake
    /// it on another loop's connection.
    pub(crate) fn may_move(&self, core: &Core) -> bool {
        core.settings.is_moving && self.is_quiet() && !core.jobs.has_any_of(self.reference())
    }

    fn is_quiet(&self) -> bool {
        let owes_nothing = self.order.is_empty() && self.unflushed.is_empty() && self.connection.outbox.is_empty();
        let is_open = !self.is_ending && !self.is_read_out && !self.is_leaving && !self.connection.is_handshaking();
        owes_nothing && is_open && self.swallow == 0
    }

    /// Gives the connection up.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Looks at what came with the connection as soon as there is time.
    pub(crate) fn begin_paused(&mut self) {
        self.is_paused = !self.connection.inbox.filled().is_empty();
    }

    /// Reads what has come and takes the requests in it.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers, core: &mut Core) -> Result<Progress, Gone> {
        if self.is_leaving {
            let dropped = self.connection.drop_input(buffers, READ_BUDGET_BYTES).ok_or(Gone)?;
            self.droppable_bytes = self.droppable_bytes.checked_sub(dropped).ok_or(Gone)?;
            return Ok(if self.connection.is_readable() { Progress::More } else { Progress::Nothing });
        }
        if self.is_ending || self.is_read_out {
            return Ok(Progress::Nothing);
        }
        if self.held.is_some() {
            return Ok(Progress::Nothing);
        }
        if !self.has_room(core) {
            self.pause(core);
            return Ok(Progress::Nothing);
        }
        let filled = self.connection.fill(buffers, READ_BUDGET_BYTES);
        self.received = core.clock.now();
        self.has_peer_closed |= matches!(filled, Ok(Filled::Closed));
        self.is_read_out |= self.has_peer_closed;
        // What came before a broken connection was sent in earnest: writes in it are done, though nobody hears of it.
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

    /// Goes on with a client that was not read from, once there is room again.
    pub(crate) fn resume(&mut self, buffers: &mut Buffers, core: &mut Core) -> Result<Progress, Gone> {
        let may_go_on = match self.held {
            Some(kind) => self.may_take(kind, core),
            None => self.is_paused,
        };
        if !may_go_on || !self.has_room(core) {
            return Ok(Progress::Nothing);
        }
        self.take_requests(core);
        if self.is_paused || self.held.is_some() || !self.connection.is_readable() {
            return Ok(Progress::Taken);
        }
        self.receive(buffers, core)
    }

    /// Reads no more; the requests that have been read are still answered.
    pub(crate) fn stop_reading(&mut self, core: &mut Core) {
        self.is_read_out = true;
        self.take_requests(core);
    }

    /// Whether everything that was promised has been delivered.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.order.is_empty() && self.unflushed.is_empty() && self.connection.outbox.is_empty()
    }

    /// Whether the client sends no more.
    pub(crate) fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    /// Tells the client that nothing more comes; true the first time.
    pub(crate) fn start_leaving(&mut self) -> bool {
        self.connection.end_writing();
        !std::mem::replace(&mut self.is_leaving, true)
    }

    /// Whether the replies to one more request may be held: those under way are counted with what they are expected to take.
    fn has_room(&self, core: &Core) -> bool {
        let expected = (self.order.len() * self.reply_bytes) as u64;
        // A client that sends no more is not moved: what has been read of it is done here.
        (!core.settings.is_moving || self.is_read_out)
            && self.order.len() + self.unflushed.len() < core.settings.client_window
            && (self.order.is_empty() || expected < core.settings.client_buffer_bytes)
            && self.connection.outbox.waiting_bytes() < core.settings.client_buffer_bytes
    }

    /// Whether a request of this kind may be sent on now, or would overtake an earlier one.
    fn may_take(&self, kind: Access, core: &Core) -> bool {
        self.order.is_empty() || core.settings.overlap.allows(self.in_flight_access, kind)
    }

    /// Takes requests off the inbox as long as there is room for their replies.
    fn take_requests(&mut self, core: &mut Core) {
        // The inbox is taken out of the connection so that its bytes can be lent while the rest of the session changes.
        let mut inbox = std::mem::take(&mut self.connection.inbox);
        let mut used = self.swallow(inbox.filled().len());
        self.held = None;
        while !self.is_ending && self.swallow == 0 && used < inbox.filled().len() && self.has_room(core) {
            match parse_request(&inbox.filled()[used..], &core.settings.wire) {
                ParsedRequest::Incomplete => break,
                ParsedRequest::Request { request, consumed } => {
                    let kind = Access::of(&request);
                    if !self.may_take(kind, core) {
                        self.held = Some(kind);
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
        if self.held.is_some() {
            return;
        }
        if self.is_ending || self.has_room(core) {
            self.is_ending |= self.is_read_out;
        } else {
            self.pause(core);
        }
    }

    /// Reads no more until replies have left.
    fn pause(&mut self, core: &Core) {
        if !self.is_paused {
            core.journal.counters.clients_paused.add(1);
        }
        self.is_paused = true;
    }

    /// How many of `available` bytes belong to a refused value.
    fn swallow(&mut self, available: usize) -> usize {
        let count = self.swallow.min(available as u64);
        self.swallow -= count;
        count as usize
    }

    /// Answers what is not a request.
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

    /// What is known of the next request, which gets the next number.
    fn arrival(&mut self, verb: Verb, is_quiet: bool, request_bytes: usize) -> Arrival {
        let (port, sequence, received) = (self.port, self.next_sequence, self.received);
        self.next_sequence = self.next_sequence.wrapping_add(1);
        Arrival { session: self.reference(), port, sequence, received, verb, is_quiet, request_bytes }
    }

    /// Puts the replies whose turn has come on the connection and writes them; jobs whose last byte is accepted end.
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
                // Rises at once, falls slowly: a large value is rarely alone.
                self.reply_bytes = reply_bytes.max(self.reply_bytes - self.reply_bytes / 16);
                core.journal.counters.replied_bytes.add(job.reply.len() as u64);
                if job.reply.len() >= MOVED_BYTES {
                    self.connection.outbox.append_owned(std::mem::take(&mut job.reply));
                } else {
                    self.connection.outbox.append(|out| out.extend_from_slice(&job.reply));
                }
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

    /// Ends what was ready for a client that has gone. What is still on its way ends when it is answered.
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

/// The deletion that goes with an error, if it is a `set` (or an `ms` that sets) whose value is too large. `line` is the
/// command without its value.
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
    fn only_what_was_to_be_replaced_is_deleted() {
        let asked = |line: &[u8]| {
            let mut bytes = Vec::new();
            deletion(&RequestError::ValueTooLarge, line)?.encode(&mut bytes);
            Some(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(asked(b"set k 0 0 99999999\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(asked(b"set  k 0 0 99999999 noreply\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(asked(b"ms k 99999999 T0 q\r\n").as_deref(), Some("md k\r\n"));
        assert_eq!(asked(b"ms a2s= 99999999 MS b\n").as_deref(), Some("md a2s= b\r\n"));
        for line in
            ["add k 0 0 99999999\r\n", "append k 0 0 99999999\r\n", "ms k 99999999 MA\r\n", "ms k 99999999 ME b\r\n"]
        {
            assert_eq!(asked(line.as_bytes()), None, "{line}");
        }
        assert_eq!(deletion(&RequestError::BadKey, b"set k 0 0 1\r\n"), None);
    }
}
