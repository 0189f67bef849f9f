//! Histograms of the time in each stage, by operation. Requests add to them and scrapes read them without a lock.

use clock::{INTERVALS, StageClock};
use std::sync::atomic::{AtomicU64, Ordering};

/// The values of the label `operation`.
pub(crate) const OPERATION_LABELS: [&str; 7] = ["send", "pop", "receive", "lease", "peek", "queues", "other"];
/// The intervals of a request, and its total time.
pub(crate) const SERIES: usize = INTERVALS.len() + 1;
/// Upper bounds of the buckets in microseconds, the same as in the proxy.
pub(crate) const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];
/// The bucket for longer times follows the others.
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// Times of one operation in one interval.
#[derive(Debug, Default)]
struct Series {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The same at one moment. Requests that end meanwhile can be missing in some of the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    counts: [u64; BUCKETS],
    pub(crate) sum_ns: u64,
}

/// All histograms: `[operation][interval]`. The last interval is the total time.
#[derive(Debug, Default)]
pub(crate) struct StageTimes([[Series; SERIES]; OPERATION_LABELS.len()]);

impl StageTimes {
    /// Adds a request of the operation with this index whose clock has finished.
    pub(crate) fn add(&self, operation: usize, clock: &StageClock) {
        let intervals = clock.intervals_ns().into_iter().chain([clock.total_ns()]);
        for (series, time_ns) in self.0[operation].iter().zip(intervals) {
            let bucket = BOUNDS_US.partition_point(|bound_us| bound_us * 1000 < time_ns);
            series.counts[bucket].fetch_add(1, Ordering::Relaxed);
            series.sum_ns.fetch_add(time_ns, Ordering::Relaxed);
        }
    }

    /// The times of an operation so far.
    pub(crate) fn of(&self, operation: usize) -> [Times; SERIES] {
        self.0[operation].each_ref().map(|series| Times {
            counts: series.counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum_ns: series.sum_ns.load(Ordering::Relaxed),
        })
    }
}

impl Times {
    /// The number of times.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The number of times up to each bound of [`BOUNDS_US`].
    pub(crate) fn up_to_bounds(&self) -> impl Iterator<Item = u64> {
        let mut below = 0;
        self.counts.iter().take(BOUNDS_US.len()).map(move |count| {
            below += count;
            below
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::{Nanos, Stage};

    fn clock(total_ns: u64) -> StageClock {
        let mut clock = StageClock::started(Nanos(1));
        clock.stamp(Stage::Replied, Nanos(1 + total_ns));
        clock.finish();
        clock
    }

    #[test]
    fn a_time_counts_up_to_every_bound_that_it_does_not_exceed() {
        let times = StageTimes::default();
        for total_ns in [999, 1000, 1001, 5_000_000_000, 5_000_000_001, u64::MAX / 2] {
            times.add(0, &clock(total_ns));
        }
        let total = times.of(0)[SERIES - 1];
        let counts: Vec<u64> = total.up_to_bounds().collect();
        assert_eq!((counts[0], counts[1], counts[19], counts[20], total.count()), (2, 3, 3, 4, 6));
        assert_eq!(times.of(1)[SERIES - 1], Times::default());
    }

    #[test]
    fn requests_of_several_threads_are_all_counted_while_they_are_read() {
        const REQUESTS: u64 = 20_000;
        let times = StageTimes::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..3).map(|_| scope.spawn(|| (0..REQUESTS).for_each(|_| times.add(2, &clock(1500))))).collect();
            let mut before = 0;
            while threads.iter().any(|thread| !thread.is_finished()) {
                let count = times.of(2)[SERIES - 1].count();
                assert!((before..=3 * REQUESTS).contains(&count));
                before = count;
            }
        });
        let total = times.of(2)[SERIES - 1];
        assert_eq!((total.count(), total.sum_ns), (3 * REQUESTS, 3 * REQUESTS * 1500));
    }
}
