//! The stages of a request through the proxy, and the clock that each request carries past them.

use crate::Nanos;

/// Where a request is. The order is the order in which a request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Stage {
    /// The read that completed the request returned.
    Received,
    /// The bytes have become a request.
    Parsed,
    /// The key has been mapped to its backends.
    Routed,
    /// Admitted to the queue.
    Enqueued,
    /// Left the queue: a slot or a connection's window is free.
    Dispatched,
    /// The kernel has accepted the last byte for the last backend.
    Sent,
    /// The last needed reply is complete and matched.
    Answered,
    /// Its turn in the client's order has come and the kernel has accepted its last byte.
    Replied,
}

/// How many stages there are.
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

/// The time between two neighbouring stages, named after what happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// As in records, metrics and figures.
    pub name: &'static str,
    /// The stage that begins it.
    pub from: Stage,
    /// The stage that ends it.
    pub to: Stage,
}

/// All intervals, in order. Each begins where the one before ends.
pub const INTERVALS: [Interval; STAGES - 1] = [
    Interval { name: "parse", from: Stage::Received, to: Stage::Parsed },
    Interval { name: "route", from: Stage::Parsed, to: Stage::Routed },
    Interval { name: "admit", from: Stage::Routed, to: Stage::Enqueued },
    Interval { name: "queue", from: Stage::Enqueued, to: Stage::Dispatched },
    Interval { name: "send", from: Stage::Dispatched, to: Stage::Sent },
    Interval { name: "backend", from: Stage::Sent, to: Stage::Answered },
    Interval { name: "reply", from: Stage::Answered, to: Stage::Replied },
];

/// The stamps of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageClock {
    stamps: [Nanos; STAGES],
}

impl Stage {
    /// Every stage, in order.
    pub fn all() -> [Stage; STAGES] {
        ALL
    }

    /// As in the record header.
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

    /// Notes that `stage` was reached. A stage reached by several legs keeps the latest.
    pub fn stamp(&mut self, stage: Stage, now: Nanos) {
        let slot = &mut self.stamps[stage as usize];
        *slot = (*slot).max(now);
    }

    /// When `stage` was reached; `Nanos::UNSET` when it was not.
    pub fn at(&self, stage: Stage) -> Nanos {
        self.stamps[stage as usize]
    }

    /// Ends the request: a stage it never reached gets the stamp of the stage before.
    ///
    /// # Panics
    /// When the stamps decrease or the intervals do not add up: only a bug in the data path can do that.
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

    /// The intervals between neighbouring stages, in the order of [`INTERVALS`].
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
    fn intervals_are_neighbours_in_stage_order() {
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
