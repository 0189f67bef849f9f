//! Durations and sizes as people type them, in arguments and in files: `200us`, `1.5ms`, `3s`, `1m`; `128`, `4k`, `64m`.

use std::time::Duration;

/// Reads a duration with its unit.
///
/// # Errors
/// What would be one.
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
/// What would be one.
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

/// A duration as `duration` reads it, in the largest unit that needs no fraction.
pub fn duration_text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units =
        [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    match units.into_iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", nanos / unit),
        None if nanos == 0 => "0s".into(),
        None => format!("{nanos}ns"),
    }
}

/// A number of bytes as `bytes` reads it, in the largest unit that needs no fraction.
pub fn bytes_text(bytes: u64) -> String {
    match [("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)]
        .into_iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A non-negative number and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(duration("200us").unwrap(), Duration::from_micros(200));
        assert_eq!(duration("1.5ms").unwrap(), Duration::from_micros(1500));
        assert_eq!(duration("1m").unwrap(), Duration::from_secs(60));
        assert_eq!(bytes("128").unwrap(), 128);
        assert_eq!(bytes("4k").unwrap(), 4096);
        assert_eq!(bytes("1.5M").unwrap(), 1_572_864);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "3", "s", "-1s", "1e400s", "3 s", "nan"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["", "x", "1.5", "-1", "9999999g"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["0s", "7ns", "200us", "1500us", "250ms", "90s", "2m", "720h"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
        for text in ["0", "1023", "4k", "1536k", "64m", "3g"] {
            assert_eq!(bytes_text(bytes(text).unwrap() as u64), text);
        }
    }
}
