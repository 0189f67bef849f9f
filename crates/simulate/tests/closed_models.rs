//! Closed models with known solutions: product form, repairmen, class switching, and values that the field reports published.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{closed, mean, model, near, run, run_with, settings, within};
use serde_json::json;
use simulate::Settings;

#[test]
fn repairmen() {
    let result = run(&closed(3, json!(2.0), json!({"service": {"request": 0.25}, "servers": 2})));
    near(result.classes[0].throughput_per_s, 1.33241947);
    let result = run(&closed(100, json!(300.0), json!({"service": {"request": 0.63}})));
    near(result.classes[0].throughput_per_s, 0.33245315);
    near(result.classes[0].response_s, 0.79425969);
    let result = run(&closed(400, json!(0.0), json!({"service": {"request": 0.444}, "servers": 300})));
    near(result.classes[0].throughput_per_s, 675.6757);
    within(mean(result.classes[0].response_s), 0.5920, 1e-3);
    for (population, response_s) in [(10, 4.000157012), (30, 5.766437887), (50, 15.000022354), (90, 35.0)] {
        let result = run(&closed(population, json!(10.0), json!({"service": {"request": 4.0}, "servers": 8})));
        near(result.classes[0].response_s, response_s);
    }
}

/// The distribution of the think time does not matter, nor that of the service where it is shared.
#[test]
fn think_time_depends_only_on_its_mean() {
    let think = json!({"mean_s": 2.0, "distribution": "deterministic"});
    let service = json!({"mean_s": 0.25, "distribution": "gamma", "squared_variation": 3});
    let station = json!({"service": {"request": service}, "servers": 2, "discipline": "ps"});
    near(run(&closed(3, think, station)).classes[0].throughput_per_s, 1.33241947);
}

#[test]
fn product_form() {
    let network = |demands_s: [f64; 3], think: f64, population: u64| {
        model(json!({
            "classes": [{"name": "a", "population": population, "think": think}],
            "stations": demands_s.iter().enumerate()
                .map(|(index, demand_s)| json!({"name": format!("s{index}"), "service": {"a": demand_s}}))
                .collect::<Vec<_>>(),
            "visits": {"a": {"s0": 1, "s1": 1, "s2": 1}},
        }))
    };
    let result = run(&network([0.605, 2.1, 1.35], 15.0, 3));
    near(result.classes[0].throughput_per_s, 0.15151649);
    near(result.classes[0].response_s, 4.79982478);
    for (station, length) in [0.097566, 0.394657, 0.235030].into_iter().enumerate() {
        near(result.stations[station].classes[0].queue_length, length);
    }
}

#[test]
fn servers_of_any_number() {
    let content = json!({
        "classes": [{"name": "a", "population": 3}],
        "stations": [
            {"name": "one", "service": {"a": 0.5}, "servers": 2},
            {"name": "two", "service": {"a": 0.3}},
            {"name": "three", "service": {"a": 0.4}},
            {"name": "delay", "service": {"a": 1.0}, "servers": "infinite"},
        ],
        "visits": {"a": {"one": 1, "two": 1, "three": 1, "delay": 1}},
    });
    let result = run(&model(content));
    near(result.classes[0].throughput_per_s, 1.21746063);
    for (station, length) in [0.623679, 0.472872, 0.685988, 1.217461].into_iter().enumerate() {
        near(result.stations[station].classes[0].queue_length, length);
    }
    assert_eq!(result.stations[3].classes[0].utilisation.mean, Some(0.0));
}

/// Visits of 3.3 and 0.4 have the same mean values as demands of 3.3 and 0.4 times the service time.
#[test]
fn visits_are_counted() {
    let content = json!({
        "classes": [{"name": "a", "population": 3, "think": 15.0}],
        "stations": [
            {"name": "x", "service": {"a": 0.605 / 3.3}},
            {"name": "y", "service": {"a": 2.1 / 0.4}},
            {"name": "z", "service": {"a": 1.35}},
        ],
        "visits": {"a": {"z": 1, "x": 3.3, "y": 0.4}},
    });
    let result = run(&model(content));
    near(result.classes[0].throughput_per_s, 0.15151649);
    let visits = mean(result.stations[0].classes[0].throughput_per_s) / mean(result.classes[0].throughput_per_s);
    within(visits, 3.3, 0.002);
}

/// Two classes: N (1, 1), D ((1, 3), (2, 4)): X (3/19, 2/19).
#[test]
fn two_classes() {
    let content = json!({
        "classes": [{"name": "a", "population": 1}, {"name": "b", "population": 1}],
        "stations": [
            {"name": "x", "service": {"a": 1.0, "b": 2.0}, "discipline": "ps"},
            {"name": "y", "service": {"a": 3.0, "b": 4.0}, "discipline": "ps"},
        ],
        "visits": {"a": {"x": 1, "y": 1}, "b": {"x": 1, "y": 1}},
    });
    let result = run(&model(content));
    near(result.classes[0].throughput_per_s, 3.0 / 19.0);
    near(result.classes[1].throughput_per_s, 2.0 / 19.0);
}

/// Of a population that draws the next operation, 5 % are of the second class, however long it takes.
#[test]
fn customers_switch() {
    let content = json!({
        "classes": [{"name": "get", "population": 20, "think": 1.0}, {"name": "set", "think": 1.0}],
        "stations": [{"name": "s", "service": {"get": 0.05, "set": 0.05}, "servers": 2}],
        "visits": {"get": {"s": 1}, "set": {"s": 1}},
        "switching": {"get": {"get": 0.95, "set": 0.05}, "set": {"get": 0.95, "set": 0.05}},
    });
    let result = run(&model(content));
    let rates: Vec<f64> = result.classes.iter().map(|class| mean(class.throughput_per_s)).collect();
    within(rates[1] / (rates[0] + rates[1]), 0.05, 0.01);
    // N = X (R + Z) over all.
    let cycles: f64 =
        result.classes.iter().map(|class| mean(class.throughput_per_s) * (mean(class.response_s) + 1.0)).sum();
    within(cycles, 20.0, 0.002);
}

/// A request may change its class on the way; its customer continues from the class in which it ended.
#[test]
fn requests_change_class_on_the_way() {
    let content = json!({
        "classes": [{"name": "ask", "population": 5, "think": 1.0}, {"name": "miss", "think": 3.0}],
        "stations": [
            {"name": "cache", "service": {"ask": 0.1}, "servers": "infinite"},
            {"name": "store", "service": {"miss": 0.5}, "servers": "infinite"},
        ],
        "routes": [
            {"class": "ask", "from": "client", "to": "cache"},
            {"class": "ask", "from": "cache", "to": "client", "probability": 0.75},
            {"class": "ask", "from": "cache", "to": "store", "probability": 0.25, "to_class": "miss"},
            {"class": "miss", "from": "store", "to": "client"},
        ],
        "switching": {"miss": {"ask": 1.0}},
    });
    let result = run(&model(content));
    near(result.classes[0].response_s, 0.1 + 0.25 * 0.5);
    near(result.classes[0].throughput_per_s, 5.0 / 1.225);
    assert_eq!(result.classes[1].throughput_per_s.mean, Some(0.0));
    assert_eq!((result.classes[1].response_s.mean, result.classes[1].quantiles.is_none()), (None, true));
    near(result.stations[1].classes[1].throughput_per_s, 0.25 * 5.0 / 1.225);
}

/// A16's network, rebuilt: GET 19 718 and SET 806 a second, 8.67 and 11.17 ms.
#[test]
fn the_network_of_a16() {
    let mut stations = vec![
        json!({"name": "network", "servers": "infinite", "service": {"get": 0.005654, "set": 0.005712}}),
        json!({"name": "balancer", "service": {"get": 0.0000039, "set": 0.0000039}}),
    ];
    let mut visits = json!({"get": {"network": 1, "balancer": 1}, "set": {"network": 1, "balancer": 1}});
    for index in 0..5 {
        stations.push(json!({"name": format!("r{index}"), "servers": 32, "service": {"get": 0.003014}}));
        stations.push(json!({"name": format!("w{index}"), "service": {"set": 0.00311}}));
        visits["get"][format!("r{index}")] = json!(0.2);
        visits["set"][format!("w{index}")] = json!(0.2);
    }
    let content = json!({
        "classes": [{"name": "get", "population": 171}, {"name": "set", "population": 9}],
        "stations": stations,
        "visits": visits,
    });
    let result = run_with(&model(content), &Settings { requests: Some(200_000), ..settings() });
    within(mean(result.classes[0].throughput_per_s), 19_718.0, 0.005);
    within(mean(result.classes[0].response_s), 0.00867, 0.005);
    within(mean(result.classes[1].throughput_per_s), 806.0, 0.02);
    within(mean(result.classes[1].response_s), 0.01117, 0.02);
}
