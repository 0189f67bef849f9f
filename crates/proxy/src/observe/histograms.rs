//! Histograms of the time in each stage, by group of operations. Each event loop has its own. The metrics server takes what they have
//! recorded since the last scrape, and adds it up.

use clock::{INTERVALS, STAGES, StageClock};
use hdrhistogram::Histogram;
use std::sync::mpsc::{SyncSender, TrySendError};
use wire::Verb;

/// The groups of operations, as in the metric's label.
pub(crate) const KINDS: [&str; 4] = ["get", "set", "delete", "other"];
/// One series for each interval, and one for the total time in the proxy.
const SERIES: usize = STAGES;
/// Ten minutes: longer than any timeout.
const LONGEST_NS: u64 = 600_000_000_000;
/// Two significant digits are enough for the buckets of a metric. Records have the exact times.
const DIGITS: u8 = 2;

/// The number of requests that are recorded together.
///
/// One request updates eight histograms, and after each system call these have left the CPU caches. Recorded one by one, the cache
/// misses cost more than all other timing work. In a batch, each histogram is fetched once.
const BATCH_REQUESTS: usize = 64;

/// One histogram for each group of operations and each interval, and one for the total.
#[derive(Clone, Debug)]
pub(crate) struct StageHistograms {
    /// The group and times of requests that are not in the histograms yet.
    batch: Vec<(usize, [u64; SERIES])>,
    /// `[group][interval]`. The last of each group is the total.
    series: Vec<[Histogram<u64>; SERIES]>,
    /// Exact sums in nanoseconds, in the same order. A histogram has them only approximately.
    sums_ns: Vec<[u64; SERIES]>,
}

/// A request to one loop for its histograms.
#[derive(Debug)]
pub(crate) struct HistogramRequest {
    /// Empty histograms, with which the loop continues.
    pub(crate) empty: StageHistograms,
    pub(crate) sender: SyncSender<StageHistograms>,
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
    /// Adds one request to the batch.
    pub(crate) fn record(&mut self, verb: Verb, clock: &StageClock) {
        let mut times_ns = [0; SERIES];
        times_ns[..SERIES - 1].copy_from_slice(&clock.intervals_ns());
        times_ns[SERIES - 1] = clock.total_ns();
        self.batch.push((kind(verb), times_ns));
        if self.batch.len() >= BATCH_REQUESTS {
            self.record_batch();
        }
    }

    /// Records the batch in the histograms.
    pub(crate) fn record_batch(&mut self) {
        for index in 0..SERIES {
            for (kind, times_ns) in &self.batch {
                self.series[*kind][index].saturating_record(times_ns[index]);
                self.sums_ns[*kind][index] += times_ns[index];
            }
        }
        self.batch.clear();
    }

    /// Sends what was recorded since the last request. Nothing is copied: the histograms have more than a megabyte, and a copy would
    /// stall the event loop.
    pub(crate) fn exchange(&mut self, request: HistogramRequest) {
        self.record_batch();
        let recorded = std::mem::replace(self, request.empty);
        let sent = request.sender.try_send(recorded);
        if let Err(TrySendError::Full(recorded) | TrySendError::Disconnected(recorded)) = sent {
            // The receiver has given up. The next one gets everything.
            *self = recorded;
        }
    }

    /// Empties the histograms, so that they can be used again.
    pub(crate) fn clear(&mut self) {
        self.series.iter_mut().flatten().filter(|histogram| !histogram.is_empty()).for_each(Histogram::reset);
        self.sums_ns.iter_mut().for_each(|sums| sums.fill(0));
    }

    /// Adds the histograms of another loop, whose batch must be recorded.
    pub(crate) fn add(&mut self, other: &StageHistograms) {
        assert!(other.batch.is_empty(), "the batch was not recorded");
        for kind in 0..KINDS.len() {
            for index in 0..SERIES {
                // Both have the same bounds, so no value can be out of range.
                let _ = self.series[kind][index].add(&other.series[kind][index]);
                self.sums_ns[kind][index] += other.sums_ns[kind][index];
            }
        }
    }

    /// Every series: group of operations, name of the interval, histogram, and exact sum in nanoseconds. The batch must be recorded.
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
    use clock::{Clock, Nanos, Stage};
    use std::sync::mpsc::sync_channel;

    #[test]
    fn loops_add_up() {
        let mut first = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        first.record(Verb::Get, &clock);
        first.record_batch();
        let mut second = StageHistograms::default();
        second.record(Verb::Get, &clock);
        second.record(Verb::Set, &clock);
        second.record_batch();
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
    #[ignore = "prints times: cargo test --release -p proxy --lib scrape_occupies -- --ignored --nocapture"]
    fn how_long_a_scrape_occupies_an_event_loop() {
        let time = Clock::monotonic();
        let mut own = StageHistograms::default();
        let (mut copies_ns, mut exchanges_ns, mut spare) = (Vec::new(), Vec::new(), None);
        for round in 0..1000 {
            for request in 0..1000 {
                let mut clock = StageClock::started(Nanos(1));
                clock.stamp(Stage::Replied, Nanos(1 + request * (round + 1) * 10));
                clock.finish();
                own.record([Verb::Get, Verb::Set, Verb::Delete, Verb::Touch][request as usize % 4], &clock);
            }
            let begun = time.now();
            own.record_batch();
            let copy = own.clone();
            copies_ns.push(time.now().since(begun));
            let (sender, receiver) = sync_channel(1);
            let empty = spare.replace(copy).unwrap_or_default();
            let begun = time.now();
            own.exchange(HistogramRequest { empty, sender });
            exchanges_ns.push(time.now().since(begun));
            let mut recorded = receiver.recv().unwrap();
            recorded.clear();
            spare = Some(recorded);
        }
        for (what, mut times_ns) in [("a copy", copies_ns), ("an exchange", exchanges_ns)] {
            times_ns.sort_unstable();
            let [median, high, longest] = [500, 990, 999].map(|place: usize| times_ns[place] as f64 / 1e3);
            println!("{what}: median {median:.1}, 99 % {high:.1}, longest {longest:.1} microseconds");
        }
    }

    /// The number and the sum of the total times of one group.
    fn total(histograms: &StageHistograms, kind: &str) -> (u64, u64) {
        let series = histograms.series().find(|series| series.0 == kind && series.1 == "total").unwrap();
        (series.2.len(), series.3)
    }
}
