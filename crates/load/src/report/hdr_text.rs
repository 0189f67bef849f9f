//! The two text formats of HdrHistogram. `.hgrm` has the percentiles of one histogram, as written by
//! `outputPercentileDistribution` for the public plotter. `.hlog` is an interval log of the run (version 1.3). Both are
//! made from the summary, in milliseconds.

use crate::measure::times::{Times, decode};
use crate::report::summary::Summary;
use std::fmt::Write;

/// Percentiles for each halving of the distance to 100 %, as in other tools.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
const NANOS_PER_MILLI: f64 = 1e6;
/// A histogram with three significant digits has 2000 steps in a bucket, rounded up to a power of two.
const STEPS_PER_BUCKET: u64 = 2048;

/// The text; none without values.
///
/// The values in the table come from the histogram. Mean, deviation and maximum below it are exact. Requests without an
/// answer are slower than every value, so the table ends below 100 % if there are any.
///
/// # Errors
/// Why the histogram cannot be read.
pub fn percentile_text(times: &Times) -> Result<Option<String>, String> {
    let recorded = times.to_histogram()?;
    let histogram = &recorded.histogram;
    if histogram.is_empty() {
        return Ok(None);
    }
    // Writing to a String cannot fail, here and below.
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut total = 0;
    let answered_share = recorded.count() as f64 / (recorded.count() + recorded.unanswered()) as f64;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        let (value_ms, quantile) =
            (step.value_iterated_to() as f64 / NANOS_PER_MILLI, step.quantile_iterated_to() * answered_share);
        let _ = write!(text, "{value_ms:>12.3} {quantile:>2.12} {total:>10}");
        let _ = if quantile < 1.0 { writeln!(text, " {:>14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(text) };
    }
    let milliseconds = |ns: f64| ns / NANOS_PER_MILLI;
    let (mean, deviation) = (milliseconds(times.mean_ns), milliseconds(times.std_ns));
    let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    let _ = writeln!(text, "#[Max     = {:>12.3}, Total count    = {total:>12}]", milliseconds(times.max_ns as f64));
    if recorded.unanswered() > 0 {
        let _ = writeln!(text, "#[Unanswered = {:>9}]", recorded.unanswered());
    }
    let _ = writeln!(text, "#[Buckets = {:>12}, SubBuckets     = {STEPS_PER_BUCKET:>12}]", buckets(histogram.high()));
    Ok(Some(text))
}

/// The log of all seconds, including the warm-up. A comment in it names the measured seconds.
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

/// The number of buckets of a histogram up to `highest`. Each reaches twice as far as the one before.
fn buckets(highest: u64) -> u32 {
    let mut reach = STEPS_PER_BUCKET;
    let mut buckets = 1;
    while reach <= highest {
        reach *= 2;
        buckets += 1;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram::TimeHistogram;

    #[test]
    fn columns_follow_the_format() {
        let mut recorded = TimeHistogram::new();
        [1_000_000, 2_000_000, 2_000_000, 5_500_000].into_iter().for_each(|time_ns| recorded.record(time_ns));
        let text = percentile_text(&Times::new(&recorded, &[])).unwrap().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "       1.000 0.000000000000          1           1.00");
        let last = lines.iter().position(|line| line.contains("1.000000000000")).unwrap();
        assert_eq!(lines[last], "       5.501 1.000000000000          4");
        assert_eq!(lines[last + 1], "#[Mean    =        2.625, StdDeviation   =        1.974]");
        assert_eq!(lines[last + 2], "#[Max     =        5.500, Total count    =            4]");
        assert_eq!(lines[last + 3], "#[Buckets =           26, SubBuckets     =         2048]");
        assert_eq!(lines.len(), last + 4);
    }

    #[test]
    fn requests_without_an_answer_shorten_the_table() {
        let mut recorded = TimeHistogram::new();
        (0..3).for_each(|_| recorded.record(1_000_000));
        recorded.record_unanswered(1);
        let text = percentile_text(&Times::new(&recorded, &[])).unwrap().unwrap();
        let last = text.lines().rfind(|line| !line.starts_with('#')).unwrap();
        assert_eq!(last, "       1.000 0.750000000000          3           4.00");
        assert!(text.contains("#[Unanswered =         1]\n"), "{text}");
    }

    #[test]
    fn a_run_without_requests_has_no_percentile_file() {
        assert_eq!(percentile_text(&Times::new(&TimeHistogram::new(), &[])), Ok(None));
    }
}
