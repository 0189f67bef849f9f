//! How long a client of the closed loop thinks between a reply and its next request.

use clock::duration_ns;
use rand::Rng;
use std::fmt;
use std::time::Duration;
use variates::{Unit, Variate};

/// A variate of times, or no think time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkTime(Option<Variate>);

impl ThinkTime {
    /// No think time.
    pub const NONE: ThinkTime = ThinkTime(None);

    /// A fixed think time.
    pub fn fixed(time: Duration) -> ThinkTime {
        ThinkTime(Some(Variate::fixed(duration_ns(time) as f64, Unit::Time)))
    }

    /// An exponential think time with this mean.
    pub fn exponential(mean: Duration) -> ThinkTime {
        ThinkTime(Some(Variate::exponential(duration_ns(mean) as f64, Unit::Time)))
    }

    /// A think time with this distribution, in nanoseconds.
    pub fn drawn(variate: Variate) -> ThinkTime {
        ThinkTime(Some(variate))
    }

    /// The mean in seconds; 0 without a think time.
    pub fn mean_s(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |variate| variate.mean() / 1e9)
    }

    /// Draws a think time, in nanoseconds.
    pub(crate) fn draw_ns(&self, random: &mut impl Rng) -> u64 {
        self.0.as_ref().map_or(0, |variate| variate.draw_ns(random))
    }

    /// Draws the think time before a client's first request. A fixed think time is replaced by a uniform share of it,
    /// so that the clients do not send in step.
    pub(crate) fn draw_first_ns(&self, random: &mut impl Rng) -> u64 {
        match self.0.as_ref().and_then(Variate::fixed_value) {
            Some(time_ns) => random.random_range(0..=time_ns.max(0.0) as u64),
            None => self.draw_ns(random),
        }
    }
}

impl fmt::Display for ThinkTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => formatter.write_str("none"),
            Some(variate) => variate.fmt(formatter),
        }
    }
}
