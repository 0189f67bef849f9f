//! The two heavy-tailed kinds: generalised Pareto and generalised extreme value.
//! Both are the same transformation of an exponential variate, so both are exact down to shape 0.

use crate::special::gamma;

/// Euler's constant.
const EULER: f64 = 0.5772156649015329;
/// Below this shape the mean of an extreme value is computed by a series, because the difference would lose digits.
const SMALL_SHAPE: f64 = 1e-5;

/// Location, scale and shape; the larger the shape, the heavier the upper tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tail {
    pub(crate) location: f64,
    pub(crate) scale: f64,
    pub(crate) shape: f64,
}

impl Tail {
    /// A generalised Pareto variate from a standard exponential one: its tail is 1 - F = exp(-exponential).
    pub(crate) fn pareto(self, exponential: f64) -> f64 {
        self.stretch(exponential)
    }

    /// A generalised extreme value from a standard exponential variate: F = exp(-exponential).
    pub(crate) fn extreme(self, exponential: f64) -> f64 {
        self.stretch(-exponential.ln())
    }

    pub(crate) fn pareto_quantile(self, u: f64) -> f64 {
        self.pareto(-(-u).ln_1p())
    }

    pub(crate) fn extreme_quantile(self, u: f64) -> f64 {
        self.extreme(-u.ln())
    }

    /// Infinite from shape 1 on.
    pub(crate) fn pareto_mean(self) -> f64 {
        if self.scale == 0.0 {
            return self.location;
        }
        if self.shape < 1.0 { self.location + self.scale / (1.0 - self.shape) } else { f64::INFINITY }
    }

    /// Infinite from shape 1 on.
    pub(crate) fn extreme_mean(self) -> f64 {
        let shape = self.shape;
        if self.scale == 0.0 {
            return self.location;
        }
        if shape >= 1.0 {
            return f64::INFINITY;
        }
        let excess = if shape.abs() < SMALL_SHAPE {
            EULER + shape * (EULER * EULER + std::f64::consts::PI.powi(2) / 6.0) / 2.0
        } else {
            (gamma(1.0 - shape) - 1.0) / shape
        };
        self.location + self.scale * excess
    }

    /// location + scale * (exp(shape * value) - 1) / shape, which at shape 0 is location + scale * value.
    fn stretch(self, value: f64) -> f64 {
        if self.scale == 0.0 {
            return self.location;
        }
        let stretched = if self.shape == 0.0 { value } else { (self.shape * value).exp_m1() / self.shape };
        self.location + self.scale * stretched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Tail = Tail { location: 0.0, scale: 1.0, shape: 0.0 };

    #[test]
    fn shapes_near_zero_are_the_limit() {
        for shape in [-1e-12, 1e-12] {
            let near = Tail { shape, ..UNIT };
            for u in [0.01, 0.5, 0.99] {
                assert!((near.pareto_quantile(u) - UNIT.pareto_quantile(u)).abs() < 1e-10);
                assert!((near.extreme_quantile(u) - UNIT.extreme_quantile(u)).abs() < 1e-10);
            }
            assert!((near.extreme_mean() - EULER).abs() < 1e-10);
        }
        let (below, above) = (Tail { shape: 9.9e-6, ..UNIT }, Tail { shape: 1.01e-5, ..UNIT });
        assert!((above.extreme_mean() - below.extreme_mean() - 2e-7 * 0.989).abs() < 1e-9);
    }

    #[test]
    fn the_ends_match_the_formulas() {
        let bounded = Tail { location: 1.0, scale: 2.0, shape: -0.5 };
        assert_eq!((bounded.pareto_quantile(0.0), bounded.pareto_quantile(1.0)), (1.0, 5.0));
        assert_eq!((bounded.extreme_quantile(0.0), bounded.extreme_quantile(1.0)), (f64::NEG_INFINITY, 5.0));
        let heavy = Tail { location: 1.0, scale: 2.0, shape: 0.5 };
        assert_eq!((heavy.pareto_quantile(0.0), heavy.pareto_quantile(1.0)), (1.0, f64::INFINITY));
        assert_eq!((heavy.extreme_quantile(0.0), heavy.extreme_quantile(1.0)), (-3.0, f64::INFINITY));
        let point = Tail { scale: 0.0, ..heavy };
        assert_eq!((point.pareto_quantile(1.0), point.extreme_quantile(0.0), point.pareto_mean()), (1.0, 1.0, 1.0));
    }

    #[test]
    fn means_are_those_of_the_tables() {
        let tail = Tail { location: 1.0, scale: 2.0, shape: 0.5 };
        assert_eq!(tail.pareto_mean(), 5.0);
        // gamma(1/2) is the root of pi.
        assert!((tail.extreme_mean() - (1.0 + 4.0 * (std::f64::consts::PI.sqrt() - 1.0))).abs() < 1e-12);
        let infinite = Tail { shape: 1.0, ..tail };
        assert_eq!((infinite.pareto_mean(), infinite.extreme_mean()), (f64::INFINITY, f64::INFINITY));
    }
}
