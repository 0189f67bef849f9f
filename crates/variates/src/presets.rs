//! The values of a published study of a large memcached pool (ETC): B. Atikoglu, Y. Xu, E. Frachtenberg, S. Jiang,
//! M. Paleczny, "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012, section 5 and table 5.
//! The parameters are those of the load generator mutilate, which most authors use.

use crate::tails::Tail;

/// Key sizes in bytes: a generalised extreme value.
pub(crate) const FB_KEY: Tail = Tail { location: 30.7984, scale: 8.20449, shape: 0.078688 };

/// Value sizes in bytes from 15 on: a generalised Pareto variate. The study gives the location 0 for sizes above 15 bytes.
/// Here, as in mutilate, the location is 15, so that the tail starts at the end of the table.
pub(crate) const FB_VALUE_TAIL: Tail = Tail { location: 15.0, scale: 214.476, shape: 0.348238 };

/// The shares of values of 0, 1, ... 14 bytes (table 5).
pub(crate) const FB_VALUE_HEAD: [f64; 15] = [
    0.00536, 0.00047, 0.1782, 0.09239, 0.00018, 0.0274, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837, 0.08989, 0.00092,
    0.00326, 0.0198,
];

/// Inter-arrival times in microseconds: a generalised Pareto variate.
pub(crate) const FB_IA_US: Tail = Tail { location: 0.0, scale: 16.0292, shape: 0.154971 };

/// The quantile of value sizes at `u`.
pub(crate) fn value_quantile(u: f64) -> f64 {
    match head(u) {
        Ok(bytes) => bytes,
        Err(head_share) => FB_VALUE_TAIL.pareto_quantile(((u - head_share) / (1.0 - head_share)).clamp(0.0, 1.0)),
    }
}

/// A value size from a uniform variate, which selects head or tail, and a standard exponential one for the tail.
pub(crate) fn value(u: f64, exponential: impl FnOnce() -> f64) -> f64 {
    head(u).unwrap_or_else(|_| FB_VALUE_TAIL.pareto(exponential()))
}

pub(crate) fn value_mean() -> f64 {
    let sizes = (0u8..).map(f64::from);
    let (head_mean, head_share) = FB_VALUE_HEAD
        .iter()
        .zip(sizes)
        .fold((0.0, 0.0), |(mean, sum), (share, size)| (mean + share * size, sum + share));
    head_mean + (1.0 - head_share) * FB_VALUE_TAIL.pareto_mean()
}

/// The size in the head at `u`; the share of the whole head if `u` lies in the tail.
fn head(u: f64) -> Result<f64, f64> {
    let mut sum = 0.0;
    for (share, size) in FB_VALUE_HEAD.iter().zip(0u8..) {
        sum += share;
        if u <= sum {
            return Ok(f64::from(size));
        }
    }
    Err(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_follows_the_table_and_the_tail_continues_it() {
        assert_eq!(value_quantile(0.0), 0.0);
        assert_eq!(value_quantile(0.005), 0.0);
        assert_eq!(value_quantile(0.1), 2.0);
        assert_eq!(value_quantile(0.44), 14.0);
        assert!((value_quantile(0.44156) - 15.0).abs() < 0.01, "{}", value_quantile(0.44156));
        assert_eq!(value_quantile(1.0), f64::INFINITY);
        let share: f64 = FB_VALUE_HEAD.iter().sum();
        assert!((share - 0.44155).abs() < 1e-12);
    }

    #[test]
    fn the_mean_is_the_integral_of_the_quantile() {
        let steps = 200_000;
        let sum: f64 = (0..steps).map(|step| value_quantile((f64::from(step) + 0.5) / f64::from(steps))).sum();
        assert!((sum / f64::from(steps) / value_mean() - 1.0).abs() < 2e-3);
    }
}
