//! Quantiles from the buckets of histograms.

/// A quantile of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantile {
    pub(crate) seconds: f64,
    /// The quantile is in the last bucket, which has no upper bound: it is at least `seconds`.
    pub(crate) is_beyond: bool,
}

/// The quantile `share` of the times that were counted in `buckets`: pairs of an upper bound in seconds and the number of times up to
/// this bound, in rising order. As Prometheus' `histogram_quantile`, it assumes that times are uniform inside a bucket.
/// None if there are no times.
pub(crate) fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<Quantile> {
    let total = buckets.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
    let rank = share * total;
    let (mut below_s, mut below) = (0.0, 0.0);
    for &(bound_s, count) in buckets {
        if count >= rank && count > below {
            if bound_s.is_infinite() {
                break;
            }
            let seconds = below_s + (bound_s - below_s) * ((rank - below) / (count - below)).clamp(0.0, 1.0);
            return Some(Quantile { seconds, is_beyond: false });
        }
        below = count.max(below);
        if bound_s.is_finite() {
            below_s = bound_s;
        }
    }
    Some(Quantile { seconds: below_s, is_beyond: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(buckets: &[(f64, f64)], share: f64) -> Option<(f64, bool)> {
        quantile(buckets, share).map(|found| (found.seconds, found.is_beyond))
    }

    #[test]
    fn times_are_interpolated_inside_their_bucket() {
        let buckets = [(1.0, 0.0), (2.0, 50.0), (5.0, 100.0), (f64::INFINITY, 100.0)];
        assert_eq!(at(&buckets, 0.0), Some((1.0, false)));
        assert_eq!(at(&buckets, 0.25), Some((1.5, false)));
        assert_eq!(at(&buckets, 0.5), Some((2.0, false)));
        assert_eq!(at(&buckets, 0.75), Some((3.5, false)));
        assert_eq!(at(&buckets, 1.0), Some((5.0, false)));
    }

    #[test]
    fn a_quantile_beyond_the_last_bound_is_only_a_bound() {
        assert_eq!(at(&[(1.0, 50.0), (f64::INFINITY, 100.0)], 0.99), Some((1.0, true)));
        assert_eq!(at(&[(f64::INFINITY, 100.0)], 0.5), Some((0.0, true)));
    }

    #[test]
    fn buckets_without_times_or_out_of_order_are_no_panic() {
        assert_eq!(at(&[], 0.5), None);
        assert_eq!(at(&[(1.0, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(at(&[(1.0, 9.0), (2.0, 3.0), (3.0, 4.0)], 0.5), Some((2.0 / 9.0, false)));
        assert_eq!(at(&[(1.0, 9.0), (2.0, 3.0)], 1.0), Some((1.0 / 3.0, false)));
    }
}
