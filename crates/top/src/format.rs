//! Numbers as text of at most eight or nine characters.

use crate::quantile::Quantile;

/// What is shown for a number that is not known yet.
pub(crate) const UNKNOWN: &str = "-";

/// A number with three significant digits.
fn three_digits(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A count or a rate: whole and with spaces between thousands, or with one digit after the point below ten.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { UNKNOWN.into() };
    }
    if value < 0.0 {
        return format!("-{}", number(-value));
    }
    if value < 9.95 {
        let text = format!("{value:.1}");
        // A rate that rounds to zero is not zero.
        return if text == "0.0" { "< 0.1".into() } else { text.trim_end_matches(".0").into() };
    }
    if value >= 999_999.5 {
        let (value, unit) = if value >= 999_500_000.0 { (value / 1e9, "G") } else { (value / 1e6, "M") };
        return format!("{} {unit}", three_digits(value));
    }
    let digits = format!("{value:.0}");
    match digits.len() {
        4.. => format!("{} {}", &digits[..digits.len() - 3], &digits[digits.len() - 3..]),
        _ => digits,
    }
}

/// A number, or the sign for one that is not known.
pub(crate) fn maybe(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.into(), text)
}

/// A time in seconds, in the unit that fits.
pub(crate) fn time(seconds: f64) -> String {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)];
    if seconds <= 0.0 {
        return "0 s".into();
    }
    let (unit, size) = units.into_iter().find(|(_, size)| seconds < 999.5 * size).unwrap_or(("s", 1.0));
    format!("{} {unit}", three_digits(seconds / size))
}

/// A quantile; one in the last bucket is only known to be larger than its lower bound.
pub(crate) fn quantile(quantile: Quantile) -> String {
    if quantile.is_beyond { format!("> {}", time(quantile.seconds)) } else { time(quantile.seconds) }
}

/// Bytes, in the decimal unit that fits.
pub(crate) fn bytes(value: f64) -> String {
    let units = [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)];
    let (unit, size) = units.into_iter().find(|(_, size)| value < 999.5 * size).unwrap_or(("TB", 1e12));
    if size == 1.0 { format!("{value:.0} B") } else { format!("{} {unit}", three_digits(value / size)) }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "< 0.1"),
            (0.5, "0.5"),
            (3.0, "3"),
            (9.96, "10"),
            (999.6, "1 000"),
            (48_213.4, "48 213"),
            (999_999.4, "999 999"),
            (999_999.6, "1.00 M"),
            (12_345_678.0, "12.3 M"),
            (999_600_000.0, "1.00 G"),
            (-1234.0, "-1 234"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((maybe(None, number), maybe(Some(1.5), number)), ("-".into(), "1.5".into()));
    }

    #[test]
    fn times_and_bytes_have_their_unit() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (1e-7, "100 ns"),
            (1.234e-5, "12.3 us"),
            (9.996e-4, "1.00 ms"),
            (0.25, "250 ms"),
            (75.0, "75.0 s"),
        ] {
            assert_eq!(time(seconds), text);
        }
        for (value, text) in [(0.0, "0 B"), (999.0, "999 B"), (1234.0, "1.23 kB"), (5e7, "50.0 MB"), (3e13, "30.0 TB")]
        {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(quantile(Quantile { seconds: 5.0, is_beyond: true }), "> 5.00 s");
        assert_eq!(percent(0.9215), "92.2 %");
    }
}
