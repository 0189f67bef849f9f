//! Properties of every result, whatever the model: Little's law, conservation of flow, bounds, and reproducibility.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{mean, model, refused, run_with, settings, try_run};
use proptest::prelude::*;
use serde_json::{Value, json};
use simulate::{Estimate, Model, Settings, Simulation};
use std::time::Duration;

/// A model with every feature.
fn everything(discipline: &str, capacity: Value, when_full: &str, join: &str) -> Value {
    json!({
        "format": "waystage-model/1",
        "classes": [
            {"name": "get", "population": 12, "think": {"mean_s": 2.0, "distribution": "erlang", "squared_variation": 0.5}},
            {"name": "set", "think": 1.0, "priority": -1},
            {"name": "alien", "arrivals_per_s": 0.6, "arrival_squared_variation": 2.0, "priority": 3},
        ],
        "stations": [
            {"name": "network", "service": {"get": 0.2, "set": 0.3, "alien": 0.1}, "servers": "infinite"},
            {"name": "work", "servers": 2, "discipline": discipline, "capacity": capacity, "when_full": when_full,
             "service": {"get": {"mean_s": 0.2, "distribution": "gamma", "squared_variation": 2}, "set": 0.3, "alien": 0.3}},
            {"name": "x", "service": {"get": 0.3, "set": 0.4}, "batch": 3},
            {"name": "y", "service": {"get": 0.3, "set": 0.4}, "rates": [1.0, 1.5, 1.8]},
        ],
        "forks": [{"name": "both", "branches": ["x", "y"], "join": join, "send_s": 0.01}],
        "pools": [{"name": "slots", "slots": 5, "inside": ["work", "both"]}],
        "routes": [
            {"class": "get", "from": "client", "to": "network"},
            {"class": "get", "from": "network", "to": "work"},
            {"class": "get", "from": "work", "to": "client", "probability": 0.7},
            {"class": "get", "from": "work", "to": "both", "probability": 0.2, "to_class": "set"},
            {"class": "get", "from": "work", "to": "work", "probability": 0.1},
            {"class": "set", "from": "client", "to": "work"},
            {"class": "set", "from": "work", "to": "both"},
            {"class": "set", "from": "both", "to": "client"},
            {"class": "alien", "from": "client", "to": "work"},
            {"class": "alien", "from": "work", "to": "network", "probability": 0.5},
            {"class": "alien", "from": "work", "to": "client", "probability": 0.5},
            {"class": "alien", "from": "network", "to": "client"},
        ],
        "switching": {"get": {"get": 0.8, "set": 0.2}, "set": {"get": 1.0}},
    })
}

/// The checks that need no knowledge of the model's solution.
fn check(result: &Simulation, population: f64, think_s: &[Option<f64>]) {
    for station in &result.stations {
        let busy: f64 = station.classes.iter().map(|class| mean(class.utilisation)).sum();
        assert!((0.0..=1.0 + 1e-9).contains(&busy), "{}: busy {busy}", station.name);
        let sum: f64 = station.present_probability.iter().sum::<f64>() + station.present_more;
        assert!((sum - 1.0).abs() < 1e-9, "{}: {sum}", station.name);
        let length: f64 = station.classes.iter().map(|class| mean(class.queue_length)).sum();
        let weighted: f64 = (0..).zip(&station.present_probability).map(|(n, share)| f64::from(n) * share).sum();
        assert!((length - weighted).abs() < 1e-6 * length.max(1.0), "{}: {length}, {weighted}", station.name);
        for class in &station.classes {
            let little = mean(class.throughput_per_s) * mean(class.response_s);
            let length = mean(class.queue_length);
            assert!(
                (little - length).abs() <= 0.03 * length + 1e-3,
                "{} {}: {little}, {length}",
                station.name,
                class.name
            );
            assert!(mean(class.waiting_s) <= mean(class.response_s) + 1e-12);
            for estimate in [class.throughput_per_s, class.response_s, class.waiting_s, class.queue_length] {
                sane(estimate);
            }
            sane(class.utilisation);
        }
    }
    // Customers are at the client or on their way; lost requests take time as well, which is not in the response time.
    let lost: f64 = result.classes.iter().map(|class| mean(class.lost_per_s)).sum();
    let cycles: f64 = result
        .classes
        .iter()
        .zip(think_s)
        .filter_map(|(class, think_s)| Some(mean(class.throughput_per_s) * (mean(class.response_s) + (*think_s)?)))
        .sum();
    if lost == 0.0 {
        assert!((cycles - population).abs() < 0.02 * population, "N is {population}, X (R + Z) is {cycles}");
    }
    for pool in &result.pools {
        assert!(mean(pool.busy) <= f64::from(pool.slots) + 1e-9);
    }
}

fn sane(estimate: Estimate) {
    for number in [estimate.mean, estimate.low, estimate.high, estimate.half_width].into_iter().flatten() {
        assert!(number.is_finite() && number >= 0.0, "{number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn laws_hold(
        discipline in prop::sample::select(vec!["fcfs", "ps", "priority", "preemptive"]),
        capacity in prop::sample::select(vec![json!(null), json!(3), json!(6)]),
        when_full in prop::sample::select(vec!["lose", "block"]),
        join in prop::sample::select(vec!["all", "majority", "first"]),
        seed in 0u64..1000,
    ) {
        let model = model(everything(discipline, capacity, when_full, join));
        let result = run_with(&model, &Settings { seed, replications: 4, requests: Some(30_000), ..settings() });
        check(&result, 12.0, &[Some(2.0), Some(1.0), None]);
        let alien = &result.classes[2];
        let arrivals = mean(alien.throughput_per_s) + mean(alien.lost_per_s);
        prop_assert!((arrivals - 0.6).abs() < 0.03, "{}", arrivals);
        // Both branches see every leg.
        let legs = |station: usize| -> f64 {
            result.stations[station].classes.iter().map(|class| mean(class.throughput_per_s)).sum()
        };
        prop_assert!((legs(2) - legs(3)).abs() < 0.01 * legs(2));
    }
}

/// The result without the parts that depend on the machine.
fn essence(result: &Simulation) -> Value {
    let mut json: Value = serde_json::from_str(&result.to_json().unwrap()).unwrap();
    for name in ["elapsed_s", "cpu_s", "events_per_s", "events_per_cpu_s", "threads"] {
        assert!(json.as_object_mut().unwrap().remove(name).is_some());
    }
    json
}

#[test]
fn the_same_seed_gives_the_same_result_bit_for_bit() {
    let model = model(everything("preemptive", json!(6), "block", "majority"));
    let settings = Settings { replications: 7, requests: Some(5000), warm_up: None, ..settings() };
    let first = essence(&run_with(&model, &Settings { threads: 1, ..settings.clone() }));
    for threads in [2, 7] {
        assert_eq!(essence(&run_with(&model, &Settings { threads, ..settings.clone() })), first);
    }
    let other = run_with(&model, &Settings { seed: 2, ..settings });
    assert_ne!(essence(&other)["classes"], first["classes"]);
}

#[test]
fn unbounded_growth_is_reported() {
    // One slot turns a delay, which could serve all requests, into a single server.
    let content = json!({
        "classes": [{"name": "a", "arrivals_per_s": 2.0}],
        "stations": [{"name": "s", "service": {"a": 1.0}, "servers": "infinite"}],
        "visits": {"a": {"s": 1}},
        "pools": [{"name": "p", "slots": 1, "inside": ["s"]}],
    });
    let result = run_with(&model(content), &settings());
    assert!(result.notes[0].starts_with("class 'a' gains 1.0"), "{:?}", result.notes);
    assert!(result.notes[0].ends_with("it grows without bound, or the warm-up is too short"));
    let content = json!({
        "classes": [{"name": "a", "arrivals_per_s": 1e6}],
        "stations": [{"name": "s", "service": {"a": 1.0}, "servers": "infinite"}],
        "visits": {"a": {"s": 1}},
        "pools": [{"name": "p", "slots": 1, "inside": ["s"]}],
    });
    let line = refused(&model(content), &Settings { warm_up: Some(100), requests: Some(1000), ..settings() });
    assert_eq!(
        line,
        "more than 10000000 requests are present, most of them outside the stations: it grows without bound"
    );
}

/// The first of two legs is enough, but the other one is served too, by an overloaded server.
#[test]
fn accumulating_legs_are_reported() {
    let content = json!({
        "classes": [{"name": "a", "population": 2, "think": 1.0}],
        "stations": [
            {"name": "fast", "service": {"a": 0.1}, "servers": "infinite"},
            {"name": "slow", "service": {"a": 2.0}},
        ],
        "forks": [{"name": "f", "branches": ["fast", "slow"], "join": "first"}],
        "visits": {"a": {"f": 1}},
    });
    let result = run_with(&model(content), &Settings { requests: Some(10_000), ..settings() });
    assert!(result.notes[0].starts_with("station 'slow' gains 1.3"), "{:?}", result.notes);
    assert_eq!(result.notes.len(), 1);
}

#[test]
fn time_is_limited() {
    let model: Model = model(everything("fcfs", json!(null), "lose", "all"));
    let hurried = Settings { time_limit: Duration::from_millis(300), requests: Some(1 << 39), ..settings() };
    let line = refused(&model, &hurried);
    assert!(line.starts_with("the time limit of 0.3 s came after 0 replications, and two are needed"), "{line}");
    let many =
        Settings { time_limit: Duration::from_millis(400), replications: 100_000, requests: Some(2000), ..hurried };
    let result = run_with(&model, &Settings { warm_up: Some(100), ..many });
    assert!(result.replications < 100_000);
    assert_eq!(result.notes[0], format!("the time limit of 0.4 s came after {} replications", result.replications));
}

#[test]
fn invalid_settings_are_named() {
    let model = model(everything("fcfs", json!(null), "lose", "all"));
    for (wrong, line) in [
        (Settings { replications: 1, ..settings() }, "replications: must be from 2, for an interval"),
        (Settings { requests: Some(0), ..settings() }, "requests: must be from 1"),
        (Settings { threads: 0, ..settings() }, "threads: must be from 1 to 4096"),
        (Settings { precision: Some(0.0), ..settings() }, "precision: must lie between 0 and 1"),
        (Settings { precision: Some(f64::NAN), ..settings() }, "precision: must lie between 0 and 1"),
        (Settings { precision: Some(0.1), replications_max: 3, ..settings() }, "replications-max: must not be below"),
    ] {
        let error = try_run(&model, &wrong).err().unwrap().to_string();
        assert!(error.starts_with(line), "{error}");
    }
}
