//! Durations and sizes as written in arguments and files: `200us`, `1.5ms`, `3s`, `1m`; `128`, `4k`, `64m`.

use std::time::Duration;

/// The units of time, the largest first.
const UNITS_NS: [(&str, u64); 6] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

/// Reads a duration with its unit.
///
/// # Errors
/// A line that describes a valid duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a duration such as 200us, 1.5ms, 3s or 1m");
    let (number, unit_s) = split(text).ok_or_else(refuse)?;
    let unit_s = match unit_s {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(refuse()),
    };
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| refuse())
}

/// Reads a number of bytes, with k, m or g for powers of 1024.
///
/// # Errors
/// A line that describes a valid size.
pub fn bytes(text: &str) -> Result<usize, String> {
    let refuse = || format!("{text:?} is not a size in bytes such as 128, 4k or 64m");
    let (number, unit) = split(text).ok_or_else(refuse)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        "g" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refuse()),
    };
    let bytes = number * unit;
    if bytes.fract() != 0.0 || bytes > 2f64.powi(40) { Err(refuse()) } else { Ok(bytes as usize) }
}

/// Reads a size that may have a fraction, such as the mean of many sizes: bytes, with k, m or g for powers of 1024.
///
/// # Errors
/// A line that describes a valid size.
pub fn bytes_f64(text: &str) -> Result<f64, String> {
    let refuse = || format!("{text:?} is not a size in bytes such as 128, 30.8 or 4k");
    let (number, unit) = split(text).ok_or_else(refuse)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        "g" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refuse()),
    };
    Some(number * unit).filter(|bytes| *bytes <= 2f64.powi(40)).ok_or_else(refuse)
}

/// Reads a duration that may be a fraction of a nanosecond, such as the mean of many; up to 2^63 nanoseconds.
///
/// # Errors
/// A line that describes a valid duration.
pub fn duration_ns_f64(text: &str) -> Result<f64, String> {
    let refuse = || format!("{text:?} is not a duration such as 200us, 1.5ms, 3s or 1m");
    let (number, unit) = split(text).ok_or_else(refuse)?;
    let (_, unit_ns) = UNITS_NS.into_iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
    Some(number * unit_ns as f64).filter(|ns| *ns <= 2f64.powi(63)).ok_or_else(refuse)
}

/// The text that `duration` reads as this value, in the largest unit that needs no fraction.
pub fn duration_text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match UNITS_NS.into_iter().find(|(_, unit_ns)| nanos > 0 && nanos.is_multiple_of(u128::from(*unit_ns))) {
        Some((name, unit_ns)) => format!("{}{name}", nanos / u128::from(unit_ns)),
        None => "0s".into(),
    }
}

/// The text that `bytes` reads as this value, in the largest unit that needs no fraction.
pub fn bytes_text(bytes: u64) -> String {
    match [("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)]
        .into_iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// The text that `bytes_f64` reads as exactly this value.
pub fn bytes_f64_text(bytes: f64) -> String {
    if bytes.fract() == 0.0 && bytes < 2f64.powi(53) { bytes_text(bytes as u64) } else { bytes.to_string() }
}

/// The text that `duration_ns_f64` reads as exactly this value, in the unit that makes it shortest.
pub fn duration_ns_f64_text(ns: f64) -> String {
    if ns.fract() == 0.0 && ns < 2f64.powi(53) {
        return duration_text(Duration::from_nanos(ns as u64));
    }
    let texts = UNITS_NS.into_iter().map(|(name, unit_ns)| format!("{}{name}", ns / unit_ns as f64));
    // Nanoseconds always qualify: they are read without a conversion.
    texts.filter(|text| duration_ns_f64(text) == Ok(ns)).min_by_key(String::len).unwrap_or_else(|| format!("{ns}ns"))
}

/// Splits a text into a non-negative number and the unit after it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_parsed() {
        assert_eq!(duration("200us").unwrap(), Duration::from_micros(200));
        assert_eq!(duration("1.5ms").unwrap(), Duration::from_micros(1500));
        assert_eq!(duration("1m").unwrap(), Duration::from_secs(60));
        assert_eq!(bytes("128").unwrap(), 128);
        assert_eq!(bytes("4k").unwrap(), 4096);
        assert_eq!(bytes("1.5M").unwrap(), 1_572_864);
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["", "3", "s", "-1s", "1e400s", "3 s", "nan"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["", "x", "1.5", "-1", "9999999g"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn printed_text_parses_to_the_same_value() {
        for text in ["0s", "7ns", "200us", "1500us", "250ms", "90s", "2m", "720h"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
        for text in ["0", "1023", "4k", "1536k", "64m", "3g"] {
            assert_eq!(bytes_text(bytes(text).unwrap() as u64), text);
        }
    }

    #[test]
    fn fractions_are_parsed_and_printed_exactly() {
        assert_eq!(bytes_f64("30.7984"), Ok(30.7984));
        assert_eq!(bytes_f64("1.5k"), Ok(1536.0));
        assert_eq!(duration_ns_f64("16.5us"), Ok(16_500.0));
        assert_eq!(duration_ns_f64("0.3ns"), Ok(0.3));
        for text in ["0s", "1500us", "16.0292us", "0.3ns", "90s", "2m"] {
            assert_eq!(duration_ns_f64_text(duration_ns_f64(text).unwrap()), text);
        }
        for text in ["0", "30.7984", "4k", "0.1"] {
            assert_eq!(bytes_f64_text(bytes_f64(text).unwrap()), text);
        }
        for value in [1.0 / 3.0, 1e6 / 7.0, 123_456_789.123_456_7, 2f64.powi(62) - 1e12] {
            assert_eq!(duration_ns_f64(&duration_ns_f64_text(value)), Ok(value));
        }
        for text in ["", "3", "-1s", "1e3s", "9999999999999s", "nans", "."] {
            assert!(duration_ns_f64(text).is_err(), "{text}");
        }
        for text in ["", "x", "-1", "9999999g", "1ms"] {
            assert!(bytes_f64(text).is_err(), "{text}");
        }
    }
}
