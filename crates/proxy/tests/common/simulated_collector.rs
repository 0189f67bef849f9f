//! The collector of spans of the simulation. Until it calms down, it does something wrong with most messages.

use super::collector::{Collector, Reply, is_request, spans_of, status, took};
use super::random::Random;
use super::simulated_scenario::Scenario;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use proxy::Config;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a stalled reply checks whether it may end.
const POLL: Duration = Duration::from_millis(10);

/// A collector that misbehaves.
pub(crate) struct SimulatedCollector {
    collector: Collector,
    is_calm: Arc<AtomicBool>,
}

impl SimulatedCollector {
    pub(crate) fn start(seed: u64) -> SimulatedCollector {
        let is_calm = Arc::<AtomicBool>::default();
        let calm = is_calm.clone();
        let collector = Collector::start(move |number| {
            let choice = Random(seed ^ ((number as u64) << 20)).below(8);
            if calm.load(Ordering::SeqCst) {
                return status("200 OK", b"");
            }
            match choice {
                0 => Reply::Close,
                1 => Reply::Bytes(b"\x15\x03\x01 no HTTP\r\n\r\n".to_vec()),
                2 => status("503 Busy\r\nRetry-After: 1", b""),
                3 => status("400 Bad Request", b"no"),
                4 => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut".to_vec()),
                5 => {
                    while !calm.load(Ordering::SeqCst) {
                        std::thread::sleep(POLL);
                    }
                    status("200 OK", b"")
                }
                _ => status("200 OK", b""),
            }
        });
        SimulatedCollector { collector, is_calm }
    }

    /// Lets this configuration, if it traces, send its spans here.
    pub(crate) fn listen_to(&self, mut config: Config) -> Config {
        config.traces.iter_mut().for_each(|traces| traces.url.clone_from(&self.collector.url));
        config
    }

    /// Accepts everything from now on.
    pub(crate) fn calm_down(&self) {
        self.is_calm.store(true, Ordering::SeqCst);
    }

    /// What is wrong with the counters of a proxy that rests: none if every sampled request is counted once.
    pub(crate) fn count_problem(&self, scenario: &Scenario, metrics: &str) -> Option<String> {
        let sum = |name: &str| -> u64 {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        let [exported, dropped, failed] =
            ["exported", "dropped", "failed"].map(|name| sum(&format!("waystage_traces_{name}_total ")));
        let (requests, accepted) = (sum("waystage_requests_total{"), self.accepted());
        let traces = || scenario.settings().map(|setting| &setting.file);
        let ended = exported + dropped + failed;
        let is_right = match () {
            () if traces().all(|file| file.traces.is_none()) => ended == 0,
            () if traces().all(|file| file.traces.is_some() && file.traces_sample == Some(1)) => ended == requests,
            () => ended <= requests,
        };
        let problem = format!(
            "{exported} exported, {dropped} dropped, {failed} failed of {requests} requests; {accepted} accepted"
        );
        (!is_right || exported > accepted).then_some(problem)
    }

    fn accepted(&self) -> u64 {
        self.collector.accepted.load(Ordering::SeqCst) as u64
    }

    /// What is wrong with the spans that have arrived.
    pub(crate) fn complaint(&self) -> Option<String> {
        let messages = self.collector.messages.lock().unwrap();
        messages.iter().find_map(|message| complaint(&spans_of(message).collect::<Vec<_>>()))
    }
}

/// What is wrong with the spans of a message: the stages of each request must add up to it, and its legs lie within it.
fn complaint(spans: &[&Span]) -> Option<String> {
    let mut ids = HashSet::new();
    let requests: HashMap<&[u8], &Span> =
        spans.iter().filter(|span| is_request(span)).map(|span| (&*span.span_id, *span)).collect();
    let mut stages: HashMap<&[u8], u64> = HashMap::new();
    for span in spans {
        let parent = if is_request(span) { Some(span) } else { requests.get(&*span.parent_span_id) };
        let is_within = parent.is_some_and(|parent| {
            parent.trace_id == span.trace_id
                && parent.start_time_unix_nano <= span.start_time_unix_nano
                && span.end_time_unix_nano <= parent.end_time_unix_nano
        });
        if !ids.insert(&span.span_id) || !is_within || span.start_time_unix_nano > span.end_time_unix_nano {
            return Some(format!("{span:?} of {parent:?}"));
        }
        if span.kind() == SpanKind::Internal {
            *stages.entry(&span.parent_span_id).or_default() += took(span);
        }
    }
    let other = requests.iter().find(|(id, span)| stages.get(*id).copied().unwrap_or(0) != took(span));
    other.map(|(_, span)| format!("the stages are not the time of {span:?}"))
}
