//! Collects the values of the Prometheus metrics. `catalogue` defines the metrics, and `labels` their labels.

use crate::observe::catalogue::{self, Definition};
use crate::observe::counters::{
    BackendCounters, Counter, ListCounter, LoopCounters, NameCounter, PoolCounters, QueueCounters, ScrapeCounters,
};
use crate::observe::histograms::StageHistograms;
use crate::observe::hot_keys::{HotKeysBoard, printable};
use crate::observe::labels::{self, Labels};
use crate::observe::metrics_text::{Number, Page};
use crate::observe::process_counts::ProcessCounts;
use crate::observe::tally::{ServerName, Sums, Tally};
use crate::observe::traces::counters::TraceCounters;
use clock::Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use records::Outcome;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use wire::Verb;

/// The sources of one proxy's metrics. They stay the same while the proxy runs.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) tally: Arc<Tally>,
    pub(crate) counts: Arc<ProcessCounts>,
    /// By backend.
    pub(crate) invalidations_pending: Vec<Arc<AtomicUsize>>,
    pub(crate) clients_max: usize,
    pub(crate) dispatch: &'static str,
    /// Set if the metrics show hot keys.
    pub(crate) hot_keys: Option<HotKeysBoard>,
}

/// The data of one scrape.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) subject: Arc<Subject>,
    pub(crate) sums: Sums,
    pub(crate) histograms: StageHistograms,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(&mut encoder);
        self.stages(&mut page)?;
        self.requests(&mut page)?;
        self.clients(&mut page)?;
        self.pools(&mut page)?;
        self.backends(&mut page)?;
        self.names(&mut page)?;
        self.queues(&mut page)?;
        self.hot_keys(&mut page)?;
        self.program(&mut page)
    }
}

impl Snapshot {
    /// The metrics as text in the OpenMetrics format.
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
        self.sums.of_loops(|counters| field(counters).get())
    }

    /// One histogram for each group of operations and each stage. `stage="total"` is the whole time in the proxy.
    fn stages(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let mut family = page.family(&catalogue::STAGE, MetricType::Histogram)?;
        for (operation, stage, times) in self.histograms.series().filter(|series| series.2.count() > 0) {
            let labels = labels::stage(operation, stage);
            let sum_s = times.sum_ns as f64 / 1e9;
            let mut encoder = family.encode_family(&labels)?;
            encoder.encode_histogram::<NoLabelSet>(sum_s, times.count(), &times.buckets(), None)?;
        }
        Ok(())
    }

    fn requests(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let pairs = Verb::ALL.into_iter().flat_map(|verb| Outcome::ALL.map(|outcome| (verb, outcome)));
        let ended = pairs.map(|(verb, outcome)| {
            let count = self.sum(|loops| &loops.requests[verb as usize][outcome as usize]);
            (labels::request(verb, outcome), Number::Whole(count), outcome == Outcome::Answered)
        });
        // Most pairs never occur, and are shown only if they do. Answered requests are always shown: a rate needs their zero.
        let ended = ended.filter(|(_, count, is_usual)| *is_usual || !matches!(count, Number::Whole(0)));
        page.samples(&catalogue::REQUESTS, ended.map(|(labels, count, _)| (labels, count)))?;
        page.sample(&catalogue::KEYS, self.sum(|loops| &loops.keys_read))?;
        type Field = fn(&LoopCounters) -> &[Counter; Verb::ALL.len()];
        let found: [(&Definition, Field); 2] =
            [(&catalogue::HITS, |loops| &loops.hits), (&catalogue::MISSES, |loops| &loops.misses)];
        for (definition, field) in found {
            let counts = READS_AND_KEYED
                .map(|verb| (labels::operation(verb), Number::Whole(self.sum(|loops| &field(loops)[verb as usize]))));
            page.samples(definition, counts)?;
        }
        page.sample(&catalogue::CAS_CONFLICTS, self.sum(|loops| &loops.cas_conflicts))?;
        page.sample(&catalogue::COMMANDS_REFUSED, self.sum(|loops| &loops.commands_refused))?;
        page.sample(&catalogue::PARTS_FAILED, self.sum(|loops| &loops.parts_failed))?;
        page.sample(&catalogue::RECEIVED_BYTES, self.sum(|loops| &loops.received_bytes))?;
        page.sample(&catalogue::REPLIED_BYTES, self.sum(|loops| &loops.replied_bytes))
    }

    fn clients(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        page.sample(&catalogue::CLIENTS, self.sum(|loops| &loops.clients_open))?;
        page.sample(&catalogue::CLIENTS_MAX, self.subject.clients_max as u64)?;
        page.sample(&catalogue::CLIENTS_ACCEPTED, self.sum(|loops| &loops.clients_accepted))?;
        page.sample(&catalogue::CLIENTS_REFUSED, self.sums.of_accept(|accept| &accept.refused))?;
        let behind_relays = self.sum(|loops| &loops.clients_refused_address);
        let refused = self.sums.of_accept(|accept| &accept.refused_address) + behind_relays;
        page.sample(&catalogue::CLIENTS_REFUSED_ADDRESS, refused)?;
        page.sample(&catalogue::CLIENTS_REFUSED_BINARY, self.sum(|loops| &loops.clients_refused_binary))?;
        page.sample(&catalogue::CLIENTS_TLS_FAILED, self.sum(|loops| &loops.clients_tls_failed))?;
        page.sample(&catalogue::CLIENTS_AUTHENTICATED, self.sum(|loops| &loops.clients_authenticated))?;
        page.sample(&catalogue::CLIENTS_AUTH_FAILED, self.sum(|loops| &loops.client_auth_failed))?;
        page.sample(&catalogue::CLIENTS_UNAUTHENTICATED, self.sum(|loops| &loops.client_unauthenticated))?;
        page.sample(&catalogue::CLIENTS_REFUSED_RELAY, self.sums.of_accept(|accept| &accept.refused_relay))?;
        page.sample(&catalogue::CLIENTS_HEADER_FAILED, self.sum(|loops| &loops.clients_header_failed))?;
        page.sample(&catalogue::CLIENTS_PAUSED, self.sum(|loops| &loops.clients_paused))?;
        self.memory(page)?;
        page.sample(&catalogue::ACCEPT_PAUSES, self.sums.of_accept(|accept| &accept.pauses))?;
        page.sample(&catalogue::ORDER_WAITS, self.sum(|loops| &loops.order_waits))
    }

    /// Timeouts of clients, and the bytes held for them.
    fn memory(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        type Field = fn(&LoopCounters) -> &Counter;
        let by_reason = |fields: &'static [(&'static str, Field)]| {
            fields.iter().map(|&(reason, field)| (labels::reason(reason), Number::Whole(self.sum(field))))
        };
        let closed: &[(&str, Field)] = &[
            ("idle", |loops| &loops.clients_closed_idle),
            ("request", |loops| &loops.clients_closed_request),
            ("unread", |loops| &loops.clients_closed_unread),
        ];
        page.samples(&catalogue::CLIENTS_CLOSED, by_reason(closed))?;
        page.sample(&catalogue::HELD_BYTES, self.sum(|loops| &loops.held_bytes))?;
        page.sample(&catalogue::REPLIES_DROPPED, self.sum(|loops| &loops.replies_dropped))?;
        page.sample(&catalogue::READS_REPEATED, self.sum(|loops| &loops.reads_repeated))?;
        let refused: &[(&str, Field)] =
            &[("memory", |loops| &loops.replies_refused_memory), ("write", |loops| &loops.replies_refused_order)];
        page.samples(&catalogue::REPLIES_REFUSED, by_reason(refused))?;
        page.sample(&catalogue::VALUES_REFUSED, self.sum(|loops| &loops.values_refused_memory))
    }

    fn pools(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        type Field = fn(&PoolCounters) -> &Counter;
        let each = || self.subject.tally.named.pools.iter().enumerate();
        let sum = |index: usize, field: Field| Number::Whole(self.sum(|loops| field(&loops.pools[index])));
        let kinds: [(&str, Field); 2] = [("read", |pool| &pool.reads), ("write", |pool| &pool.writes)];
        let requests = each().flat_map(|(index, name)| {
            kinds.map(|(kind, field)| (labels::and(labels::pool(name), "kind", kind), sum(index, field)))
        });
        page.samples(&catalogue::POOL_REQUESTS, requests)?;
        let fields: [(&Definition, Field); 11] = [
            (&catalogue::FAILOVERS, |pool| &pool.failovers),
            (&catalogue::HEDGES, |pool| &pool.hedges),
            (&catalogue::HEDGES_WON, |pool| &pool.hedges_won),
            (&catalogue::FAILOVER_POOL_REQUESTS, |pool| &pool.failover_pool_requests),
            (&catalogue::WARM_UP_HITS, |pool| &pool.warm_up_hits),
            (&catalogue::WARM_UP_FILLS, |pool| &pool.warm_up_fills),
            (&catalogue::SHADOWED, |pool| &pool.shadowed),
            (&catalogue::WRITES_DEGRADED, |pool| &pool.writes_degraded),
            (&catalogue::WITHHELD_READS, |pool| &pool.withheld_reads),
            (&catalogue::RATE_LIMITED, |pool| &pool.rate_limited),
            (&catalogue::NEAR_CACHE_HITS, |pool| &pool.near_cache_hits),
        ];
        for (definition, field) in fields {
            page.samples(definition, each().map(|(index, name)| (labels::pool(name), sum(index, field))))?;
        }
        type OfList = fn(&ListCounter) -> &Counter;
        let lists: [(&Definition, OfList); 2] = [
            (&catalogue::SERVER_LIST_CHANGES, |list| &list.changes),
            (&catalogue::SERVER_LIST_FAILURES, |list| &list.failures),
        ];
        for (definition, field) in lists {
            let of_list = |index| Number::Whole(self.sums.of_list(index, field));
            page.samples(definition, each().map(|(index, name)| (labels::pool(name), of_list(index))))?;
        }
        Ok(())
    }

    fn backends(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let Tally { named, loops, .. } = &*self.subject.tally;
        let sum = |index: usize, field: &dyn Fn(&BackendCounters) -> &Counter| {
            self.sum(|loops| field(&loops.backends[index]))
        };
        let up = |index: usize| u64::from(sum(index, &|backend| &backend.is_up) > 0);
        let without = |index: usize| {
            let is_ejected = |loops: &&Arc<LoopCounters>| loops.backends[index].is_up.get() == 0;
            loops.iter().filter(is_ejected).count() as u64
        };
        let pending = |index: usize| self.subject.invalidations_pending[index].load(Ordering::Relaxed) as u64;
        let each = named.servers.iter().enumerate().map(|(index, server)| (index, server.labels()));
        let drained = |index: usize| u64::from(sum(index, &|backend| &backend.is_drained) > 0);
        let gauges: [(&Definition, &dyn Fn(usize) -> u64); 4] = [
            (&catalogue::BACKEND_UP, &up),
            (&catalogue::BACKEND_DRAINED, &drained),
            (&catalogue::BACKEND_EJECTED, &without),
            (&catalogue::BACKEND_INVALIDATIONS_PENDING, &pending),
        ];
        for (definition, value) in gauges {
            page.samples(definition, each.clone().map(|(index, labels)| (labels, Number::Whole(value(index)))))?;
        }
        type Field = fn(&BackendCounters) -> &Counter;
        let fields: [(&Definition, Field); 14] = [
            (&catalogue::BACKEND_EJECTIONS, |backend| &backend.ejections),
            (&catalogue::BACKEND_INVALIDATIONS_SENT, |backend| &backend.invalidations_sent),
            (&catalogue::BACKEND_INVALIDATIONS_FAILED, |backend| &backend.invalidations_failed),
            (&catalogue::BACKEND_TLS_FAILED, |backend| &backend.tls_failed),
            (&catalogue::BACKEND_CONNECTIONS_UP, |backend| &backend.is_up),
            (&catalogue::BACKEND_CONNECTIONS_OPENED, |backend| &backend.connects),
            (&catalogue::BACKEND_REQUESTS, |backend| &backend.requests),
            (&catalogue::BACKEND_BULK_REQUESTS, |backend| &backend.bulk_requests),
            (&catalogue::BACKEND_REPLIES, |backend| &backend.replies),
            (&catalogue::BACKEND_LATE_REPLIES, |backend| &backend.late_replies),
            (&catalogue::BACKEND_CARRIED_OVER, |backend| &backend.carried_over),
            (&catalogue::BACKEND_IN_FLIGHT, |backend| &backend.in_flight),
            (&catalogue::BACKEND_SENT_BYTES, |backend| &backend.sent_bytes),
            (&catalogue::BACKEND_RECEIVED_BYTES, |backend| &backend.received_bytes),
        ];
        for (definition, field) in fields {
            let values = each.clone().map(|(index, labels)| (labels, Number::Whole(sum(index, &field))));
            page.samples(definition, values)?;
        }
        let lost: [(&str, Field); 4] = [
            ("timeout", |backend| &backend.timeouts),
            ("lost", |backend| &backend.lost),
            ("out_of_step", |backend| &backend.out_of_step),
            ("login", |backend| &backend.unauthenticated),
        ];
        let lost = each.clone().flat_map(|(index, labels)| {
            lost.map(|(reason, field)| {
                (labels::and(labels.clone(), "reason", reason), Number::Whole(sum(index, &field)))
            })
        });
        page.samples(&catalogue::BACKEND_CONNECTIONS_LOST, lost)?;
        let errors = each.flat_map(|(index, labels)| {
            BACKEND_ERRORS.map(|kind| {
                let count = sum(index, &|backend| &backend.errors[kind as usize]);
                (labels::and(labels.clone(), "kind", kind.name()), Number::Whole(count))
            })
        });
        page.samples(&catalogue::BACKEND_ERRORS, errors)
    }

    /// The resolver's counters.
    fn names(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        type Field = fn(&NameCounter) -> &Counter;
        let fields: [(&Definition, Field); 2] = [
            (&catalogue::BACKEND_MOVES, |name| &name.moves),
            (&catalogue::BACKEND_LOOKUPS_FAILED, |name| &name.lookups_failed),
        ];
        for (definition, field) in fields {
            let servers = self.subject.tally.named.servers.iter().enumerate();
            let values =
                servers.map(|(index, server)| (server.labels(), Number::Whole(self.sums.of_name(index, field))));
            page.samples(definition, values)?;
        }
        Ok(())
    }

    /// The queues of each loop, not their sums: one long queue beside an empty one differs from two of medium length.
    fn queues(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        type Field = fn(&QueueCounters) -> &Counter;
        let fields: [(&Definition, Field); 3] = [
            (&catalogue::QUEUE_LENGTH, |queue| &queue.length),
            (&catalogue::QUEUE_FULL, |queue| &queue.full),
            (&catalogue::SLOTS_BUSY, |queue| &queue.slots_busy),
        ];
        for (definition, field) in fields {
            let Tally { named, loops, .. } = &*self.subject.tally;
            let values = (0..loops.len()).flat_map(|index| {
                let queues = named.queues.iter().enumerate();
                queues.map(move |(queue, name)| {
                    (labels::queue(index, name), Number::Whole(self.sums.of_queue(index, queue, field)))
                })
            });
            page.samples(definition, values)?;
        }
        Ok(())
    }

    fn hot_keys(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let Some(board) = &self.subject.hot_keys else { return Ok(()) };
        let (hottest, all) = board.hottest();
        let names: Vec<String> = hottest.iter().map(|hot_key| printable(&hot_key.key)).collect();
        let named = || names.iter().map(|name| labels::key(name)).zip(&hottest);
        let rates = named().map(|(labels, hot_key)| (labels, Number::Real(hot_key.per_second)));
        page.samples(&catalogue::HOT_KEY_RATE, rates)?;
        let errors = named().map(|(labels, hot_key)| (labels, Number::Real(hot_key.error)));
        page.samples(&catalogue::HOT_KEY_ERROR, errors)?;
        page.samples(&catalogue::HOT_KEYS_RATE, [(Labels::new(), Number::Real(all))])
    }

    fn program(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        page.sample(&catalogue::RECORDS_DROPPED, self.sum(|loops| &loops.records_dropped))?;
        page.sample(&catalogue::SLOW_REQUESTS, self.sum(|loops| &loops.slow_requests))?;
        page.sample(&catalogue::LOG_LINES, self.sums.of_log(|log| &log.written))?;
        page.sample(&catalogue::LOG_LINES_LOST, self.sums.of_log(|log| &log.lost))?;
        type TraceField = fn(&TraceCounters) -> &AtomicU64;
        let traces: [(&Definition, TraceField); 5] = [
            (&catalogue::TRACES_EXPORTED, |traces| &traces.exported),
            (&catalogue::TRACES_DROPPED, |traces| &traces.dropped),
            (&catalogue::TRACES_FAILED, |traces| &traces.failed),
            (&catalogue::TRACE_SPANS_REJECTED, |traces| &traces.rejected_spans),
            (&catalogue::TRACE_ATTEMPTS_FAILED, |traces| &traces.failed_attempts),
        ];
        for (definition, field) in traces {
            page.sample(definition, self.sums.of_traces(field))?;
        }
        page.sample(&catalogue::SCRAPE_STALE_LOOPS, self.sums.of_scrapes(|scrapes| &scrapes.stale_loops))?;
        page.sample(&catalogue::SCRAPES, self.sums.of_scrapes(|scrapes| &scrapes.scrapes))?;
        type Field = fn(&ScrapeCounters) -> &Counter;
        let closed: [(&str, Field); 3] = [
            ("timeout", |scrapes| &scrapes.closed_timeout),
            ("limit", |scrapes| &scrapes.closed_limit),
            ("size", |scrapes| &scrapes.closed_size),
        ];
        let closed = closed.map(|(reason, field)| (labels::reason(reason), Number::Whole(self.sums.of_scrapes(field))));
        page.samples(&catalogue::METRICS_CONNECTIONS_CLOSED, closed)?;
        page.sample(&catalogue::LOOPS, self.subject.tally.loops.len() as u64)?;
        let build = labels::build(env!("CARGO_PKG_VERSION"), self.subject.dispatch);
        page.samples(&catalogue::BUILD_INFO, [(build, Number::Whole(1))])?;
        let started = Number::Real(self.subject.counts.started_unix_ns as f64 / 1e9);
        page.samples(&catalogue::PROCESS_START_TIME, [(Labels::new(), started)])?;
        let (usage, process) = (clock::process_cpu(), Process::now());
        page.samples(&catalogue::PROCESS_CPU, [(Labels::new(), Number::Real(usage.user_s + usage.system_s))])?;
        let known = [
            (&catalogue::PROCESS_MEMORY, process.memory_bytes),
            (&catalogue::PROCESS_OPEN_FILES, process.open_files),
            (&catalogue::PROCESS_MAX_FILES, process.open_files_max),
        ];
        for (definition, value) in known {
            page.samples(definition, value.map(|value| (Labels::new(), Number::Whole(value))))?;
        }
        Ok(())
    }
}

impl ServerName {
    fn labels(&self) -> Labels<'_> {
        labels::backend(&self.pool, &self.address)
    }
}

/// Operations that read values, and those that need their key to be stored.
const READS_AND_KEYED: [Verb; 13] = [
    Verb::Get,
    Verb::Gets,
    Verb::Gat,
    Verb::Gats,
    Verb::Mg,
    Verb::Delete,
    Verb::Incr,
    Verb::Decr,
    Verb::Touch,
    Verb::Cas,
    Verb::Md,
    Verb::Ma,
    Verb::Me,
];

/// The outcomes with which requests fail at a backend.
const BACKEND_ERRORS: [Outcome; 6] = [
    Outcome::ClientError,
    Outcome::ServerError,
    Outcome::Timeout,
    Outcome::BackendDown,
    Outcome::BackendLost,
    Outcome::Overloaded,
];

#[cfg(test)]
mod tests;
