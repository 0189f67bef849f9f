//! What a run reports while it goes on: the share that is simulated, and the time left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{open, refused, settings};
use serde_json::json;
use simulate::{Model, Progress, Settings};
use std::time::Duration;

fn watched(model: &Model, settings: &Settings) -> Vec<Progress> {
    let mut seen = Vec::new();
    simulate::run(model, settings, &Clock::monotonic(), &mut |progress| seen.push(*progress)).unwrap();
    seen
}

#[test]
fn the_share_grows_within_replications_and_the_time_left_is_known_before_the_first_one_is_done() {
    let model = open(0.5, json!({"service": {"request": 1.0}}));
    let settings = Settings { requests: Some(600_000), replications: 4, threads: 2, ..Settings::default() };
    let seen = watched(&model, &settings);
    let pilot = seen.iter().take_while(|progress| progress.requests.is_none()).count();
    let replications = &seen[pilot..];
    assert!(pilot > 0 && seen[..pilot].iter().all(|progress| progress.left.is_none() && progress.share == 0.0));
    assert_eq!(replications[0].requests, Some(660_000), "with the warm-up of a tenth");
    assert!(replications[0].left.unwrap() > Duration::ZERO);
    assert!(replications.is_sorted_by_key(|progress| progress.share));
    let last = replications.last().unwrap();
    assert!(last.done == 4 && last.share == 1.0 && last.left == Some(Duration::ZERO));
}

#[test]
fn without_a_pilot_the_time_left_is_unknown_at_first() {
    let model = open(0.5, json!({"service": {"request": 1.0}}));
    let seen = watched(&model, &settings());
    assert!(seen[0].requests.is_some() && seen[0].left.is_none());
}

/// At 0.999, 20 replications take minutes. The user learns how long before the time limit is spent for nothing.
#[test]
fn a_time_limit_that_is_too_short_is_refused_with_the_time_that_is_needed() {
    let model = open(0.999, json!({"service": {"request": 1.0}}));
    let short = Settings { time_limit: Duration::from_secs(2), ..Settings::default() };
    let line = refused(&model, &short);
    assert!(line.contains("came after 0 replications") && line.contains("all of them take about"), "{line}");
}
