//! What is measured about one request on its way, and what is known when it has been answered. Metrics and records are made from it.

use crate::observe::journal::Journal;
use clock::{Nanos, Stage, StageClock};
use records::{NO_BACKEND, Outcome, PARENT, Row};

/// The lane of a request that did not reach a lane.
pub(crate) const NO_LANE: u16 = u16::MAX;

/// The clock of a request, and what it met on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measurements {
    pub(crate) clock: StageClock,
    /// Requests that were waiting when this one entered its queue.
    pub(crate) queue_length: u32,
    /// The number of the connection to the database.
    pub(crate) lane: u16,
    /// The number of the batch on that connection. Requests with the same number were sent together.
    pub(crate) batch: u32,
}

impl Measurements {
    /// Records when `stage` was reached.
    pub(crate) fn stamp(&mut self, stage: Stage, now: Nanos) {
        self.clock.stamp(stage, now);
    }
}

impl From<StageClock> for Measurements {
    fn from(clock: StageClock) -> Measurements {
        Measurements { clock, queue_length: 0, lane: NO_LANE, batch: 0 }
    }
}

impl Default for Measurements {
    fn default() -> Measurements {
        StageClock::default().into()
    }
}

/// A request that has a reply, which the kernel may not have accepted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredRequest {
    pub(crate) operation: &'static str,
    pub(crate) status: u16,
    pub(crate) measurements: Measurements,
    /// The request's record, still without the size of the reply.
    pub(crate) row: Row,
}

impl AnsweredRequest {
    /// Ends the request: the kernel has accepted this many bytes of the reply, or the client closed the connection.
    pub(crate) fn finish(mut self, journal: &Journal, now: Nanos, reply_bytes: u32, outcome: Option<Outcome>) {
        self.measurements.stamp(Stage::Replied, now);
        self.measurements.clock.finish();
        self.row.reply_bytes = reply_bytes;
        self.row.outcome = outcome.map_or(self.row.outcome, |outcome| outcome as u8);
        let status = if outcome == Some(Outcome::ClientGone) { CLIENT_CLOSED } else { self.status };
        journal.end(self.operation, status, &self.measurements.clock);
        journal.rows.push(&self.row, &self.measurements.clock.stamps());
    }
}

/// The status that nginx logs when a client closed the connection before the reply.
pub(crate) const CLIENT_CLOSED: u16 = 499;

/// The record of a request before anything but its connection is known.
pub(crate) fn row(connection: u32, port: u16, sequence: u32) -> Row {
    Row { connection, port, sequence, backend: NO_BACKEND, leg: PARENT, legs: 1, ..Row::default() }
}
