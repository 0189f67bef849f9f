//! Parsers for the values of arguments of `waystage load`.

use load::{Arrivals, Protocol, ServerChoice, ThinkTime};
use quantity::duration;
use std::time::Duration;
use variates::Unit;

/// A share of a whole, such as a hit ratio.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is not a share such as 0.99, from 0 to 1"))
}

/// A time with its unit, or without one in seconds, as memtier_benchmark has it.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { duration(&format!("{text}s")) } else { duration(text) }
}

/// Sets and gets, in this order.
pub(crate) fn ratio(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(set, get)| Some((set.parse().ok()?, get.parse().ok()?)));
    parts.ok_or_else(|| format!("{text:?} is not set:get such as 1:10"))
}

/// The arrivals of an open loop, without their rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Constant,
    Poisson,
    Gaps(variates::Variate),
    Bursty { on: Duration, off: Duration },
}

impl Shape {
    pub(crate) fn at(self, per_s: f64) -> Arrivals {
        match self {
            Shape::Constant => Arrivals::Constant { per_s },
            Shape::Poisson => Arrivals::Poisson { per_s },
            Shape::Gaps(shape) => Arrivals::Gaps { per_s, shape },
            Shape::Bursty { on, off } => Arrivals::Bursty { per_s, on, off },
        }
    }
}

pub(crate) fn shape(text: &str) -> Result<Shape, String> {
    if let Some(gaps) = text.strip_prefix("gaps:") {
        let gaps = variates::Variate::parse(gaps, Unit::Time).map_err(|error| error.to_string())?;
        gaps.finite_mean().map_err(|error| error.to_string())?;
        return Ok(Shape::Gaps(gaps));
    }
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("constant"), None, ..) => Ok(Shape::Constant),
        (Some("poisson"), None, ..) => Ok(Shape::Poisson),
        (Some("bursty"), Some(on), Some(off), None) => Ok(Shape::Bursty { on: duration(on)?, off: duration(off)? }),
        _ => Err(format!("{text:?} is not constant, poisson, bursty:200ms:800ms or gaps:fb_ia")),
    }
}

/// Requests per second; `k` and `m` are thousands and millions.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    let per_s = digits.parse::<f64>().ok().map(|number| number * factor).filter(|per_s| per_s.is_finite());
    per_s.ok_or_else(|| format!("{text:?} is not a number of requests per second such as 5000 or 5k"))
}

pub(crate) fn distribution(text: &str) -> Result<ServerChoice, String> {
    match text {
        "ketama" => Ok(ServerChoice::Ketama),
        "any" => Ok(ServerChoice::Any),
        _ => Err(format!("{text:?} is not ketama or any")),
    }
}

pub(crate) fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "text" => Ok(Protocol::Text),
        "meta" => Ok(Protocol::Meta),
        _ => Err(format!("{text:?} is not text or meta")),
    }
}

pub(crate) fn think_time(text: &str) -> Result<ThinkTime, String> {
    if text == "none" {
        return Ok(ThinkTime::NONE);
    }
    let times = variates::Variate::parse(text, Unit::Time).map_err(|error| format!("none, or {error}"))?;
    times.finite_mean().map_err(|error| error.to_string())?;
    Ok(ThinkTime::drawn(times))
}

pub(crate) fn sizes(text: &str) -> Result<variates::Variate, String> {
    variates::Variate::parse(text, Unit::Bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_protocols_are_parsed() {
        assert_eq!((rate("5000"), rate("2.5k"), rate("1m")), (Ok(5000.0), Ok(2500.0), Ok(1e6)));
        let (on, off) = (Duration::from_millis(200), Duration::from_secs(1));
        assert_eq!(shape("bursty:200ms:1s"), Ok(Shape::Bursty { on, off }));
        assert_eq!((shape("constant"), shape("poisson")), (Ok(Shape::Constant), Ok(Shape::Poisson)));
        assert_eq!((protocol("meta"), distribution("any")), (Ok(Protocol::Meta), Ok(ServerChoice::Any)));
        for text in ["", "k", "5 k", "nan", "inf", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "bursty", "bursty:1s", "bursty:1s:1s:1s", "poisson:1s", "bursty:1:1"] {
            assert!(shape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_unit_is_in_seconds() {
        assert_eq!((seconds("60"), seconds("1.5s")), (Ok(Duration::from_secs(60)), Ok(Duration::from_millis(1500))));
        for text in ["", "60x", "-1", "1.5", "s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ratios_and_think_times_are_parsed() {
        assert_eq!(ratio("1:10"), Ok((1, 10)));
        assert_eq!(think_time("none"), Ok(ThinkTime::NONE));
        assert_eq!(think_time("1ms"), think_time("fixed:1ms"));
        assert_eq!(think_time("fixed:1ms"), Ok(ThinkTime::fixed(Duration::from_millis(1))));
        assert_eq!(think_time("exp:1.5ms"), Ok(ThinkTime::exponential(Duration::from_micros(1500))));
        for text in ["", "1", "1:", "-1:1", "1:2:3"] {
            assert!(ratio(text).is_err(), "{text}");
        }
        for text in ["", "1 s", "fixed", "exp:", "none:1ms", "exp:1", "pareto:0s:1ms:1"] {
            assert!(think_time(text).is_err(), "{text}");
        }
    }
}
