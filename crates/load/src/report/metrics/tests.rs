//! The served metrics are the counts handed over, and every metric is documented.

use super::*;
use crate::config::Arrivals;
use crate::measure::request::{EndedRequest, Operation};
use clock::Nanos;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;

fn part() -> Part {
    let mut part = Part::new(channel().0);
    for (operation, failed, in_window) in [
        (Operation::Get, false, true),
        (Operation::Get, false, false),
        (Operation::Set, false, true),
        (Operation::Get, true, true),
    ] {
        let counts = if in_window { &mut part.inside } else { &mut part.outside };
        counts.record(&EndedRequest {
            operation,
            intended: Nanos(1_000),
            sent: Nanos(16_000),
            completed: Nanos(91_000),
            keys: 3,
            hits: if operation == Operation::Get { 2 } else { 0 },
            request_bytes: 10,
            reply_bytes: 20,
            failed,
            message: None,
        });
    }
    part
}

fn get(metrics: &Metrics, path: &str) -> String {
    let mut stream = TcpStream::connect(metrics.address().unwrap()).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn handed_over_counts_are_served() {
    let config = Config { arrivals: Arrivals::Constant { per_s: 50.0 }, ..Config::default() };
    let metrics = Metrics::start("127.0.0.1:0", &config).unwrap();
    metrics.add(&part());
    metrics.add(&part());
    let text = get(&metrics, "/metrics");
    for line in [
        "waystage_load_requests_total{operation=\"get\"} 4",
        "waystage_load_requests_total{operation=\"set\"} 2",
        "waystage_load_errors_total{operation=\"get\"} 2",
        "waystage_load_hits_total{operation=\"get\"} 8",
        "waystage_load_misses_total{operation=\"get\"} 4",
        "waystage_load_sent_bytes_total{operation=\"get\"} 60",
        "waystage_load_received_bytes_total{operation=\"set\"} 40",
        "waystage_load_response_seconds_count{operation=\"get\"} 4",
        "waystage_load_response_seconds_bucket{le=\"0.0001\",operation=\"get\"} 4",
        "waystage_load_response_seconds_bucket{le=\"0.00005\",operation=\"get\"} 0",
        "waystage_load_service_seconds_sum{operation=\"set\"} 0.00015",
        "waystage_load_slip_seconds_bucket{le=\"0.00002\",operation=\"set\"} 2",
        "waystage_load_offered_per_second 50.0",
        "waystage_load_achieved_per_second 0.0",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("application/openmetrics-text"));
    assert!(get(&metrics, "/").starts_with("HTTP/1.0 404"));
}

#[test]
fn a_closed_loop_offers_nothing() {
    let metrics = Metrics::start("127.0.0.1:0", &Config::default()).unwrap();
    assert!(!get(&metrics, "/metrics").contains("offered"));
    let taken = metrics.address().unwrap().to_string();
    let line = Metrics::start(&taken, &Config::default()).unwrap_err();
    assert!(line.starts_with(&format!("--metrics: cannot serve on {taken}: ")) && !line.contains('\n'), "{line}");
}

#[test]
fn every_metric_is_documented() {
    let text = include_str!("../../../../../docs/load-summary.md");
    let config = Config { arrivals: Arrivals::Constant { per_s: 50.0 }, ..Config::default() };
    let shown = Snapshot::of(&RunCounts::new(&config)).render();
    for line in shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let full = if kind == "counter" { format!("`{name}_total`") } else { format!("`{name}`") };
        assert!(text.contains(&full), "{full} is not in docs/load-summary.md");
    }
}
