//! The run as an HdrHistogram interval log (`.hlog`), version 1.3 of the format: the response times of each second,
//! tagged with their operation. Knows nothing but the summary.

use crate::summary::Summary;
use crate::times::decode;
use std::fmt::Write;

/// The maximum of an interval is for people to read, in milliseconds by convention. The histograms are in nanoseconds.
const NANOS_PER_MILLI: f64 = 1e6;

/// The log of all seconds, warm-up included; a comment says which of them were measured.
///
/// # Errors
/// Why a histogram cannot be read.
pub fn interval_log(summary: &Summary) -> Result<String, String> {
    let start_s = summary.started_unix_ns as f64 / 1e9;
    let since_start_s = |clock_ns: u64| clock_ns.saturating_sub(summary.started_clock_ns) as f64 / 1e9;
    // Writing to a String cannot fail, here and below.
    let mut text = format!("#[waystage load {}, response times in nanoseconds]\n", summary.version);
    let _ = writeln!(
        text,
        "#[measured from {:.3} to {:.3} s, the rest is warm-up or end]",
        since_start_s(summary.measure_from_clock_ns),
        since_start_s(summary.measure_to_clock_ns)
    );
    text += "#[Histogram log format version 1.3]\n";
    let _ = writeln!(text, "#[StartTime: {start_s:.3} (seconds since epoch)]");
    let _ = writeln!(text, "#[BaseTime: {start_s:.3} (seconds since epoch)]");
    text += "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";
    for second in &summary.seconds {
        for (tag, histogram) in [("get", &second.histograms.get), ("set", &second.histograms.set)] {
            if !histogram.is_empty() {
                let max_ms = decode(histogram)?.max() as f64 / NANOS_PER_MILLI;
                let _ = writeln!(text, "Tag={tag},{}.000,1.000,{max_ms:.3},{histogram}", second.second);
            }
        }
    }
    Ok(text)
}
