//! A request that has its reply: what the journal and the record will say of it. It ends when the kernel has the reply.

use crate::observe::journal::Journal;
use clock::{Nanos, Stage, StageClock};
use records::{NO_BACKEND, Outcome, PARENT, Row};

/// The number of a lane for what no lane has had.
pub(crate) const NO_LANE: u16 = u16::MAX;

/// A request's clock and what was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Journey {
    pub(crate) clock: StageClock,
    /// Requests that waited when it came into its queue.
    pub(crate) queue_length: u32,
    /// The connection to the database.
    pub(crate) lane: u16,
    /// Number of the batch on that connection; those with the same number went together.
    pub(crate) batch: u32,
}

impl Journey {
    /// Notes that `stage` was reached.
    pub(crate) fn stamp(&mut self, stage: Stage, now: Nanos) {
        self.clock.stamp(stage, now);
    }
}

impl From<StageClock> for Journey {
    fn from(clock: StageClock) -> Journey {
        Journey { clock, queue_length: 0, lane: NO_LANE, batch: 0 }
    }
}

impl Default for Journey {
    fn default() -> Journey {
        StageClock::default().into()
    }
}

/// What is known of a request when it has its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) kind: &'static str,
    pub(crate) status: u16,
    pub(crate) journey: Journey,
    /// Its record so far.
    pub(crate) row: Row,
}

impl Ended {
    /// The reply, so many bytes, is with the kernel; or nobody was left to take it.
    pub(crate) fn finish(mut self, journal: &Journal, now: Nanos, reply_bytes: u32, outcome: Option<Outcome>) {
        self.journey.stamp(Stage::Replied, now);
        self.journey.clock.finish();
        self.row.reply_bytes = reply_bytes;
        self.row.outcome = outcome.map_or(self.row.outcome, |outcome| outcome as u8);
        let status = if outcome == Some(Outcome::ClientGone) { CLIENT_GONE } else { self.status };
        journal.end(self.kind, status, &self.journey.clock);
        journal.rows.push(&self.row, &self.journey.clock.stamps());
    }
}

/// The number that servers of HTTP have come to use in their logs when nobody was left to hear the status.
const CLIENT_GONE: u16 = 499;

/// The row of a request of this connection, before anything is known of it.
pub(crate) fn row(connection: u32, port: u16, sequence: u32) -> Row {
    Row { connection, port, sequence, backend: NO_BACKEND, leg: PARENT, legs: 1, ..Row::default() }
}
