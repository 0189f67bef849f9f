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
    /// The connection's count of bytes written when its last byte has been.
    pub(crate) ends_at: u64,
    pub(crate) sequence: u32,
    pub(crate) request_bytes: u64,
    pub(crate) reply_bytes: u64,
    pub(crate) keys: u32,
    pub(crate) hits: u32,
    /// The command, for its record.
    pub(crate) verb: Verb,
    /// It is a row of a trace.
    pub(crate) is_row: bool,
    /// It is for a message service.
    pub(crate) message: Option<MessageOperation>,
    /// Its write is not answered.
    pub(crate) is_quiet: bool,
    /// It has ended and waits for those before it, so that it can be forgotten.
    pub(crate) has_ended: bool,
    /// The request that it is a part of.
    pub(crate) join: Option<usize>,
    /// How many parts it has been put together from.
    pub(crate) parts: u8,
    /// Among its keys, where the next value is looked for first.
    pub(crate) cursor: u32,
}

impl PendingRequest {
    /// A request that begins to be encoded.
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
            is_row: false,
            message: None,
            is_quiet: false,
            has_ended: false,
            join: None,
            parts: 1,
            cursor: 0,
        }
    }

    /// The part of it that names so many of its keys.
    pub(crate) fn part(&self, keys: usize, join: Option<usize>) -> PendingRequest {
        PendingRequest { keys: keys as u32, join, ..*self }
    }

    /// Takes a part that has ended into the whole.
    pub(crate) fn absorb(&mut self, part: &PendingRequest) {
        // The whole has been sent when its last part has.
        let is_first = self.request_bytes == 0 && self.reply_bytes == 0;
        self.sent = self.sent.max(part.sent);
        self.sequence = if is_first { part.sequence } else { self.sequence };
        self.parts = if is_first { 1 } else { self.parts.saturating_add(1) };
        self.request_bytes += part.request_bytes;
        self.reply_bytes += part.reply_bytes;
        self.hits += part.hits;
    }
}
