//! When a connection that has failed is tried again: after pauses that grow with each failure in a row.

use clock::Nanos;
use std::time::Duration;

/// The first pause after a failure; doubled by each further one.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause. A connection that has held so long was of use even if nothing was asked on it.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The failures in a row of one connection.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
}

impl Retry {
    /// Whether nothing has failed since the last success.
    pub(crate) fn is_fresh(&self) -> bool {
        self.failures == 0
    }

    /// Begins anew: it has been of use.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Notes a failure; returns when to try again. The jitter, from the time and a number that differs between
    /// connections, keeps them from coming back in step.
    pub(crate) fn failed(&mut self, now: Nanos, number: usize) -> Nanos {
        let longest = PAUSE_MIN.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        let jitter = (now.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.failures = self.failures.saturating_add(1);
        now + longest / 2 + (longest / 2).mul_f64(jitter as f64 / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_begin_anew_after_a_success() {
        let mut retry = Retry::default();
        let now = Nanos(1_000_000_007);
        let pauses_ns: Vec<u64> = (0..40).map(|_| retry.failed(now, 3).since(now)).collect();
        assert!((10_000_000..=20_000_000).contains(&pauses_ns[0]), "{pauses_ns:?}");
        assert!(pauses_ns.is_sorted() && (500_000_000..=1_000_000_000).contains(&pauses_ns[39]), "{pauses_ns:?}");
        assert!(!retry.is_fresh());
        retry.succeeded();
        assert!(retry.is_fresh() && retry.failed(now, 3).since(now) == pauses_ns[0]);
    }
}
