//! Near saturation: whether there is an interval, and how often it contains the truth, for means and quantiles of M/M/1.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; the figures are its result"
)]

mod common;

use common::{open, refused, run_with, settings};
use serde_json::json;
use simulate::{Model, Settings, Simulation};

/// Of many campaigns on M/M/1, the share with an interval and the share of these that contain the truth.
struct Coverage {
    what: String,
    campaigns: usize,
    given: usize,
    covered: usize,
}

/// The quantiles whose intervals are judged.
const JUDGED: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Campaigns between two reports of the counts.
const SHOW_EVERY: u64 = 10;

/// Campaigns with one seed each. The response time of M/M/1 with mean service 1 is exponential.
fn coverage(load: f64, campaigns: usize, settings: &Settings) -> Vec<Coverage> {
    let model = open(load, json!({"service": {"request": 1.0}}));
    let mean_s = 1.0 / (1.0 - load);
    let row = |what| Coverage { what, campaigns, given: 0, covered: 0 };
    let quantiles = JUDGED.iter().map(|share| row(format!("p{}", 100.0 * share)));
    let mut rows: Vec<Coverage> = std::iter::once(row("mean".into())).chain(quantiles).collect();
    for seed in 0..campaigns as u64 {
        if seed > 0 && seed % SHOW_EVERY == 0 {
            show(load, seed as usize, &rows);
        }
        let result = run_with(&model, &Settings { seed: 7000 + seed, ..settings.clone() });
        let class = &result.classes[0];
        let mean = class.response_s.low.zip(class.response_s.high);
        let found = class.quantiles.as_ref().unwrap();
        let interval = |share: f64| {
            let index = found.share.iter().position(|known| (known - share).abs() < 1e-9).unwrap();
            found.low_s[index].zip(found.high_s[index])
        };
        let truths = std::iter::once(mean_s).chain(JUDGED.iter().map(|share| -mean_s * (1.0 - share).ln()));
        let intervals = std::iter::once(mean).chain(JUDGED.iter().map(|&share| interval(share)));
        for ((row, truth_s), interval) in rows.iter_mut().zip(truths).zip(intervals) {
            if let Some((low_s, high_s)) = interval {
                row.given += 1;
                row.covered += usize::from(low_s <= truth_s && truth_s <= high_s);
            }
        }
    }
    show(load, campaigns, &rows);
    rows
}

/// Prints the counts so far, for `tests/lab/honesty.py`. They are not lost if a run of hours is stopped.
fn show(load: f64, campaigns: usize, rows: &[Coverage]) {
    for row in rows {
        println!("load {load} {}: {} of {campaigns} given, {} covered", row.what, row.given, row.covered);
    }
}

/// 93 to 97 %, widened by what the number of campaigns leaves to chance.
fn check_coverage(rows: &[Coverage]) {
    for row in rows.iter().filter(|row| row.given > 0) {
        assert_eq!(row.given, row.campaigns, "{}: whether there is an interval must not depend on chance", row.what);
        let share = row.covered as f64 / row.given as f64;
        let chance = 2.0 * (0.95_f64 * 0.05).sqrt() * ((row.given as f64).powf(-0.5) - 1000_f64.powf(-0.5)).max(0.0);
        assert!(share > 0.93 - chance && share < 0.97 + chance, "{}: {} of {}", row.what, row.covered, row.given);
    }
}

/// The relaxation time of M/M/1 with mean service 1, in requests.
fn relaxation(load: f64) -> f64 {
    load / (1.0 - load.sqrt()).powi(2)
}

/// The lengths that the simulator chooses at any load near saturation, at one where they cost little. Coverage depends only
/// on the length in relaxation times, because in heavy traffic all such queues behave like the same Brownian motion.
#[test]
fn a_queue_near_saturation() {
    let times = relaxation(0.9);
    let lengths = Settings {
        requests: Some((20.0 * times) as u64),
        warm_up: Some((3.0 * times) as u64),
        replications: 20,
        ..settings()
    };
    let rows = coverage(0.9, 300, &lengths);
    assert!(rows[2].given > 0 && rows[3].given == 0, "400 relaxation times are enough for p90, and not for p99");
    check_coverage(&rows);
}

#[test]
fn a_queue_at_half_load() {
    let rows =
        coverage(0.5, 300, &Settings { requests: Some(4000), warm_up: Some(200), replications: 20, ..settings() });
    assert!(rows[3].given > 0);
    check_coverage(&rows);
}

/// On demand: with the simulator's own lengths. A thousand campaigns at 0.99 take half an hour of CPU time, and one at 0.999
/// takes two minutes. `WAYSTAGE_HONESTY` is the number of campaigns, `WAYSTAGE_LOADS` the loads.
#[test]
#[ignore = "takes hours"]
fn the_lengths_that_the_simulator_chooses() {
    let campaigns = std::env::var("WAYSTAGE_HONESTY").map_or(1000, |text| text.parse().unwrap());
    let loads = std::env::var("WAYSTAGE_LOADS").unwrap_or("0.5,0.9,0.99,0.999".into());
    let measure = |text: &str| coverage(text.parse().unwrap(), campaigns, &Settings::default());
    // All loads are measured before one of them can fail the test.
    let found: Vec<_> = loads.split(',').map(measure).collect();
    found.iter().for_each(|rows| check_coverage(rows));
}

fn queue(load: f64) -> Model {
    open(load, json!({"service": {"request": 1.0}}))
}

fn has_intervals(result: &Simulation) -> bool {
    let quantiles = result.classes[0].quantiles.as_ref().unwrap();
    assert_eq!(result.relative_half_width.is_some(), result.classes[0].response_s.half_width.is_some());
    result.classes[0].response_s.half_width.is_some() || quantiles.low_s.iter().any(Option::is_some)
}

/// The mean of these replications is about 400 instead of 1000. More replications would only narrow an interval around the
/// wrong value.
#[test]
fn too_short_a_run_gets_a_note_and_no_interval() {
    for replications in [20, 400] {
        let short = Settings { requests: Some(20_000), warm_up: Some(20_000), replications, ..settings() };
        let result = run_with(&queue(0.999), &short);
        assert!(!has_intervals(&result) && result.classes[0].response_s.mean.is_some());
        let note = &result.notes[0];
        assert!(note.contains("no intervals, because the start, when it was empty, still shows"), "{note}");
        assert!(
            note.contains("station 's' with utilisation 0.9990 forgets its past in about 3994002 requests"),
            "{note}"
        );
    }
    // Long enough a warm-up, but too few replications.
    let few = Settings { requests: Some(2000), warm_up: Some(200_000), replications: 5, ..settings() };
    let result = run_with(&queue(0.99), &few);
    assert!(!has_intervals(&result) && result.notes[0].contains("too few independent values"), "{:?}", result.notes);
}

/// With the lengths that the simulator chooses near saturation. The number of requests that the note names is enough.
#[test]
fn a_quantile_without_an_interval_has_a_note_with_the_length_that_it_needs() {
    let times = relaxation(0.9);
    let chosen = Settings {
        requests: Some((20.0 * times).ceil() as u64),
        warm_up: Some((3.0 * times) as u64),
        replications: 20,
        ..settings()
    };
    let result = run_with(&queue(0.9), &chosen);
    let [note] = &result.notes[..] else { panic!("{:?}", result.notes) };
    assert!(note.starts_with("no interval for p95, p99, because too few slow requests were measured"), "{note}");
    let needed: u64 = note.rsplit(' ').next().unwrap().parse().unwrap();
    let longer = run_with(&queue(0.9), &Settings { requests: Some(needed * 21 / 20), ..chosen });
    let quantiles = longer.classes[0].quantiles.as_ref().unwrap();
    let index = quantiles.share.iter().position(|share| (share - 0.99).abs() < 1e-9).unwrap();
    assert!(longer.notes.is_empty() && quantiles.low_s[index].is_some(), "{:?}", longer.notes);
}

/// Short replications are acceptable if the warm-up is long and there are many of them.
#[test]
fn a_precision_needs_a_warm_up_and_enough_replications() {
    let settings = Settings { requests: Some(400), precision: Some(0.2), replications: 20, ..settings() };
    let result = run_with(&queue(0.95), &Settings { warm_up: None, ..settings.clone() });
    assert!(result.warm_up.requests as f64 > 3.0 * relaxation(0.95) && result.replications >= 80);
    assert!(has_intervals(&result), "{:?}", result.notes);
    let estimate = result.classes[0].response_s;
    assert!((estimate.mean.unwrap() - 20.0).abs() < 2.0 * estimate.half_width.unwrap());
    let result = run_with(&queue(0.95), &Settings { warm_up: Some(200), ..settings });
    assert!(!has_intervals(&result) && result.notes.len() == 2, "{:?}", result.notes);
}

#[test]
fn a_load_that_takes_too_long_is_refused_unless_a_length_is_given() {
    let line = refused(&queue(0.9999), &Settings::default());
    assert!(
        line.starts_with("station 's': at utilisation 0.999900 it forgets its past in about 4.0e8 requests"),
        "{line}"
    );
    let given = Settings { requests: Some(1000), warm_up: Some(10), ..settings() };
    assert!(!has_intervals(&run_with(&queue(0.9999), &given)));
}

/// In a closed network, the queue moves between two stations over a long time, for which there is no formula.
#[test]
fn a_closed_network_that_still_changes_has_no_intervals() {
    let model = common::model(json!({
        "classes": [{"name": "request", "population": 2000}],
        "stations": [{"name": "a", "service": {"request": 1.0}}, {"name": "b", "service": {"request": 1.0}}],
        "visits": {"request": {"a": 1, "b": 1}},
    }));
    let short = Settings { requests: Some(20_000), warm_up: Some(2000), replications: 40, ..settings() };
    let result = run_with(&model, &short);
    assert!(!has_intervals(&result));
    assert!(
        result.notes.iter().any(|note| note.contains("the queue at station 'b' still changes")),
        "{:?}",
        result.notes
    );
}
