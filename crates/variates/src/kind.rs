//! The kinds of random variates: for each one how it is drawn, its quantiles, its mean and its formula.

use crate::presets::{self, FB_IA_US, FB_KEY};
use crate::special::normal_quantile;
use crate::tails::Tail;
use crate::weighted::Weighted;
use rand::Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};

/// A kind with its parameters, in the unit of the variate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Fixed(f64),
    Uniform {
        low: f64,
        high: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    Lognormal {
        median: f64,
        sigma: f64,
    },
    Exponential {
        mean: f64,
    },
    Pareto(Tail),
    Extreme(Tail),
    List(Weighted),
    FbKey,
    FbValue,
    /// The inter-arrival times of the study; `microsecond` is the number of our units in a microsecond.
    FbIa {
        microsecond: f64,
    },
}

impl Kind {
    #[inline]
    pub(crate) fn draw<R: Rng + ?Sized>(&self, random: &mut R) -> f64 {
        match self {
            Kind::Fixed(value) => *value,
            Kind::Uniform { low, high } => between(*low, *high, random.random()),
            Kind::Normal { mean, deviation } => mean + deviation * normal(random),
            Kind::Lognormal { median, sigma } => median * (sigma * normal(random)).exp(),
            Kind::Exponential { mean } => mean * exponential(random),
            Kind::Pareto(tail) => tail.pareto(exponential(random)),
            Kind::Extreme(tail) => tail.extreme(exponential(random)),
            Kind::List(list) => list.quantile(random.random()),
            Kind::FbKey => FB_KEY.extreme(exponential(random)),
            Kind::FbValue => presets::value(random.random(), || exponential(random)),
            Kind::FbIa { microsecond } => microsecond * FB_IA_US.pareto(exponential(random)),
        }
    }

    pub(crate) fn quantile(&self, u: f64) -> f64 {
        match self {
            Kind::Fixed(value) => *value,
            Kind::Uniform { low, high } => between(*low, *high, u),
            Kind::Normal { mean, deviation } if *deviation > 0.0 => mean + deviation * normal_quantile(u),
            Kind::Normal { mean, .. } => *mean,
            Kind::Lognormal { median, sigma } if *median > 0.0 && *sigma > 0.0 => {
                median * (sigma * normal_quantile(u)).exp()
            }
            Kind::Lognormal { median, .. } => *median,
            Kind::Exponential { mean } if *mean > 0.0 => mean * -(-u).ln_1p(),
            Kind::Exponential { mean } => *mean,
            Kind::Pareto(tail) => tail.pareto_quantile(u),
            Kind::Extreme(tail) => tail.extreme_quantile(u),
            Kind::List(list) => list.quantile(u),
            Kind::FbKey => FB_KEY.extreme_quantile(u),
            Kind::FbValue => presets::value_quantile(u),
            Kind::FbIa { microsecond } => microsecond * FB_IA_US.pareto_quantile(u),
        }
    }

    pub(crate) fn mean(&self) -> f64 {
        match self {
            Kind::Fixed(value) => *value,
            Kind::Uniform { low, high } => between(*low, *high, 0.5),
            Kind::Normal { mean, .. } | Kind::Exponential { mean } => *mean,
            Kind::Lognormal { median, .. } if *median == 0.0 => 0.0,
            Kind::Lognormal { median, sigma } => median * (sigma * sigma / 2.0).exp(),
            Kind::Pareto(tail) => tail.pareto_mean(),
            Kind::Extreme(tail) => tail.extreme_mean(),
            Kind::List(list) => list.mean(),
            Kind::FbKey => FB_KEY.extreme_mean(),
            Kind::FbValue => presets::value_mean(),
            Kind::FbIa { microsecond } => microsecond * FB_IA_US.pareto_mean(),
        }
    }

    /// The name, with the formula of the cumulative distribution function F.
    pub(crate) fn formula(&self) -> &'static str {
        match self {
            Kind::Fixed(_) => "always the same",
            Kind::Uniform { .. } => "uniform: F(x) = (x - LOW) / (HIGH - LOW)",
            Kind::Normal { .. } => "normal: F(x) = Phi((x - MEAN) / DEVIATION)",
            Kind::Lognormal { .. } => "lognormal: F(x) = Phi(ln(x / MEDIAN) / SIGMA)",
            Kind::Exponential { .. } => "exponential: F(x) = 1 - exp(-x / MEAN)",
            Kind::Pareto(_) => "generalised Pareto: F(x) = 1 - (1 + SHAPE (x - LOCATION) / SCALE)^(-1 / SHAPE)",
            Kind::Extreme(_) => {
                "generalised extreme value: F(x) = exp(-(1 + SHAPE (x - LOCATION) / SCALE)^(-1 / SHAPE))"
            }
            Kind::List(_) => "weighted list: each value has the share WEIGHT / (sum of the weights)",
            Kind::FbKey => "key sizes of Atikoglu et al., SIGMETRICS 2012: gev:30.7984:8.20449:0.078688",
            Kind::FbValue => {
                "value sizes of Atikoglu et al., SIGMETRICS 2012: table 5 up to 14, then pareto:15:214.476:0.348238"
            }
            Kind::FbIa { .. } => "gaps of Atikoglu et al., SIGMETRICS 2012: pareto:0:16.0292:0.154971, microseconds",
        }
    }
}

/// Interpolates without `high - low`, which may overflow.
fn between(low: f64, high: f64, u: f64) -> f64 {
    low * (1.0 - u) + high * u
}

fn normal<R: Rng + ?Sized>(random: &mut R) -> f64 {
    StandardNormal.sample(random)
}

fn exponential<R: Rng + ?Sized>(random: &mut R) -> f64 {
    Exp1.sample(random)
}
