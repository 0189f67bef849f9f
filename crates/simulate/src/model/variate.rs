//! Random times with the distributions of a description.

use crate::description::{Shape, Time};
use rand::Rng;
use rand_distr::{Distribution, Exp1, Gamma, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

/// With a smaller variation, a gamma or lognormal time is as good as constant.
const VARIATION_MIN: f64 = 1e-12;

/// A random time.
#[derive(Clone, Debug)]
pub(crate) enum Variate {
    Zero,
    Fixed(f64),
    Exponential(f64),
    /// Two exponential phases: the probability of the first, and both means.
    Phases(f64, f64, f64),
    /// Gamma, which includes Erlang.
    Gamma(Gamma<f64>),
    Lognormal(LogNormal<f64>),
    Measured(Arc<[f64]>),
}

impl Variate {
    /// From a time that has been checked.
    pub(crate) fn new(time: &Time) -> Variate {
        let (mean_s, variation) = (time.mean_s, time.squared_variation);
        if let Shape::Empirical(values) = &time.shape {
            return if mean_s > 0.0 { Variate::Measured(values.clone()) } else { Variate::Zero };
        }
        if mean_s == 0.0 {
            return Variate::Zero;
        }
        match time.shape {
            Shape::Exponential => Variate::Exponential(mean_s),
            Shape::Hyperexponential => Variate::phases(mean_s, variation),
            _ if variation < VARIATION_MIN => Variate::Fixed(mean_s),
            Shape::Lognormal => {
                let spread = variation.ln_1p();
                LogNormal::new(mean_s.ln() - spread / 2.0, spread.sqrt())
                    .map_or(Variate::Fixed(mean_s), Variate::Lognormal)
            }
            _ => Variate::gamma(mean_s, variation),
        }
    }

    /// Inter-arrival times: the usual distribution for a squared coefficient of variation.
    pub(crate) fn between_arrivals(mean_s: f64, squared_variation: f64) -> Variate {
        match squared_variation {
            1.0 => Variate::Exponential(mean_s),
            variation if variation < VARIATION_MIN => Variate::Fixed(mean_s),
            variation => Variate::gamma(mean_s, variation),
        }
    }

    fn gamma(mean_s: f64, variation: f64) -> Variate {
        Gamma::new(1.0 / variation, mean_s * variation).map_or(Variate::Fixed(mean_s), Variate::Gamma)
    }

    /// Balanced means: both phases contribute the same to the mean.
    fn phases(mean_s: f64, variation: f64) -> Variate {
        let first = (1.0 + ((variation - 1.0) / (variation + 1.0)).sqrt()) / 2.0;
        Variate::Phases(first, mean_s / (2.0 * first), mean_s / (2.0 * (1.0 - first)))
    }

    /// Whether it is always 0.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(self, Variate::Zero)
    }

    /// Draws a time in seconds.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Variate::Exponential(mean_s) => {
                let unit: f64 = Exp1.sample(random);
                unit * mean_s
            }
            Variate::Fixed(time_s) => *time_s,
            Variate::Zero => 0.0,
            other => other.draw_rare(random),
        }
    }

    #[inline(never)]
    fn draw_rare(&self, random: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Variate::Phases(first, fast_s, slow_s) => {
                let mean_s = if random.random::<f64>() < *first { fast_s } else { slow_s };
                let unit: f64 = Exp1.sample(random);
                unit * mean_s
            }
            Variate::Gamma(gamma) => gamma.sample(random),
            Variate::Lognormal(lognormal) => lognormal.sample(random),
            Variate::Measured(values) => values[random.random_range(0..values.len())],
            Variate::Zero | Variate::Fixed(_) | Variate::Exponential(_) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn draws_have_the_expected_moments() {
        let time = |shape, squared_variation| Time { mean_s: 2.0, squared_variation, shape };
        let table = [
            time(Shape::Exponential, 1.0),
            time(Shape::Deterministic, 0.0),
            time(Shape::Erlang, 0.25),
            time(Shape::Hyperexponential, 4.0),
            time(Shape::Gamma, 2.5),
            time(Shape::Lognormal, 0.5),
            time(Shape::Empirical(Arc::from([1.0, 1.0, 4.0])), 0.5),
            time(Shape::Gamma, 1e-300),
        ];
        for time in table {
            let draw = Variate::new(&time);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
            let draws: Vec<f64> = (0..400_000).map(|_| draw.draw(&mut random)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((mean - 2.0).abs() < 0.02, "{time:?}: mean {mean}");
            let variation = variance / (mean * mean);
            assert!((variation - time.squared_variation).abs() < 0.04 * (1.0 + time.squared_variation), "{time:?}");
        }
    }

    #[test]
    fn times_between_arrivals_have_their_variation() {
        for variation in [0.0, 0.5, 1.0, 3.0] {
            let draw = Variate::between_arrivals(0.5, variation);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
            let draws: Vec<f64> = (0..400_000).map(|_| draw.draw(&mut random)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((mean - 0.5).abs() < 0.005);
            assert!((variance / mean / mean - variation).abs() < 0.04 * (1.0 + variation));
        }
    }
}
