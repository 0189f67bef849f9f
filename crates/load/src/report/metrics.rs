//! The counts of a run so far, for Prometheus. They come from the parts that threads hand over each second, so no
//! request waits for them. docs/load-summary.md describes every metric.

use crate::config::Config;
use crate::measure::histogram::TimeHistogram;
use crate::measure::part::{Counts, OperationTally, Part};
use crate::measure::seconds::Second;
use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

mod server;

pub use server::Metrics;

/// Upper bounds of the buckets in microseconds, three per decade, from a loopback reply to a timeout.
const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];
const OPERATION: &str = "operation";

/// The counts handed over so far, of the whole run and not of the window only.
#[derive(Debug)]
struct RunCounts {
    counts: Counts,
    offered_per_s: Option<f64>,
    achieved_per_s: f64,
}

/// The same, shared with the thread that serves them.
type SharedCounts = Arc<Mutex<RunCounts>>;

impl RunCounts {
    fn new(config: &Config) -> RunCounts {
        RunCounts { counts: Counts::new(), offered_per_s: config.arrivals.per_s(), achieved_per_s: 0.0 }
    }

    fn add(&mut self, part: &Part) {
        self.counts.merge(&part.inside);
        self.counts.merge(&part.outside);
    }

    fn second(&mut self, second: &Second) {
        self.achieved_per_s = second.requests as f64;
    }
}

/// The content of one response.
#[derive(Debug)]
struct Snapshot {
    operations: [(&'static str, Counters); 2],
    times: Vec<Series>,
    offered_per_s: Option<f64>,
    achieved_per_s: f64,
}

/// The counters of one operation.
#[derive(Debug)]
struct Counters {
    requests: u64,
    errors: u64,
    hits: u64,
    misses: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// One histogram of one operation.
#[derive(Debug)]
struct Series {
    name: &'static str,
    operation: &'static str,
    sum_s: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

/// A counter: its name, its unit, its help text and its value.
type Definition = (&'static str, Option<Unit>, &'static str, fn(&Counters) -> u64);

const COUNTERS: [Definition; 6] = [
    ("requests", None, "Requests answered without an error", |counters| counters.requests),
    ("errors", None, "Requests answered by an error, or not at all", |counters| counters.errors),
    ("hits", None, "Keys read and found", |counters| counters.hits),
    ("misses", None, "Keys read and not found", |counters| counters.misses),
    ("sent", Some(Unit::Bytes), "Bytes of requests that have ended", |counters| counters.sent_bytes),
    ("received", Some(Unit::Bytes), "Bytes of their replies", |counters| counters.received_bytes),
];
const TIMES: [(&str, &str); 3] = [
    ("response", "From when a request was intended to the last byte of its reply"),
    ("service", "From when a request was sent to the last byte of its reply"),
    ("slip", "From when a request was intended to when it was sent"),
];

impl Snapshot {
    fn of(counts: &RunCounts) -> Snapshot {
        let operations = [("get", &counts.counts.get), ("set", &counts.counts.set)];
        let series = operations.iter().flat_map(|(operation, tally)| {
            let times = [("response", &tally.response), ("service", &tally.service), ("slip", &tally.slip)];
            times.map(|(name, times)| Series::new(name, operation, times))
        });
        Snapshot {
            times: series.collect(),
            operations: operations.map(|(operation, tally)| (operation, Counters::new(tally))),
            offered_per_s: counts.offered_per_s,
            achieved_per_s: counts.achieved_per_s,
        }
    }

    /// The metrics text format that Prometheus reads (OpenMetrics).
    fn render(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(fmt::Error) => String::new(),
        }
    }
}

impl Counters {
    fn new(tally: &OperationTally) -> Counters {
        Counters {
            requests: tally.count(),
            errors: tally.errors,
            hits: tally.hits,
            misses: tally.misses,
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
        }
    }
}

impl Series {
    fn new(name: &'static str, operation: &'static str, times: &TimeHistogram) -> Series {
        let sum_s = times.sum_ns() as f64 / 1e9;
        Series { name, operation, sum_s, count: times.count(), buckets: buckets(&times.histogram) }
    }
}

/// The counts between consecutive bounds, with the rest in the last bucket.
fn buckets(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets = Vec::with_capacity(BOUNDS_US.len() + 1);
    for bound_us in BOUNDS_US {
        let up_to = histogram.count_between(0, bound_us * 1_000);
        buckets.push((bound_us as f64 / 1e6, up_to - below));
        below = up_to;
    }
    buckets.push((f64::MAX, histogram.len() - below));
    buckets
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, unit, help, field) in COUNTERS {
            let name = format!("waystage_load_{name}");
            let mut family = encoder.encode_descriptor(&name, help, unit.as_ref(), MetricType::Counter)?;
            for (operation, counters) in &self.operations {
                let labels = [(OPERATION, *operation)];
                let count = field(counters);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
            }
        }
        for (name, help) in TIMES {
            let full = format!("waystage_load_{name}");
            let mut family = encoder.encode_descriptor(&full, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            for series in self.times.iter().filter(|series| series.name == name) {
                let labels = [(OPERATION, series.operation)];
                let mut encoder = family.encode_family(&labels)?;
                encoder.encode_histogram::<NoLabelSet>(series.sum_s, series.count, &series.buckets, None)?;
            }
        }
        if let Some(offered_per_s) = self.offered_per_s {
            let help = "Offered rate of the open loop in requests per second";
            gauge(&mut encoder, "waystage_load_offered_per_second", help, offered_per_s)?;
        }
        let help = "Requests answered in the last full second";
        gauge(&mut encoder, "waystage_load_achieved_per_second", help, self.achieved_per_s)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

fn lock(shared: &SharedCounts) -> std::sync::MutexGuard<'_, RunCounts> {
    // The counts are consistent between any two additions.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
