//! The times of many requests. Percentiles come from a histogram; count, sum, minimum and maximum are exact. Merging is
//! exact, too.

use hdrhistogram::{Counter, Histogram};

/// The upper bound of a histogram. Longer times are counted in its last bucket; the maximum is still exact.
const LONGEST_NS: u64 = 60_000_000_000;

/// The times of many requests: percentiles from a histogram, everything else exact.
#[derive(Clone, Debug)]
pub(crate) struct TimeHistogram {
    pub(crate) histogram: Histogram<u64>,
    sum_ns: u128,
    squares_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl TimeHistogram {
    pub(crate) fn new() -> TimeHistogram {
        TimeHistogram { histogram: histogram(), sum_ns: 0, squares_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    pub(crate) fn record(&mut self, time_ns: u64) {
        self.histogram.saturating_record(time_ns);
        self.sum_ns += u128::from(time_ns);
        self.squares_ns = self.squares_ns.saturating_add(u128::from(time_ns) * u128::from(time_ns));
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }

    pub(crate) fn merge(&mut self, other: &TimeHistogram) {
        add(&mut self.histogram, &other.histogram);
        self.sum_ns += other.sum_ns;
        self.squares_ns = self.squares_ns.saturating_add(other.squares_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Restores what the summary contains.
    pub(crate) fn from_parts(
        histogram: Histogram<u64>,
        sum_ns: u128,
        squares_ns: u128,
        min_max_ns: (u64, u64),
    ) -> Self {
        let min_ns = if histogram.is_empty() { u64::MAX } else { min_max_ns.0 };
        TimeHistogram { histogram, sum_ns, squares_ns, min_ns, max_ns: min_max_ns.1 }
    }

    /// Empties the histogram and keeps its memory.
    pub(crate) fn clear(&mut self) {
        if self.count() > 0 {
            self.histogram.reset();
            (self.sum_ns, self.squares_ns, self.min_ns, self.max_ns) = (0, 0, u64::MAX, 0);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The sum of the squares, in square nanoseconds.
    pub(crate) fn squares_ns(&self) -> u128 {
        self.squares_ns
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// The sample standard deviation; 0 for fewer than two values.
    pub(crate) fn std_ns(&self) -> f64 {
        let count = u128::from(self.count());
        if count < 2 {
            return 0.0;
        }
        // Integers are exact here. The difference of two large floats would lose a small spread.
        let spread = self.squares_ns.saturating_mul(count).saturating_sub(self.sum_ns.saturating_mul(self.sum_ns));
        (spread as f64 / count as f64 / (count - 1) as f64).sqrt()
    }

    pub(crate) fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min_ns }
    }

    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The smallest time that at least `percent` of the values do not exceed.
    pub(crate) fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.max_ns)
    }

    /// Whether at least ten values lie above this percentile. With fewer, the percentile is mostly chance.
    pub(crate) fn supports(&self, percent: f64) -> bool {
        supports(self.count(), percent)
    }
}

/// Whether ten of `count` values lie above this percentile.
pub(crate) fn supports(count: u64, percent: f64) -> bool {
    count as f64 * (1.0 - percent / 100.0) >= 10.0 - 1e-6
}

/// An empty histogram of times: three significant digits from one nanosecond.
pub(crate) fn histogram<C: Counter>() -> Histogram<C> {
    #[allow(clippy::expect_used, reason = "the bounds are constants that the tests create")]
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds of a histogram are valid")
}

/// Adds `from` to `to`. Both have the same bounds, so nothing is lost.
pub(crate) fn add<C: Counter>(to: &mut Histogram<C>, from: &Histogram<C>) {
    let added = to.add(from);
    debug_assert!(added.is_ok(), "histograms of the same bounds add up");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percentile_needs_ten_values_above_it() {
        let mut recorded = TimeHistogram::new();
        (0..9_999).for_each(|_| recorded.record(5));
        assert!(recorded.supports(99.0) && !recorded.supports(99.9));
        recorded.record(5);
        assert!(recorded.supports(99.9));
        assert_eq!(recorded.percentile_ns(99.9), 5);
    }

    #[test]
    fn times_above_the_bound_are_kept_as_the_maximum() {
        let mut recorded = TimeHistogram::new();
        recorded.record(0);
        recorded.record(u64::MAX / 2);
        assert_eq!((recorded.count(), recorded.max_ns()), (2, u64::MAX / 2));
    }

    proptest! {
        #[test]
        fn mean_and_deviation_are_exact(times in proptest::collection::vec(0u64..10_000_000, 2..200)) {
            let mut recorded = TimeHistogram::new();
            times.iter().for_each(|time| recorded.record(*time));
            let count = times.len() as f64;
            let mean = times.iter().sum::<u64>() as f64 / count;
            let variance = times.iter().map(|time| (*time as f64 - mean).powi(2)).sum::<f64>() / (count - 1.0);
            prop_assert!((recorded.mean_ns() - mean).abs() <= 1e-9 * mean);
            prop_assert!((recorded.std_ns() - variance.sqrt()).abs() <= 1e-6 * (1.0 + variance.sqrt()));
        }
    }
}
