//! Coverage of the intervals: of many small simulations, about 95 % contain the true value.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{closed, open, run, run_with, settings};
use serde_json::json;
use simulate::{Model, Settings};

/// The number of 400 intervals that contain the true value.
fn covered(model: &Model, truth_s: f64, settings: &Settings) -> usize {
    let contains = |seed| {
        let result = run_with(model, &Settings { seed, ..settings.clone() });
        let response = result.classes[0].response_s;
        (response.low.unwrap()..=response.high.unwrap()).contains(&truth_s)
    };
    (1000..1400).filter(|&seed| contains(seed)).count()
}

fn short(requests: u64, warm_up: u64) -> Settings {
    Settings { replications: 10, requests: Some(requests), warm_up: Some(warm_up), ..settings() }
}

/// 95 % of 400 are 380, give or take 13 in one case of a thousand; the interval itself may lack a little.
fn check(model: &Model, truth_s: f64, settings: &Settings) {
    let covered = covered(model, truth_s, settings);
    assert!((364..=392).contains(&covered), "{covered} of 400 intervals contain {truth_s}");
}

#[test]
fn a_closed_model() {
    // M/M/4//20, Z 4, S 1: p(n+1) / p(n) = (20 - n) / 4 / min(n + 1, 4).
    let mut weights = vec![1.0];
    for n in 0..20 {
        weights.push(weights[n] * (20 - n) as f64 / 4.0 / (n + 1).min(4) as f64);
    }
    let total: f64 = weights.iter().sum();
    let throughput: f64 = (0..=20).map(|n| n.min(4) as f64 * weights[n] / total).sum();
    let model = closed(20, json!(4.0), json!({"service": {"request": 1.0}, "servers": 4}));
    check(&model, 20.0 / throughput - 4.0, &short(1000, 200));
}

#[test]
fn an_open_model() {
    check(&open(0.7, json!({"service": {"request": 1.0}})), 1.0 / 0.3, &short(2000, 500));
}

#[test]
fn a_heavily_loaded_model() {
    check(&open(0.9, json!({"service": {"request": 1.0}})), 10.0, &short(20_000, 4000));
}

#[test]
fn a_precision_is_reached_or_reported_as_missed() {
    let model = open(0.7, json!({"service": {"request": 1.0}}));
    let wanted = Settings { precision: Some(0.01), replications: 5, requests: Some(20_000), ..settings() };
    let result = run_with(&model, &wanted);
    assert!(result.relative_half_width.unwrap() <= 0.01 / 1.01, "{:?}", result.relative_half_width);
    assert!(result.replications > 5 && result.notes.is_empty());
    // Whatever the threads.
    let other = run_with(&model, &Settings { threads: 3, ..wanted.clone() });
    assert_eq!((other.replications, other.classes[0].response_s), (result.replications, result.classes[0].response_s));
    let result = run_with(&model, &Settings { replications_max: 6, ..wanted });
    assert_eq!(result.replications, 6);
    assert_eq!(result.notes, ["the precision of 0.01 was not reached in 6 replications"]);
}

/// Starting empty biases a heavily loaded queue; the pilot finds a warm-up that is long enough.
#[test]
fn a_warm_up_is_found() {
    let model = open(0.95, json!({"service": {"request": 1.0}}));
    let settings = Settings { warm_up: None, requests: Some(200_000), replications: 40, ..settings() };
    let result = run_with(&model, &settings);
    assert_eq!(result.warm_up.method, "mser-5");
    assert!(result.warm_up.requests >= 20_000);
    common::near(result.classes[0].response_s, 20.0);
    // Every customer must have returned once: ten thousand with long think times.
    let result = run_with(
        &common::closed(10_000, json!(100.0), json!({"service": {"request": 0.001}})),
        &Settings { requests: Some(20_000), replications: 4, ..settings },
    );
    assert!(result.warm_up.requests >= 20_000);
}

#[test]
fn half_of_the_requests_wait_less_than_the_median() {
    let result = run(&open(0.8, json!({"service": {"request": 1.0}})));
    let quantiles = result.classes[0].quantiles.as_ref().unwrap();
    assert!(quantiles.response_s.is_sorted() && quantiles.share.is_sorted());
    assert_eq!(quantiles.share.len(), quantiles.response_s.len());
    // R of M/M/1 is exponential with mean 5.
    for (share, quantile_s) in quantiles.share.iter().zip(&quantiles.response_s) {
        if (0.05..0.99).contains(share) {
            common::within(*quantile_s, -5.0 * (1.0 - share).ln(), 0.04);
        }
    }
}
