//! The summary in the structure of memtier_benchmark's JSON (version 2.x), for scripts written for it.
//! Latencies are milliseconds there. docs/load-summary.md lists what has no counterpart.

use crate::measure::histogram::{TimeHistogram, add, histogram, rank, supports, value_at_rank};
use crate::measure::seconds::Second;
use crate::measure::times::{decode, encode};
use crate::report::summary::{OperationSummary, Summary, per_second};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// memtier's histograms count whole microseconds up to a minute.
const HIGHEST_US: u64 = 60_000_000;
const NANOS_PER_MICRO: u64 = 1_000;

/// The summary as one JSON object with memtier's structure.
///
/// # Errors
/// Why a histogram cannot be read.
pub fn memtier_json(summary: &Summary) -> Result<String, String> {
    let operations = &summary.operations;
    let nothing = Section { operation: None, histograms: |_| Vec::new(), has_bytes: false };
    let sets =
        Section { operation: Some(&operations.set), histograms: |of| vec![&of.histograms.set], has_bytes: false };
    let gets =
        Section { operation: Some(&operations.get), histograms: |of| vec![&of.histograms.get], has_bytes: false };
    let totals = Section {
        operation: Some(&operations.all),
        histograms: |of| vec![&of.histograms.get, &of.histograms.set],
        has_bytes: true,
    };
    let json = json!({
        "configuration": configuration(summary),
        "run information": {
            "Threads": summary.settings.threads,
            "Connections per thread": summary.settings.clients.div_ceil(summary.settings.threads.max(1)),
            "Requests per client": summary.settings.requests.unwrap_or(0) / summary.settings.clients.max(1) as u64,
            "Format version": 2,
        },
        "ALL STATS": {
            "Runtime": runtime(summary),
            "Sets": sets.json(summary)?,
            "Gets": gets.json(summary)?,
            "Waits": nothing.json(summary)?,
            "Totals": totals.json(summary)?,
        },
    });
    Ok(format!("{json:#}\n"))
}

fn configuration(summary: &Summary) -> Value {
    let settings = &summary.settings;
    let (server, port) = settings.servers.first().and_then(|first| first.rsplit_once(':')).unwrap_or_default();
    json!({
        "server": server,
        "port": port.parse::<u16>().unwrap_or(0),
        "protocol": "memcache_text",
        "threads": settings.threads,
        "clients": settings.clients.div_ceil(settings.threads.max(1)),
        "pipeline": settings.pipeline,
        "ratio": format!("{}:{}", settings.ratio_set, settings.ratio_get),
        "key_prefix": settings.key_prefix,
        "key_minimum": settings.key_minimum,
        "key_maximum": settings.key_maximum,
        "multi_key_get": settings.multi_key_get,
        "test_time": settings.test_time_s,
    })
}

fn runtime(summary: &Summary) -> Value {
    let unix_ms =
        |clock_ns: u64| (summary.started_unix_ns + clock_ns.saturating_sub(summary.started_clock_ns)) / 1_000_000;
    let (start, end) = (unix_ms(summary.measure_from_clock_ns), unix_ms(summary.measure_to_clock_ns));
    json!({
        "Start time": start,
        "Finish time": end,
        "Total duration": end - start,
        "Time unit": "MILLISECONDS",
        "Interrupted": if summary.partial { "true" } else { "false" },
    })
}

/// "Sets", "Gets", "Waits" or "Totals".
struct Section<'a> {
    operation: Option<&'a OperationSummary>,
    /// The histograms of this section in a second.
    histograms: fn(&Second) -> Vec<&String>,
    /// Whether the section includes the bytes of a second.
    has_bytes: bool,
}

impl Section<'_> {
    fn json(&self, summary: &Summary) -> Result<Value, String> {
        let response = match self.operation {
            Some(operation) => operation.response.to_histogram()?,
            None => TimeHistogram::new(),
        };
        let field = |of: fn(&OperationSummary) -> u64| self.operation.map_or(0, of);
        let rate = |count: u64| per_second(count, summary.measured_s);
        let (sent, received) = (field(|of| of.sent_bytes), field(|of| of.received_bytes));
        let kilobytes = |bytes: u64| rate(bytes) / 1024.0;
        let failed = field(|of| of.errors);
        Ok(json!({
            "Count": field(|of| of.count),
            "Ops/sec": rate(field(|of| of.count)),
            "Hits/sec": rate(field(|of| of.hits)),
            "Misses/sec": rate(field(|of| of.misses)),
            "Connection Errors": failed,
            "Connection Errors/sec": rate(failed),
            "Latency": milliseconds(response.mean_ns()),
            "Average Latency": milliseconds(response.mean_ns()),
            "Accumulated Latency": milliseconds(response.sum_ns() as f64).round(),
            "Min Latency": milliseconds(response.min_ns() as f64),
            "Max Latency": milliseconds(response.max_ns() as f64),
            "KB/sec": kilobytes(sent + received),
            "KB/sec RX/TX": kilobytes(sent + received),
            "KB/sec RX": kilobytes(received),
            "KB/sec TX": kilobytes(sent),
            "Time-Serie": self.series(summary)?,
            "Percentile Latencies": percentiles(&response, &summary.settings.percentiles),
        }))
    }

    /// The whole seconds of the window, counted from its start.
    fn series(&self, summary: &Summary) -> Result<Map<String, Value>, String> {
        let mut series = Map::new();
        for (number, second) in summary.seconds.iter().filter(|second| second.measured).enumerate() {
            let mut histogram = histogram();
            for text in (self.histograms)(second) {
                add(&mut histogram, &decode(text)?);
            }
            let mut cells = Map::new();
            cells.insert("Count".into(), histogram.len().into());
            if self.has_bytes {
                cells.insert("Bytes RX".into(), second.received_bytes.into());
                cells.insert("Bytes TX".into(), second.sent_bytes.into());
            }
            if !histogram.is_empty() {
                let of_histogram = [
                    ("Average Latency", histogram.mean()),
                    ("Accumulated Latency", histogram.mean() * histogram.len() as f64),
                    ("Min Latency", histogram.min() as f64),
                    ("Max Latency", histogram.max() as f64),
                ];
                cells.extend(of_histogram.map(|(key, ns)| (key.into(), milliseconds(ns).into())));
                for &percent in
                    summary.settings.percentiles.iter().filter(|&&percent| supports(histogram.len(), percent))
                {
                    let value_ms = milliseconds(value_at_rank(&histogram, rank(histogram.len(), percent)) as f64);
                    cells.insert(format!("p{percent:.2}"), value_ms.into());
                }
            }
            series.insert(number.to_string(), cells.into());
        }
        Ok(series)
    }
}

/// Percentiles under both names used by memtier's versions, "p99.90" and "p99.900".
fn percentiles(response: &TimeHistogram, percentiles: &[f64]) -> Value {
    let mut found = Map::new();
    for &percent in percentiles.iter().filter(|&&percent| response.supports(percent)) {
        // memtier's format has no way to show a percentile that falls among requests without an answer.
        let Some(value_ns) = response.percentile_ns(percent) else { continue };
        let value_ms = milliseconds(value_ns as f64);
        found.insert(format!("p{percent:.2}"), value_ms.into());
        found.insert(format!("p{percent:.3}"), value_ms.into());
    }
    let text = encode(&microseconds(&response.histogram));
    found.insert("Histogram log format".into(), json!({ "Compressed Histogram": text }));
    found.into()
}

/// The same histogram with memtier's unit and buckets.
fn microseconds(nanoseconds: &Histogram<u64>) -> Histogram<u64> {
    #[allow(clippy::expect_used, reason = "the bounds are constants that the tests create")]
    let mut found = Histogram::new_with_bounds(1, HIGHEST_US, 3).expect("the bounds of a histogram are valid");
    for step in nanoseconds.iter_recorded() {
        found.saturating_record_n(step.value_iterated_to() / NANOS_PER_MICRO, step.count_at_value());
    }
    found
}

fn milliseconds(ns: f64) -> f64 {
    ns / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::measure::part::{Counts, Part};
    use crate::measure::request::{EndedRequest, Operation};
    use crate::measure::seconds::{Handover, SecondsCollector};
    use crate::measure::tally::Tally;
    use crate::report::summarise::{MeasuredRun, summarise};
    use clock::{CpuTime, Nanos};
    use std::sync::mpsc::channel;

    /// Ten seconds. The first has 4000 sets of 1 ms and 1000 gets of 3 ms, a tenth of which missed.
    fn summary() -> Summary {
        let mut part = Box::new(Part::new(channel().0));
        for request in 0..5_000 {
            let is_set = request % 5 > 0;
            let ended = EndedRequest {
                operation: if is_set { Operation::Set } else { Operation::Get },
                intended: Nanos(1),
                sent: Nanos(1),
                completed: Nanos(if is_set { 1_000_001 } else { 3_000_001 }),
                keys: 1,
                hits: u32::from(!is_set && request % 50 > 0),
                request_bytes: 1_024,
                reply_bytes: 512,
                failed: false,
                message: None,
            };
            part.inside.record(&ended);
        }
        let mut window = Counts::new();
        window.merge(&part.inside);
        let mut seconds = SecondsCollector::new(1);
        seconds.take(Handover { thread: 0, now_in: 1, past: part });
        let measured = MeasuredRun {
            started_unix_ns: 5_000_000_000,
            start: Nanos(0),
            from: Nanos(0),
            to: Nanos(10_000_000_000),
            cpu_from: CpuTime::default(),
            cpu_to: CpuTime::default(),
            keys_uncertain: 0,
            stopped: false,
            broken: None,
            messages: None,
        };
        let config = Config {
            servers: vec!["127.0.0.1:11211".into()],
            clients: 5,
            threads: 2,
            percentiles: vec![50.0, 99.0, 99.9],
            ..Config::default()
        };
        summarise(&config, &measured, &Tally::new(), &window, seconds.close(None, 10).1)
    }

    #[test]
    fn scripts_find_the_keys_of_memtier() {
        let json: Value = serde_json::from_str(&memtier_json(&summary()).unwrap()).unwrap();
        let stats = &json["ALL STATS"];
        assert_eq!((&stats["Sets"]["Count"], &stats["Totals"]["Ops/sec"]), (&json!(4000), &json!(500.0)));
        assert_eq!((&stats["Gets"]["Hits/sec"], &stats["Gets"]["Misses/sec"]), (&json!(90.0), &json!(10.0)));
        assert_eq!((&stats["Sets"]["KB/sec"], &stats["Totals"]["KB/sec RX"]), (&json!(600.0), &json!(250.0)));
        for key in ["Latency", "Average Latency", "Min Latency", "Max Latency"] {
            assert_eq!((&stats["Sets"][key], &stats["Gets"][key]), (&json!(1.0), &json!(3.0)), "{key}");
        }
        assert_eq!(stats["Totals"]["Average Latency"], json!(1.4));
        let percentiles = &stats["Totals"]["Percentile Latencies"];
        for key in ["p50.00", "p50.000"] {
            assert!((percentiles[key].as_f64().unwrap() - 1.0).abs() < 0.001, "{percentiles}");
        }
        assert!((percentiles["p99.00"].as_f64().unwrap() - 3.0).abs() < 0.003);
        assert!(percentiles.get("p99.90").is_none(), "fewer than ten values lie above it");
        assert_eq!(stats["Waits"]["Count"], 0);
        assert_eq!(stats["Runtime"]["Total duration"], 10_000);
        assert_eq!(
            (&json["run information"]["Connections per thread"], &json["configuration"]["port"]),
            (&json!(3), &json!(11211))
        );
    }

    #[test]
    fn seconds_and_histograms_are_included() {
        let json: Value = serde_json::from_str(&memtier_json(&summary()).unwrap()).unwrap();
        let stats = &json["ALL STATS"];
        let series = &stats["Totals"]["Time-Serie"];
        assert_eq!(series.as_object().unwrap().len(), 10);
        assert_eq!((&series["0"]["Count"], &series["0"]["Bytes TX"]), (&json!(5000), &json!(5_120_000)));
        assert!((stats["Gets"]["Time-Serie"]["0"]["p50.00"].as_f64().unwrap() - 3.0).abs() < 0.003);
        assert_eq!(series["1"], json!({"Count": 0, "Bytes RX": 0, "Bytes TX": 0}));
        let text =
            stats["Gets"]["Percentile Latencies"]["Histogram log format"]["Compressed Histogram"].as_str().unwrap();
        assert!(text.starts_with("HISTF"), "{text}");
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap();
        let read: Histogram<u64> =
            hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!((read.len(), read.high()), (1_000, HIGHEST_US));
        assert!(read.equivalent(read.max(), 3_000));
    }
}
