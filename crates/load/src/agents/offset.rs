//! The offset of an agent's clock from the controller's, estimated from requests for its time.
//! F. Cristian, Probabilistic clock synchronization, Distributed Computing 3 (1989): the reply with the shortest round
//! trip is the best. Half of that round trip bounds its error, even if the two directions take different times. Reads
//! no clock.

use clock::Nanos;

/// One request for the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// On the controller's clock.
    pub(crate) sent: Nanos,
    /// On the agent's clock.
    pub(crate) agent_clock: Nanos,
    /// On the controller's clock.
    pub(crate) answered: Nanos,
}

/// What to add to the controller's clock to get the agent's, and the largest possible error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) ns: i64,
    pub(crate) error_ns: u64,
}

impl Offset {
    /// The offset of the controller's own clock.
    pub(crate) const NONE: Offset = Offset { ns: 0, error_ns: 0 };

    /// The best estimate; none without samples.
    pub(crate) fn estimate(samples: &[Sample]) -> Option<Offset> {
        let best = samples.iter().min_by_key(|sample| sample.round_trip_ns())?;
        let middle = best.sent.0 + best.round_trip_ns() / 2;
        let ns = i128::from(best.agent_clock.0) - i128::from(middle);
        let ns = i64::try_from(ns).ok()?;
        // Half of an odd number of nanoseconds is rounded up, and so is the midpoint's.
        Some(Offset { ns, error_ns: best.round_trip_ns() / 2 + 1 })
    }

    /// Converts a time of the controller to the agent's clock.
    pub(crate) fn to_agent(self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_add_signed(self.ns))
    }

    /// Converts a time of the agent to the controller's clock.
    pub(crate) fn to_controller(self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_add_signed(self.ns.saturating_neg()))
    }
}

impl Sample {
    fn round_trip_ns(&self) -> u64 {
        self.answered.since(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AGENT_AHEAD_NS: i64 = -3_000_000_000;

    /// A request at `sent` with these delays in both directions.
    fn sample(sent: u64, there_ns: u64, back_ns: u64, ahead_ns: i64) -> Sample {
        Sample {
            sent: Nanos(sent),
            agent_clock: Nanos((sent + there_ns).saturating_add_signed(ahead_ns)),
            answered: Nanos(sent + there_ns + back_ns),
        }
    }

    #[test]
    fn equal_delays_give_the_exact_offset() {
        let offset = Offset::estimate(&[sample(10_000_000_000, 500, 500, AGENT_AHEAD_NS)]).unwrap();
        assert_eq!(offset, Offset { ns: AGENT_AHEAD_NS, error_ns: 501 });
        assert_eq!(offset.to_agent(Nanos(5_000_000_000)), Nanos(2_000_000_000));
        assert_eq!(offset.to_controller(Nanos(2_000_000_000)), Nanos(5_000_000_000));
    }

    #[test]
    fn the_shortest_round_trip_determines_the_offset() {
        let mut samples: Vec<Sample> = (1..50).map(|n| sample(10_000_000_000 * n, 9_000_000, 100, 777)).collect();
        samples.push(sample(700_000_000_000, 3000, 1000, 777));
        let offset = Offset::estimate(&samples).unwrap();
        assert_eq!((offset.ns, offset.error_ns), (777 + 1000, 2001));
        assert_eq!(Offset::estimate(&[]), None);
    }

    proptest! {
        #[test]
        fn the_offset_is_within_its_error_for_unequal_delays(
            ways in prop::collection::vec((0u64..50_000_000, 0u64..50_000_000), 1..20),
            ahead_ns in -5_000_000_000i64..5_000_000_000,
        ) {
            let samples: Vec<Sample> =
                ways.iter().zip(1..).map(|(&(there, back), n)| sample(n * 10_000_000_000, there, back, ahead_ns)).collect();
            let offset = Offset::estimate(&samples).unwrap();
            prop_assert!((offset.ns - ahead_ns).unsigned_abs() <= offset.error_ns);
            let best = ways.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert!(offset.error_ns <= best / 2 + 1);
        }
    }
}
