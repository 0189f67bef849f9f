//! The search for saturation on a cache with a configured service time, so that theory predicts its capacity.
//!
//! `cargo test -p load --test saturate -- --ignored` does a whole search, on a machine that does nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use cache::ServiceTime;
use clock::Clock;
use load::saturate::{
    Finding, LoadProbe, Objective, ObjectiveOutcome, ProbeReport, Quantity, SearchConfig, SearchEvent, search,
};
use load::{Arrivals, Config};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Far above the response times of a server that keeps up, so that a slow machine changes nothing.
const GENEROUS: Objective = Objective { quantity: Quantity::Percentile(75.0), time_ns: 400_000_000 };

/// Searches on a cache with exponential service times and this many workers.
fn searched(
    (mean, workers): (Duration, usize),
    clients: (usize, usize),
    config: &SearchConfig,
    stop: &AtomicBool,
) -> (Finding, Vec<ProbeReport>) {
    let service_time = ServiceTime::Exponential(mean);
    let cache = cache::Config { service_time, workers, ..cache::Config::default() };
    let cache = cache::start(&cache, Clock::monotonic()).unwrap();
    let load = Config {
        servers: vec![cache.address().to_string()],
        arrivals: Arrivals::Poisson { per_s: 1.0 },
        clients: clients.0,
        pipeline: clients.1,
        ratio_set: 0,
        key_maximum: 99,
        prefill: false,
        warm_up: Duration::from_secs(1),
        ..Config::default()
    };
    let clock = Clock::monotonic();
    let mut probe = LoadProbe::new(load, &config.objectives, &clock, stop);
    let once = config.extensions_max == 0;
    let found = search(config, &mut probe, &mut |event| {
        if matches!(event, SearchEvent::Ended(_)) {
            stop.store(once, Ordering::Relaxed);
        }
    });
    cache.stop();
    cache.join().unwrap();
    found
}

/// The first run of a search that starts at this rate.
fn first_run(mean: Duration, workers: usize, clients: (usize, usize), rate_per_s: f64) -> ProbeReport {
    let config = SearchConfig {
        objectives: vec![GENEROUS],
        start_per_s: rate_per_s,
        rate_max_per_s: 1e6,
        precision: 0.05,
        probe: Duration::from_secs(4),
        extensions_max: 0,
        confidence: 0.95,
    };
    searched((mean, workers), clients, &config, &AtomicBool::new(false)).1.remove(0)
}

#[test]
fn a_rate_well_below_the_capacity_is_met() {
    // One worker with 4 ms per request serves 250 per second. At 100 per second, three of four responses take less than
    // 10 ms.
    let run = first_run(Duration::from_millis(4), 1, (50, 4), 100.0);
    // On a slow machine the seconds may differ too much for a decision, but the server is not at fault.
    assert!(matches!(run.outcome, ObjectiveOutcome::Met | ObjectiveOutcome::Undecided), "{run:#?}");
    assert!(run.judgements[0].estimate < 0.25, "{run:#?}");
    assert!((60.0..140.0).contains(&run.achieved_per_s), "{run:#?}");
}

#[test]
fn a_rate_above_the_capacity_is_missed() {
    let run = first_run(Duration::from_millis(4), 1, (50, 4), 500.0);
    assert_eq!(run.outcome, ObjectiveOutcome::Missed, "{run:#?}");
    assert!(run.achieved_per_s < 300.0, "{run:#?}");
}

#[test]
fn a_generator_with_too_few_connections_is_the_limit_and_not_the_server() {
    // Eight workers could serve 400 per second, but one connection with one request in flight sends at most 50.
    // A rate that leaves time in the window for requests that are due in it, even on a slow machine.
    let run = first_run(Duration::from_millis(20), 8, (1, 1), 100.0);
    assert_eq!(run.outcome, ObjectiveOutcome::GeneratorLimited, "{run:#?}");
    assert!(run.note.unwrap().contains("--clients"));
}

#[test]
fn settings_that_a_search_cannot_use_are_rejected() {
    let config = Config { servers: vec!["127.0.0.1:1".into()], ..Config::default() };
    assert_eq!(LoadProbe::check(&config), Ok(()));
    for (changed, flag) in [
        (Config { requests: Some(10), ..config.clone() }, "--requests"),
        (Config { test_time: Duration::from_secs(2), ..config.clone() }, "--test-time"),
        (Config { records: Some("records".into()), ..config.clone() }, "--records"),
        (Config { clients: 0, ..config }, "--clients"),
    ] {
        assert!(LoadProbe::check(&changed).unwrap_err().contains(flag));
    }
}

#[test]
fn a_server_that_is_gone_ends_the_search() {
    let config = SearchConfig {
        objectives: vec![GENEROUS],
        start_per_s: 100.0,
        rate_max_per_s: 1e6,
        precision: 0.05,
        probe: Duration::from_secs(4),
        extensions_max: 0,
        confidence: 0.95,
    };
    let load = Config { servers: vec!["127.0.0.1:1".into()], ..Config::default() };
    let (clock, stop) = (Clock::monotonic(), AtomicBool::new(false));
    let mut probe = LoadProbe::new(load, &config.objectives, &clock, &stop);
    let (finding, probes) = search(&config, &mut probe, &mut |_| ());
    assert!(probes.is_empty() && !finding.confirmed);
    assert!(finding.reasons[0].contains("127.0.0.1:1"), "{finding:?}");
}

#[test]
#[ignore = "takes some minutes, and a machine that does nothing else"]
fn the_rate_that_theory_predicts_is_found() {
    // The response time of M/M/1 is exponential with rate capacity - arrivals: 95 % are within 20 ms up to
    // 500 - ln(20) / 0.02 = 350 per second.
    let objective = Objective { quantity: Quantity::Percentile(95.0), time_ns: 20_000_000 };
    let config = SearchConfig {
        objectives: vec![objective],
        start_per_s: 100.0,
        rate_max_per_s: 1e6,
        precision: 0.05,
        probe: Duration::from_secs(10),
        extensions_max: 2,
        confidence: 0.95,
    };
    let stop = AtomicBool::new(false);
    let (finding, probes) = searched((Duration::from_millis(2), 1), (100, 4), &config, &stop);
    let rate = finding.rate_per_s.unwrap();
    assert!((0.88..1.12).contains(&(rate / 350.2)), "{finding:#?} {probes:#?}");
}
