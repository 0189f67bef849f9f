//! Since when the database has answered without interruption, as far as the clients can know.

use clock::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// If nothing succeeds for longer than this, the database was away.
const GAP: Duration = Duration::from_secs(1);
/// Successes are noted at most this often, because all threads write to the same place.
const NOTED_EVERY: Duration = Duration::from_millis(10);

/// Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Availability {
    /// [`Nanos::NEVER`] from a failure to the next success.
    returned: AtomicU64,
    last_success: AtomicU64,
}

impl Availability {
    /// Notes a reply that the database has contributed to.
    pub(crate) fn succeeded(&self, at: Nanos) {
        let last = Nanos(self.last_success.load(Ordering::Relaxed));
        let is_failing = self.returned.load(Ordering::Relaxed) == Nanos::NEVER.0;
        if is_failing || (last.is_set() && last + GAP < at) {
            self.returned.store(at.0, Ordering::Relaxed);
        }
        if is_failing || last + NOTED_EVERY <= at {
            self.last_success.store(at.0, Ordering::Relaxed);
        }
    }

    /// Notes a request that failed because of the database, or that timed out.
    pub(crate) fn failed(&self) {
        self.returned.store(Nanos::NEVER.0, Ordering::Relaxed);
    }

    /// Since when everything has succeeded; [`Nanos::NEVER`] if the last request failed.
    pub(crate) fn returned(&self) -> Nanos {
        Nanos(self.returned.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_returns_after_a_failure_and_after_a_gap() {
        let availability = Availability::default();
        let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
        availability.succeeded(seconds(5));
        assert_eq!(availability.returned(), Nanos::UNSET);
        availability.failed();
        assert_eq!(availability.returned(), Nanos::NEVER);
        availability.succeeded(seconds(6));
        assert_eq!(availability.returned(), seconds(6));
        availability.succeeded(Nanos(6_900_000_000));
        assert_eq!(availability.returned(), seconds(6));
        availability.succeeded(seconds(8));
        assert_eq!(availability.returned(), seconds(8));
    }
}
