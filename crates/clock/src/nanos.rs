//! A point in time as raw nanoseconds of the monotonic clock, so that programs of one host can compare theirs.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC. Zero means that the event has not happened yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The stamp of an event that has not happened.
    pub const UNSET: Nanos = Nanos(0);
    /// Later than every time: the deadline of a wait without a deadline.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// Whether the event has happened.
    pub fn is_set(self) -> bool {
        self.0 != 0
    }

    /// Nanoseconds since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time left until this point; zero once it has passed.
    pub fn after(self, now: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_add(duration_ns(by)))
    }
}

impl Sub<Duration> for Nanos {
    type Output = Nanos;
    fn sub(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_sub(duration_ns(by)))
    }
}

/// A duration in nanoseconds, at most the 584 years that fit into 64 bits.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Nanos(5) - Duration::from_nanos(7), Nanos(0));
        assert_eq!(Nanos::NEVER + Duration::from_secs(1), Nanos::NEVER);
        assert_eq!(Nanos(3).since(Nanos(9)), 0);
        assert_eq!(Nanos(3).after(Nanos(9)), Duration::ZERO);
        assert_eq!(duration_ns(Duration::MAX), u64::MAX);
    }
}
