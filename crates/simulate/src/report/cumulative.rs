//! Confidence intervals of quantiles over replications (Woodruff 1952, Journal of the American Statistical Association 47).
//!
//! The quantile of a replication is biased and skewed, because the slowest requests come in few clusters. The share of its
//! requests below a given time is not biased. The interval of that share is therefore computed first. Its two ends are
//! then converted to quantiles of all requests together.

use crate::engine::histogram::Histogram;
use crate::report::spread::{Spread, Student};

/// Without a known relaxation time, the interval is withheld if the relative standard error of the share of slower requests
/// exceeds this. The interval would then depend on fewer than about 40 clusters of slow requests.
const TAIL_ERROR_MAX: f64 = 0.16;

/// The spread over replications of the share of requests below each time, at 64 times to an octave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cumulative {
    /// The number of the first bucket.
    first: usize,
    /// By bucket, the share of the requests up to its upper edge.
    shares: Vec<Spread>,
    /// The share of the requests without any time.
    zeros: Spread,
    /// The shares above the last bucket, which are all 1.
    ones: Spread,
}

impl Cumulative {
    /// Adds a replication.
    pub(crate) fn add(&mut self, times: &Histogram) {
        let (first, shares) = times.coarse_shares();
        if !shares.is_empty() {
            self.make_room(first, first + shares.len());
        }
        let zero_share = times.zero_share();
        for (bucket, spread) in (self.first..).zip(&mut self.shares) {
            let below = bucket.checked_sub(first).map_or(zero_share, |index| shares.get(index).copied().unwrap_or(1.0));
            spread.add(below);
        }
        self.zeros.add(zero_share);
        self.ones.add(1.0);
    }

    /// The interval of the quantile at `share`, whose value is `quantile_s`; `None` if too few requests decide it:
    /// if less than a share of `least_tail` of them is beyond it.
    pub(crate) fn interval_s(
        &self,
        times: &Histogram,
        share: f64,
        quantile_s: f64,
        least_tail: Option<f64>,
        student: &Student,
    ) -> Option<(f64, f64)> {
        let spread = match Histogram::coarse_bucket(quantile_s) {
            None => &self.zeros,
            Some(bucket) => {
                bucket.checked_sub(self.first).map_or(&self.zeros, |at| self.shares.get(at).unwrap_or(&self.ones))
            }
        };
        let (below, above) = spread.distances(student)?;
        let (low, high) = (share - below, share + above);
        let tail = share.min(1.0 - share);
        let is_known = least_tail.map_or(spread.standard_error() <= TAIL_ERROR_MAX * tail, |least| tail >= least);
        (is_known && low > 0.0 && high < 1.0).then(|| {
            let ends = times.quantiles_s(&[low, high]);
            (ends[0], ends[1])
        })
    }

    /// Makes room for the buckets from `low` until `end`.
    fn make_room(&mut self, low: usize, end: usize) {
        if self.shares.is_empty() {
            self.first = low;
        }
        if low < self.first {
            let more = self.first - low;
            self.shares.splice(0..0, std::iter::repeat_n(self.zeros, more));
            self.first = low;
        }
        if end - self.first > self.shares.len() {
            self.shares.resize(end - self.first, self.ones);
        }
    }
}
