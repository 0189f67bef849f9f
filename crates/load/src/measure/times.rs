//! A histogram of times in the summary, and how to read it back. The summary contains enough to add several histograms
//! up exactly. Knows nothing about what was timed.

use crate::measure::histogram::{TimeHistogram, histogram};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;

/// The first bytes of a histogram in HdrHistogram's V2 encoding, deflated.
const DEFLATED_COOKIE: u32 = 0x1c84_9314;
/// Bytes of the deflated encoding before the deflated data: the cookie and the length of these data.
const DEFLATED_HEADER_BYTES: usize = 8;
/// Bytes of the encoding before the counts: cookie, length of the counts, offset, digits, lowest, highest, ratio.
const HEADER_BYTES: usize = 40;
/// The longest encoding of a count.
const COUNT_BYTES_MAX: usize = 9;

/// The percentiles that are shown by default.
pub const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// A histogram of times in the summary. A percentile with fewer than ten requests above it is left out, because it would
/// be mostly chance. A percentile that falls among the requests without an answer is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Times {
    pub mean_ns: f64,
    pub std_ns: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u128,
    /// In square nanoseconds.
    pub sum_squares_ns2: u128,
    pub percentiles: BTreeMap<String, Option<u64>>,
    #[serde(default)]
    pub unanswered: u64,
    pub histogram: String,
}

impl Times {
    pub(crate) fn new(recorded: &TimeHistogram, percentiles: &[f64]) -> Times {
        let shown = percentiles.iter().filter(|&&percent| recorded.supports(percent));
        Times {
            mean_ns: recorded.mean_ns(),
            std_ns: recorded.std_ns(),
            min_ns: recorded.min_ns(),
            max_ns: recorded.max_ns(),
            sum_ns: recorded.sum_ns(),
            sum_squares_ns2: recorded.squares_ns(),
            percentiles: shown.map(|&percent| (name(percent), recorded.percentile_ns(percent))).collect(),
            unanswered: recorded.unanswered(),
            histogram: encode(&recorded.histogram),
        }
    }

    /// Restores the histogram.
    ///
    /// # Errors
    /// The text cannot be read, or its histogram has different buckets.
    pub(crate) fn to_histogram(&self) -> Result<TimeHistogram, String> {
        let (histogram, min_max_ns) = (decode(&self.histogram)?, (self.min_ns, self.max_ns));
        Ok(TimeHistogram::from_parts(histogram, self.sum_ns, self.sum_squares_ns2, min_max_ns, self.unanswered))
    }
}

/// The name of a percentile: "50", "99.9".
pub(crate) fn name(percent: f64) -> String {
    percent.to_string()
}

/// A histogram as text: HdrHistogram's V2 encoding, deflated, base64.
pub(crate) fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail. If it did, every reader would reject the empty text.
    let _ = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    STANDARD.encode(bytes)
}

/// See [`encode`]. An empty text is an empty histogram.
///
/// # Errors
/// The text cannot be read, or its buckets are different.
pub(crate) fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let own = histogram::<u64>();
    if text.is_empty() {
        return Ok(own);
    }
    let bytes = STANDARD.decode(text).map_err(|error| format!("a histogram is not base64: {error}"))?;
    let plain = inflate(&bytes, &own)?;
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|error| unreadable(&error.to_string()))
}

/// Inflates a histogram with the buckets of `own`. The library allocates memory for the length and range that the text
/// claims, so both are checked against the data first.
fn inflate(bytes: &[u8], own: &Histogram<u64>) -> Result<Vec<u8>, String> {
    let Some((header, deflated)) = bytes.split_at_checked(DEFLATED_HEADER_BYTES) else {
        return Err(unreadable("it is too short"));
    };
    if number(header, 0) != u64::from(DEFLATED_COOKIE) || number(header, 4) != deflated.len() as u64 {
        return Err(unreadable("it does not begin like one"));
    }
    let bytes_max = HEADER_BYTES + COUNT_BYTES_MAX * own.distinct_values();
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(deflated).take(bytes_max as u64 + 1).read_to_end(&mut plain);
    read.map_err(|error| unreadable(&error.to_string()))?;
    if plain.len() < HEADER_BYTES || plain.len() > bytes_max {
        return Err(unreadable("it is too short or too long"));
    }
    if number(&plain, 4) != (plain.len() - HEADER_BYTES) as u64 {
        return Err(unreadable("its counts do not have the announced length"));
    }
    let wide = |at| number(&plain, at) << 32 | number(&plain, at + 4);
    let buckets = (wide(16), wide(24), number(&plain, 12));
    let ours = (own.low(), own.high(), u64::from(own.sigfig()));
    if buckets != ours {
        return Err(format!("a histogram has other buckets ({buckets:?}, not {ours:?})"));
    }
    Ok(plain)
}

/// Four bytes as a number, the most significant first.
fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn unreadable(reason: &str) -> String {
    format!("a histogram cannot be read: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(times_ns: &[u64]) -> TimeHistogram {
        let mut recorded = TimeHistogram::new();
        times_ns.iter().for_each(|time_ns| recorded.record(*time_ns));
        recorded
    }

    #[test]
    fn a_percentile_is_named_as_it_is_typed_and_needs_ten_values_above_it() {
        let times = Times::new(&of(&[5; 10_000]), &PERCENTILES);
        let names: Vec<&str> = times.percentiles.keys().map(String::as_str).collect();
        assert_eq!(names, ["50", "75", "90", "95", "99", "99.9"]);
        assert!(Times::new(&of(&[5; 19]), &[50.0]).percentiles.is_empty());
        assert_eq!(Times::new(&of(&[5; 20]), &[50.0]).percentiles["50"], Some(5));
    }

    #[test]
    fn damaged_and_foreign_histograms_are_one_line() {
        let mut times = Times::new(&of(&[5]), &PERCENTILES);
        for (text, expected) in [("?", "not base64"), ("AAAA", "cannot be read"), ("HISTFAAA", "cannot be read")] {
            times.histogram = text.into();
            let line = times.to_histogram().unwrap_err();
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        }
        // 40 GiB of counts, announced in 56 bytes: the length is checked before anything is allocated.
        let mut plain = vec![0; HEADER_BYTES];
        plain[..8].copy_from_slice(&[0x1c, 0x84, 0x93, 0x13, 0xff, 0xff, 0xff, 0xff]);
        for (plain, expected) in [(plain, "announced length"), (vec![0; 1 << 20], "too long")] {
            let mut deflated = Vec::new();
            let mut encoder = flate2::read::ZlibEncoder::new(plain.as_slice(), flate2::Compression::best());
            encoder.read_to_end(&mut deflated).unwrap();
            let length = u32::try_from(deflated.len()).unwrap();
            let bytes = [&DEFLATED_COOKIE.to_be_bytes()[..], &length.to_be_bytes(), &deflated].concat();
            times.histogram = STANDARD.encode(bytes);
            let line = times.to_histogram().unwrap_err();
            assert!(line.contains(expected), "{line}");
        }
        times.histogram = encode(&Histogram::new_with_bounds(1, 1_000, 3).unwrap());
        assert!(times.to_histogram().unwrap_err().contains("other buckets"));
    }

    proptest! {
        #[test]
        fn a_histogram_survives_its_text_form(times_ns in proptest::collection::vec(0u64..200_000_000_000, 0..200)) {
            let times = Times::new(&of(&times_ns), &PERCENTILES);
            let text = serde_json::to_string(&times).unwrap();
            let read: Times = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&Times::new(&read.to_histogram().unwrap(), &PERCENTILES), &times);
        }
    }
}
