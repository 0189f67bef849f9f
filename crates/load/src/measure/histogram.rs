//! The times of many requests. Percentiles come from a histogram; count, sum, minimum and maximum are exact. Merging is
//! exact, too. Requests without an answer have no time. In percentiles they count as slower than every answered
//! request.

use hdrhistogram::{Counter, Histogram};

/// The upper bound of a histogram. Longer times are counted in its last bucket; the maximum is still exact.
const LONGEST_NS: u64 = 60_000_000_000;
/// The part of a rank that is attributed to rounding.
const RANK_ROUNDING: f64 = 1e-6;

/// The times of many requests: percentiles from a histogram, everything else exact.
#[derive(Clone, Debug)]
pub(crate) struct TimeHistogram {
    pub(crate) histogram: Histogram<u64>,
    sum_ns: u128,
    squares_ns: u128,
    min_ns: u64,
    max_ns: u64,
    /// Requests without an answer: slower than every time in the histogram.
    unanswered: u64,
}

impl TimeHistogram {
    pub(crate) fn new() -> TimeHistogram {
        TimeHistogram { histogram: histogram(), sum_ns: 0, squares_ns: 0, min_ns: u64::MAX, max_ns: 0, unanswered: 0 }
    }

    /// Counts requests without an answer.
    pub(crate) fn record_unanswered(&mut self, requests: u64) {
        self.unanswered = self.unanswered.saturating_add(requests);
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
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.squares_ns = self.squares_ns.saturating_add(other.squares_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.record_unanswered(other.unanswered);
    }

    /// Restores what the summary contains.
    pub(crate) fn from_parts(
        histogram: Histogram<u64>,
        sum_ns: u128,
        squares_ns: u128,
        min_max_ns: (u64, u64),
        unanswered: u64,
    ) -> Self {
        let min_ns = if histogram.is_empty() { u64::MAX } else { min_max_ns.0 };
        TimeHistogram { histogram, sum_ns, squares_ns, min_ns, max_ns: min_max_ns.1, unanswered }
    }

    /// Empties the histogram and keeps its memory.
    pub(crate) fn clear(&mut self) {
        if self.count() > 0 {
            self.histogram.reset();
            (self.sum_ns, self.squares_ns, self.min_ns, self.max_ns) = (0, 0, u64::MAX, 0);
        }
        self.unanswered = 0;
    }

    /// Requests without an answer.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Requests with a time.
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

    /// The smallest time that at least `percent` of the requests do not exceed, unanswered ones included. None if that
    /// request has no answer; 0 without requests.
    pub(crate) fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = rank(self.count() + self.unanswered, percent);
        (rank <= self.count()).then(|| value_at_rank(&self.histogram, rank).min(self.max_ns))
    }

    /// Whether at least ten requests lie above this percentile. With fewer, the percentile is mostly chance.
    pub(crate) fn supports(&self, percent: f64) -> bool {
        supports(self.count() + self.unanswered, percent)
    }
}

/// The rank of a percentile among `count` values in ascending order, from 1: the nearest-rank rule, type 1 of R. J.
/// Hyndman and Y. Fan, "Sample quantiles in statistical packages", The American Statistician 50(4), 1996. 0 without
/// values.
pub(crate) fn rank(count: u64, percent: f64) -> u64 {
    // The product may be too large by a rounding error.
    ((percent * count as f64 / 100.0 - RANK_ROUNDING).ceil() as u64).clamp(1.min(count), count)
}

/// The value of this rank, from 1; 0 in an empty histogram.
pub(crate) fn value_at_rank<C: Counter>(histogram: &Histogram<C>, rank: u64) -> u64 {
    // The library rounds the product of quantile and count up to the rank.
    histogram.value_at_quantile((rank as f64 - 0.5).max(0.0) / histogram.len().max(1) as f64)
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
        assert_eq!(recorded.percentile_ns(99.9), Some(5));
    }

    #[test]
    fn a_percentile_is_the_value_with_the_nearest_rank() {
        let ranks = [(10, 50.0), (10, 51.0), (11, 50.0), (1000, 99.9), (10_000, 99.99), (3, 0.001), (0, 50.0)];
        assert_eq!(ranks.map(|(count, percent)| rank(count, percent)), [5, 6, 6, 999, 9999, 1, 0]);
        let mut recorded = TimeHistogram::new();
        (1..=1000).for_each(|time| recorded.record(time));
        for (percent, expected) in [(0.1, 1), (50.0, 500), (50.01, 501), (99.0, 990), (99.9, 999), (99.95, 1000)] {
            assert_eq!(recorded.percentile_ns(percent), Some(expected), "{percent}");
        }
    }

    #[test]
    fn requests_without_an_answer_are_slower_than_any_time() {
        let mut recorded = TimeHistogram::new();
        (0..990).for_each(|_| recorded.record(5));
        recorded.record_unanswered(10);
        assert_eq!((recorded.percentile_ns(99.0), recorded.percentile_ns(99.1)), (Some(5), None));
        assert!(recorded.supports(99.0) && recorded.count() == 990);
        let mut twice = recorded.clone();
        twice.merge(&recorded);
        assert_eq!((twice.unanswered(), twice.percentile_ns(99.1)), (20, None));
        twice.clear();
        assert_eq!((twice.unanswered(), twice.percentile_ns(99.1)), (0, Some(0)));
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
