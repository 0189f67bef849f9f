//! The closed loop: how many requests are in flight, when they are intended, and which records they leave.

mod support;

use load::{Config, Progress, ThinkTime};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{TinyServer, config, run};

#[test]
fn a_budget_is_kept_exactly() {
    let server = TinyServer::healthy();
    for (threads, pipeline) in [(1, 1), (2, 3)] {
        let summary = run(&Config { requests: Some(1_000), threads, pipeline, ..config(&server) });
        assert!(summary.valid, "{:?}", summary.reasons);
        let totals = &summary.totals;
        assert_eq!((totals.requests, totals.requests_sent, totals.requests_answered), (1_000, 1_000, 1_000));
        assert_eq!(summary.settings.test_time_s, None);
    }
}

#[test]
fn the_interactive_law_holds() {
    let server = TinyServer::healthy();
    for (think_time, think_s) in [
        (ThinkTime::NONE, 0.0),
        (ThinkTime::fixed(Duration::from_millis(5)), 0.005),
        (ThinkTime::exponential(Duration::from_millis(5)), 0.005),
    ] {
        let test_time = Duration::from_millis(1_000);
        let warm_up = Duration::from_millis(100);
        let summary =
            run(&Config { think_time: think_time.clone(), test_time, warm_up, pipeline: 2, ..config(&server) });
        assert!(summary.valid, "{:?}", summary.reasons);
        let response_s = summary.operations.all.response.mean_ns / 1e9;
        let in_loop = summary.throughput_per_s * (response_s + think_s);
        // A request in flight at an edge of the window counts in only one of X and R. On a slow machine these are many.
        let at_the_edges = 8.0 * summary.operations.all.response.max_ns as f64 / 1e9 / summary.measured_s;
        assert!(
            (in_loop - 8.0).abs() < 0.8 + at_the_edges,
            "{think_time}: N = 4 clients with 2 each, X(R+Z) = {in_loop}"
        );
    }
}

#[test]
fn the_warm_up_is_not_measured_and_seconds_add_up() {
    let server = TinyServer::healthy();
    let config = Config { warm_up: Duration::from_secs(1), test_time: Duration::from_millis(1_500), ..config(&server) };
    let mut live = 0;
    let watch = &mut |progress: Progress<'_>| live += u64::from(matches!(progress, Progress::Second(_)));
    let summary = load::run(&config, &clock::Clock::monotonic(), &AtomicBool::new(false), watch).unwrap();
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!(live, 2);
    assert_eq!(summary.measured_s, 1.5);
    assert_eq!(summary.seconds.iter().map(|second| second.measured).take(3).collect::<Vec<_>>(), [false, true, false]);
    let in_seconds: u64 = summary.seconds.iter().map(|second| second.requests).sum();
    assert_eq!(in_seconds, summary.totals.requests_answered);
    assert!(summary.totals.requests < in_seconds);
    assert_eq!(summary.totals.requests_sent, summary.totals.requests_answered);
}

#[test]
fn records_contain_every_request_once_and_in_order() {
    let server = TinyServer::healthy();
    let directory = tempfile::tempdir().unwrap();
    let records = Some(directory.path().to_owned());
    let summary = run(&Config { records, sample: 1, threads: 2, pipeline: 2, ..config(&server) });
    let reader = support::records(directory.path());
    assert_eq!(reader.header.stamps, ["intended", "issued", "sent", "completed"]);
    assert_eq!(reader.len() as u64, summary.totals.requests_answered);
    let mut next = [0; 4];
    let (mut sum_ns, mut count) = (0, 0);
    for (row, stamps) in reader.rows() {
        assert_eq!(row.sequence, next[row.connection as usize], "connection {}", row.connection);
        next[row.connection as usize] += 1;
        assert_eq!((row.outcome, row.legs, row.keys, row.backend), (0, 1, 1, 0));
        assert!(row.port > 0 && row.request_bytes > 0 && row.reply_bytes > 0);
        if (summary.measure_from_clock_ns..summary.measure_to_clock_ns).contains(&stamps[3]) {
            sum_ns += stamps[3] - stamps[0];
            count += 1;
        }
    }
    assert_eq!(count, summary.totals.requests);
    assert_eq!(sum_ns as f64 / count as f64, summary.operations.all.response.mean_ns);
}

#[test]
fn several_servers_are_taken_in_turn() {
    let server = TinyServer::healthy();
    let name = server.address.to_string();
    let directory = tempfile::tempdir().unwrap();
    let records = Some(directory.path().to_owned());
    let summary = run(&Config { servers: vec![name.clone(), name], records, sample: 1, ..config(&server) });
    assert!(summary.valid, "{:?}", summary.reasons);
    for (row, _) in support::records(directory.path()).rows() {
        assert_eq!(u32::from(row.backend), row.connection % 2);
    }
}
