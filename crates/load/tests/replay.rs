//! Replay of a recorded trace: every row once, in the order of each key, at its time, and verified.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use load::trace::{Timing, TraceConfig};
use load::{Config, LoadError, Protocol, Summary};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use testkit::Server;

fn config(server: &Server, path: &Path, timing: Timing) -> Config {
    Config {
        servers: vec![server.address().to_string()],
        trace: Some(TraceConfig { timing, ..TraceConfig::new(path) }),
        clients: 8,
        threads: 2,
        pipeline: 4,
        warm_up: Duration::ZERO,
        test_time: Duration::MAX,
        ..Config::default()
    }
}

/// Every operation on some keys, each of which is set, read, changed and removed repeatedly.
fn all_operations(rows: usize) -> String {
    let operations =
        ["set", "get", "gets", "replace", "append", "get", "prepend", "delete", "add", "cas", "get", "delete", "get"];
    let mut text = String::new();
    for row in 0..rows {
        let key = row % 37;
        let operation = operations[row / 37 % operations.len()];
        let bytes = 20 + key * 50;
        writeln!(text, "{}.{:03},key-{key},6,{bytes},{key},{operation},0", row / 1000, row % 1000).unwrap();
    }
    text
}

fn replayed(text: &str, timing: Timing, change: impl FnOnce(&mut Config)) -> Result<Summary, LoadError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    let server = Server::start();
    let mut config = config(&server, &path, timing);
    change(&mut config);
    support::try_run(&config)
}

#[test]
fn every_row_is_sent_once_in_the_order_of_its_key() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        let summary = replayed(&all_operations(4810), Timing::Max, |config| config.protocol = protocol).unwrap();
        assert!(summary.valid && summary.errors.is_empty(), "{:?} {:?}", summary.reasons, summary.errors);
        assert_eq!(summary.totals.requests, 4810);
        // Five of thirteen operations are reads, the last of them of a removed key. In another order there would be
        // more misses.
        assert_eq!((summary.operations.get.count, summary.operations.get.misses), (1850, 370), "{protocol:?}");
    }
}

#[test]
fn rows_are_due_at_the_times_of_the_trace() {
    let text: String =
        (0..500).map(|row| format!("{}.{:03},k{row},4,100,1,set,0\n", row / 1000, row * 2 % 1000)).collect();
    for (timing, expected_s) in [(Timing::Original, 0.998), (Timing::Scaled(4.0), 0.2495)] {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().to_path_buf();
        let change = |config: &mut Config| (config.records, config.sample) = (Some(records.clone()), 1);
        let summary = replayed(&text, timing, change).unwrap();
        assert_eq!(summary.totals.requests, 500);
        assert!(summary.settings.is_open());
        let mut intended: Vec<u64> = support::records(&records).rows().map(|(_, stamps)| stamps[0]).collect();
        intended.sort_unstable();
        // Intended times are those of the trace to the nanosecond; the slip is the difference to the time of sending.
        let gap_ns = (expected_s / 499.0 * 1e9) as u64;
        for (row, at) in intended.iter().enumerate() {
            assert!((at - intended[0]).abs_diff(row as u64 * gap_ns) < 2 * row as u64 + 2, "{row}");
        }
    }
}

#[test]
fn small_values_are_numbers_and_foreign_values_are_found() {
    let counted = "0,n,1,5,1,set,0\n0,n,1,5,1,incr,0\n0,n,1,5,1,decr,0\n0,n,1,5,1,get,0\n";
    let summary = replayed(counted, Timing::Max, |_| ()).unwrap();
    assert!(summary.errors.is_empty() && summary.totals.requests == 4, "{:?}", summary.errors);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    std::fs::write(&path, "0,theirs,6,40,1,get,0\n").unwrap();
    let server = Server::start();
    let mut other = testkit::Client::connect(server.address());
    other.ask(format!("set theirs 0 0 40\r\n{}\r\n", "x".repeat(40)), "STORED\r\n");
    let summary = support::run(&config(&server, &path, Timing::Max));
    assert!(
        !summary.valid && summary.verification.wrong + summary.verification.torn == 1,
        "{:?}",
        summary.verification
    );
}

#[test]
fn a_malformed_row_is_one_line_and_the_run_so_far_is_kept() {
    let line = replayed("0,k,1,5,1,set,0\n0,k,1,x,1,get,0\n", Timing::Original, |_| ()).unwrap_err().to_string();
    assert!(line.contains("trace.csv:2: ") && !line.contains('\n'), "{line}");
    let late = (0..30).map(|row| format!("{}.{}00,k,1,5,1,set,0\n", row / 10, row % 10)).collect::<String>()
        + "3,k,1,x,1,get,0\n";
    let summary = replayed(&late, Timing::Max, |_| ());
    match summary {
        Ok(summary) => {
            assert!(!summary.valid && summary.reasons[0].contains("trace.csv:31: "), "{:?}", summary.reasons)
        }
        Err(error) => assert!(error.to_string().contains("trace.csv:31: ")),
    }
}
