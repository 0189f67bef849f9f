//! The stages of a request through the proxy, and the clock in which each request records when it reached them.

use crate::Nanos;

/// The position of a request on its path. The order of the variants is the order of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Stage {
    /// The read that completed the request returned.
    Received,
    /// The bytes have been parsed into a request.
    Parsed,
    /// The key has been mapped to its backends.
    Routed,
    /// The request has entered the queue.
    Enqueued,
    /// The request has left the queue: a slot or room in a connection's window is free.
    Dispatched,
    /// The kernel has accepted the last byte for the last backend.
    Sent,
    /// The last required reply is complete and matched to its request.
    Answered,
    /// The reply's turn in the client's order has come and the kernel has accepted its last byte.
    Replied,
}

/// The number of stages.
pub const STAGES: usize = 8;

/// Every stage, in order.
const ALL: [Stage; STAGES] = [
    Stage::Received,
    Stage::Parsed,
    Stage::Routed,
    Stage::Enqueued,
    Stage::Dispatched,
    Stage::Sent,
    Stage::Answered,
    Stage::Replied,
];

/// The time between two consecutive stages, named after the work in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The name in records, metrics and figures.
    pub name: &'static str,
    /// The stage at its start.
    pub from: Stage,
    /// The stage at its end.
    pub to: Stage,
}

/// All intervals, in order. Each starts where the previous one ends.
pub const INTERVALS: [Interval; STAGES - 1] = [
    Interval { name: "parse", from: Stage::Received, to: Stage::Parsed },
    Interval { name: "route", from: Stage::Parsed, to: Stage::Routed },
    Interval { name: "admit", from: Stage::Routed, to: Stage::Enqueued },
    Interval { name: "queue", from: Stage::Enqueued, to: Stage::Dispatched },
    Interval { name: "send", from: Stage::Dispatched, to: Stage::Sent },
    Interval { name: "backend", from: Stage::Sent, to: Stage::Answered },
    Interval { name: "reply", from: Stage::Answered, to: Stage::Replied },
];

/// The time stamps of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageClock {
    stamps: [Nanos; STAGES],
}

impl Stage {
    /// Every stage, in order.
    pub fn all() -> [Stage; STAGES] {
        ALL
    }

    /// The name in the record header.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Received => "received",
            Stage::Parsed => "parsed",
            Stage::Routed => "routed",
            Stage::Enqueued => "enqueued",
            Stage::Dispatched => "dispatched",
            Stage::Sent => "sent",
            Stage::Answered => "answered",
            Stage::Replied => "replied",
        }
    }
}

impl StageClock {
    /// A clock started when the request was received.
    pub fn started(received: Nanos) -> StageClock {
        let mut clock = StageClock::default();
        clock.stamps[Stage::Received as usize] = received;
        clock
    }

    /// Records that `stage` was reached. A stage that several legs reach keeps the latest time.
    pub fn stamp(&mut self, stage: Stage, now: Nanos) {
        let slot = &mut self.stamps[stage as usize];
        *slot = (*slot).max(now);
    }

    /// The time at which `stage` was reached; `Nanos::UNSET` if it was not.
    pub fn at(&self, stage: Stage) -> Nanos {
        self.stamps[stage as usize]
    }

    /// Completes the stamps of a finished request: a stage that was never reached gets the stamp of the stage before it.
    ///
    /// # Panics
    /// If the stamps decrease or the intervals do not sum to the total, which only a bug in the data path can cause.
    pub fn finish(&mut self) {
        let mut before = self.stamps[0];
        for stage in ALL {
            let slot = &mut self.stamps[stage as usize];
            if !slot.is_set() {
                *slot = before;
            }
            assert!(*slot >= before, "stage {} stamped before the stage it follows", stage.name());
            before = *slot;
        }
        let sum: u64 = self.intervals_ns().iter().sum();
        assert_eq!(sum, self.total_ns(), "the intervals of a request must add up to its time in the proxy");
    }

    /// The intervals between consecutive stages, in the order of [`INTERVALS`].
    pub fn intervals_ns(&self) -> [u64; STAGES - 1] {
        std::array::from_fn(|index| self.stamps[index + 1].since(self.stamps[index]))
    }

    /// Time between the first and the last stage.
    pub fn total_ns(&self) -> u64 {
        self.stamps[STAGES - 1].since(self.stamps[0])
    }

    /// The raw stamps, for the record writer.
    pub fn stamps(&self) -> [u64; STAGES] {
        self.stamps.map(|stamp| stamp.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_join_consecutive_stages() {
        for pair in INTERVALS.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
        for (index, stage) in Stage::all().into_iter().enumerate() {
            assert_eq!(stage as usize, index);
        }
    }

    #[test]
    fn a_request_answered_by_the_proxy_itself_spends_no_time_at_backends() {
        let mut clock = StageClock::started(Nanos(10));
        clock.stamp(Stage::Parsed, Nanos(12));
        clock.stamp(Stage::Replied, Nanos(20));
        clock.finish();
        assert_eq!(clock.intervals_ns(), [2, 0, 0, 0, 0, 0, 8]);
    }

    #[test]
    #[should_panic(expected = "stamped before")]
    fn a_stage_before_its_predecessor_is_a_bug() {
        let mut clock = StageClock::started(Nanos(10));
        clock.stamp(Stage::Sent, Nanos(5));
        clock.finish();
    }

    proptest! {
        #[test]
        fn intervals_add_up(start in 1u64..1 << 60, gaps in proptest::array::uniform7(0u64..1 << 50), reached in 0u8..=127) {
            let mut clock = StageClock::started(Nanos(start));
            let mut time = start;
            for (index, gap) in gaps.into_iter().enumerate() {
                time += gap;
                if reached & (1 << index) != 0 {
                    clock.stamp(ALL[index + 1], Nanos(time));
                }
            }
            clock.finish();
            prop_assert_eq!(clock.intervals_ns().iter().sum::<u64>(), clock.total_ns());
        }
    }
}
