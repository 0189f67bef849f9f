//! Records of a simulation: every row conforms to the format, and the rows of one request can be joined.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{model, run_with, settings, within};
use records::{PARENT, Reader};
use serde_json::json;
use simulate::{Model, Settings, Simulation};
use std::collections::HashMap;
use std::path::Path;

fn forked() -> Model {
    model(json!({
        "classes": [
            {"name": "get", "population": 6, "think": 0.5},
            {"name": "set", "arrivals_per_s": 1.0},
        ],
        "stations": [
            {"name": "net", "service": {"get": 0.1, "set": 0.1}, "servers": "infinite"},
            {"name": "work", "service": {"get": 0.2, "set": 0.1}, "servers": 3},
            {"name": "x", "service": {"set": 0.1}, "capacity": 2, "when_full": "block"},
            {"name": "y", "service": {"set": 0.1}},
        ],
        "forks": [{"name": "both", "branches": ["x", "y"]}],
        "pools": [{"name": "slots", "slots": 4, "inside": ["work", "both"]}],
        "visits": {"get": {"net": 1, "work": 1}, "set": {"net": 1, "work": 1, "both": 1}},
        "stamps": {
            "received": "enter net",
            "enqueued": "leave net",
            "dispatched": "acquire slots",
            "sent": "start work",
            "answered": "leave work",
            "replied": "release slots",
        },
    }))
}

fn written(directory: &Path, sample: u32) -> Simulation {
    let settings = Settings {
        records: Some((directory.to_owned(), sample)),
        replications: 2,
        requests: Some(20_000),
        warm_up: Some(1000),
        ..settings()
    };
    run_with(&forked(), &settings)
}

type Key = (u16, u32);

/// Rows by port and sequence.
fn rows(directory: &Path, name: &str) -> HashMap<Key, Vec<(records::Row, Vec<u64>)>> {
    let reader = Reader::open(&directory.join(name), false).unwrap();
    assert_eq!((reader.dropped, reader.lost, reader.header.clock.as_str()), (0, 0, "simulated"));
    assert_eq!((reader.header.started_clock_ns, reader.header.started_unix_ns), (0, 0));
    let mut rows: HashMap<Key, Vec<_>> = HashMap::new();
    for (row, stamps) in reader.rows() {
        rows.entry((row.port, row.sequence)).or_default().push((row, stamps));
    }
    rows
}

#[test]
fn rows_can_be_joined() {
    let directory = tempfile::tempdir().unwrap();
    let result = written(directory.path(), 1);
    let load = rows(directory.path(), "load-0.way");
    let stations: Vec<_> = (0..4).map(|index| rows(directory.path(), &format!("cache-{index}.way"))).collect();
    let proxy = rows(directory.path(), "proxy-0.way");
    let total: usize = stations.iter().chain([&load, &proxy]).flat_map(HashMap::values).map(Vec::len).sum();
    let summary = result.records.unwrap();
    assert_eq!((summary.rows as usize, summary.files.len()), (total, 6));
    assert!(load.len() >= 21_000);
    for (key, request) in &load {
        assert_eq!(request.len(), 1, "port and sequence name one request");
        let (row, stamps) = &request[0];
        let (began, ended) = (stamps[0], stamps[3]);
        assert_eq!(stamps[..3], [began; 3]);
        let is_set = row.operation == 5;
        assert!(is_set || row.operation == 1);
        assert_eq!(stations[0][key].len(), 1);
        assert_eq!(stations[0][key][0].1[0], began, "it enters the network immediately");
        assert_eq!(proxy[key][0].1[7], ended, "the slot is freed at the end");
        assert_eq!(proxy[key][0].1[0], began);
        assert_eq!(proxy[key][0].1[1], began, "a stage without event has the stamp before");
        let work = &stations[1][key][0];
        assert_eq!(proxy[key][0].1[5], work.1[1]);
        assert_eq!((work.0.r#loop, work.0.leg), (1, PARENT));
        if is_set {
            let legs = [&stations[2][key][0], &stations[3][key][0]];
            assert_eq!([legs[0].0.leg, legs[1].0.leg, legs[0].0.legs], [0, 1, 2]);
            assert_eq!(legs[0].1[3].max(legs[1].1[3]), ended, "joined when the last leg is done");
        } else {
            assert!(work.1[3] == ended && !stations[2].contains_key(key));
        }
    }
}

/// Means from the rows are those of the result.
#[test]
fn records_agree_with_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let result = written(directory.path(), 1);
    let summary = result.records.as_ref().unwrap();
    let from_ns = (summary.measured_from_s * 1e9) as u64;
    let load = rows(directory.path(), "load-0.way");
    let measured = load.values().flatten().filter(|(row, stamps)| row.operation == 1 && stamps[3] > from_ns);
    let times_s: Vec<f64> = measured.map(|(_, stamps)| (stamps[3] - stamps[0]) as f64 / 1e9).collect();
    let mean_s = times_s.iter().sum::<f64>() / times_s.len() as f64;
    within(mean_s, result.classes[0].response_s.mean.unwrap(), 0.02);
    let rate = times_s.len() as f64 / (summary.measured_to_s - summary.measured_from_s);
    within(rate, result.classes[0].throughput_per_s.mean.unwrap(), 0.03);
}

#[test]
fn the_same_requests_are_sampled_at_every_station() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), 10);
    let load = rows(directory.path(), "load-0.way");
    assert!((1800..2500).contains(&load.len()), "{}", load.len());
    let network = rows(directory.path(), "cache-0.way");
    assert!(load.keys().all(|key| network.contains_key(key)));
}

#[test]
fn records_do_not_change_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let with = written(directory.path(), 1);
    let settings = Settings { replications: 2, requests: Some(20_000), warm_up: Some(1000), ..settings() };
    let without = run_with(&forked(), &settings);
    assert_eq!(with.classes[0].response_s, without.classes[0].response_s);
    let again = tempfile::tempdir().unwrap();
    written(again.path(), 1);
    for name in ["load-0.way", "cache-2.way", "proxy-0.way"] {
        assert_eq!(
            std::fs::read(directory.path().join(name)).unwrap(),
            std::fs::read(again.path().join(name)).unwrap(),
            "the same seed writes the same bytes"
        );
    }
}

#[test]
fn a_directory_that_cannot_be_created_is_named() {
    let settings = Settings { records: Some(("/proc/nowhere".into(), 1)), ..settings() };
    assert!(common::refused(&forked(), &settings).contains("/proc/nowhere"));
}
