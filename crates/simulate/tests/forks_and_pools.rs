//! Forks that wait for all, most or the first of their legs, and pools of slots.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{chain, closed, mean, model, near, run, within};
use serde_json::{Value, json};
use simulate::{Model, Simulation};

fn stations(count: usize, station: Value) -> Vec<Value> {
    (0..count)
        .map(|index| {
            let mut station = station.clone();
            station["name"] = json!(format!("s{index}"));
            station
        })
        .collect()
}

fn fork(class: Value, count: usize, station: Value, fork: Value) -> Model {
    let mut fork = fork;
    fork["name"] = json!("fork");
    fork["branches"] = (0..count).map(|index| json!(format!("s{index}"))).collect();
    model(json!({
        "classes": [class],
        "stations": stations(count, station),
        "forks": [fork],
        "visits": {"a": {"fork": 1}},
    }))
}

fn closed_fork(population: u64, think: f64, count: usize) -> Simulation {
    let class = json!({"name": "a", "population": population, "think": think});
    run(&fork(class, count, json!({"service": {"a": 1.0}}), json!({})))
}

#[test]
fn forks_of_closed_networks() {
    for (count, population, think, throughput_per_s) in
        [(2, 5, 1.0, 0.887538949), (2, 20, 5.0, 0.967736110), (3, 5, 1.0, 0.836013309), (3, 1, 1.0, 0.352941176)]
    {
        let result = closed_fork(population, think, count);
        near(result.classes[0].throughput_per_s, throughput_per_s);
        near(result.forks[0].classes[0].response_s, population as f64 / throughput_per_s - think);
    }
    near(closed_fork(5, 1.0, 2).classes[0].response_s, 4.633555584);
}

#[test]
fn forks_of_open_networks() {
    for (arrivals_per_s, response_s) in [(0.1, 1.6527778), (0.5, 2.875)] {
        let class = json!({"name": "a", "arrivals_per_s": arrivals_per_s});
        let result = run(&fork(class, 2, json!({"service": {"a": 1.0}}), json!({})));
        near(result.classes[0].response_s, response_s);
    }
}

/// Without queueing, the response time is an order statistic of exponential times.
#[test]
fn most_or_the_first() {
    for (join, response_s) in [("all", 1.0 + 0.5 + 1.0 / 3.0), ("majority", 0.5 + 1.0 / 3.0), ("first", 1.0 / 3.0)] {
        let class = json!({"name": "a", "population": 4, "think": 1.0});
        let station = json!({"service": {"a": 1.0}, "servers": "infinite"});
        let result = run(&fork(class, 3, station, json!({"join": join})));
        near(result.classes[0].response_s, response_s);
        // Legs that no request waits for are served to the end.
        let legs: f64 = result.stations.iter().map(|station| mean(station.classes[0].throughput_per_s)).sum();
        within(legs, 3.0 * mean(result.classes[0].throughput_per_s), 0.01);
        near(result.stations[2].classes[0].response_s, 1.0);
    }
}

/// The first of two legs: a request may have returned, and forked again, while its old legs are served.
#[test]
fn legs_that_outlive_their_request() {
    // (thinking, of those in the system: queues at both stations). With one customer: (thinking, old and new legs).
    let class = json!({"name": "a", "population": 1, "think": 1.0});
    let result = run(&fork(class, 2, json!({"service": {"a": 1.0}}), json!({"join": "first"})));
    // State: thinking, and how many legs are at each station; the newest leg of each is the one that counts.
    let exact = chain((true, 0u32, 0u32), |&(thinks, one, two)| {
        let mut moves = Vec::new();
        if thinks {
            moves.push(((false, one + 1, two + 1), 1.0));
        }
        // First come first served: the newest leg is done when the queue is empty.
        if one > 0 {
            moves.push(((thinks || one == 1, one - 1, two), 1.0));
        }
        if two > 0 {
            moves.push(((thinks || two == 1, one, two - 1), 1.0));
        }
        moves.retain(|((_, one, two), _)| *one <= 60 && *two <= 60);
        moves
    });
    let thinking: f64 = exact.iter().filter(|((thinks, _, _), _)| *thinks).map(|(_, share)| share).sum();
    near(result.classes[0].throughput_per_s, thinking);
}

#[test]
fn legs_are_sent_one_after_the_other() {
    let class = json!({"name": "a", "population": 3, "think": 0.5});
    let service = json!({"mean_s": 1, "distribution": "deterministic"});
    let station = json!({"service": {"a": service}, "servers": "infinite"});
    for (join, response_s) in [("all", 1.75), ("majority", 1.5), ("first", 1.0)] {
        let result = run(&fork(class.clone(), 4, station.clone(), json!({"join": join, "send_s": 0.25})));
        within(mean(result.classes[0].response_s), response_s, 1e-9);
        within(mean(result.classes[0].throughput_per_s), 3.0 / (0.5 + response_s), 1e-3);
    }
}

/// Slots in front of a delay are servers.
#[test]
fn slots_are_servers() {
    let content = json!({
        "classes": [{"name": "a", "population": 10, "think": 1.0}],
        "stations": [{"name": "work", "service": {"a": 0.5}, "servers": "infinite"}],
        "visits": {"a": {"work": 1}},
        "pools": [{"name": "pool", "slots": 3, "inside": ["work"]}],
    });
    let result = run(&model(content));
    let servers = run(&closed(10, json!(1.0), json!({"service": {"request": 0.5}, "servers": 3})));
    let exact = chain(0u32, |&n| {
        let mut moves = vec![(n + 1, f64::from(10 - n)), (n.saturating_sub(1), f64::from(n.min(3)) * 2.0)];
        moves.retain(|&(to, rate)| rate > 0.0 && to != n);
        moves
    });
    let busy: f64 = exact.iter().map(|&(n, share)| f64::from(n.min(3)) * share).sum();
    let waiting: f64 = exact.iter().map(|&(n, share)| f64::from(n.saturating_sub(3)) * share).sum();
    near(servers.classes[0].throughput_per_s, 2.0 * busy);
    near(result.classes[0].throughput_per_s, 2.0 * busy);
    near(result.pools[0].busy, busy);
    near(result.pools[0].classes[0].waiting_s, waiting / (2.0 * busy));
    near(result.stations[0].classes[0].queue_length, busy);
    near(result.stations[0].classes[0].response_s, 0.5);
}

/// A slot covers several places, and a fork within them: with one slot everything inside acts as one server.
#[test]
fn a_slot_is_occupied_until_the_request_leaves_the_pool() {
    let content = json!({
        "classes": [{"name": "a", "population": 4, "think": 1.0}],
        "stations": [
            {"name": "before", "service": {"a": 0.3}, "servers": "infinite"},
            {"name": "one", "service": {"a": 0.2}},
            {"name": "x", "service": {"a": 0.4}},
            {"name": "y", "service": {"a": 0.4}},
        ],
        "forks": [{"name": "both", "branches": ["x", "y"]}],
        "visits": {"a": {"before": 1, "one": 2, "both": 1}},
        "pools": [{"name": "pool", "slots": 1, "inside": ["one", "both", "x", "y"]}],
    });
    let result = run(&model(content));
    // With one slot, service is .2 + .2 + the later of two times of .4: stages of .2, .2, .2 and .4.
    let stages = [0.2, 0.2, 0.2, 0.4];
    // Thinking and before: a think time of two stages, 1 and .3. State: at each of them, waiting or inside, stage.
    let exact = chain((4u32, 0u32, 0usize), |&(thinking, before, stage)| {
        let inside = 4 - thinking - before;
        let mut moves = Vec::new();
        if thinking > 0 {
            moves.push(((thinking - 1, before + 1, stage), f64::from(thinking)));
        }
        if before > 0 {
            moves.push(((thinking, before - 1, stage), f64::from(before) / 0.3));
        }
        if inside > 0 {
            let last = stage == 3;
            moves.push(((thinking + u32::from(last), before, (stage + 1) % 4), 1.0 / stages[stage]));
        }
        moves
    });
    let throughput_per_s: f64 = exact.iter().map(|((thinking, _, _), share)| f64::from(*thinking) * share).sum();
    near(result.classes[0].throughput_per_s, throughput_per_s);
    near(result.pools[0].busy, throughput_per_s * stages.iter().sum::<f64>());
}

/// A pool around a branch, but not around the fork: each leg takes a slot of its own.
#[test]
fn legs_take_slots() {
    let content = json!({
        "classes": [{"name": "a", "arrivals_per_s": 0.5}],
        "stations": stations(2, json!({"service": {"a": 1.0}, "servers": "infinite"})),
        "forks": [{"name": "both", "branches": ["s0", "s1"]}],
        "visits": {"a": {"both": 1}},
        "pools": [
            {"name": "first", "slots": 1, "inside": ["s0"]},
            {"name": "second", "slots": 1, "inside": ["s1"]},
        ],
    });
    let result = run(&model(content));
    near(result.classes[0].response_s, 2.875);
    near(result.pools[1].busy, 0.5);
    near(result.pools[1].classes[0].waiting_s, 1.0);
}
