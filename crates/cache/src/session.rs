//! One client connection: bytes in, requests to the desk, replies out in the order of the requests.
//! Knows no command; when a reply may leave is the desk's word.

use crate::desk::{Desk, Taken};
use crate::journal::Entry;
use clock::Nanos;
use net::{Connection, Filled};
use records::{NO_BACKEND, PARENT, Row};
use std::collections::VecDeque;
use std::io;

/// Requests answered in one turn, so that one client cannot keep the others waiting.
const REQUESTS_PER_TURN: usize = 64;
/// Bytes read in one turn.
const READ_BYTES_PER_TURN: usize = 64 * 1024;
/// Bytes of replies, waiting for their time or for the client to read, beyond which no request is taken.
const REPLY_BYTES_MAXIMUM: u64 = 1024 * 1024;
/// Replies waiting for their time beyond which no request is taken.
const REPLIES_HELD_MAXIMUM: usize = 16 * 1024;
/// Replies of at least this size are moved, not copied.
const MOVED_BYTES: usize = 16 * 1024;

/// One client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// Whether it is in the list of those whose turn comes.
    pub(crate) is_active: bool,
    number: u32,
    port: u16,
    /// Number of the next request.
    sequence: u32,
    /// When the last read returned: it completed every request that is taken before the next read.
    received: Nanos,
    /// Bytes to come that belong to a request that was refused.
    swallow_bytes: u64,
    /// Replies whose time has not come, or whose predecessor's has not.
    held: VecDeque<Held>,
    held_bytes: u64,
    /// Sampled requests whose reply the kernel has not yet taken.
    unwritten: VecDeque<Entry>,
    /// Whether the inbox may hold a request that could be taken.
    has_untaken: bool,
    /// The client, or the end of the cache, said that no more bytes will be read.
    is_ended: bool,
    /// The client said goodbye: what it sent after that is not looked at.
    has_quit: bool,
}

/// A reply that waits.
#[derive(Debug)]
struct Held {
    served: Nanos,
    reply: Vec<u8>,
    entry: Option<Entry>,
}

/// What is to be done with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until something happens.
    Wait,
    /// Another turn.
    Again,
    /// Close it: everything has been answered.
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
            held: VecDeque::new(),
            held_bytes: 0,
            unwritten: VecDeque::new(),
            has_untaken: false,
            is_ended: false,
            has_quit: false,
        }
    }

    /// Does what can be done now: answers what is here, reads once, answers that, writes.
    pub(crate) fn turn(&mut self, key: usize, desk: &mut Desk) -> io::Result<()> {
        self.deliver(desk)?;
        let mut budget = REQUESTS_PER_TURN;
        self.take_requests(key, desk, &mut budget);
        if !self.has_untaken && !self.is_ended && !self.has_quit && self.connection.is_readable() {
            self.read(desk)?;
            self.take_requests(key, desk, &mut budget);
        }
        self.write(desk)?;
        if self.connection.outbox.is_empty() {
            self.connection.outbox.release();
        }
        self.connection.inbox.release(&mut desk.buffers);
        Ok(())
    }

    /// Sends the replies whose time has come.
    pub(crate) fn deliver(&mut self, desk: &mut Desk) -> io::Result<()> {
        if !self.held.is_empty() {
            self.release(desk.clock.now());
        }
        self.write(desk)
    }

    /// Reads what has already arrived, and no more after that.
    pub(crate) fn stop(&mut self, desk: &mut Desk) -> io::Result<()> {
        if !self.is_ended && !self.is_paused() {
            self.connection.on_ready(true, false, false);
            self.read(desk)?;
        }
        self.is_ended = true;
        Ok(())
    }

    /// What is to be done after a turn.
    pub(crate) fn next(&self) -> Next {
        let takes_more = !self.has_quit && (self.has_untaken || !self.is_ended);
        if !takes_more && self.held.is_empty() && self.connection.outbox.is_empty() {
            return Next::Close;
        }
        let has_more = self.has_untaken || (!self.is_ended && self.connection.is_readable());
        if takes_more && has_more && !self.is_paused() { Next::Again } else { Next::Wait }
    }

    /// The client is gone: tells the journal of every request that will not be answered.
    pub(crate) fn abandon(self, desk: &mut Desk) {
        let held = self.held.into_iter().filter_map(|held| held.entry);
        for entry in self.unwritten.into_iter().chain(held) {
            desk.journal.abandoned(&entry);
        }
    }

    fn read(&mut self, desk: &mut Desk) -> io::Result<()> {
        let filled = self.connection.fill(&mut desk.buffers, READ_BYTES_PER_TURN)?;
        self.received = desk.clock.now();
        self.is_ended |= filled == Filled::Closed;
        self.has_untaken = true;
        Ok(())
    }

    /// Whether too much waits for this client to take another request of it.
    fn is_paused(&self) -> bool {
        self.held.len() >= REPLIES_HELD_MAXIMUM
            || self.held_bytes + self.connection.outbox.waiting_bytes() >= REPLY_BYTES_MAXIMUM
    }

    fn take_requests(&mut self, key: usize, desk: &mut Desk, budget: &mut usize) {
        while self.has_untaken && !self.has_quit && !self.is_paused() && *budget > 0 {
            *budget -= 1;
            if !self.swallow() {
                self.has_untaken = false;
                return;
            }
            let taken = desk.take(self.connection.inbox.filled(), self.received, key);
            match taken {
                Some(taken) => self.taken(&taken, desk),
                None => self.has_untaken = false,
            }
        }
    }

    /// Drops what belongs to a refused request; whether all of it has come.
    fn swallow(&mut self) -> bool {
        let here = self.connection.inbox.filled().len();
        let count = usize::try_from(self.swallow_bytes).map_or(here, |swallow| swallow.min(here));
        self.connection.inbox.consume(count);
        self.swallow_bytes -= count as u64;
        self.swallow_bytes == 0
    }

    /// Takes a request off the inbox; its reply lies on the desk.
    fn taken(&mut self, taken: &Taken, desk: &mut Desk) {
        self.connection.inbox.consume(taken.consumed);
        self.swallow_bytes = taken.swallow_bytes;
        self.has_quit = taken.quits;
        let entry = self.entry(taken, desk);
        self.sequence = self.sequence.wrapping_add(1);
        // Without a service time every reply takes this way, and none is held.
        if self.held.is_empty() && taken.is_instant {
            self.send(&mut desk.reply, entry);
        } else {
            let reply = lift(&mut desk.reply);
            self.held_bytes += reply.len() as u64;
            self.held.push_back(Held { served: taken.served, reply, entry });
        }
    }

    fn entry(&self, taken: &Taken, desk: &mut Desk) -> Option<Entry> {
        if !desk.journal.is_sampled(self.port, self.sequence) {
            return None;
        }
        desk.journal.begin();
        let request_bytes = taken.swallow_bytes.saturating_add(taken.consumed as u64);
        let row = Row {
            connection: self.number,
            sequence: self.sequence,
            request_bytes: u32::try_from(request_bytes).unwrap_or(u32::MAX),
            reply_bytes: u32::try_from(desk.reply.len()).unwrap_or(u32::MAX),
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

    /// Moves the replies whose time has come to the outbox; the first that has to wait holds up those behind it.
    fn release(&mut self, now: Nanos) {
        while self.held.front().is_some_and(|held| held.served <= now) {
            if let Some(Held { mut reply, entry, .. }) = self.held.pop_front() {
                self.held_bytes -= reply.len() as u64;
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

    fn write(&mut self, desk: &mut Desk) -> io::Result<()> {
        self.connection.flush()?;
        let written = self.connection.outbox.written_total();
        while self.unwritten.front().is_some_and(|entry| entry.reply_ends_at <= written) {
            if let Some(entry) = self.unwritten.pop_front() {
                desk.journal.replied(&entry);
            }
        }
        Ok(())
    }
}

/// A reply to be kept: a large one is moved, a small one leaves the desk its buffer.
fn lift(reply: &mut Vec<u8>) -> Vec<u8> {
    if reply.len() >= MOVED_BYTES { std::mem::take(reply) } else { reply.as_slice().to_vec() }
}
