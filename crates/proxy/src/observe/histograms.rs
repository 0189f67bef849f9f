//! Time per stage as histograms, by kind of operation. Each loop has its own; they are added up when somebody asks.

use clock::{INTERVALS, STAGES, StageClock};
use hdrhistogram::Histogram;
use wire::Verb;

/// Kinds of operation that are told apart, as in the metric's label.
pub(crate) const KINDS: [&str; 4] = ["get", "set", "delete", "other"];
/// The whole time in the proxy is kept beside the intervals.
const SERIES: usize = STAGES;
/// Ten minutes: longer than any timeout.
const LONGEST_NS: u64 = 600_000_000_000;
/// Two digits are enough for a bucket of a metric; records carry the exact times.
const DIGITS: u8 = 2;

/// Requests that gather before they are put into the histograms.
///
/// One request touches eight histograms in places that differ from the last one's, and after each system call they have left
/// the cache: put away one by one, the misses cost more than all the rest of the timing. Sixty-four at a time, a histogram's
/// hot places are fetched once.
const BATCH_REQUESTS: usize = 64;

/// One histogram per kind of operation and interval, and one for the sum.
#[derive(Clone, Debug)]
pub(crate) struct StageHistograms {
    /// Requests that are not in the histograms yet: their kind and times.
    batch: Vec<(usize, [u64; SERIES])>,
    /// `[kind][interval]`; the last of each kind is the total.
    series: Vec<[Histogram<u64>; SERIES]>,
    /// Exact sums in nanoseconds, in the same order: a histogram only knows them roughly.
    sums_ns: Vec<[u64; SERIES]>,
}

impl Default for StageHistograms {
    fn default() -> Self {
        let empty = || {
            let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
            #[allow(clippy::expect_used, reason = "the bounds are constants and legal")]
            histogram.expect("legal bounds")
        };
        StageHistograms {
            batch: Vec::with_capacity(BATCH_REQUESTS),
            series: KINDS.iter().map(|_| std::array::from_fn(|_| empty())).collect(),
            sums_ns: vec![[0; SERIES]; KINDS.len()],
        }
    }
}

impl StageHistograms {
    /// Adds one finished request.
    pub(crate) fn record(&mut self, verb: Verb, clock: &StageClock) {
        let mut times_ns = [0; SERIES];
        times_ns[..SERIES - 1].copy_from_slice(&clock.intervals_ns());
        times_ns[SERIES - 1] = clock.total_ns();
        self.batch.push((kind(verb), times_ns));
        if self.batch.len() >= BATCH_REQUESTS {
            self.settle();
        }
    }

    /// Puts what has gathered into the histograms.
    pub(crate) fn settle(&mut self) {
        for index in 0..SERIES {
            for (kind, times_ns) in &self.batch {
                self.series[*kind][index].saturating_record(times_ns[index]);
                self.sums_ns[*kind][index] += times_ns[index];
            }
        }
        self.batch.clear();
    }

    /// Adds another loop's, which must be settled.
    pub(crate) fn add(&mut self, other: &StageHistograms) {
        assert!(other.batch.is_empty(), "only settled histograms are added up");
        for kind in 0..KINDS.len() {
            for index in 0..SERIES {
                // Both have the same constant bounds, so nothing can be out of range.
                let _ = self.series[kind][index].add(&other.series[kind][index]);
                self.sums_ns[kind][index] += other.sums_ns[kind][index];
            }
        }
    }

    /// Every series of settled histograms: kind of operation, name of the interval, histogram, exact sum in nanoseconds.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&'static str, &'static str, &Histogram<u64>, u64)> {
        KINDS.into_iter().enumerate().flat_map(move |(kind, kind_name)| {
            (0..SERIES).map(move |index| {
                let name = INTERVALS.get(index).map_or("total", |interval| interval.name);
                (kind_name, name, &self.series[kind][index], self.sums_ns[kind][index])
            })
        })
    }
}

fn kind(verb: Verb) -> usize {
    match verb {
        Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg => 0,
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas | Verb::Ms => 1,
        Verb::Delete | Verb::Md => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::{Nanos, Stage};

    #[test]
    fn loops_add_up() {
        let mut first = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        first.record(Verb::Get, &clock);
        first.settle();
        let mut second = StageHistograms::default();
        second.record(Verb::Get, &clock);
        second.record(Verb::Set, &clock);
        second.settle();
        first.add(&second);
        let total =
            |kind| first.series().find(|series| series.0 == kind && series.1 == "total").map(|s| (s.2.len(), s.3));
        assert_eq!(total("get"), Some((2, 4000)));
        assert_eq!(total("set"), Some((1, 2000)));
    }
}
