//! One request in flight, with its stamps, from its encoding to its reply. Knows no connection.

use crate::measure::request::Operation;
use crate::messages::MessageOperation;
use clock::Nanos;
use wire::Verb;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) operation: Operation,
    pub(crate) intended: Nanos,
    pub(crate) issued: Nanos,
    /// Unset until its last byte has been written.
    pub(crate) sent: Nanos,
    /// The connection's count of written bytes at which the request has been sent completely.
    pub(crate) ends_at: u64,
    pub(crate) sequence: u32,
    pub(crate) request_bytes: u64,
    pub(crate) reply_bytes: u64,
    pub(crate) keys: u32,
    pub(crate) hits: u32,
    /// The command, for its record.
    pub(crate) verb: Verb,
    /// Whether it counts towards the number of requests that limits the run.
    pub(crate) is_charged: bool,
    /// Whether it is a row of a trace.
    pub(crate) is_row: bool,
    /// The operation, if it is for a message service.
    pub(crate) message: Option<MessageOperation>,
    /// Whether its write gets no reply.
    pub(crate) is_quiet: bool,
    /// Whether it has ended and only waits for older requests to end before it is removed.
    pub(crate) has_ended: bool,
    /// The number of the split request that it is a part of.
    pub(crate) join: Option<usize>,
    /// The number of parts that have been joined into it.
    pub(crate) parts: u8,
    /// The index among its keys at which the search for the next value starts.
    pub(crate) cursor: u32,
}

impl PendingRequest {
    /// A request that is about to be encoded.
    pub(crate) fn new(operation: Operation, intended: Nanos, issued: Nanos) -> PendingRequest {
        PendingRequest {
            operation,
            intended,
            issued,
            sent: Nanos::UNSET,
            ends_at: 0,
            sequence: 0,
            request_bytes: 0,
            reply_bytes: 0,
            keys: 0,
            hits: 0,
            verb: if operation == Operation::Get { Verb::Get } else { Verb::Set },
            is_charged: false,
            is_row: false,
            message: None,
            is_quiet: false,
            has_ended: false,
            join: None,
            parts: 1,
            cursor: 0,
        }
    }

    /// The same request, with `is_charged` set to this value.
    pub(crate) fn charged(self, is_charged: bool) -> PendingRequest {
        PendingRequest { is_charged, ..self }
    }

    /// A part of it with this many of its keys.
    pub(crate) fn part(&self, keys: usize, join: Option<usize>) -> PendingRequest {
        PendingRequest { keys: keys as u32, join, ..*self }
    }

    /// Adds a part that has ended.
    pub(crate) fn absorb(&mut self, part: &PendingRequest) {
        // The whole request has been sent when its last part has.
        let is_first = self.request_bytes == 0 && self.reply_bytes == 0;
        self.sent = self.sent.max(part.sent);
        self.sequence = if is_first { part.sequence } else { self.sequence };
        self.parts = if is_first { 1 } else { self.parts.saturating_add(1) };
        self.request_bytes += part.request_bytes;
        self.reply_bytes += part.reply_bytes;
        self.hits += part.hits;
    }
}
