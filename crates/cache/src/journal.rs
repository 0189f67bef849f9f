//! Records the end of every sampled request, whatever its result.

use clock::{Clock, Nanos};
use records::{Outcome, Row, RowSender, is_sampled};
use std::time::Duration;

/// Rows are sent to the writing thread at least this often; in batches, so that it does not wake for every row.
const HAND_OVER_WITHIN: Duration = Duration::from_millis(100);

/// A sampled request in progress, with its row.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(crate) received: Nanos,
    pub(crate) started: Nanos,
    pub(crate) served: Nanos,
    /// The offset of the end of its reply among the bytes sent on the connection.
    pub(crate) reply_ends_at: u64,
}

/// The sender of rows, if records are written.
#[derive(Debug)]
pub(crate) struct Journal {
    sender: Option<RowSender>,
    clock: Clock,
    /// The deadline for sending the batch; `NEVER` if it is empty.
    hand_over_at: Nanos,
    begun: u64,
    ended: u64,
}

impl Journal {
    pub(crate) fn new(sender: Option<RowSender>, clock: Clock) -> Journal {
        Journal { sender, clock, hand_over_at: Nanos::NEVER, begun: 0, ended: 0 }
    }

    /// Whether this request is recorded.
    pub(crate) fn is_sampled(&self, port: u16, sequence: u32) -> bool {
        self.sender.as_ref().is_some_and(|sender| is_sampled(port, sequence, sender.sample()))
    }

    /// Counts a request whose entry must be ended later.
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
    }

    /// Ends the entry: the kernel has accepted the reply.
    pub(crate) fn replied(&mut self, entry: &Entry) {
        self.end(entry, entry.row);
    }

    /// Ends the entry: the client disconnected before its reply.
    pub(crate) fn abandoned(&mut self, entry: &Entry) {
        self.end(entry, Row { outcome: Outcome::ClientGone as u8, ..entry.row });
    }

    /// When [`Journal::hand_over`] is due.
    pub(crate) fn hand_over_at(&self) -> Nanos {
        self.hand_over_at
    }

    /// Sends the batch if its deadline has passed.
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
            // A client may disconnect before its request would have been served.
            let replied = now.max(entry.served);
            sender.push(&row, &[entry.received.0, entry.started.0, entry.served.0, replied.0]);
            self.hand_over_at = self.hand_over_at.min(now + HAND_OVER_WITHIN);
        }
    }

    /// Sampled requests whose entry was not ended.
    pub(crate) fn missing(&self) -> u64 {
        self.begun - self.ended
    }
}
