//! What a request carries along: its clock, and what it met on its way. The record and the histograms are made from it.

use clock::{Nanos, Stage, StageClock};

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
