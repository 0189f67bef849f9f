//! Parses one line of a trace into a row, or returns the reason why it is malformed. Knows no other lines, no files and
//! no replay times.
//!
//! The seven columns are the timestamp in seconds, the anonymised key, the key size, the value size, the client, the
//! operation and the time to live in seconds. See <https://github.com/twitter/cache-trace>.

use super::rows::TraceOperation;
use std::fmt;

/// memcached's limit on a key.
const KEY_BYTES_MAX: usize = 250;
/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;
/// Larger numbers are milliseconds or smaller units since 1970, and would overflow as seconds.
const TIMESTAMP_S_MAX: u64 = 10_000_000_000;
/// Digits after the decimal point of a timestamp.
const FRACTION_DIGITS_MAX: usize = 9;
/// Bytes of a field that an error message shows.
const SHOWN_BYTES_MAX: usize = 20;

/// The first column, the key, and the five columns after it.
type Columns<'a> = (&'a [u8], &'a [u8], [&'a [u8]; 5]);

/// A parsed row. Times are as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedRow<'a> {
    pub(super) timestamp_ns: u64,
    /// Whether the timestamp had digits after the decimal point.
    pub(super) has_fraction: bool,
    pub(super) key: &'a [u8],
    pub(super) key_size: u64,
    pub(super) value_bytes: u32,
    pub(super) client: u64,
    pub(super) operation: TraceOperation,
    pub(super) ttl_s: u32,
}

/// Why a line is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Columns(usize),
    TooLong,
    Timestamp(String),
    NotSeconds(u64),
    BackInTime,
    KeyBytes(usize),
    KeyCharacters,
    Number { column: &'static str, text: String },
    Value { bytes: u64, bytes_max: usize },
    Operation(String),
}

/// Parses a line. Values above `value_bytes_max` are rejected.
pub(super) fn parse(line: &[u8], value_bytes_max: usize) -> Result<ParsedRow<'_>, Broken> {
    let (timestamp, key, [key_size, value_size, client, operation, ttl]) = columns(line)?;
    let (timestamp_ns, has_fraction) = timestamp_ns(timestamp)?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Broken::KeyBytes(key.len()));
    }
    if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(Broken::KeyCharacters);
    }
    let value_bytes = number("value size", value_size)?;
    let too_large = Broken::Value { bytes: value_bytes, bytes_max: value_bytes_max };
    let value_bytes = u32::try_from(value_bytes).ok().filter(|bytes| *bytes as usize <= value_bytes_max);
    let ttl_s = number("TTL", ttl)?;
    Ok(ParsedRow {
        timestamp_ns,
        has_fraction,
        key,
        key_size: number("key size", key_size)?,
        value_bytes: value_bytes.ok_or(too_large)?,
        client: number("client id", client)?,
        operation: TraceOperation::named(operation).ok_or_else(|| Broken::Operation(shown(operation)))?,
        ttl_s: u32::try_from(ttl_s).map_err(|_| Broken::Number { column: "TTL", text: shown(ttl) })?,
    })
}

/// Whether the first line is a heading with the names of the columns.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let starts_as_one = line.first().is_some_and(|byte| *byte == b'#' || byte.is_ascii_alphabetic());
    starts_as_one && line.iter().filter(|byte| **byte == b',').count() == 6
}

/// Splits a line. Fields are never quoted in these files, so a key that contains commas makes more columns. The key
/// size identifies it.
fn columns(line: &[u8]) -> Result<Columns<'_>, Broken> {
    let count = || Broken::Columns(line.iter().filter(|byte| **byte == b',').count() + 1);
    let first = memchr::memchr(b',', line).ok_or_else(count)?;
    let mut rest = &line[first + 1..];
    let mut last: [&[u8]; 5] = [&[]; 5];
    for column in last.iter_mut().rev() {
        let comma = memchr::memrchr(b',', rest).ok_or_else(count)?;
        *column = &rest[comma + 1..];
        rest = &rest[..comma];
    }
    let is_clear_by_size = || number("key size", last[0]) == Ok(rest.len() as u64);
    if memchr::memchr(b',', rest).is_some() && !is_clear_by_size() {
        return Err(count());
    }
    Ok((&line[..first], rest, last))
}

/// Seconds with an optional fraction as nanoseconds, and whether there was a fraction.
fn timestamp_ns(text: &[u8]) -> Result<(u64, bool), Broken> {
    let refuse = || Broken::Timestamp(shown(text));
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], Some(&text[point + 1..])),
        None => (text, None),
    };
    let seconds = digits(whole).ok_or_else(refuse)?;
    if seconds > TIMESTAMP_S_MAX {
        return Err(Broken::NotSeconds(seconds));
    }
    let Some(fraction) = fraction else {
        return Ok((seconds * SECOND_NS, false));
    };
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(refuse());
    }
    let scale = 10u64.pow((FRACTION_DIGITS_MAX - fraction.len()) as u32);
    Ok((seconds * SECOND_NS + digits(fraction).ok_or_else(refuse)? * scale, true))
}

fn number(column: &'static str, text: &[u8]) -> Result<u64, Broken> {
    digits(text).ok_or_else(|| Broken::Number { column, text: shown(text) })
}

/// Parses digits, and nothing else.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A field for an error message: short, and without control characters.
fn shown(field: &[u8]) -> String {
    let more = if field.len() > SHOWN_BYTES_MAX { "..." } else { "" };
    format!("\"{}{more}\"", field[..field.len().min(SHOWN_BYTES_MAX)].escape_ascii())
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Columns(1) => formatter.write_str("1 column instead of 7"),
            Broken::Columns(count) => write!(formatter, "{count} columns instead of 7"),
            Broken::TooLong => write!(formatter, "longer than {} bytes", super::lines::LINE_BYTES_MAX),
            Broken::Timestamp(text) => write!(formatter, "the timestamp {text} is not a number of seconds"),
            Broken::NotSeconds(number) => {
                write!(formatter, "the timestamp {number} is too large for seconds; are these milliseconds?")
            }
            Broken::BackInTime => formatter.write_str("its timestamp is before that of the row above; sort the trace"),
            Broken::KeyBytes(bytes) => write!(formatter, "a key of {bytes} bytes; 1 to {KEY_BYTES_MAX} can be sent"),
            Broken::KeyCharacters => formatter.write_str("the key has spaces or control characters"),
            Broken::Number { column, text } => write!(formatter, "the {column} {text} is not a number"),
            Broken::Value { bytes, bytes_max } => {
                write!(formatter, "a value of {bytes} bytes is above the server's limit of {bytes_max}")
            }
            Broken::Operation(text) => write!(formatter, "unknown operation {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(line: &str) -> String {
        parse(line.as_bytes(), 1000).unwrap_err().to_string()
    }

    #[test]
    fn a_row_is_parsed() {
        let row = parse(b"17,q:q:1:8WTfjZU14ee,17,213,4,set,2419200", 1000).unwrap();
        let expected = ParsedRow {
            timestamp_ns: 17_000_000_000,
            has_fraction: false,
            key: b"q:q:1:8WTfjZU14ee",
            key_size: 17,
            value_bytes: 213,
            client: 4,
            operation: TraceOperation::Set,
            ttl_s: 2_419_200,
        };
        assert_eq!(row, expected);
        let row = parse(b"1.25,k,1,0,0,get,0", 1000).unwrap();
        assert_eq!((row.timestamp_ns, row.has_fraction), (1_250_000_000, true));
    }

    #[test]
    fn a_key_with_commas_is_recognised_by_its_size() {
        assert_eq!(parse(b"1,a,b,,c,6,0,0,get,0", 9).unwrap().key, b"a,b,,c");
        assert_eq!(refused("1,a,b,c,6,0,0,get,0"), "9 columns instead of 7");
    }

    #[test]
    fn every_column_is_checked() {
        let long = format!("1,{},9,0,0,get,0", "k".repeat(251));
        for (line, reason) in [
            ("", "1 column instead of 7"),
            ("1,k,1,0,0,get", "6 columns instead of 7"),
            ("-1,k,1,0,0,get,0", "the timestamp \"-1\" is not a number of seconds"),
            ("1.0000000001,k,1,0,0,get,0", "the timestamp \"1.0000000001\" is not a number of seconds"),
            ("1., k,1,0,0,get,0", "the timestamp \"1.\" is not a number of seconds"),
            (
                "1583020800000,k,1,0,0,get,0",
                "the timestamp 1583020800000 is too large for seconds; are these milliseconds?",
            ),
            ("1,,0,0,0,get,0", "a key of 0 bytes; 1 to 250 can be sent"),
            (&long, "a key of 251 bytes; 1 to 250 can be sent"),
            ("1,k k,3,0,0,get,0", "the key has spaces or control characters"),
            ("1,k,x,0,0,get,0", "the key size \"x\" is not a number"),
            ("1,k,1,0,\x1b[2J-and-so-on-and-on,get,0", "the client id \"\\x1b[2J-and-so-on-and-o...\" is not a number"),
            ("1,k,1,1001,0,get,0", "a value of 1001 bytes is above the server's limit of 1000"),
            ("1,k,1,99999999999999999999,0,get,0", "the value size \"99999999999999999999\" is not a number"),
            ("1,k,1,0,0,touch,0", "unknown operation \"touch\""),
            ("1,k,1,0,0,get,5000000000", "the TTL \"5000000000\" is not a number"),
        ] {
            assert_eq!(refused(line), reason, "{line}");
        }
    }

    #[test]
    fn a_heading_is_not_a_row() {
        assert!(is_heading(b"timestamp,anonymized key,key size,value size,client id,operation,TTL"));
        assert!(is_heading(b"# ts,key,ks,vs,cid,op,ttl"));
        assert!(!is_heading(b"0,k,1,0,0,get,0") && !is_heading(b"no heading") && !is_heading(b""));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&line, 1000).map_err(|broken| broken.to_string());
        }

        #[test]
        fn a_histogram_survives_its_text_form(
            seconds in 0u64..=TIMESTAMP_S_MAX,
            key in "[!-~]{1,250}",
            value in 0u32..=1000,
            client in any::<u64>(),
            operation in 0usize..11,
            ttl in any::<u32>(),
        ) {
            let (name, operation) = TraceOperation::ALL[operation];
            let line = format!("{seconds},{key},{},{value},{client},{name},{ttl}", key.len());
            let row = parse(line.as_bytes(), 1000).unwrap();
            prop_assert_eq!((row.timestamp_ns, row.key), (seconds * SECOND_NS, key.as_bytes()));
            prop_assert_eq!((row.value_bytes, row.client, row.operation, row.ttl_s), (value, client, operation, ttl));
            prop_assert_eq!(row.key_size, key.len() as u64);
        }
    }
}
