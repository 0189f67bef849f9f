//! Compares the counters of all loops with those of a moment ago, and reports what an operator must hear of: backends that go down
//! and come up, and limits that were reached. So none of it costs the event loops anything.

use crate::config::{Config, LogLevel};
use crate::observe::counters::{AcceptCounters, BackendCounters, Counter, LoopCounters, Loss};
use crate::observe::log::event::LogEvent;
use crate::observe::log::queue::LogCounters;
use crate::observe::traces::counters::TraceCounters;
use clock::Nanos;
use records::Outcome;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// After a line about something that is counted, its count is collected for so long before the next line.
const PAUSE: Duration = Duration::from_secs(10);

/// The event of lines that were lost.
pub(crate) const LOST: &str = "log_lost";

const CLIENTS: [&str; 2] = ["client was", "clients were"];
const REQUESTS: [&str; 2] = ["request was", "requests were"];

/// The backends that were reported as down, by name, and since when. All configurations of a process share it.
pub(crate) type DownBackends = Arc<Mutex<BTreeMap<String, Nanos>>>;

/// The counters, and what was last reported.
#[derive(Debug)]
pub(crate) struct Watch {
    sources: Sources,
    backends: Vec<BackendState>,
    down: DownBackends,
    counted: Vec<Counted>,
}

/// The counters of one proxy.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) loops: Vec<Arc<LoopCounters>>,
    pub(crate) accept: Arc<AcceptCounters>,
    pub(crate) log: Arc<LogCounters>,
    pub(crate) traces: Arc<TraceCounters>,
}

/// One backend, as it was last reported.
#[derive(Debug)]
struct BackendState {
    name: String,
    /// By loop.
    ejections: Vec<u64>,
}

/// Something that is counted.
#[derive(Debug)]
struct Counted {
    kind: Kind,
    reported: u64,
    /// No line before this time.
    quiet_until: Nanos,
}

/// What is counted, and how it is reported.
#[derive(Debug)]
struct Kind {
    level: LogLevel,
    event: &'static str,
    /// The subject of the sentence, after the number 1 and after other numbers.
    subject: [&'static str; 2],
    /// The rest of the sentence.
    rest: String,
    count: fn(&Sources) -> u64,
    /// What is known only when the line is written.
    detail: fn(&Sources) -> String,
}

impl Sources {
    fn sum(&self, field: impl Fn(&LoopCounters) -> &Counter) -> u64 {
        self.loops.iter().map(|counters| field(counters).get()).sum()
    }

    fn of_backends(&self, field: impl Fn(&BackendCounters) -> u64) -> u64 {
        self.loops.iter().flat_map(|counters| &counters.backends).map(field).sum()
    }

    /// One backend in each loop.
    fn backend(&self, backend: usize) -> impl Iterator<Item = &BackendCounters> {
        self.loops.iter().map(move |counters| &counters.backends[backend])
    }

    /// Why the backend was lost: the reason of a loop that has ejected it since `before`, otherwise of one in which it is down.
    fn loss(&self, backend: usize, before: &[u64]) -> Option<Loss> {
        let ejected =
            self.backend(backend).zip(before).filter(|(counters, before)| counters.ejections.get() != **before);
        let down = self.backend(backend).filter(|counters| counters.is_up.get() == 0);
        ejected.map(|(counters, _)| counters).chain(down).find_map(|counters| Loss::of_code(counters.last_loss.get()))
    }
}

impl Watch {
    /// All backends count as up, apart from those that an earlier configuration has reported as down.
    pub(crate) fn new(config: &Config, sources: Sources, down: DownBackends) -> Watch {
        let state = |name| BackendState { name, ejections: vec![0; config.loops] };
        let counted = |kind| Counted { kind, reported: 0, quiet_until: Nanos::UNSET };
        Watch {
            sources,
            backends: config.unique_backend_names().into_iter().map(state).collect(),
            down,
            counted: kinds(config).into_iter().map(counted).collect(),
        }
    }

    /// Reports what has changed. At the end, also what was collected and not reported yet. A proxy that stops closes its connections,
    /// which is no outage, and leaves the end of an outage to its successor.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        is_end: bool,
        is_stopping: impl Fn() -> bool,
        mut report: impl FnMut(LogEvent),
    ) {
        let sources = &self.sources;
        let mut down_before = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut down, mut found) = (down_before.clone(), Vec::new());
        for (index, state) in self.backends.iter_mut().enumerate() {
            // A frozen server is noticed only by loops that have requests for it, and their requests fail.
            let is_up = sources.backend(index).all(|counters| counters.is_up.get() > 0);
            let reason = sources.loss(index, &state.ejections);
            let mut was_ejected = false;
            for (known, counters) in state.ejections.iter_mut().zip(sources.backend(index)) {
                let ejections = counters.ejections.get();
                was_ejected |= std::mem::replace(known, ejections) != ejections;
            }
            // The name is copied only for a line.
            let name = &state.name;
            let is_down = |is_over| LogEvent::BackendDown { backend: name.clone(), reason, is_over };
            match (down.get(name).copied(), is_up) {
                // At the start nothing is connected, and nothing has been lost.
                (None, false) if reason.is_some() => {
                    down.insert(name.clone(), now);
                    found.push(is_down(false));
                }
                (None, true) if was_ejected => found.push(is_down(true)),
                (Some(since), true) => {
                    down.remove(name);
                    found.push(LogEvent::BackendUp { backend: name.clone(), down: now.after(since) });
                }
                _ => {}
            }
        }
        // The counters were read before: what a stop has changed is not taken.
        if !is_end && !is_stopping() {
            *down_before = down;
            found.into_iter().for_each(&mut report);
        }
        drop(down_before);
        for counted in &mut self.counted {
            let total = (counted.kind.count)(sources);
            if total > counted.reported && (is_end || now >= counted.quiet_until) {
                let count = total - counted.reported;
                let Kind { level, event, subject: [one, several], ref rest, detail, .. } = counted.kind;
                let subject = if count == 1 { one } else { several };
                let message = format!("{count} {subject} {rest}{}", detail(sources));
                report(LogEvent::Counted { level, event, count, message });
                (counted.reported, counted.quiet_until) = (total, now + PAUSE);
            }
        }
    }
}

fn kinds(config: &Config) -> Vec<Kind> {
    let warn = |event, subject, rest: &str, count| Kind {
        level: LogLevel::Warn,
        event,
        subject,
        rest: rest.into(),
        count,
        detail: |_| String::new(),
    };
    let info = |event, rest, count| Kind { level: LogLevel::Info, ..warn(event, CLIENTS, rest, count) };
    vec![
        warn(
            "clients_refused",
            CLIENTS,
            &format!("refused, because the limit clients-max, {}, was reached", config.clients_max),
            |sources| sources.accept.refused.get(),
        ),
        warn(
            "clients_refused_address",
            CLIENTS,
            &format!(
                "refused, because the limit clients-per-address, {}, was reached",
                config.client_limits.per_address
            ),
            |sources| sources.accept.refused_address.get() + sources.sum(|loops| &loops.clients_refused_address),
        ),
        warn(
            "clients_refused_binary",
            CLIENTS,
            "refused, because the proxy does not support memcached's binary protocol; configure the text protocol there",
            |sources| sources.sum(|loops| &loops.clients_refused_binary),
        ),
        warn(
            "client_auth_failed",
            ["attempt of a client", "attempts of clients"],
            "to authenticate failed, because the user or the password was wrong",
            |sources| sources.sum(|loops| &loops.client_auth_failed),
        ),
        warn(
            "client_unauthenticated",
            ["line from a client was", "lines from clients were"],
            "refused, because no user and password came first",
            |sources| sources.sum(|loops| &loops.client_unauthenticated),
        ),
        warn(
            "clients_refused_relay",
            CLIENTS,
            "refused, because proxy-protocol-from does not contain the address",
            |sources| sources.accept.refused_relay.get(),
        ),
        warn(
            "client_header_failed",
            CLIENTS,
            "closed, because no valid header of the PROXY protocol arrived in time",
            |sources| sources.sum(|loops| &loops.clients_header_failed),
        ),
        warn(
            "accept_paused",
            ["pause", "pauses"],
            "in accepting clients, because no file descriptor was left",
            |sources| sources.accept.pauses.get(),
        ),
        warn("client_tls_failed", ["TLS handshake of a client", "TLS handshakes of clients"], "failed", |sources| {
            sources.sum(|loops| &loops.clients_tls_failed)
        }),
        warn(
            "backend_tls_failed",
            ["connection to a backend was", "connections to backends were"],
            "lost, because TLS failed",
            |sources| sources.of_backends(|backend| backend.tls_failed.get()),
        ),
        warn(
            "reply_refused",
            ["reply was", "replies were"],
            "refused, because memory or client-buffer was full",
            |sources| {
                sources.sum(|loops| &loops.replies_refused_memory) + sources.sum(|loops| &loops.replies_refused_order)
            },
        ),
        warn(
            "value_refused",
            ["value from a client was", "values from clients were"],
            "refused, because memory was full",
            |sources| sources.sum(|loops| &loops.values_refused_memory),
        ),
        warn("command_refused", REQUESTS, "refused, because the listener does not allow the command", |sources| {
            sources.sum(|loops| &loops.commands_refused)
        }),
        warn("rate_limited", REQUESTS, "refused, because the pool had reached its rate-limit", |sources| {
            sources.loops.iter().map(|counters| counters.of_pools(|pool| &pool.rate_limited)).sum()
        }),
        warn(
            "overloaded",
            ["request to a backend", "requests to backends"],
            "failed, because backend-window or backend-buffer was full, or the reply exceeded reply-max",
            |sources| sources.of_backends(|backend| backend.errors[Outcome::Overloaded as usize].get()),
        ),
        warn("queue_full", REQUESTS, "refused, because a queue was full", |sources| {
            sources.loops.iter().flat_map(|counters| &counters.queues).map(|queue| queue.full.get()).sum()
        }),
        warn(
            "records_dropped",
            ["record was", "records were"],
            "dropped, because records could not be written, or were written too slowly",
            |sources| sources.sum(|loops| &loops.records_dropped),
        ),
        warn(
            "slow_requests_unlogged",
            ["more slow request was", "more slow requests were"],
            "not logged; see slow-requests-per-second",
            |sources| sources.sum(|loops| &loops.slow_requests_unlogged),
        ),
        warn(
            LOST,
            ["line of the log was", "lines of the log were"],
            "lost, because the log could not be written, or was written too slowly",
            |sources| sources.log.lost.load(Ordering::Relaxed),
        ),
        warn("traces_dropped", REQUESTS, "not traced, because traces-queue was full", |sources| {
            sources.traces.dropped.load(Ordering::Relaxed)
        }),
        warn(
            "traces_given_up",
            REQUESTS,
            "traced, but given up, because the collector has not accepted the spans",
            |sources| sources.traces.failed.load(Ordering::Relaxed),
        ),
        Kind {
            detail: |sources| sources.traces.problem(),
            ..warn(
                "traces_failed",
                ["attempt to send spans to the collector", "attempts to send spans to the collector"],
                "failed; the last reason: ",
                |sources| sources.traces.failed_attempts.load(Ordering::Relaxed),
            )
        },
        info("client_closed_idle", "closed after client-idle-timeout", |sources| {
            sources.sum(|loops| &loops.clients_closed_idle)
        }),
        info("client_closed_request", "closed after client-request-timeout", |sources| {
            sources.sum(|loops| &loops.clients_closed_request)
        }),
        info("client_closed_unread", "closed after client-unread-timeout", |sources| {
            sources.sum(|loops| &loops.clients_closed_unread)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(loops: usize) -> Watch {
        let config = Config::new("127.0.0.1:0", &["a:1".into(), "b:1".into()]);
        let loops: Vec<_> = (0..loops).map(|_| Arc::new(LoopCounters::new(1, 2, 0))).collect();
        let config = Config { loops: loops.len(), ..config };
        Watch::new(
            &config,
            Sources { loops, accept: Arc::default(), log: Arc::default(), traces: Arc::default() },
            Arc::default(),
        )
    }

    fn events(watch: &mut Watch, at_s: u64, is_end: bool) -> Vec<LogEvent> {
        let mut found = Vec::new();
        watch.look(Nanos(at_s * 1_000_000_000), is_end, || false, |event| found.push(event));
        found
    }

    #[test]
    fn a_backend_is_down_if_it_is_down_for_one_loop_and_up_again_for_all() {
        let mut watch = watch(2);
        assert_eq!(events(&mut watch, 0, false), [], "connections are not open yet");
        let loops = watch.sources.loops.clone();
        loops[0].backends[0].last_loss.set(Loss::Unreachable as u64);
        let reason = Some(Loss::Unreachable);
        assert_eq!(
            events(&mut watch, 0, false),
            [LogEvent::BackendDown { backend: "a:1".into(), reason, is_over: false }],
            "it was never up"
        );
        for counters in &loops {
            counters.backends.iter().for_each(|backend| backend.connection_up(0, 1));
        }
        let up = LogEvent::BackendUp { backend: "a:1".into(), down: Duration::from_secs(1) };
        assert_eq!(events(&mut watch, 1, false), [up]);
        let down = |is_over| LogEvent::BackendDown { backend: "b:1".into(), reason: Some(Loss::Timeout), is_over };
        let [first, second] = [0, 1].map(|index: usize| &loops[index].backends[1]);
        first.last_loss.set(Loss::Timeout as u64);
        second.last_loss.set(Loss::Lost as u64);
        first.connection_up(1, 0);
        assert_eq!(events(&mut watch, 2, false), [down(false)]);
        second.connection_up(1, 0);
        assert_eq!(events(&mut watch, 3, false), []);
        first.connection_up(0, 1);
        assert_eq!(events(&mut watch, 4, false), []);
        second.connection_up(0, 1);
        let up = LogEvent::BackendUp { backend: "b:1".into(), down: Duration::from_secs(3) };
        assert_eq!(events(&mut watch, 5, false), [up]);
        first.connection_up(1, 0);
        first.connection_up(0, 1);
        assert_eq!(events(&mut watch, 6, false), [down(true)]);
        assert_eq!(events(&mut watch, 7, false), []);
    }

    #[test]
    fn a_proxy_that_stops_leaves_the_end_of_an_outage_to_its_successor() {
        let mut watch = watch(1);
        let backend = watch.sources.loops[0].clone();
        backend.backends[0].last_loss.set(Loss::Lost as u64);
        assert_eq!(events(&mut watch, 0, false).len(), 1);
        backend.backends[0].connection_up(0, 1);
        watch.look(Nanos(1_000_000_000), false, || true, |event| panic!("{event:?}"));
        assert_eq!(events(&mut watch, 2, true), []);
        let down: Vec<String> = watch.down.lock().unwrap().keys().cloned().collect();
        assert_eq!(down, ["a:1"], "the successor reports that it is up");
    }

    #[test]
    fn a_limit_that_is_reached_all_the_time_has_a_line_in_ten_seconds() {
        let mut watch = watch(1);
        let mut counts = Vec::new();
        for second in 0..25 {
            watch.sources.accept.refused.add(10);
            for event in events(&mut watch, second, second == 24) {
                let LogEvent::Counted { event, count, message, .. } = event else { panic!("{event:?}") };
                assert!(event == "clients_refused" && message.starts_with(&format!("{count} clients were refused")));
                counts.push(count);
            }
        }
        assert_eq!(counts, [10, 100, 100, 40]);
    }
    #[test]
    fn a_line_about_one_thing_is_in_the_singular() {
        let mut watch = watch(1);
        let message = |watch: &mut Watch, at_s| match events(watch, at_s, false).as_slice() {
            [LogEvent::Counted { message, .. }] => message.clone(),
            other => panic!("{other:?}"),
        };
        watch.sources.accept.refused.add(1);
        assert!(message(&mut watch, 0).starts_with("1 client was refused, because the limit clients-max, "));
        watch.sources.accept.refused.add(2);
        assert!(message(&mut watch, 20).starts_with("2 clients were refused, because the limit clients-max, "));
        for Kind { subject: [one, several], event, .. } in watch.counted.iter().map(|counted| &counted.kind) {
            assert_ne!(one, several, "{event}");
        }
    }
}
