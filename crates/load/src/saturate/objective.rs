//! Objectives for response times: a percentile or the mean must not exceed a bound.

use serde::{Serialize, Serializer};
use std::fmt;

/// A bound on response times, such as p99=2ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// The bounded quantity.
    pub quantity: Quantity,
    /// The bound in nanoseconds.
    pub time_ns: u64,
}

/// The bounded quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// The time that this percentage of the requests does not exceed.
    Percentile(f64),
    /// The mean over all requests.
    Mean,
}

impl Objective {
    /// The share of requests that may be slower than the bound; none for a mean.
    pub fn slow_share_max(&self) -> Option<f64> {
        match self.quantity {
            Quantity::Percentile(percent) => Some(1.0 - percent / 100.0),
            Quantity::Mean => None,
        }
    }

    /// Parses `p99=TIME` or `mean=TIME`. `time` parses the part after the equals sign.
    ///
    /// # Errors
    /// One line with the accepted form.
    pub fn parse(text: &str, time: impl Fn(&str) -> Result<u64, String>) -> Result<Objective, String> {
        let refuse = || format!("{text:?} is not an objective such as p99=2ms, p99.9=5ms or mean=500us");
        let (name, bound) = text.split_once('=').ok_or_else(refuse)?;
        let quantity = match name.strip_prefix('p') {
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| refuse())?;
                if !(percent > 0.0 && percent < 100.0) {
                    return Err(format!("{text:?}: a percentile must be above 0 and below 100"));
                }
                Quantity::Percentile(percent)
            }
            None if name == "mean" => Quantity::Mean,
            None => return Err(refuse()),
        };
        match time(bound)? {
            0 => Err(format!("{text:?}: the bound must be above 0")),
            time_ns => Ok(Objective { quantity, time_ns }),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, unit) = match self.time_ns as f64 {
            time_ns if time_ns < 1e6 => (time_ns / 1e3, "us"),
            time_ns if time_ns < 1e9 => (time_ns / 1e6, "ms"),
            time_ns => (time_ns / 1e9, "s"),
        };
        match self.quantity {
            Quantity::Percentile(percent) => write!(formatter, "p{percent}={time}{unit}"),
            Quantity::Mean => write!(formatter, "mean={time}{unit}"),
        }
    }
}

impl Serialize for Objective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(text: &str) -> Result<u64, String> {
        let number = text.strip_suffix("ms").and_then(|number| number.parse::<f64>().ok());
        number.map(|number| (number * 1e6) as u64).ok_or_else(|| format!("{text:?} is no time"))
    }

    #[test]
    fn objectives_are_parsed_and_printed() {
        for text in ["p99=2ms", "p99.9=1.5ms", "p50=500us", "mean=1s"] {
            let read = match text.strip_suffix("us") {
                Some(_) => Objective::parse("p50=0.5ms", milliseconds),
                None => Objective::parse(&text.replace("1s", "1000ms"), milliseconds),
            };
            assert_eq!(read.unwrap().to_string(), text);
        }
        assert_eq!(Objective::parse("p75=1ms", milliseconds).unwrap().slow_share_max(), Some(0.25));
        for text in ["", "p99", "p=1ms", "p0=1ms", "p100=1ms", "pnan=1ms", "q99=1ms", "p99=", "p99=0ms", "mean"] {
            assert!(Objective::parse(text, milliseconds).is_err(), "{text}");
        }
    }
}
