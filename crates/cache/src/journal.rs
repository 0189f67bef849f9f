//! The end of every request that is sampled: its row goes to the record writer, whatever became of it.

use clock::{Clock, Nanos};
use records::{Outcome, Row, RowSender, is_sampled};
use std::time::Duration;

/// Rows wait at most this long for others to be handed over with: the writing thread is not woken for every one.
const HAND_OVER_WITHIN: Duration = Duration::from_millis(100);

/// A sampled request on its way, with what its row will say.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(crate) received: Nanos,
    pub(crate) started: Nanos,
    pub(crate) served: Nanos,
    /// The connection has sent this many bytes when the reply has left.
    pub(crate) reply_ends_at: u64,
}

/// Where rows go; nowhere when no records are asked for.
#[derive(Debug)]
pub(crate) struct Journal {
    sender: Option<RowSender>,
    clock: Clock,
    /// When the rows that have gathered are handed over at the latest; `NEVER` when there are none.
    hand_over_at: Nanos,
    begun: u64,
    ended: u64,
}

impl Journal {
    pub(crate) fn new(sender: Option<RowSender>, clock: Clock) -> Journal {
        Journal { sender, clock, hand_over_at: Nanos::NEVER, begun: 0, ended: 0 }
    }

    /// Whether this request is to be kept.
    pub(crate) fn is_sampled(&self, port: u16, sequence: u32) -> bool {
        self.sender.as_ref().is_some_and(|sender| is_sampled(port, sequence, sender.sample()))
    }

    /// Counts a request whose entry must come back.
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
    }

    /// The kernel has taken the reply.
    pub(crate) fn replied(&mut self, entry: &Entry) {
        self.end(entry, entry.row);
    }

    /// The client is gone; its reply went nowhere.
    pub(crate) fn abandoned(&mut self, entry: &Entry) {
        self.end(entry, Row { outcome: Outcome::ClientGone as u8, ..entry.row });
    }

    /// When [`Journal::hand_over`] has something to do.
    pub(crate) fn hand_over_at(&self) -> Nanos {
        self.hand_over_at
    }

    /// Hands over the rows that have waited long enough.
    pub(crate) fn hand_over(&mut self) {
        if self.hand_over_at == Nanos::NEVER || self.clock.now() < self.hand_over_at {
            return;
        }
        self.hand_over_at = Nanos::NEVER;
        if let Some(sender) = &mut self.sender {
            sender.flush();
        }
    }

    fn end(&mut self, entry: &Entry, row: Row) {
        self.ended += 1;
        if let Some(sender) = &mut self.sender {
            let now = self.clock.now();
            // A client may leave before its request would have been served.
            let replied = now.max(entry.served);
            sender.push(&row, &[entry.received.0, entry.started.0, entry.served.0, replied.0]);
            self.hand_over_at = self.hand_over_at.min(now + HAND_OVER_WITHIN);
        }
    }

    /// Sampled requests that have not come back.
    pub(crate) fn missing(&self) -> u64 {
        self.begun - self.ended
    }
}
