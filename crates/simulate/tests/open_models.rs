//! Open models of one station with solutions in textbooks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{mean, model, near, open, run, run_with, settings, within};
use serde_json::json;
use simulate::{Settings, Simulation};

fn response_quantile_s(simulation: &Simulation, share: f64) -> f64 {
    let quantiles = simulation.classes[0].quantiles.as_ref().unwrap();
    let index = quantiles.share.iter().position(|&known| (known - share).abs() < 1e-9).unwrap();
    quantiles.response_s[index]
}

#[test]
fn one_server() {
    let result = run(&open(0.8, json!({"service": {"request": 1.0}})));
    let (class, station) = (&result.classes[0], &result.stations[0]);
    near(class.throughput_per_s, 0.8);
    near(class.response_s, 5.0);
    near(station.classes[0].queue_length, 4.0);
    near(station.classes[0].waiting_s, 4.0);
    near(station.classes[0].utilisation, 0.8);
    assert_eq!(class.lost_per_s.mean, Some(0.0));
    within(response_quantile_s(&result, 0.95), 14.97866, 0.03);
    within(response_quantile_s(&result, 0.99), 23.02585, 0.05);
    for present in 0..6 {
        within(station.present_probability[present], 0.2 * 0.8f64.powi(present as i32), 0.03);
    }
    let sum: f64 = station.present_probability.iter().sum();
    within(sum + station.present_more, 1.0, 1e-9);
}

#[test]
fn several_servers() {
    let result = run(&open(9.0, json!({"service": {"request": 0.2}, "servers": 4})));
    near(result.classes[0].response_s, 0.2116849);
    let station = &result.stations[0];
    within(mean(station.classes[0].queue_length) - 9.0 * 0.2, 0.1051639, 0.05);
    let waits: f64 = 1.0 - station.present_probability[..4].iter().sum::<f64>();
    within(waits, 0.1285336, 0.03);
    near(station.classes[0].utilisation, 0.45);
    let heavy = open(9.0, json!({"service": {"request": 0.2}, "servers": 2}));
    let result = run_with(&heavy, &Settings { requests: Some(400_000), ..settings() });
    near(result.classes[0].response_s, 1.052632);
}

#[test]
fn general_service() {
    for (time, waiting_s) in [
        (json!({"mean_s": 1, "distribution": "deterministic"}), 0.5),
        (json!({"mean_s": 1, "distribution": "erlang", "squared_variation": 0.5}), 0.75),
        (json!({"mean_s": 1, "distribution": "gamma", "squared_variation": 4}), 2.5),
        (json!({"mean_s": 1, "distribution": "hyperexponential", "squared_variation": 4}), 2.5),
        (json!({"mean_s": 1, "distribution": "lognormal", "squared_variation": 2}), 1.5),
        (json!({"distribution": "empirical", "values_s": [0.5, 0.5, 2.0]}), 0.75),
    ] {
        let longer = Settings { requests: Some(400_000), ..settings() };
        let result = run_with(&open(0.5, json!({"service": {"request": time}})), &longer);
        near(result.stations[0].classes[0].waiting_s, waiting_s);
        near(result.classes[0].response_s, 1.0 + waiting_s);
    }
}

/// D/M/1 and gamma arrivals: R = 1 / (mu (1 - s)), where s solves s = A*(mu (1 - s)) (Kleinrock, Queueing Systems I, 6.4).
#[test]
fn general_arrivals() {
    let transform = |variation: f64, rate: f64, at: f64| match variation {
        0.0 => (-at / rate).exp(),
        variation => (1.0 + at * variation / rate).powf(-1.0 / variation),
    };
    for variation in [0.0, 0.5, 3.0] {
        let root = (0..1000).fold(0.5, |root, _| transform(variation, 0.7, 1.0 - root));
        let content = json!({
            "classes": [{"name": "a", "arrivals_per_s": 0.7, "arrival_squared_variation": variation}],
            "stations": [{"name": "s", "service": {"a": 1.0}}],
            "visits": {"a": {"s": 1}},
        });
        near(run(&model(content)).classes[0].response_s, 1.0 / (1.0 - root));
    }
}

#[test]
fn finite_room() {
    // M/M/4/6, 50 and 10: a share of .2935430 is lost.
    let result = run(&open(50.0, json!({"service": {"request": 0.1}, "servers": 4, "capacity": 6})));
    near(result.classes[0].lost_per_s, 50.0 * 0.2935430);
    near(result.classes[0].throughput_per_s, 50.0 * (1.0 - 0.2935430));
    within(result.stations[0].present_probability[6], 0.2935430, 0.01);
    assert_eq!(result.stations[0].present_probability.len(), 7);
    // M/M/3/7, 40 and 30; M/M/2/5, 3 and 2.
    let result = run(&open(40.0, json!({"service": {"request": 1.0 / 30.0}, "servers": 3, "capacity": 7})));
    near(result.classes[0].response_s, 0.0365170);
    let result = run(&open(3.0, json!({"service": {"request": 0.5}, "servers": 2, "capacity": 5})));
    near(result.stations[0].classes[0].queue_length, 2.0059545);
    near(result.stations[0].classes[0].waiting_s, 0.2308576);
    near(result.classes[0].lost_per_s, 3.0 * 0.0851138);
    // Overloaded, but the capacity limits it: M/M/1/3 with twice the load.
    let result = run(&open(2.0, json!({"service": {"request": 1.0}, "capacity": 3})));
    near(result.classes[0].throughput_per_s, 2.0 * 7.0 / 15.0);
}

/// All requests wait for room outside: blocking before a station changes only where they wait.
#[test]
fn arrivals_block_at_a_full_station() {
    let station = json!({"service": {"request": 1.0}, "capacity": 2, "when_full": "block"});
    let result = run(&open(0.8, station));
    near(result.classes[0].response_s, 5.0);
    assert_eq!(result.stations[0].present_probability.len(), 3);
    near(result.stations[0].classes[0].utilisation, 0.8);
}

/// Processor sharing: R = S / (1 - rho) whatever the distribution.
#[test]
fn processor_sharing_depends_only_on_the_mean_service_time() {
    for time in [
        json!(1.0),
        json!({"mean_s": 1, "distribution": "deterministic"}),
        json!({"mean_s": 1, "distribution": "gamma", "squared_variation": 5}),
    ] {
        let longer = Settings { requests: Some(400_000), ..settings() };
        let result = run_with(&open(0.7, json!({"service": {"request": time}, "discipline": "ps"})), &longer);
        near(result.classes[0].response_s, 1.0 / 0.3);
        near(result.stations[0].classes[0].waiting_s, 0.7 / 0.3);
        near(result.stations[0].classes[0].utilisation, 0.7);
        near(result.stations[0].classes[0].queue_length, 0.7 / 0.3);
    }
    // Several servers with processor sharing: as M/M/4, whatever the distribution.
    let time = json!({"mean_s": 0.2, "distribution": "deterministic"});
    let result = run(&open(9.0, json!({"service": {"request": time}, "servers": 4, "discipline": "ps"})));
    near(result.classes[0].response_s, 0.2116849);
    near(result.stations[0].classes[0].utilisation, 0.45);
}

/// Rates of min(n, m) are m servers, with any discipline.
#[test]
fn rates_replace_servers() {
    for discipline in ["fcfs", "ps", "preemptive"] {
        let station = json!({"service": {"request": 0.2}, "rates": [1, 2, 3, 4], "discipline": discipline});
        let result = run(&open(9.0, station));
        near(result.classes[0].response_s, 0.2116849);
        // The probability of a busy station: 1 - p(0) of M/M/4 with 1.8.
        let idle = result.stations[0].present_probability[0];
        within(mean(result.stations[0].classes[0].utilisation), 1.0 - idle, 1e-6);
    }
}

fn two_classes(discipline: &str) -> Simulation {
    run(&model(json!({
        "classes": [
            {"name": "low", "arrivals_per_s": 0.4, "priority": 7},
            {"name": "high", "arrivals_per_s": 0.3, "priority": -1},
        ],
        "stations": [{"name": "s", "service": {"low": 1.0, "high": 1.0}, "discipline": discipline}],
        "visits": {"low": {"s": 1}, "high": {"s": 1}},
    })))
}

/// Cobham (1954): W_k = W_0 / ((1 - sigma_(k-1)) (1 - sigma_k)), W_0 = sum of lambda E[S^2] / 2.
#[test]
fn priorities() {
    let result = two_classes("priority");
    let waiting = |class: usize| result.stations[0].classes[class].waiting_s;
    near(waiting(1), 0.7 / 0.7);
    near(waiting(0), 0.7 / (0.7 * 0.3));
    near(result.stations[0].classes[0].utilisation, 0.4);
    let result = two_classes("fcfs");
    near(result.stations[0].classes[0].waiting_s, 0.7 / 0.3);
    near(result.stations[0].classes[1].waiting_s, 0.7 / 0.3);
}

/// Preemptive resume: the high class does not see the low one; T_2 = S / (1 - rho_1) + W_0 / ((1 - rho_1) (1 - rho)).
#[test]
fn interruption() {
    let result = two_classes("preemptive");
    near(result.classes[1].response_s, 1.0 / 0.7);
    near(result.classes[0].response_s, 1.0 / 0.7 + 0.7 / (0.7 * 0.3));
    let waiting = mean(result.stations[0].classes[0].waiting_s);
    within(waiting, mean(result.classes[0].response_s) - 1.0, 0.02);
    // Two servers: the high class is M/M/2 alone, and all together are M/M/2 (exponential service has no memory).
    let result = run(&model(json!({
        "classes": [
            {"name": "low", "arrivals_per_s": 0.8, "priority": 2},
            {"name": "high", "arrivals_per_s": 0.6, "priority": 1},
        ],
        "stations": [{"name": "s", "service": {"low": 1.0, "high": 1.0}, "discipline": "preemptive", "servers": 2}],
        "visits": {"low": {"s": 1}, "high": {"s": 1}},
    })));
    near(result.classes[1].response_s, 1.0 / (1.0 - 0.09));
    let present: f64 = result.stations[0].classes.iter().map(|class| mean(class.queue_length)).sum();
    within(present, 1.4 / (1.0 - 0.49), 0.02);
}

/// Two classes at two stations (Lazowska and others, Quantitative System Performance, p. 138).
#[test]
fn classes_share_stations() {
    let content = json!({
        "classes": [{"name": "A", "arrivals_per_s": 3.0 / 19.0}, {"name": "B", "arrivals_per_s": 2.0 / 19.0}],
        "stations": [
            {"name": "CPU", "service": {"A": 1.0, "B": 2.0}, "discipline": "ps"},
            {"name": "disk", "service": {"A": 3.0, "B": 4.0}, "discipline": "ps"},
        ],
        "visits": {"A": {"CPU": 1, "disk": 1}, "B": {"CPU": 1, "disk": 1}},
    });
    let result = run_with(&model(content), &Settings { requests: Some(600_000), ..settings() });
    let utilisation =
        |station: usize| -> f64 { result.stations[station].classes.iter().map(|class| mean(class.utilisation)).sum() };
    within(utilisation(0), 0.368421, 0.01);
    within(utilisation(1), 0.894737, 0.01);
    near(result.classes[0].response_s, 30.08333);
    near(result.classes[1].response_s, 41.16667);
}

/// Customers that return with probability p at each of two stations: Jackson's theorem.
#[test]
fn routes_lead_back() {
    let result = run(&model(json!({
        "classes": [{"name": "a", "arrivals_per_s": 0.3}],
        "stations": [{"name": "one", "service": {"a": 1.0}}, {"name": "two", "service": {"a": 0.5}}],
        "routes": [
            {"class": "a", "from": "client", "to": "one"},
            {"class": "a", "from": "one", "to": "two", "probability": 0.8},
            {"class": "a", "from": "one", "to": "one", "probability": 0.2},
            {"class": "a", "from": "two", "to": "one", "probability": 0.4},
            {"class": "a", "from": "two", "to": "client", "probability": 0.6},
        ],
    })));
    // Visits: v1 = 1 + .2 v1 + .4 v2, v2 = .8 v1.
    let first = 1.0 / (1.0 - 0.2 - 0.32);
    let (rho_one, rho_two) = (0.3 * first, 0.3 * 0.8 * first * 0.5);
    near(result.stations[0].classes[0].throughput_per_s, 0.3 * first);
    let response_s = (rho_one / (1.0 - rho_one) + rho_two / (1.0 - rho_two)) / 0.3;
    near(result.classes[0].response_s, response_s);
}
