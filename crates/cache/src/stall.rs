//! When the server does nothing at all, as one does that collects garbage or writes to a slow disk: at regular times, which
//! a test of an instrument can compute with.

use clock::{Nanos, duration_ns};
use std::time::Duration;

/// A pause of this length at the end of every period, counted from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// How long nothing is done.
    pub length: Duration,
    /// From the beginning of one pause to that of the next.
    pub period: Duration,
}

impl Stall {
    /// How long nothing is to be done from `now` on.
    pub(crate) fn left(self, start: Nanos, now: Nanos) -> Duration {
        let (length_ns, period_ns) = (duration_ns(self.length), duration_ns(self.period));
        let into_period_ns = now.since(start) % period_ns;
        let working_ns = period_ns - length_ns;
        if into_period_ns < working_ns { Duration::ZERO } else { Duration::from_nanos(period_ns - into_period_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_at_the_end_of_each_period() {
        let stall = Stall { length: Duration::from_nanos(200), period: Duration::from_nanos(1000) };
        let left = |after: u64| stall.left(Nanos(77), Nanos(77 + after)).as_nanos();
        assert_eq!([0, 799, 800, 999, 1000, 1799, 1900].map(left), [0, 0, 200, 1, 0, 0, 100]);
    }
}
