//! The whole proxy between clients and backends that misbehave as a seed decides. Every request is answered or failed exactly
//! once, in order, with no other client's reply and no value older than the pool's policy allows. At the end no job and no
//! buffer is left. `WAYSTAGE_SIMULATION_SEEDS=from..to` selects the scenarios. The seed of a failing one is printed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "otlp")]
#[path = "common/collector.rs"]
mod collector;
mod common;
#[path = "common/random.rs"]
mod random;
#[path = "common/reference_keys.rs"]
mod reference_keys;
#[path = "common/simulated_backend.rs"]
mod simulated_backend;
#[path = "common/simulated_client.rs"]
mod simulated_client;
#[cfg(feature = "otlp")]
#[path = "common/simulated_collector.rs"]
mod simulated_collector;
/// Without the feature, nothing is traced.
#[cfg(not(feature = "otlp"))]
#[path = "common/simulated_no_collector.rs"]
mod simulated_collector;
#[path = "common/simulated_coverage.rs"]
mod simulated_coverage;
#[path = "common/simulated_judge.rs"]
mod simulated_judge;
#[path = "common/simulated_lists.rs"]
mod simulated_lists;
#[path = "common/simulated_log.rs"]
mod simulated_log;
#[path = "common/simulated_opening.rs"]
mod simulated_opening;
#[path = "common/simulated_promise.rs"]
mod simulated_promise;
#[path = "common/simulated_requests.rs"]
mod simulated_requests;
#[path = "common/simulated_scenario.rs"]
mod simulated_scenario;
#[path = "common/simulated_settings.rs"]
mod simulated_settings;
#[path = "common/simulated_store.rs"]
mod simulated_store;

use clock::Clock;
use common::Proxy;
use proxy::{Config, Totals, start};
use random::Random;
use simulated_backend::SimulatedBackend;
use simulated_client::{Plan, SimulatedClient, Tally};
use simulated_collector::SimulatedCollector;
use simulated_coverage::{drawn_commands, drawn_events, drawn_settings, possible_commands, possible_settings, rows};
use simulated_judge::Judge;
use simulated_log::SimulatedLog;
use simulated_requests::{list_key, own_keys, shared_keys};
use simulated_scenario::Scenario;
use simulated_settings::Setting;
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SEEDS: Range<u64> = 0..60;
const COVERAGE: &str = include_str!("../../../docs/test-coverage.md");
/// The number of scenarios that run in parallel: most of a scenario is waiting.
const AT_ONCE: usize = 16;
/// The number of checks until the proxy must be idle. They are counted, not timed, because a machine may be suspended.
const LOOKS_MAX: usize = 1000;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs a scenario; returns the outcomes of all requests.
fn play(scenario: &Scenario, seed: u64) -> Result<Tally, String> {
    let backends = scenario.start(seed);
    play_before(&backends, scenario, seed).map_err(|what| {
        let sent = what.lines().find(|line| line.starts_with("  sent")).unwrap_or_default().to_string();
        let own = scenario.clients.iter().flat_map(|plan| own_keys(plan.number).chain([list_key(plan.number)]));
        let keys: Vec<String> = own.chain(shared_keys()).filter(|key| sent.contains(key.as_str())).collect();
        let mut text = what;
        for (pool, place) in backends.iter().zip(1..) {
            for (backend, number) in pool.iter().zip(1..) {
                for key in &keys {
                    let log: String =
                        backend.log(&scenario.shape.sent(key)).iter().map(|line| format!("\n    {line}")).collect();
                    text += &format!("\n  {} (pool {place}, backend {number}), {key}:{log}", backend.address);
                }
            }
        }
        text
    })
}

fn play_before(backends: &[Vec<SimulatedBackend>], scenario: &Scenario, seed: u64) -> Result<Tally, String> {
    let all_backends = || backends.iter().flatten();
    let (promises, addresses) = (scenario.promises(), scenario.addresses(backends));
    let records = tempfile::tempdir().expect("a directory for records");
    let log = SimulatedLog::default();
    let collector = SimulatedCollector::start(seed);
    let configured = |setting: &Setting| collector.listen_to(log.listen_to(setting.config(&addresses, records.path())));
    let config = configured(&scenario.setting);
    let mut proxy = Proxy::of(start(config, Clock::monotonic()).expect("the proxy starts"));
    let (mut all, mut before) = (Tally::default(), Totals { requests: 0, lost: 0, records: None });
    let address = proxy.address;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let run = |plan: &Plan| {
            let (plan, seed) = (*plan, seed ^ ((1 + plan.number as u64) << 40));
            let judge = Judge::new(plan.number, promises.clone());
            scope.spawn(move || SimulatedClient::new(address, plan, judge, seed).run())
        };
        let clients: Vec<_> = scenario.clients.iter().map(run).collect();
        if let Some((moment, setting)) = &scenario.reload {
            std::thread::sleep(*moment);
            before = go_on_with(&mut proxy, configured(setting));
        }
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let mut judges = Vec::new();
    for outcome in outcomes {
        let (tally, judge) = outcome?;
        all.add(&tally);
        judges.push(judge);
    }
    all_backends().for_each(SimulatedBackend::calm_down);
    collector.calm_down();
    wait_for_rest(&proxy)?;
    let looks: Vec<_> = std::thread::scope(|scope| {
        let look = |(plan, judge): (&Plan, Judge)| {
            let (plan, seed) = (*plan, seed);
            scope.spawn(move || SimulatedClient::new(address, plan, judge, seed).check_final_values())
        };
        let clients: Vec<_> = scenario.clients.iter().zip(judges).map(look).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for look in looks {
        all.add(&look?);
    }
    wait_for_rest(&proxy)?;
    wait_for_spans(&proxy, &collector, scenario)?;
    all.near_cache_hits = near_cache_hits(&proxy.metrics());
    let totals = proxy.stop();
    let requests = before.requests + totals.requests;
    // The proxy need not have read everything that a vanished client sent.
    let counted = all.sent - all.vanished..=all.sent;
    if before.lost + totals.lost != 0 || !counted.contains(&requests) {
        return Err(format!("{before:?} and {totals:?} of {all:?}"));
    }
    let complaints = all_backends().map(SimulatedBackend::complaint).chain([log.complaint(), collector.complaint()]);
    complaints.flatten().next().map_or(Ok(all), Err)
}

/// Reloads the configuration; returns the totals of the old proxy.
fn go_on_with(proxy: &mut Proxy, config: Config) -> Totals {
    let running = proxy.running.as_mut().expect("the proxy runs");
    let new = running.reload(config).expect("the proxy accepts the configuration");
    let mut old = std::mem::replace(running, new);
    old.wait_for_clients(|| false);
    old.stop().expect("the proxy stops without an error")
}

/// Waits until no client, request, queue entry or pending invalidation is left.
fn wait_for_rest(proxy: &Proxy) -> Result<(), String> {
    const EMPTY: [&str; 5] = [
        "waystage_clients ",
        "waystage_backend_in_flight",
        "waystage_queue_length",
        "waystage_slots_busy",
        "waystage_backend_invalidations_pending{",
    ];
    let mut left = String::new();
    for _ in 0..LOOKS_MAX {
        // After a reload one request to the metrics server may fail.
        let metrics = proxy.metrics();
        let mut gauges = metrics.lines().filter(|line| EMPTY.iter().any(|name| line.starts_with(name)));
        match gauges.find(|line| !line.ends_with(" 0")) {
            None if metrics.contains(EMPTY[0]) => return Ok(()),
            found => left = found.unwrap_or("no metrics").into(),
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(format!("{left} although all clients have gone"))
}

/// Waits until every traced request is counted as sent, dropped or given up.
fn wait_for_spans(proxy: &Proxy, collector: &SimulatedCollector, scenario: &Scenario) -> Result<(), String> {
    let mut problem = None;
    for _ in 0..LOOKS_MAX {
        problem = collector.count_problem(scenario, &proxy.metrics());
        if problem.is_none() {
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    problem.map_or(Ok(()), Err)
}

/// The requests that near-caches have answered, of all pools.
fn near_cache_hits(metrics: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with("waystage_near_cache_hits_total{"));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Runs the scenario of a seed. A panic of the proxy is a failure, too.
fn play_seed(seed: u64) -> Result<Tally, String> {
    let scenario = Scenario::from(&mut Random(seed));
    catch_unwind(AssertUnwindSafe(|| play(&scenario, seed)))
        .unwrap_or_else(|_| Err("panicked".into()))
        .map_err(|what| format!("seed {seed}: {what}\n  in {scenario:?}"))
}

/// The seeds to play. `100..200` is a range, and `17*50` the seed 17 fifty times: what threads do is not decided by a seed.
fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("WAYSTAGE_SIMULATION_SEEDS") else { return SEEDS.collect() };
    let numbers = |separator| {
        let (left, right) = text.split_once(separator)?;
        Some((left.parse().ok()?, right.parse().ok()?))
    };
    let range = numbers("..").map(|(from, to)| (from..to).collect());
    let repeated = || numbers("*").map(|(seed, times)| vec![seed; times as usize]);
    range.or_else(repeated).unwrap_or_else(|| panic!("WAYSTAGE_SIMULATION_SEEDS: {text:?} is not like 0..100 or 17*50"))
}

#[test]
fn every_request_is_answered_or_failed_exactly_once() {
    let (next, seeds) = (AtomicUsize::new(0), seeds());
    let (total, failures) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if failures.lock().unwrap().len() > 5 {
                        return;
                    }
                    if seed % 500 == 0 && seeds.len() > 500 {
                        eprintln!("at seed {seed}");
                    }
                    match play_seed(seed) {
                        Ok(tally) => total.lock().unwrap().add(&tally),
                        Err(what) => {
                            eprintln!("{what}");
                            failures.lock().unwrap().push(what);
                        }
                    }
                }
            });
        }
    });
    let (total, failures) = (total.into_inner().unwrap(), failures.into_inner().unwrap());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    eprintln!("{} scenarios: {total:?}", seeds.len());
    // A simulation in which all requests succeed, or all fail, would prove little.
    assert!(seeds.len() < 50 || (total.failed > 0 && total.answered > total.failed), "{total:?}");
    assert!(seeds.len() < 50 || total.near_cache_hits > 0, "{total:?}");
}

/// docs/test-coverage.md lists every setting and command. The column of the simulation says `drawn`, or why not.
#[test]
fn the_default_seeds_draw_what_the_table_of_coverage_says() {
    let scenarios: Vec<Scenario> = SEEDS.map(|seed| Scenario::from(&mut Random(seed))).collect();
    let events: BTreeSet<String> = drawn_events(&scenarios).iter().map(ToString::to_string).collect();
    let tables = [
        ("setting", Some(possible_settings()), drawn_settings(&scenarios)),
        ("command", Some(possible_commands()), drawn_commands(&scenarios)),
        ("event", None, events),
    ];
    for (table, possible, drawn) in tables {
        let rows = rows(COVERAGE, table, "simulation");
        if let Some(possible) = possible {
            assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), possible, "the rows for each {table}");
        }
        let is_drawn = |(name, cell): (&String, &String)| (cell == "drawn").then(|| name.clone());
        assert_eq!(
            rows.iter().filter_map(is_drawn).collect::<BTreeSet<_>>(),
            drawn,
            "the rows with \"drawn\" for each {table}"
        );
        for (name, cell) in &rows {
            let has_reason = cell == "drawn" || cell.strip_prefix("no: ").is_some_and(|reason| reason.len() > 10);
            assert!(has_reason, "{table} {name}: {cell:?} is neither drawn nor no with a reason");
        }
    }
}
