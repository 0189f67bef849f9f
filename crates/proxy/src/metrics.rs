//! Prometheus metrics: where the time went per stage, and everything that is counted.

use crate::counters::{
    AcceptCounters, BackendCounters, Counter, LoopCounters, NameCounter, NameCounters, QueueCounters,
};
use crate::histograms::StageHistograms;
use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use records::Outcome;
use std::fmt;
use std::sync::Arc;
use wire::Verb;

/// Upper bounds of the buckets in microseconds, three per decade; from a loopback reply to a timeout.
const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];

/// Everything that one answer shows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) loops: Vec<Arc<LoopCounters>>,
    pub(crate) accept: Arc<AcceptCounters>,
    pub(crate) names: Arc<NameCounters>,
    pub(crate) servers: Vec<String>,
    /// The names of each loop's queues.
    pub(crate) queues: Vec<String>,
    pub(crate) histograms: StageHistograms,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.stages(&mut encoder)?;
        let requests = Verb::ALL.map(|verb| (verb.name(), self.sum(|loops| &loops.requests[verb as usize])));
        family(&mut encoder, "waystage_requests", "Requests that have ended", "operation", &requests)?;
        let outcomes =
            Outcome::ALL.map(|outcome| (outcome.name(), self.sum(|loops| &loops.outcomes[outcome as usize])));
        family(&mut encoder, "waystage_outcomes", "How requests have ended", "outcome", &outcomes)?;
        type Field = fn(&LoopCounters) -> &Counter;
        let totals: [(&str, &str, Field); 10] = [
            ("waystage_keys", "Keys asked for", |loops| &loops.keys_read),
            ("waystage_hits", "Values returned", |loops| &loops.hits),
            ("waystage_received_bytes", "Bytes of requests", |loops| &loops.received_bytes),
            ("waystage_replied_bytes", "Bytes of replies", |loops| &loops.replied_bytes),
            ("waystage_clients_accepted", "Client connections so far", |loops| &loops.clients_accepted),
            ("waystage_clients_tls_failed", "Clients with whom TLS failed", |loops| &loops.clients_tls_failed),
            ("waystage_clients_paused", "Times a client was not read from", |loops| &loops.clients_paused),
            ("waystage_order_waits", "Times a request waited for its client's earlier ones", |loops| {
                &loops.order_waits
            }),
            ("waystage_parts_failed", "Multi-gets with a failed part", |loops| &loops.parts_failed),
            ("waystage_records_dropped", "Records dropped by a full hand-off", |loops| &loops.records_dropped),
        ];
        for (name, help, field) in totals {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter(self.sum(field), metric)?;
        }
        let accept = [
            ("waystage_clients_refused", "Clients closed at once for want of room", &self.accept.refused),
            ("waystage_accept_pauses", "Pauses for want of descriptors", &self.accept.pauses),
        ];
        for (name, help, field) in accept {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter(field.get(), metric)?;
        }
        let open = encoder.encode_descriptor("waystage_clients", "Clients connected", None, MetricType::Gauge)?;
        gauge(self.sum(|loops| &loops.clients_open), open)?;
        self.backends(&mut encoder)?;
        self.names(&mut encoder)?;
        self.queues(&mut encoder)
    }
}

impl Snapshot {
    /// The text that Prometheus reads.
    pub(crate) fn render(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(fmt::Error) => String::new(),
        }
    }

    fn sum(&self, field: impl Fn(&LoopCounters) -> &Counter) -> u64 {
        self.loops.iter().map(|counters| field(counters).get()).sum()
    }

    /// One histogram per operation and stage; `stage="total"` is the whole time in the proxy.
    fn stages(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time that requests spent in each stage";
        let mut metric =
            encoder.encode_descriptor("waystage_stage", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (operation, stage, histogram, sum_ns) in self.histograms.series() {
            if histogram.is_empty() {
                continue;
            }
            let labels = [("operation", operation), ("stage", stage)];
            let mut encoder = metric.encode_family(&labels)?;
            let sum_s = sum_ns as f64 / 1e9;
            encoder.encode_histogram::<NoLabelSet>(sum_s, histogram.len(), &buckets(histogram), None)?;
        }
        Ok(())
    }

    fn backends(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Field = fn(&BackendCounters) -> &Counter;
        let counters: [(&str, &str, Field); 7] = [
            ("waystage_backend_requests", "Requests sent to the backend", |backend| &backend.requests),
            ("waystage_backend_connects", "Connections opened", |backend| &backend.connects),
            ("waystage_backend_timeouts", "Connections closed because an answer was late", |backend| &backend.timeouts),
            ("waystage_backend_lost", "Connections lost or refused", |backend| &backend.lost),
            ("waystage_backend_tls_failed", "Connections on which TLS failed", |backend| &backend.tls_failed),
            ("waystage_backend_refused", "Requests refused because it was down", |backend| &backend.refused),
            ("waystage_backend_overloaded", "Requests refused because too many waited", |backend| &backend.overloaded),
        ];
        let values = |field: Field| -> Vec<(&str, u64)> {
            let sum = |index: usize| self.sum(|loops| field(&loops.backends[index]));
            self.servers.iter().enumerate().map(|(index, name)| (name.as_str(), sum(index))).collect()
        };
        for (name, help, field) in counters {
            family(encoder, name, help, "backend", &values(field))?;
        }
        let gauges: [(&str, &str, Field); 2] = [
            ("waystage_backend_up", "Connections that accept requests", |backend| &backend.is_up),
            ("waystage_backend_in_flight", "Requests waiting for an answer", |backend| &backend.in_flight),
        ];
        for (name, help, field) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (backend, value) in values(field) {
                gauge(value, metric.encode_family(&[("backend", backend)])?)?;
            }
        }
        Ok(())
    }

    /// What the names of backends meant.
    fn names(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Field = fn(&NameCounter) -> &Counter;
        let fields: [(&str, &str, Field); 2] = [
            ("waystage_backend_moves", "Times another address was used", |name| &name.moves),
            ("waystage_backend_lookups_failed", "Lookups without an address", |name| &name.lookups_failed),
        ];
        for (name, help, field) in fields {
            let values = self.servers.iter().zip(&self.names.names);
            let values: Vec<(&str, u64)> =
                values.map(|(server, counters)| (server.as_str(), field(counters).get())).collect();
            family(encoder, name, help, "backend", &values)?;
        }
        Ok(())
    }

    /// Each loop's queues apart: a long one beside an empty one is not the same as two of middle length.
    fn queues(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Field = fn(&QueueCounters) -> &Counter;
        let fields: [(&str, &str, MetricType, Field); 3] = [
            ("waystage_queue_length", "Requests waiting", MetricType::Gauge, |queue| &queue.length),
            ("waystage_slots_busy", "Slots that serve a request", MetricType::Gauge, |queue| &queue.slots_busy),
            ("waystage_queue_full", "Requests refused by a full queue", MetricType::Counter, |queue| &queue.full),
        ];
        for (name, help, kind, field) in fields {
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for (index, counters) in self.loops.iter().enumerate() {
                for (queue, name) in counters.queues.iter().zip(&self.queues) {
                    let labels = [("loop", index.to_string()), ("queue", name.clone())];
                    let encoder = metric.encode_family(&labels)?;
                    let value = field(queue).get();
                    if matches!(kind, MetricType::Gauge) { gauge(value, encoder)? } else { counter(value, encoder)? }
                }
            }
        }
        Ok(())
    }
}

/// One counter for each value of a label.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for &(value, count) in values {
        counter(count, metric.encode_family(&[(label, value)])?)?;
    }
    Ok(())
}

fn counter(value: u64, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

fn gauge(value: u64, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
}

/// Counts between neighbouring bounds, the rest in the last bucket.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clock::{Nanos, Stage, StageClock};

    #[test]
    fn the_text_holds_every_stage_and_ends_properly() {
        let mut histograms = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1_000));
        clock.stamp(Stage::Answered, Nanos(151_000));
        clock.finish();
        histograms.record(Verb::Get, &clock);
        histograms.settle();
        let counters = Arc::new(LoopCounters::new(1, 1));
        counters.queues[0].length.set(3);
        counters.queues[0].full.add(2);
        counters.requests[Verb::Get as usize].add(7);
        let (loops, servers) = (vec![counters.clone(), counters], vec!["a:1".into()]);
        let names = Arc::new(NameCounters::new(servers.len()));
        let text =
            Snapshot { loops, accept: Arc::default(), names, queues: servers.clone(), servers, histograms }.render();
        assert!(text.contains("waystage_queue_length{loop=\"1\",queue=\"a:1\"} 3"), "{text}");
        assert!(text.contains("waystage_queue_full_total{loop=\"0\",queue=\"a:1\"} 2"), "{text}");
        assert!(text.contains("waystage_requests_total{operation=\"get\"} 14"), "{text}");
        assert!(
            text.contains("waystage_stage_seconds_bucket{le=\"0.0002\",operation=\"get\",stage=\"total\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("waystage_stage_seconds_bucket{le=\"0.0001\",operation=\"get\",stage=\"total\"} 0"),
            "{text}"
        );
        for interval in clock::INTERVALS {
            assert!(text.contains(&format!("stage=\"{}\"", interval.name)), "{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
