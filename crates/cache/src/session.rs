//! One client connection: reads requests, passes them to the handler, and writes the replies in order.
//! Knows no command; the handler determines when a reply may be sent.

use crate::handler::{Handled, Handler};
use crate::journal::Entry;
use clock::Nanos;
use net::{Connection, Filled};
use records::{NO_BACKEND, PARENT, Row};
use std::collections::VecDeque;
use std::io;

/// Requests executed in one turn, so that one client cannot starve the others.
const REQUESTS_PER_TURN: usize = 64;
/// Bytes read in one turn.
const READ_BYTES_PER_TURN: usize = 64 * 1024;
/// Bytes of unsent replies beyond which no request is taken.
const REPLY_BYTES_MAXIMUM: u64 = 1024 * 1024;
/// Replies in service beyond which no request is taken.
const REPLIES_DELAYED_MAXIMUM: usize = 16 * 1024;
/// Replies of at least this size are moved instead of copied.
const MOVED_BYTES: usize = 16 * 1024;

/// One client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// Whether it is in the list of sessions that get a turn.
    pub(crate) is_active: bool,
    number: u32,
    port: u16,
    /// The number of the next request.
    sequence: u32,
    /// The time of the last read; every request taken before the next read arrived with it.
    received: Nanos,
    /// Bytes of a refused request that are still to arrive and to be discarded.
    swallow_bytes: u64,
    /// Replies that are not due yet, or that follow one that is not.
    delayed: VecDeque<DelayedReply>,
    delayed_bytes: u64,
    /// Sampled requests whose reply has not been written yet.
    unwritten: VecDeque<Entry>,
    /// Whether the inbox may contain another request.
    has_untaken: bool,
    /// Whether no more bytes will be read, because the client or the cache has ended the connection.
    is_ended: bool,
    /// Whether the client has sent `quit`; the bytes after it are ignored.
    has_quit: bool,
}

/// A reply that is in service.
#[derive(Debug)]
struct DelayedReply {
    served: Nanos,
    reply: Vec<u8>,
    entry: Option<Entry>,
}

/// The next step for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for an event.
    Wait,
    /// Another turn.
    Again,
    /// Close it: every request has been answered.
    Close,
}

impl Session {
    pub(crate) fn new(connection: Connection, number: u32) -> Session {
        let port = connection.peer_address().map_or(0, |address| address.port());
        Session {
            connection,
            is_active: false,
            number,
            port,
            sequence: 0,
            received: Nanos::UNSET,
            swallow_bytes: 0,
            delayed: VecDeque::new(),
            delayed_bytes: 0,
            unwritten: VecDeque::new(),
            has_untaken: false,
            is_ended: false,
            has_quit: false,
        }
    }

    /// One turn: takes the requests in the inbox, reads once, takes those, and writes.
    pub(crate) fn turn(&mut self, key: usize, handler: &mut Handler) -> io::Result<()> {
        self.deliver(handler)?;
        let mut budget = REQUESTS_PER_TURN;
        self.take_requests(key, handler, &mut budget);
        if !self.has_untaken && !self.is_ended && !self.has_quit && self.connection.is_readable() {
            self.read(handler)?;
            self.take_requests(key, handler, &mut budget);
        }
        self.write(handler)?;
        if self.connection.outbox.is_empty() {
            self.connection.outbox.release();
        }
        self.connection.inbox.release(&mut handler.buffers);
        Ok(())
    }

    /// Sends the replies that are due.
    pub(crate) fn deliver(&mut self, handler: &mut Handler) -> io::Result<()> {
        if !self.delayed.is_empty() {
            self.release(handler.clock.now());
        }
        self.write(handler)
    }

    /// Reads the bytes that have arrived, and none after that.
    pub(crate) fn stop(&mut self, handler: &mut Handler) -> io::Result<()> {
        if !self.is_ended && !self.is_paused() {
            self.connection.on_ready(true, false, false);
            self.read(handler)?;
        }
        self.is_ended = true;
        Ok(())
    }

    /// The next step after a turn.
    pub(crate) fn next(&self) -> Next {
        let takes_more = !self.has_quit && (self.has_untaken || !self.is_ended);
        if !takes_more && self.delayed.is_empty() && self.connection.outbox.is_empty() {
            return Next::Close;
        }
        let has_more = self.has_untaken || (!self.is_ended && self.connection.is_readable());
        if takes_more && has_more && !self.is_paused() { Next::Again } else { Next::Wait }
    }

    /// Ends the entries of all unanswered requests in the journal after the client has disconnected.
    pub(crate) fn abandon(self, handler: &mut Handler) {
        let delayed = self.delayed.into_iter().filter_map(|delayed| delayed.entry);
        for entry in self.unwritten.into_iter().chain(delayed) {
            handler.journal.abandoned(&entry);
        }
    }

    fn read(&mut self, handler: &mut Handler) -> io::Result<()> {
        let filled = self.connection.fill(&mut handler.buffers, READ_BYTES_PER_TURN)?;
        self.received = handler.clock.now();
        self.is_ended |= filled == Filled::Closed;
        self.has_untaken = true;
        Ok(())
    }

    /// Whether too many replies wait for this client to take another request.
    fn is_paused(&self) -> bool {
        self.delayed.len() >= REPLIES_DELAYED_MAXIMUM
            || self.delayed_bytes + self.connection.outbox.waiting_bytes() >= REPLY_BYTES_MAXIMUM
    }

    fn take_requests(&mut self, key: usize, handler: &mut Handler, budget: &mut usize) {
        while self.has_untaken && !self.has_quit && !self.is_paused() && *budget > 0 {
            *budget -= 1;
            if !self.swallow() {
                self.has_untaken = false;
                return;
            }
            let taken = handler.take(self.connection.inbox.filled(), self.received, key);
            match taken {
                Some(taken) => self.taken(&taken, handler),
                None => self.has_untaken = false,
            }
        }
    }

    /// Discards the bytes of a refused request; true if all of them have arrived.
    fn swallow(&mut self) -> bool {
        let here = self.connection.inbox.filled().len();
        let count = usize::try_from(self.swallow_bytes).map_or(here, |swallow| swallow.min(here));
        self.connection.inbox.consume(count);
        self.swallow_bytes -= count as u64;
        self.swallow_bytes == 0
    }

    /// Takes a request from the inbox; the handler then has its reply.
    fn taken(&mut self, taken: &Handled, handler: &mut Handler) {
        self.connection.inbox.consume(taken.consumed);
        self.swallow_bytes = taken.swallow_bytes;
        self.has_quit = taken.quits;
        let entry = self.entry(taken, handler);
        self.sequence = self.sequence.wrapping_add(1);
        // Without a service time every reply takes this path, and none is delayed.
        if self.delayed.is_empty() && taken.is_instant {
            self.send(&mut handler.reply, entry);
        } else {
            let reply = lift(&mut handler.reply);
            self.delayed_bytes += reply.len() as u64;
            self.delayed.push_back(DelayedReply { served: taken.served, reply, entry });
        }
    }

    fn entry(&self, taken: &Handled, handler: &mut Handler) -> Option<Entry> {
        if !handler.journal.is_sampled(self.port, self.sequence) {
            return None;
        }
        handler.journal.begin();
        let request_bytes = taken.swallow_bytes.saturating_add(taken.consumed as u64);
        let row = Row {
            connection: self.number,
            sequence: self.sequence,
            request_bytes: u32::try_from(request_bytes).unwrap_or(u32::MAX),
            reply_bytes: u32::try_from(handler.reply.len()).unwrap_or(u32::MAX),
            queue_length: taken.queue_length,
            port: self.port,
            backend: NO_BACKEND,
            keys: taken.answer.keys,
            hits: taken.answer.hits,
            operation: taken.operation,
            outcome: taken.answer.outcome as u8,
            leg: PARENT,
            legs: 1,
            ..Row::default()
        };
        Some(Entry { row, received: self.received, started: taken.started, served: taken.served, reply_ends_at: 0 })
    }

    /// Moves the replies that are due to the outbox; the first that is not due blocks those after it.
    fn release(&mut self, now: Nanos) {
        while self.delayed.front().is_some_and(|delayed| delayed.served <= now) {
            if let Some(DelayedReply { mut reply, entry, .. }) = self.delayed.pop_front() {
                self.delayed_bytes -= reply.len() as u64;
                self.send(&mut reply, entry);
            }
        }
    }

    fn send(&mut self, reply: &mut Vec<u8>, entry: Option<Entry>) {
        let outbox = &mut self.connection.outbox;
        if reply.len() >= MOVED_BYTES {
            outbox.append_owned(std::mem::take(reply));
        } else if !reply.is_empty() {
            outbox.append(|out| out.extend_from_slice(reply));
        }
        if let Some(entry) = entry {
            self.unwritten.push_back(Entry { reply_ends_at: outbox.queued_total(), ..entry });
        }
    }

    fn write(&mut self, handler: &mut Handler) -> io::Result<()> {
        self.connection.flush()?;
        let written = self.connection.outbox.written_total();
        while self.unwritten.front().is_some_and(|entry| entry.reply_ends_at <= written) {
            if let Some(entry) = self.unwritten.pop_front() {
                handler.journal.replied(&entry);
            }
        }
        Ok(())
    }
}

/// Takes a delayed reply from the handler: a large one is moved, a small one is copied so that the handler keeps its buffer.
fn lift(reply: &mut Vec<u8>) -> Vec<u8> {
    if reply.len() >= MOVED_BYTES { std::mem::take(reply) } else { reply.as_slice().to_vec() }
}
