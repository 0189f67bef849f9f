//! The counts of a run add up: over seconds, over intended requests, and over the parts handed over during the run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use clock::Clock;
use load::{Arrivals, Config, Metrics, Progress, Summary};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{Fault, TinyServer, config};

fn open(server: &TinyServer, per_s: f64) -> Config {
    let (warm_up, test_time) = (Duration::from_millis(300), Duration::from_millis(1_200));
    let arrivals = Arrivals::Poisson { per_s };
    Config { arrivals, threads: 2, warm_up, test_time, expect_hit_ratio: None, ..config(server) }
}

/// Every intended request was answered, failed or was never sent.
fn assert_adds_up(summary: &Summary) {
    let totals = &summary.totals;
    let (intended, unsent) = (totals.intended.unwrap(), totals.unsent.unwrap());
    assert_eq!(intended, totals.requests + totals.errors + unsent, "{totals:?}");
    let lateness = summary.lateness.as_ref().unwrap();
    assert!(lateness.max_ns <= summary.measured_s as u64 * 1_000_000_000 + 2_000_000_000, "{lateness:?}");
    let sum = |field: fn(&load::Second) -> u64| summary.seconds.iter().map(field).sum::<u64>();
    assert!(sum(|second| second.intended.unwrap()) >= intended);
    assert_eq!(sum(|second| second.requests + second.errors), totals.requests_answered);
    assert!(totals.completed <= totals.requests_answered);
}

#[test]
fn every_intended_request_is_accounted_for() {
    let server = TinyServer::start(|seen| match seen.number % 50 {
        7 if seen.is_load() => Fault::Line("SERVER_ERROR busy"),
        _ => Fault::None,
    });
    let summary = support::run(&Config { failed_max: 0.5, ..open(&server, 500.0) });
    assert_adds_up(&summary);
    assert_eq!(summary.totals.unsent, Some(0));
    assert!(summary.totals.errors > 0 && summary.notes.iter().any(|note| note.contains("requests failed")));
}

#[test]
fn a_number_of_requests_after_a_warm_up_is_measured_exactly() {
    let server = TinyServer::healthy();
    let warm_up = Duration::from_millis(300);
    for arrivals in [Arrivals::Closed, Arrivals::Poisson { per_s: 2_000.0 }] {
        let config =
            Config { requests: Some(300), warm_up, arrivals, pipeline: 16, threads: 2, clients: 4, ..config(&server) };
        let summary = support::run(&config);
        let totals = &summary.totals;
        assert_eq!((totals.requests, totals.completed, totals.errors), (300, 300, 0));
        assert!(totals.requests_sent >= 300, "{totals:?}");
    }
}

#[test]
fn a_rate_out_of_reach_is_invalid() {
    // One connection with replies after more than a millisecond cannot serve ten thousand requests per second.
    let server = TinyServer::start(|seen| {
        if seen.is_load() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Fault::None
    });
    let summary = support::run(&Config { clients: 2, ..open(&server, 10_000.0) });
    assert_adds_up(&summary);
    assert!(summary.totals.unsent.unwrap() > 1_000, "{:?}", summary.totals);
    assert!(
        summary.reasons.iter().any(|reason| reason.starts_with("the rate was not reached")),
        "{:?}",
        summary.reasons
    );
    assert!(!summary.valid && summary.totals.achieved_share.unwrap() < 0.5);
}

#[test]
fn handed_over_parts_add_up_to_the_summary() {
    let server = TinyServer::healthy();
    let config = Config { test_time: Duration::from_millis(1_800), ..config(&server) };
    let metrics = Metrics::start("127.0.0.1:0", &config).unwrap();
    let mut seconds = Vec::new();
    let watch = &mut |progress: Progress<'_>| match progress {
        Progress::Part(part) => metrics.add(part),
        Progress::Second(second) => {
            metrics.second(second);
            seconds.push(second.requests);
        }
        Progress::Prefill { .. } | Progress::Stage { .. } | Progress::Note(_) => {}
    };
    let summary = load::run(&config, &Clock::monotonic(), &AtomicBool::new(false), watch).unwrap();
    let mut stream = TcpStream::connect(metrics.address().unwrap()).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let requests = |operation: &str| -> u64 {
        let name = format!("waystage_load_requests_total{{operation=\"{operation}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    };
    assert!(!seconds.is_empty());
    assert_eq!(requests("get") + requests("set"), seconds.iter().sum::<u64>());
    assert_eq!(summary.seconds.iter().take(seconds.len()).map(|second| second.requests).collect::<Vec<_>>(), seconds);
}
