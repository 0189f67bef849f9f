//! A histogram of times of any size. Its buckets are the leading bits of the float, 1024 to an octave, so that the relative
//! error of a quantile is below one in a thousand.

const DROPPED_BITS: u32 = 52 - 10;
/// The number of buckets by which it grows: an octave.
const OCTAVE: usize = 1 << 10;
/// Buckets in a coarse one.
const COARSE: usize = 1 << 4;

/// Counts of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// The bucket of the first count.
    first: usize,
    counts: Vec<u64>,
    zeros: u64,
    total: u64,
}

impl Histogram {
    /// Counts a time in seconds, which must not be negative.
    #[inline]
    pub(crate) fn record(&mut self, time_s: f64) {
        self.total += 1;
        if time_s == 0.0 {
            self.zeros += 1;
            return;
        }
        let class = (time_s.to_bits() >> DROPPED_BITS) as usize;
        match self.counts.get_mut(class.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => {
                self.make_room(class);
                self.counts[class - self.first] += 1;
            }
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// The share of the times that are zero.
    pub(crate) fn zero_share(&self) -> f64 {
        self.zeros as f64 / self.total as f64
    }

    /// The number of the coarse bucket, 64 to an octave, that has a time; `None` for zero.
    pub(crate) fn coarse_bucket(time_s: f64) -> Option<usize> {
        (time_s > 0.0).then(|| (time_s.to_bits() >> DROPPED_BITS) as usize / COARSE)
    }

    /// The number of the first coarse bucket with a count, and the share of the times up to the end of it and of each
    /// following one, until all are counted.
    pub(crate) fn coarse_shares(&self) -> (usize, Vec<f64>) {
        let mut below = self.zeros;
        let mut shares = Vec::new();
        let mut first = 0;
        for (number, counts) in (self.first / COARSE..).zip(self.counts.chunks(COARSE)) {
            let count: u64 = counts.iter().sum();
            if shares.is_empty() && count == 0 {
                continue;
            }
            if shares.is_empty() {
                first = number;
            }
            below += count;
            shares.push(below as f64 / self.total as f64);
            if below == self.total {
                break;
            }
        }
        (first, shares)
    }

    /// Adds another histogram.
    pub(crate) fn merge(&mut self, other: &Histogram) {
        self.total += other.total;
        self.zeros += other.zeros;
        if other.counts.is_empty() {
            return;
        }
        self.make_room(other.first);
        self.make_room(other.first + other.counts.len() - 1);
        let from = other.first - self.first;
        for (sum, count) in self.counts[from..].iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    pub(crate) fn reset(&mut self) {
        self.counts.fill(0);
        self.zeros = 0;
        self.total = 0;
    }

    /// The quantiles at these increasing shares; none for an empty histogram.
    pub(crate) fn quantiles_s(&self, shares: &[f64]) -> Vec<f64> {
        let mut quantiles = Vec::with_capacity(shares.len());
        let (mut class, mut below) = (0, self.zeros);
        for share in shares {
            let rank = share * self.total as f64;
            while class < self.counts.len() && (below + self.counts[class]) as f64 <= rank {
                below += self.counts[class];
                class += 1;
            }
            quantiles.push(self.within(class, rank - below as f64, rank <= self.zeros as f64));
        }
        quantiles
    }

    /// The time in a bucket at which this many of its counts are reached.
    fn within(&self, class: usize, rank: f64, is_zero: bool) -> f64 {
        if is_zero {
            return 0.0;
        }
        let edge = |class: usize| f64::from_bits(((self.first + class) as u64) << DROPPED_BITS);
        match self.counts.get(class) {
            Some(&count) => {
                let share = (rank / count as f64).clamp(0.0, 1.0);
                edge(class) + share * (edge(class + 1) - edge(class))
            }
            None => self.counts.iter().rposition(|&count| count > 0).map_or(0.0, |last| edge(last + 1)),
        }
    }

    /// Makes room for the count of a bucket.
    fn make_room(&mut self, class: usize) {
        let low = class / OCTAVE * OCTAVE;
        if self.counts.is_empty() {
            self.first = low;
        } else if low < self.first {
            let more = self.first - low;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = low;
        }
        let needed = low + OCTAVE - self.first;
        if self.counts.len() < needed {
            self.counts.resize(needed, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_within_a_thousandth(
            mut times in proptest::collection::vec(1e-9f64..1e6, 1..300),
            share in 0.0f64..1.0,
        ) {
            let (mut one, mut other) = (Histogram::default(), Histogram::default());
            for (index, &time) in times.iter().enumerate() {
                if index % 2 == 0 { one.record(time) } else { other.record(time) }
            }
            one.merge(&other);
            prop_assert_eq!(one.count(), times.len() as u64);
            times.sort_by(f64::total_cmp);
            let exact = times[((share * times.len() as f64) as usize).min(times.len() - 1)];
            let found = one.quantiles_s(&[share])[0];
            prop_assert!((found - exact).abs() <= 1e-3 * exact, "{} for {}", found, exact);
        }
    }

    #[test]
    fn zeros_are_times_too() {
        let mut histogram = Histogram::default();
        [0.0, 0.0, 0.0, 2.0].iter().for_each(|&time| histogram.record(time));
        let quantiles = histogram.quantiles_s(&[0.5, 0.7, 0.99]);
        assert_eq!(quantiles[..2], [0.0, 0.0]);
        assert!((quantiles[2] - 2.0).abs() < 2e-3);
        histogram.reset();
        assert_eq!((histogram.count(), histogram.quantiles_s(&[0.5])[0]), (0, 0.0));
    }
}
