//! Histograms of the time in each stage, by group of operations. Each event loop has its own. The metrics server takes what they have
//! recorded since the last scrape, and adds it up.

use clock::{INTERVALS, STAGES, StageClock};
use std::sync::mpsc::{SyncSender, TrySendError};
use wire::Verb;

/// The groups of operations, as in the metric's label.
pub(crate) const KINDS: [&str; 4] = ["get", "set", "delete", "other"];
/// One series for each interval, and one for the total time in the proxy.
const SERIES: usize = STAGES;

/// The upper bounds of the buckets of a metric, in microseconds. Each is at least twice the one before. Records have the exact times.
const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];
/// The bucket for longer times follows the others.
const BUCKETS: usize = BOUNDS_US.len() + 1;
/// For each number of binary digits, the bucket of the shortest time with so many.
const FIRST_BUCKETS: [u8; 65] = first_buckets();

/// The times of one series.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    counts: [u64; BUCKETS],
    pub(crate) sum_ns: u64,
}

/// One histogram for each group of operations and each interval, and one for the total.
#[derive(Clone, Debug)]
pub(crate) struct StageHistograms {
    /// `[group][interval]`. The last of each group is the total.
    series: Vec<[Times; SERIES]>,
}

/// A request to one loop for its histograms.
#[derive(Debug)]
pub(crate) struct HistogramRequest {
    /// Empty histograms, with which the loop continues.
    pub(crate) empty: StageHistograms,
    pub(crate) sender: SyncSender<StageHistograms>,
}

const fn first_buckets() -> [u8; 65] {
    let mut first = [0; 65];
    let mut digits = 1;
    while digits < first.len() {
        let shortest_ns = 1_u64 << (digits - 1);
        let mut bucket = first[digits - 1];
        while (bucket as usize) < BOUNDS_US.len() && BOUNDS_US[bucket as usize] * 1_000 < shortest_ns {
            bucket += 1;
        }
        first[digits] = bucket;
        digits += 1;
    }
    first
}

/// The bucket of a time.
fn bucket(time_ns: u64) -> usize {
    let first = usize::from(FIRST_BUCKETS[(u64::BITS - time_ns.leading_zeros()) as usize]);
    // Times with the same number of digits differ by less than a factor of two, so at most one bound is between them.
    first + usize::from(BOUNDS_US.get(first).is_some_and(|bound_us| bound_us * 1_000 < time_ns))
}

impl Times {
    fn record(&mut self, time_ns: u64) {
        self.counts[bucket(time_ns)] += 1;
        self.sum_ns += time_ns;
    }

    fn add(&mut self, other: &Times) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.sum_ns += other.sum_ns;
    }

    /// The number of times.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The upper bound of each bucket in seconds, and the number of times in it. The last bucket has no bound.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds_s = BOUNDS_US.map(|bound_us| bound_us as f64 / 1e6);
        bounds_s.into_iter().chain([f64::MAX]).zip(self.counts).collect()
    }
}

impl Default for StageHistograms {
    fn default() -> Self {
        StageHistograms { series: vec![Default::default(); KINDS.len()] }
    }
}

impl StageHistograms {
    /// Adds one request.
    pub(crate) fn record(&mut self, verb: Verb, clock: &StageClock) {
        let series = &mut self.series[kind(verb)];
        series.iter_mut().zip(clock.intervals_ns()).for_each(|(times, time_ns)| times.record(time_ns));
        series[SERIES - 1].record(clock.total_ns());
    }

    /// Sends what was recorded since the last request. Nothing is copied.
    pub(crate) fn exchange(&mut self, request: HistogramRequest) {
        let recorded = std::mem::replace(self, request.empty);
        let sent = request.sender.try_send(recorded);
        if let Err(TrySendError::Full(recorded) | TrySendError::Disconnected(recorded)) = sent {
            // The receiver has given up. The next one gets everything.
            *self = recorded;
        }
    }

    /// Empties the histograms, so that they can be used again.
    pub(crate) fn clear(&mut self) {
        self.series.fill_with(Default::default);
    }

    /// Adds the histograms of another loop.
    pub(crate) fn add(&mut self, other: &StageHistograms) {
        let others = other.series.iter().flatten();
        self.series.iter_mut().flatten().zip(others).for_each(|(times, other)| times.add(other));
    }

    /// Every series: group of operations, name of the interval, and times.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&'static str, &'static str, &Times)> {
        KINDS.into_iter().enumerate().flat_map(move |(kind, kind_name)| {
            (0..SERIES).map(move |index| {
                let name = INTERVALS.get(index).map_or("total", |interval| interval.name);
                (kind_name, name, &self.series[kind][index])
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
    use std::sync::mpsc::sync_channel;

    #[test]
    fn loops_add_up() {
        let mut first = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        first.record(Verb::Get, &clock);
        let mut second = StageHistograms::default();
        second.record(Verb::Get, &clock);
        second.record(Verb::Set, &clock);
        first.add(&second);
        assert_eq!((total(&first, "get"), total(&first, "set")), ((2, 4000), (1, 2000)));
        second.clear();
        assert_eq!((total(&second, "get"), total(&second, "set")), ((0, 0), (0, 0)));
    }

    #[test]
    fn an_exchange_takes_everything_once_and_nothing_if_the_receiver_has_gone() {
        let mut own = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        let mut taken = Vec::new();
        for is_received in [true, false, true] {
            own.record(Verb::Get, &clock);
            let (sender, receiver) = sync_channel(1);
            let receiver = Some(receiver).filter(|_| is_received);
            own.exchange(HistogramRequest { empty: StageHistograms::default(), sender });
            taken.extend(receiver.map(|receiver| total(&receiver.recv().unwrap(), "get")));
        }
        assert_eq!((taken, total(&own, "get")), (vec![(1, 2000), (2, 4000)], (0, 0)));
    }

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let near_bounds =
            BOUNDS_US.iter().flat_map(|bound_us| [bound_us * 1_000 - 1, bound_us * 1_000, bound_us * 1_000 + 1]);
        let near_powers = (0..64).flat_map(|digits| [(1_u64 << digits) - 1, 1 << digits, (1 << digits) + 1]);
        for time_ns in near_bounds.chain(near_powers).chain([0, u64::MAX]) {
            let expected = BOUNDS_US.iter().position(|bound_us| time_ns <= bound_us * 1_000).unwrap_or(BUCKETS - 1);
            assert_eq!(bucket(time_ns), expected, "{time_ns}");
        }
    }

    #[test]
    fn the_buckets_have_all_times() {
        let mut times = Times::default();
        [999, 1_000, 1_001, 6_000_000_000].into_iter().for_each(|time_ns| times.record(time_ns));
        let buckets = times.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[BUCKETS - 1]), ((1e-6, 2), (2e-6, 1), (f64::MAX, 1)));
        assert_eq!((times.count(), times.sum_ns), (4, 6_000_003_000));
    }

    /// The number and the sum of the total times of one group.
    fn total(histograms: &StageHistograms, kind: &str) -> (u64, u64) {
        let series = histograms.series().find(|series| series.0 == kind && series.1 == "total").unwrap();
        (series.2.count(), series.2.sum_ns)
    }
}
