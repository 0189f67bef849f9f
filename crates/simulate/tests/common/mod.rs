//! Helpers of the tests: models from JSON, short runs, Markov chains solved exactly, and comparisons with known values.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it; a test that cannot go on has failed")]

use clock::Clock;
use serde_json::{Value, json};
use simulate::{Estimate, Model, Settings, SimulateError, Simulation};
use std::collections::HashMap;
use std::path::Path;

/// A model of one class from its stations and any other parts.
pub(crate) fn model(content: Value) -> Model {
    parse(content).unwrap()
}

/// A model, or the line that refuses it.
pub(crate) fn parse(mut content: Value) -> Result<Model, simulate::ModelError> {
    content.as_object_mut().unwrap().entry("format").or_insert(json!("waystage-model/1"));
    Model::parse(&content.to_string(), Path::new("."))
}

/// One open class, one station.
pub(crate) fn open(arrivals_per_s: f64, station: Value) -> Model {
    model(json!({
        "classes": [{"name": "request", "arrivals_per_s": arrivals_per_s}],
        "stations": [named(station)],
        "visits": {"request": {"s": 1}},
    }))
}

/// One closed class, one station.
pub(crate) fn closed(population: u64, think: Value, station: Value) -> Model {
    model(json!({
        "classes": [{"name": "request", "population": population, "think": think}],
        "stations": [named(station)],
        "visits": {"request": {"s": 1}},
    }))
}

fn named(mut station: Value) -> Value {
    station.as_object_mut().unwrap().insert("name".into(), json!("s"));
    station
}

pub(crate) fn settings() -> Settings {
    Settings { replications: 10, requests: Some(50_000), warm_up: Some(5_000), ..Settings::default() }
}

pub(crate) fn run(model: &Model) -> Simulation {
    run_with(model, &settings())
}

pub(crate) fn run_with(model: &Model, settings: &Settings) -> Simulation {
    try_run(model, settings).unwrap()
}

pub(crate) fn try_run(model: &Model, settings: &Settings) -> Result<Simulation, SimulateError> {
    simulate::run(model, settings, &Clock::monotonic(), &mut |_| ())
}

/// Asserts that the true value lies in the interval, widened so that hardly any seed fails, and that the interval is narrow.
#[track_caller]
pub(crate) fn near(estimate: Estimate, truth: f64) {
    let (mean, half_width) = (estimate.mean.unwrap(), estimate.half_width.unwrap());
    assert!((mean - truth).abs() <= 2.2 * half_width + 1e-12 * truth, "{mean} +- {half_width} is not {truth}");
    assert!(half_width <= 0.04 * truth, "{mean} +- {half_width} is no proof of {truth}");
}

/// The line that ends a simulation.
#[track_caller]
pub(crate) fn refused(model: &Model, settings: &Settings) -> String {
    match try_run(model, settings) {
        Err(error) => error.to_string(),
        Ok(result) => panic!("{} requests were simulated", result.requests),
    }
}

/// Within a share of the truth.
#[track_caller]
pub(crate) fn within(value: f64, truth: f64, share: f64) {
    assert!((value - truth).abs() <= share * truth.abs(), "{value} is not {truth}");
}

pub(crate) fn mean(estimate: Estimate) -> f64 {
    estimate.mean.unwrap_or(0.0)
}

/// The stationary probabilities of a continuous-time Markov chain, from its first state and the moves out of each.
pub(crate) fn chain<S: Clone + Eq + std::hash::Hash>(first: S, moves: impl Fn(&S) -> Vec<(S, f64)>) -> Vec<(S, f64)> {
    let (mut states, mut numbers) = (vec![first.clone()], HashMap::from([(first, 0)]));
    let mut rates: Vec<(usize, usize, f64)> = Vec::new();
    let mut from = 0;
    while from < states.len() {
        for (next, rate) in moves(&states[from].clone()) {
            let to = *numbers.entry(next.clone()).or_insert_with(|| {
                states.push(next);
                states.len() - 1
            });
            rates.push((from, to, rate));
        }
        from += 1;
    }
    let count = states.len();
    // Grassmann, Taksar and Heyman (1985): no subtraction, so nothing is lost.
    let mut matrix = vec![vec![0.0; count]; count];
    for (from, to, rate) in rates {
        if from != to {
            matrix[from][to] += rate;
        }
    }
    for last in (1..count).rev() {
        let out: f64 = matrix[last][..last].iter().sum();
        for from in 0..last {
            matrix[from][last] /= out;
            for to in 0..last {
                matrix[from][to] += matrix[from][last] * matrix[last][to];
            }
        }
    }
    let mut weights = vec![1.0; count];
    for state in 1..count {
        weights[state] = (0..state).map(|from| weights[from] * matrix[from][state]).sum();
    }
    let total: f64 = weights.iter().sum();
    states.into_iter().zip(weights.into_iter().map(|weight| weight / total)).collect()
}
