//! The pauses before a failed connection is opened again. They double with each failure in a row.

use clock::Nanos;
use std::time::Duration;

/// The longest first pause after a failure. Each further failure doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause. A connection that was open for this long counts as useful even if no request was sent on it.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The number of failures in a row of one connection.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
}

impl Retry {
    /// Whether nothing has failed since the last success.
    pub(crate) fn is_fresh(&self) -> bool {
        self.failures == 0
    }

    /// Resets the pauses after a success.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records a failure; returns when to try again. Half of the pause is jitter, from the time and the connection's number, so
    /// that connections do not reconnect in step.
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
    fn pauses_grow_up_to_a_limit_and_start_over_after_a_success() {
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
