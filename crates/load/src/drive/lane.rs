//! Steps 4, 5 and 6: one connection of a client, with the requests in flight on it.
//!
//! A request has four stamps. `intended` is when it was due. `issued` is read right before it is encoded. `sent` is
//! when the write of its last byte returned. `completed` is when the read that completed its reply returned.
//! This module uses no other connection, and does not decide when a run starts or ends.

use crate::drive::client::Client;
use crate::drive::connection::{ConnectionId, Disconnect, LaneState, RETRY_DOUBLINGS_MAX, RETRY_FIRST};
use crate::drive::pending::PendingRequest;
use crate::drive::window::{ReplyMatch, Window};
use crate::drive::worker::Worker;
use crate::messages::{ParsedResponse, parse};
use clock::Nanos;
use net::{Connection, Filled, Flushed};
use records::Outcome;
use std::net::SocketAddr;
use wire::{ParsedReply, Reply, parse_reply};

/// Reads from one connection before the other connections get their turn.
const READS_PER_TURN: usize = 16;
/// Bytes of an error line that are kept.
const ERROR_LINE_BYTES_MAX: usize = 120;

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: ConnectionId,
    pub(crate) address: SocketAddr,
    pub(crate) state: LaneState,
    pub(crate) window: Window,
    /// Whether the poller reports when the connection can be written to.
    pub(crate) waits_for_room: bool,
    /// The number of the next request on this connection.
    sequence: u32,
    /// Consecutive connections lost without a reply in between.
    failures: u32,
}

impl Lane {
    /// A lane that is connected.
    pub(crate) fn new(connection: Connection, id: ConnectionId, address: SocketAddr) -> Lane {
        Lane {
            id,
            address,
            state: LaneState::Up(connection),
            window: Window::default(),
            waits_for_room: false,
            sequence: 0,
            failures: 0,
        }
    }

    /// Whether requests can be written.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, LaneState::Up(_))
    }

    /// Step 4: adds a request to those in flight. `encode` appends its bytes to the output buffer. The lane must be up,
    /// and the window must already expect the keys of the request.
    pub(crate) fn push(&mut self, mut pending: PendingRequest, encode: impl FnOnce(&Window, &mut Vec<u8>)) {
        let LaneState::Up(connection) = &mut self.state else {
            debug_assert!(false, "only a lane that is up takes requests");
            return;
        };
        let before = connection.outbox.queued_total();
        connection.outbox.append(|out| encode(&self.window, out));
        pending.ends_at = connection.outbox.queued_total();
        pending.request_bytes = pending.ends_at - before;
        pending.sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        self.window.push(pending);
    }

    /// Step 5: writes all buffered requests at once and stamps those sent completely. Requests without a reply end
    /// here.
    pub(crate) fn flush(&mut self, worker: &mut Worker<'_>, client: &mut Client) -> Result<Flushed, Disconnect> {
        let LaneState::Up(connection) = &mut self.state else {
            return Ok(Flushed::All);
        };
        if !self.window.has_unsent() {
            return Ok(Flushed::All);
        }
        let flushed = connection.flush().map_err(|_| Disconnect::Closed)?;
        let now = worker.now();
        self.window.mark_sent(connection.outbox.written_total(), now);
        debug_assert!(flushed == Flushed::Blocked || !self.window.has_unsent(), "what is written is sent");
        while let Some(pending) = self.window.next_without_reply(worker.context.versions) {
            client.finish(worker, &pending, self.id, now, Outcome::Answered);
        }
        Ok(flushed)
    }

    /// Step 6: reads replies and matches them with requests. Returns true if there may be more to read in a later
    /// turn.
    pub(crate) fn receive(&mut self, worker: &mut Worker<'_>, client: &mut Client) -> Result<bool, Disconnect> {
        for _ in 0..READS_PER_TURN {
            let LaneState::Up(connection) = &mut self.state else {
                return Ok(false);
            };
            if !connection.is_readable() {
                connection.inbox.release(&mut worker.buffers);
                return Ok(false);
            }
            // A budget of one byte limits this to one read, so each read has its own stamp.
            let filled = connection.fill(&mut worker.buffers, 1).map_err(|_| Disconnect::Closed)?;
            let completed = worker.now();
            self.match_replies(worker, client, completed)?;
            if filled == Filled::Closed {
                return Err(Disconnect::Closed);
            }
        }
        Ok(true)
    }

    /// Matches every complete reply that has been read.
    fn match_replies(
        &mut self,
        worker: &mut Worker<'_>,
        client: &mut Client,
        completed: Nanos,
    ) -> Result<(), Disconnect> {
        if worker.conversation.is_some() {
            return self.match_responses(worker, client, completed);
        }
        let LaneState::Up(connection) = &mut self.state else {
            return Ok(());
        };
        loop {
            let (reply, consumed) = match parse_reply(connection.inbox.filled(), &worker.limits) {
                ParsedReply::Incomplete => return Ok(()),
                ParsedReply::Broken(_) => return Err(Disconnect::OutOfStep),
                ParsedReply::Reply { reply, consumed } => (reply, consumed),
            };
            match self.window.match_reply(&reply, consumed, &worker.verifier, &mut worker.tally.verified) {
                ReplyMatch::More => {}
                ReplyMatch::Answered(pending) => {
                    self.failures = 0;
                    client.finish(worker, &pending, self.id, completed, Outcome::Answered);
                }
                ReplyMatch::Failed(pending) => {
                    self.failures = 0;
                    let outcome = note_error(worker, &reply);
                    client.finish(worker, &pending, self.id, completed, outcome);
                }
                ReplyMatch::Unexpected => return Err(Disconnect::OutOfStep),
            }
            connection.inbox.consume(consumed);
        }
    }

    /// Does the same for a message service: one request is in flight, and its response may close the connection.
    fn match_responses(
        &mut self,
        worker: &mut Worker<'_>,
        client: &mut Client,
        completed: Nanos,
    ) -> Result<(), Disconnect> {
        let Some(conversation) = &mut worker.conversation else { return Ok(()) };
        let LaneState::Up(connection) = &mut self.state else { return Ok(()) };
        if connection.inbox.filled().is_empty() {
            return Ok(());
        }
        let response = match parse(connection.inbox.filled()) {
            ParsedResponse::Incomplete => return Ok(()),
            ParsedResponse::Response(response) => response,
            ParsedResponse::Broken(line) => {
                worker.tally.error(&line);
                return Err(Disconnect::OutOfStep);
            }
        };
        // A response is followed by no further bytes until the next request.
        if self.window.is_empty() || response.consumed < connection.inbox.filled().len() {
            return Err(Disconnect::OutOfStep);
        }
        let Some(matched) = conversation.match_response(self.id.client, &response, completed) else {
            worker.tally.error(&format!("status {} does not fit the request", response.status));
            return Err(Disconnect::OutOfStep);
        };
        let (consumed, closes) = (response.consumed, response.closes);
        connection.inbox.consume(consumed);
        if let Some(mut pending) = self.window.answer_oldest() {
            self.failures = 0;
            pending.reply_bytes = consumed as u64;
            pending.hits = matched.hits;
            pending.keys = u32::from(pending.message.is_some_and(|operation| operation.is_reading()));
            if let Some(line) = &matched.error {
                worker.tally.error(line);
            }
            client.finish(worker, &pending, self.id, completed, matched.outcome);
        }
        if closes { Err(Disconnect::Closed) } else { Ok(()) }
    }

    /// Closes the connection and fails every request in flight on it. The event loop reconnects after a pause.
    pub(crate) fn disconnect(&mut self, worker: &mut Worker<'_>, client: &mut Client, cause: Disconnect, now: Nanos) {
        let wait = RETRY_FIRST * (1 << self.failures.min(RETRY_DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        if let LaneState::Up(_) = std::mem::replace(&mut self.state, LaneState::Down(now + wait)) {
            worker.context.plan.connection_lost();
        }
        if cause == Disconnect::OutOfStep {
            worker.tally.verified.unexpected_reply += 1;
        }
        let mut reason = cause;
        while let Some(pending) = self.window.give_up(worker.context.versions) {
            let outcome = if reason == Disconnect::Timeout { Outcome::Timeout } else { Outcome::BackendLost };
            worker.tally.error(reason.error_line());
            if let Some(conversation) = &mut worker.conversation {
                conversation.give_up(self.id.client, pending.sent.is_set(), reason == Disconnect::Timeout, now);
            }
            client.finish(worker, &pending, self.id, now, outcome);
            // Only the oldest request caused the disconnect; the requests behind it were lost with the connection.
            reason = Disconnect::Closed;
        }
    }

    /// Puts a new connection in the place of a lost one.
    pub(crate) fn is_connected(&mut self, worker: &Worker<'_>) {
        self.state = match std::mem::replace(&mut self.state, LaneState::Down(Nanos::NEVER)) {
            LaneState::Connecting(connection, _) => {
                self.id.port = connection.local_address().map_or(0, |address| address.port());
                self.id.number = worker.context.plan.connection_made();
                self.sequence = 0;
                // The poller already watches for writing, because that event reports that the connection is established.
                self.waits_for_room = true;
                LaneState::Up(connection)
            }
            other => other,
        };
    }
}

/// Counts an error reply by its text, and returns the outcome that the record of the request gets.
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
