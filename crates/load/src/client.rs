//! One client: a connection with a window of requests, refilled as replies come in.
//!
//! ```text
//! ready (done thinking) -> issue -> window -> reply -> think -> ready
//! ```
//!
//! The stamps of a request: intended, when its client was done thinking; issued, read right before it is encoded;
//! sent, when the write that took its last byte returned; completed, when the read that completed its reply returned.
//! Knows no other client, and not why the run begins or ends.

use crate::schedule::Choice;
use crate::tally::Operation;
use crate::versions::Known;
use crate::window::{Matched, Pending, Window};
use crate::worker::{Line, Worker};
use clock::Nanos;
use net::{Connection, Filled, Flushed};
use records::Outcome;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use wire::{ParsedReply, Reply, parse_reply};

/// Reads of one connection before the others get their turn.
const READS_PER_TURN: usize = 16;
/// The wait before a lost connection is made again; doubled with every failure in a row ...
const RETRY_FIRST: Duration = Duration::from_millis(10);
/// ... so many times.
const RETRY_DOUBLINGS_MAX: u32 = 7;
/// An attempt to connect may take so long.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an error line that are kept.
const ERROR_LINE_BYTES_MAX: usize = 120;

/// One client of the closed loop.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) line: Line,
    pub(crate) address: SocketAddr,
    pub(crate) link: Link,
    window: Window,
    /// When the client was done thinking, for every request that it may issue now.
    pub(crate) ready: VecDeque<Nanos>,
    /// Number of the next request on this connection.
    sequence: u32,
    /// Connections lost in a row without a reply between.
    failures: u32,
}

/// The state of a client's connection.
#[derive(Debug)]
pub(crate) enum Link {
    /// Connected.
    Up(Connection),
    /// Being connected; given up at this time.
    Connecting(Connection, Nanos),
    /// Lost; to be made again at this time.
    Down(Nanos),
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was closed or broke.
    Closed,
    /// A reply did not come in time.
    Timeout,
    /// A reply that belongs to nothing came, or bytes that are no reply.
    OutOfStep,
}

impl Client {
    /// A client that is connected.
    pub(crate) fn new(connection: Connection, line: Line, address: SocketAddr) -> Client {
        Client {
            line,
            address,
            link: Link::Up(connection),
            window: Window::default(),
            ready: VecDeque::new(),
            sequence: 0,
            failures: 0,
        }
    }

    /// Whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.window.is_empty()
    }

    /// When the oldest request in flight was issued.
    pub(crate) fn oldest_issued(&self) -> Option<Nanos> {
        self.window.oldest_issued()
    }

    /// Issues everything that is ready and writes it in one go.
    pub(crate) fn pump(&mut self, worker: &mut Worker<'_>) -> Result<(), Lost> {
        let Link::Up(connection) = &mut self.link else {
            return Ok(());
        };
        while let Some(&intended) = self.ready.front() {
            let issued = worker.now();
            if !worker.shared.plan.may_issue(issued) {
                self.ready.clear();
                break;
            }
            self.ready.pop_front();
            issue(worker, connection, &mut self.window, Pending::new(Operation::Get, intended, issued, self.sequence));
            self.sequence = self.sequence.wrapping_add(1);
        }
        if !self.window.has_unsent() {
            return Ok(());
        }
        let flushed = connection.flush().map_err(|_| Lost::Closed)?;
        let written = connection.outbox.written_total();
        worker.tally.requests_sent += self.window.mark_sent(written, worker.now());
        if flushed == Flushed::All {
            debug_assert!(!self.window.has_unsent(), "what is written is sent");
        }
        Ok(())
    }

    /// Reads and matches replies; true when there may be more to read, in a later turn.
    pub(crate) fn receive(&mut self, worker: &mut Worker<'_>) -> Result<bool, Lost> {
        for _ in 0..READS_PER_TURN {
            let Link::Up(connection) = &mut self.link else {
                return Ok(false);
            };
            if !connection.is_readable() {
                connection.inbox.release(&mut worker.buffers);
                return Ok(false);
            }
            // A budget of one byte is one read, so that each read has its own stamp.
            let filled = connection.fill(&mut worker.buffers, 1).map_err(|_| Lost::Closed)?;
            let completed = worker.now();
            self.match_replies(worker, completed)?;
            if filled == Filled::Closed {
                return Err(Lost::Closed);
            }
        }
        Ok(true)
    }

    /// Matches every complete reply that has been read.
    fn match_replies(&mut self, worker: &mut Worker<'_>, completed: Nanos) -> Result<(), Lost> {
        let Link::Up(connection) = &mut self.link else {
            return Ok(());
        };
        loop {
            let (reply, consumed) = match parse_reply(connection.inbox.filled(), &worker.limits) {
                ParsedReply::Incomplete => return Ok(()),
                ParsedReply::Broken(_) => return Err(Lost::OutOfStep),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            let ended = match self.window.accept(&reply, consumed, &worker.judge, &mut worker.tally.verified) {
                Matched::More => None,
                Matched::Answered(pending) => Some((pending, Outcome::Answered)),
                Matched::Failed(pending) => Some((pending, note_error(worker, &reply))),
                Matched::Unexpected => return Err(Lost::OutOfStep),
            };
            connection.inbox.consume(consumed);
            if let Some((pending, outcome)) = ended {
                self.failures = 0;
                worker.end(&pending, self.line, completed, outcome);
                think(worker, &mut self.ready, completed, self.line.client);
            }
        }
    }

    /// Gives up the connection and everything in flight on it; it is to be made again after a while.
    pub(crate) fn lose(&mut self, worker: &mut Worker<'_>, lost: Lost, now: Nanos) {
        let wait = RETRY_FIRST * (1 << self.failures.min(RETRY_DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        if let Link::Up(_) = std::mem::replace(&mut self.link, Link::Down(now + wait)) {
            worker.shared.plan.connection_lost();
        }
        if lost == Lost::OutOfStep {
            worker.tally.verified.unexpected_reply += 1;
        }
        let mut reason = lost;
        while let Some(pending) = self.window.give_up(worker.shared.versions) {
            let outcome = if reason == Lost::Timeout { Outcome::Timeout } else { Outcome::BackendLost };
            worker.tally.error(reason.error_line());
            worker.end(&pending, self.line, now, outcome);
            think(worker, &mut self.ready, now, self.line.client);
            // Only the oldest request is why; those behind it went down with the connection.
            reason = Lost::Closed;
        }
    }

    /// Takes over a connection that replaces a lost one.
    pub(crate) fn is_connected(&mut self, worker: &Worker<'_>) {
        self.link = match std::mem::replace(&mut self.link, Link::Down(Nanos::NEVER)) {
            Link::Connecting(connection, _) => {
                self.line.port = connection.local_address().map_or(0, |address| address.port());
                self.line.connection = worker.shared.plan.connection_made();
                self.sequence = 0;
                Link::Up(connection)
            }
            other => other,
        };
    }
}

/// Draws a request, encodes it and puts it into the window. `pending` comes with its stamps and its number.
fn issue(worker: &mut Worker<'_>, connection: &mut Connection, window: &mut Window, mut pending: Pending) {
    let before = connection.outbox.queued_total();
    match worker.schedule.choose(worker.shared.versions) {
        Choice::Set { key, version } => {
            pending.operation = Operation::Set;
            pending.keys = 1;
            window.expect(key, Known::default());
            connection.outbox.append(|out| worker.encoder.set(key, version, out));
        }
        Choice::Get => {
            let keys = worker.shared.config.multi_key_get;
            pending.keys = keys as u32;
            for _ in 0..keys {
                let key = worker.schedule.key();
                window.expect(key, worker.shared.versions.known(key));
            }
            connection.outbox.append(|out| worker.encoder.get(window.last_keys(keys), out));
        }
    }
    pending.ends_at = connection.outbox.queued_total();
    pending.request_bytes = pending.ends_at - before;
    window.push(pending);
    worker.issued += 1;
}

/// Begins to think after a reply, or is ready at once.
fn think(worker: &mut Worker<'_>, ready: &mut VecDeque<Nanos>, completed: Nanos, client: usize) {
    match worker.schedule.think_ns() {
        0 => ready.push_back(completed),
        think_ns => worker.think_until(completed + Duration::from_nanos(think_ns), client),
    }
}

/// Counts an error reply under its line, and says what it is in a record.
fn note_error(worker: &mut Worker<'_>, reply: &Reply<'_>) -> Outcome {
    let (word, text, outcome): (&str, &[u8], Outcome) = match reply {
        Reply::ClientError(text) => ("CLIENT_ERROR ", text, Outcome::ClientError),
        Reply::ServerError(text) => ("SERVER_ERROR ", text, Outcome::ServerError),
        _ => ("ERROR", b"", Outcome::ClientError),
    };
    let text = String::from_utf8_lossy(&text[..text.len().min(ERROR_LINE_BYTES_MAX)]);
    worker.tally.error(format!("{word}{text}").trim_end());
    outcome
}

impl Lost {
    /// Under which line the oldest request in flight is counted.
    fn error_line(self) -> &'static str {
        match self {
            Lost::Closed => "connection lost",
            Lost::Timeout => "no reply in time",
            Lost::OutOfStep => "connection out of step",
        }
    }
}
