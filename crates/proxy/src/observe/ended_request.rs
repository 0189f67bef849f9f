//! A copy of a request that has ended: for the log of slow requests, and for its spans. Its job is used again at once.

use crate::config::LoggedKeys;
use clock::{INTERVALS, Nanos, STAGES, Stage};
use records::Outcome;
use std::net::IpAddr;
use wire::Verb;
use xxhash_rust::xxh3::xxh3_64;

/// The most legs of a request that are copied.
pub(crate) const COPIED_LEGS_MAX: usize = 16;

/// A request that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedRequest {
    pub(crate) verb: Verb,
    pub(crate) outcome: Outcome,
    /// Its first key; empty if it has none.
    pub(crate) key: Vec<u8>,
    pub(crate) keys: u16,
    /// Whether it is one of several parts of a long line.
    pub(crate) is_part: bool,
    pub(crate) hits: u16,
    pub(crate) request_bytes: u32,
    pub(crate) reply_bytes: u32,
    /// The client's address, unless the client has left or uses a unix socket.
    pub(crate) client: Option<IpAddr>,
    pub(crate) port: u16,
    /// Its number among the connections, and among the requests of the connection, as in records.
    pub(crate) connection: u32,
    pub(crate) sequence: u32,
    /// When it reached each stage, in nanoseconds of the monotonic clock.
    pub(crate) stamps: [u64; STAGES],
    /// The first of its legs, and how many there are.
    pub(crate) legs: Vec<EndedLeg>,
    pub(crate) legs_total: usize,
}

/// What one backend did for a request.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "the log shows less than spans"))]
pub(crate) struct EndedLeg {
    pub(crate) backend: u16,
    pub(crate) outcome: Outcome,
    pub(crate) hits: u16,
    pub(crate) request_bytes: u32,
    pub(crate) reply_bytes: u32,
    /// It is a hedge: a second leg, sent because the first replica was slow.
    pub(crate) is_hedge: bool,
    /// When it left its queue, when its last byte was sent, and when its reply or its failure came. Each is unset if it did not happen.
    pub(crate) dispatched: Nanos,
    pub(crate) sent: Nanos,
    pub(crate) answered: Nanos,
}

impl EndedRequest {
    /// The times between the stages, in nanoseconds and in the order of `clock::INTERVALS`.
    pub(crate) fn intervals(&self) -> [u64; INTERVALS.len()] {
        std::array::from_fn(|index| self.stamps[index + 1].saturating_sub(self.stamps[index]))
    }

    /// From the first stage to the last.
    pub(crate) fn total_ns(&self) -> u64 {
        self.at(Stage::Replied).since(self.at(Stage::Received))
    }

    /// When it reached a stage.
    pub(crate) fn at(&self, stage: Stage) -> Nanos {
        Nanos(self.stamps[stage as usize])
    }

    /// The key in the form that the operator wants, if there is one.
    pub(crate) fn key_text(&self, keys: LoggedKeys) -> Option<String> {
        match keys {
            _ if self.key.is_empty() => None,
            LoggedKeys::Hidden => None,
            LoggedKeys::Hashed => Some(format!("xxh3:{:016x}", xxh3_64(&self.key))),
            LoggedKeys::Plain => Some(self.key.escape_ascii().to_string()),
        }
    }
}

impl EndedLeg {
    /// From the last byte sent to the reply or the failure, in nanoseconds; none if it was not sent.
    pub(crate) fn took_ns(&self) -> Option<u64> {
        (self.sent.is_set() && self.answered.is_set()).then(|| self.answered.since(self.sent))
    }
}
