//! Stations with finite capacity: blocked requests keep their server, lost requests are retried; and servers with batches.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{chain, closed, mean, model, near, parse, refused, run, settings, within};
use serde_json::{Value, json};

/// Two stations in a ring; the second has room for `room`.
fn ring(population: u64, first: Value, second: Value) -> simulate::Model {
    let station = |name: &str, mut station: Value| {
        station["name"] = json!(name);
        station
    };
    model(json!({
        "classes": [{"name": "a", "population": population}],
        "stations": [station("one", first), station("two", second)],
        "visits": {"a": {"one": 1, "two": 1}},
    }))
}

/// A first server that never starves before a second one without a queue: m1 m2 (m1 + m2) / (m1^2 + m1 m2 + m2^2).
#[test]
fn a_server_is_blocked_until_there_is_room() {
    for (first_s, throughput_per_s) in [(1.0, 2.0 / 3.0), (2.0, 0.5 * 1.5 / (0.25 + 0.5 + 1.0))] {
        for kind in [json!({}), json!({"rates": [1.0]}), json!({"discipline": "preemptive"})] {
            let mut first = kind.clone();
            first["service"] = json!({"a": first_s});
            let second = json!({"service": {"a": 1.0}, "capacity": 1, "when_full": "block"});
            let result = run(&ring(4, first, second));
            near(result.classes[0].throughput_per_s, throughput_per_s);
            let busy = mean(result.stations[0].classes[0].utilisation);
            within(busy, 1.0, 1e-9);
            // It is blocked as long as it is occupied and does not work.
            let response_s = mean(result.stations[0].classes[0].response_s);
            let waiting_s = mean(result.stations[0].classes[0].waiting_s);
            within(response_s - waiting_s, 1.0 / throughput_per_s, 0.02);
        }
    }
}

/// Two servers before one place: while one is blocked, the other serves. State: waiting at the first, blocked, there.
#[test]
fn several_servers_are_blocked_one_by_one() {
    let exact = chain((0u32, 1u32), |&(blocked, there)| {
        // Five customers: the first station always has more requests than it can serve.
        let mut moves = Vec::new();
        if blocked < 2 {
            let next = if there == 1 { (blocked + 1, 1) } else { (blocked, 1) };
            moves.push((next, f64::from(2 - blocked)));
        }
        if there == 1 {
            moves.push((if blocked > 0 { (blocked - 1, 1) } else { (0, 0) }, 1.5));
        }
        moves
    });
    let throughput_per_s: f64 = exact.iter().filter(|((_, there), _)| *there == 1).map(|(_, share)| 1.5 * share).sum();
    for discipline in ["fcfs", "preemptive"] {
        let first = json!({"service": {"a": 1.0}, "servers": 2, "discipline": discipline});
        let second = json!({"service": {"a": 1.0 / 1.5}, "capacity": 1, "when_full": "block"});
        near(run(&ring(5, first, second)).classes[0].throughput_per_s, throughput_per_s);
    }
}

#[test]
fn a_delay_or_a_shared_station_just_waits() {
    let second = json!({"service": {"a": 1.0}, "capacity": 1, "when_full": "block"});
    for first in
        [json!({"service": {"a": 2.0}, "servers": "infinite"}), json!({"service": {"a": 2.0}, "discipline": "ps"})]
    {
        let shares = first["discipline"] == "ps";
        let result = run(&ring(3, first, second.clone()));
        let exact = chain(3u32, |&working| {
            let rate = if shares { 1.0 } else { f64::from(working) };
            let mut moves = Vec::new();
            if working > 0 {
                moves.push((working - 1, rate * 0.5));
            }
            if working < 3 {
                moves.push((working + 1, 1.0));
            }
            moves
        });
        let busy: f64 = exact.iter().filter(|(working, _)| *working < 3).map(|(_, share)| share).sum();
        near(result.classes[0].throughput_per_s, busy);
        assert!(result.stations[1].present_probability.len() <= 2);
    }
}

/// From the second station half of the requests return to the first, so that both can be full of requests that wait.
#[test]
fn stations_that_wait_for_each_other_are_named() {
    let content = |population: u64| {
        let station = |name: &str| json!({"name": name, "service": {"a": 1.0}, "capacity": 2, "when_full": "block"});
        json!({
            "classes": [{"name": "a", "population": population}],
            "stations": [station("one"), station("two")],
            "routes": [
                {"class": "a", "from": "client", "to": "one"},
                {"class": "a", "from": "one", "to": "two"},
                {"class": "a", "from": "two", "to": "one", "probability": 0.5},
                {"class": "a", "from": "two", "to": "client", "probability": 0.5},
            ],
        })
    };
    // Three customers in a ring of four places always find room; four do not.
    run(&model(content(3)));
    let line = refused(&model(content(4)), &settings());
    assert_eq!(line, "stations \"one\", \"two\" are full and wait for room at each other: a deadlock");
}

/// A customer whose request is dropped thinks again: the throughput is the rate at which customers think while there is room.
#[test]
fn closed_customers_think_again_after_a_loss() {
    let result = run(&closed(6, json!(2.0), json!({"service": {"request": 1.0}, "servers": 2, "capacity": 3})));
    let exact = chain(0u32, |&n| {
        let mut moves = Vec::new();
        if n < 3 {
            moves.push((n + 1, f64::from(6 - n) / 2.0));
        }
        if n > 0 {
            moves.push((n - 1, f64::from(n.min(2))));
        }
        moves
    });
    let rate = |is_full: bool| -> f64 {
        exact.iter().filter(|(n, _)| (*n == 3) == is_full).map(|(n, share)| f64::from(6 - n) / 2.0 * share).sum()
    };
    near(result.classes[0].throughput_per_s, rate(false));
    near(result.classes[0].lost_per_s, rate(true));
}

#[test]
fn a_closed_loop_that_loses_requests_without_think_time_is_rejected() {
    let station = json!({"service": {"request": 1.0}, "capacity": 2});
    assert!(refused(&closed(3, json!(0.0), station), &settings()).contains("time stands still"));
}

/// A dropped leg fails its request only if too few legs are left.
#[test]
fn legs_are_lost() {
    let content = |join: &str| {
        json!({
            "classes": [{"name": "a", "arrivals_per_s": 1.0}],
            "stations": [
                {"name": "x", "service": {"a": 1.0}, "capacity": 1},
                {"name": "y", "service": {"a": 1.0}, "servers": "infinite"},
            ],
            "forks": [{"name": "f", "branches": ["x", "y"], "join": join}],
            "visits": {"a": {"f": 1}},
        })
    };
    // The first station is M/M/1/1 at load 1: it is full half of the time.
    let result = run(&model(content("all")));
    near(result.classes[0].lost_per_s, 0.5);
    near(result.classes[0].throughput_per_s, 0.5);
    let result = run(&model(content("first")));
    assert_eq!(result.classes[0].lost_per_s.mean, Some(0.0));
    near(result.classes[0].throughput_per_s, 1.0);
    near(result.classes[0].response_s, 0.5 * 0.5 + 0.5 * 1.0);
}

/// A request that is lost inside a pool releases its slot.
#[test]
fn lost_requests_free_their_slots() {
    let content = json!({
        "classes": [{"name": "a", "population": 5, "think": 1.0}],
        "stations": [
            {"name": "x", "service": {"a": 0.5}, "servers": "infinite"},
            {"name": "y", "service": {"a": 0.5}, "capacity": 1},
        ],
        "visits": {"a": {"x": 1, "y": 1}},
        "pools": [{"name": "p", "slots": 2, "inside": ["x", "y"]}],
    });
    let result = run(&model(content));
    assert!(mean(result.classes[0].lost_per_s) > 0.1);
    // Slots are in use from the start to the end of the visits, whether they succeed or not.
    let occupied = mean(result.stations[0].classes[0].queue_length) + mean(result.stations[1].classes[0].queue_length);
    within(mean(result.pools[0].busy), occupied, 1e-9);
}

/// A server that serves up to two at once. State: in service, waiting; the others think.
#[test]
fn batches() {
    for (population, batch) in [(4u32, 2u32), (6, 4)] {
        let exact = chain((0u32, 0u32), |&(serving, waiting)| {
            let mut moves = Vec::new();
            let thinking = population - serving - waiting;
            if thinking > 0 {
                let next = if serving == 0 { (1, 0) } else { (serving, waiting + 1) };
                moves.push((next, f64::from(thinking)));
            }
            if serving > 0 {
                let taken = waiting.min(batch);
                moves.push(((taken, waiting - taken), 1.0));
            }
            moves
        });
        let throughput_per_s: f64 = exact.iter().map(|((serving, _), share)| f64::from(*serving) * share).sum();
        let busy: f64 = exact.iter().filter(|((serving, _), _)| *serving > 0).map(|(_, share)| share).sum();
        let station = json!({"service": {"request": 1.0}, "batch": batch});
        let result = run(&closed(u64::from(population), json!(1.0), station));
        near(result.classes[0].throughput_per_s, throughput_per_s);
        near(result.stations[0].classes[0].utilisation, busy);
    }
}

/// A batch before a full station leaves one by one, and its server is free after the last. State: in service together,
/// done but blocked, waiting; the rest, at most one, is at the second station.
#[test]
fn a_batch_is_blocked() {
    let exact = chain((2u32, 0u32, 1u32, 0u32), |&(serving, blocked, waiting, there)| {
        let mut moves = Vec::new();
        // An idle server takes up to two waiting requests.
        let filled = |serving: u32, blocked: u32, waiting: u32, there: u32| {
            let taken = if serving + blocked == 0 { waiting.min(2) } else { 0 };
            (serving + taken, blocked, waiting - taken, there)
        };
        if serving > 0 {
            // All are done; one finds room if there is any.
            let goes = u32::from(there == 0);
            moves.push((filled(0, serving - goes, waiting, there + goes), 1.0));
        }
        if there == 1 && blocked > 0 {
            // Another request takes its place, which may free the server for waiting requests; then the blocked one enters.
            let taken = if blocked == 1 { waiting.min(2) } else { 0 };
            let is_idle = blocked == 1 && taken == 0;
            let back = u32::from(is_idle);
            moves.push(((taken + back, blocked - 1, waiting - taken + 1 - back, 1), 2.0));
        } else if there == 1 {
            moves.push((filled(serving, blocked, waiting + 1, 0), 2.0));
        }
        moves
    });
    let there: f64 = exact.iter().filter(|((_, _, _, there), _)| *there == 1).map(|(_, share)| share).sum();
    let first = json!({"service": {"a": 1.0}, "batch": 2});
    let second = json!({"service": {"a": 0.5}, "capacity": 1, "when_full": "block"});
    let result = run(&ring(3, first, second));
    near(result.classes[0].throughput_per_s, 2.0 * there);
    near(result.stations[1].classes[0].utilisation, there);
}

#[test]
fn a_capacity_below_the_number_of_servers_is_rejected() {
    let content = json!({
        "classes": [{"name": "a", "arrivals_per_s": 1.0}],
        "stations": [{"name": "x", "service": {"a": 1.0}, "servers": 4, "capacity": 3}],
        "visits": {"a": {"x": 1}},
    });
    let line = parse(content).unwrap_err().to_string();
    assert_eq!(line, "stations[0] 'x'.capacity: includes requests in service: at least 4");
}
