//! An invalid model is refused in one line that names the field and the rule; a valid one is read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::parse;
use serde_json::{Value, json};
use simulate::Model;
use std::fs;

fn usual() -> Value {
    json!({
        "format": "waystage-model/1",
        "name": "usual",
        "classes": [
            {"name": "get", "population": 4, "think": 1.0},
            {"name": "set", "arrivals_per_s": 0.5},
        ],
        "stations": [
            {"name": "net", "service": {"get": 0.1, "set": 0.1}, "servers": "infinite"},
            {"name": "work", "service": {"get": 0.2, "set": 0.3}},
            {"name": "disk", "service": {"get": 0.2, "set": 0.3}},
        ],
        "forks": [{"name": "both", "branches": ["work", "disk"]}],
        "pools": [{"name": "pool", "slots": 2, "inside": ["work", "both"]}],
        "visits": {"get": {"net": 1, "work": 1}, "set": {"net": 1, "both": 1}},
    })
}

/// The default model with one value changed, by its JSON pointer; null removes it.
fn changed(pointer: &str, value: Value) -> Value {
    let mut content = usual();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match content.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[name.parse::<usize>().unwrap()] = value,
        Value::Object(map) if value.is_null() => drop(map.remove(name)),
        Value::Object(map) => drop(map.insert(name.into(), value)),
        _ => panic!("{pointer}"),
    }
    content
}

fn line(content: Value) -> String {
    let line = parse(content).err().unwrap().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn invalid_models_are_rejected() {
    parse(usual()).unwrap();
    let table = [
        ("/format", json!("waystage-model/2"), "format: is 'waystage-model/2', not 'waystage-model/1'"),
        ("/name", json!(3), "name: must be a text, not 3"),
        ("/clases", json!([]), "the model.clases: is not a field; the fields are classes, forks, format, name, pools"),
        ("/stations", Value::Null, "the model.stations: is missing"),
        ("/classes", json!({}), "classes: must be a list, not {}"),
        ("/classes", json!([]), "classes: needs at least one entry"),
        ("/classes/0/name", json!("client"), "classes: 'client' is not a valid name; 'client' is reserved"),
        ("/classes/0/name", json!("set"), "classes: the name 'set' is used twice"),
        ("/classes/0/population", json!(-1), "classes[0] 'get'.population: must be a whole number >= 0, not -1"),
        ("/classes/0/population", json!(1.5), "classes[0].population: must be a whole number, not 1.5"),
        ("/classes/0/population", json!(true), "classes[0].population: must be a whole number, not true"),
        ("/classes/0/population", json!(0), "class 'get'.population: is zero, and no customer ever switches"),
        ("/classes/0/population", json!(20_000_000), "classes: have 20000000 customers; at most 10000000"),
        ("/classes/0/arrivals_per_s", json!(1), "classes[0] 'get': has a population and arrivals"),
        ("/classes/1/arrivals_per_s", json!(-0.5), "classes[1] 'set'.arrivals_per_s: must be a finite number >= 0"),
        ("/classes/1/arrivals_per_s", json!("1"), "classes[1].arrivals_per_s: must be a number, not \"1\""),
        ("/classes/1/priority", json!(0.5), "classes[1].priority: must be a whole number, not 0.5"),
        ("/classes/0/think", json!({"mean_s": -2}), "classes[0].think.mean_s: must be a finite number of seconds"),
        ("/classes/0/thinking", json!(1), "classes[0].thinking: is not a field; the fields are"),
        ("/stations/1/name", json!("net"), "stations, forks and pools: the name 'net' is used twice"),
        ("/stations/1/service", json!({}), "stations[1].service: must be an object: class to service time"),
        ("/stations/1/service", json!(1), "stations[1].service: must be an object: class to service time"),
        ("/stations/1/service/put", json!(1), "stations[1] 'work'.service: there is no class 'put'"),
        ("/stations/1/servers", json!(0), "stations[1] 'work'.servers: must be a whole number >= 1 or infinite, not 0"),
        ("/stations/1/servers", json!("many"), "stations[1].servers: must be a whole number >= 1 or infinite"),
        ("/stations/1/discipline", json!("lifo"), "stations[1].discipline: 'lifo' is none of fcfs, ps, priority"),
        ("/stations/1/rates", json!([1, 0]), "stations[1] 'work'.rates[1]: must be a finite number > 0, not 0"),
        ("/stations/0/rates", json!([1]), "stations[0] 'net'.rates: replaces servers; leave servers at 1"),
        ("/stations/1/capacity", json!(0), "stations[1] 'work'.capacity: must be a whole number >= 1, not 0"),
        ("/stations/1/when_full", json!("drop"), "stations[1].when_full: 'drop' is none of lose, block"),
        ("/stations/0/batch", json!(2), "stations[0] 'net'.batch: needs discipline fcfs, a number of servers"),
        ("/forks/0/branches", json!([]), "forks[0] 'both'.branches: must name at least one station, each once"),
        ("/forks/0/branches", json!(["work", "work"]), "forks[0] 'both'.branches: must name at least one"),
        ("/forks/0/branches", json!(["tape"]), "forks[0] 'both'.branches: there is no station 'tape'"),
        ("/forks/0/branches", json!("work"), "forks[0].branches: must be a list, not \"work\""),
        ("/forks/0/join", json!("some"), "forks[0].join: 'some' is none of all, majority, first"),
        ("/forks/0/send_s", json!(-1), "forks[0] 'both'.send_s: must be a finite number >= 0, not -1"),
        ("/pools/0/slots", json!(0), "pools[0] 'pool'.slots: must be a whole number >= 1, not 0"),
        ("/pools/0/inside", json!([]), "pools[0] 'pool'.inside: must name at least one station or fork"),
        ("/pools/0/inside", json!(["x"]), "pools[0] 'pool'.inside: there is no station or fork 'x'"),
        ("/pools/0/inside", json!(["work", "work"]), "pools[0] 'pool'.inside: 'work' is already inside a pool"),
        ("/visits", Value::Null, "visits: give either visits or routes, one of the two"),
        ("/visits/put", json!({"net": 1}), "visits.put: there is no such class"),
        ("/visits/get", json!({"net": 0}), "visits.get: has no visits"),
        ("/visits/get/tape", json!(1), "visits.get.tape: there is no such station or fork"),
        ("/visits/get/net", json!(-1), "visits.get.net: must be a finite number >= 0, not -1"),
        ("/visits/get", Value::Null, "class 'get': makes requests, but has no visits and no route"),
        ("/visits/set", json!({"net": 1, "work": 1}), "station or fork 'disk': no request visits it"),
        ("/visits", json!({"get": 1}), "visits: must be an object of objects"),
        ("/stations/2/service/set", Value::Null, "visits.set.both: station 'disk' has no service time for class 'set'"),
        ("/switching", json!({"put": {"get": 1}}), "switching.put: there is no such class"),
        ("/switching", json!({"get": {"get": 0.9}}), "switching.get: must sum to 1, not 0.9"),
        ("/switching", json!({"set": {"set": 1}}), "switching.set: is an open class; its requests do not return"),
        ("/switching", json!({"get": {"set": 1}}), "classes get, set: customers switch between closed and open"),
        ("/classes/1/arrivals_per_s", json!(4), "station 'work': is unstable: utilisation 1.2000 is not below 1"),
        ("/stamps", json!({"asked": "enter work"}), "stamps.asked: is no stage; there are received, parsed"),
        ("/stamps", json!({"sent": "enter"}), "stamps.sent: 'enter' is no event such as 'enter NODE'"),
        ("/stamps", json!({"sent": "start both"}), "stamps.sent: there is nothing called 'both' to start"),
        ("/stamps", json!({"sent": "go work"}), "stamps.sent: 'go' is none of enter, start, leave, acquire, release"),
    ];
    for (pointer, value, expected) in table {
        let found = line(changed(pointer, value));
        assert!(found.starts_with(expected), "{pointer}: {found} is not {expected}");
    }
}

fn routed(routes: Value) -> Value {
    json!({
        "classes": [{"name": "a", "population": 2, "think": 1}, {"name": "b"}],
        "stations": [{"name": "x", "service": {"a": 1, "b": 1}}, {"name": "y", "service": {"a": 1}}],
        "switching": {"b": {"a": 1}},
        "routes": routes,
    })
}

#[test]
fn routes_must_lead_somewhere_and_back() {
    let route = |from: &str, to: &str, probability: f64| json!({"class": "a", "from": from, "to": to, "probability": probability});
    let whole = json!([
        route("client", "x", 1.0), route("x", "y", 1.0),
        {"class": "a", "from": "y", "to": "x", "to_class": "b"},
        {"class": "b", "from": "x", "to": "client"},
    ]);
    parse(routed(whole.clone())).unwrap();
    let with = |index: usize, route: Value| {
        let mut routes = whole.clone();
        routes[index] = route;
        line(routed(routes))
    };
    assert!(with(0, route("client", "x", 0.9)).starts_with("routes of 'a' from 'client': must sum to 1, not 0.9"));
    assert!(with(0, route("client", "client", 1.0)).starts_with("routes[0]: leads from the client to the client"));
    assert!(with(0, route("client", "z", 1.0)).starts_with("routes[0]: there is no station or fork 'z'"));
    assert!(with(0, route("client", "x", 0.0)).starts_with("routes[0].probability: must be above 0 and at most 1"));
    assert!(
        with(0, json!({"class": "c", "from": "client", "to": "x"})).starts_with("routes[0].class: there is no class")
    );
    assert!(with(0, json!({"class": "a", "from": "client"})).starts_with("routes[0].to: is missing"));
    let into_nowhere = json!({"class": "a", "from": "y", "to": "y", "to_class": "b"});
    assert!(with(2, into_nowhere).starts_with("routes[2]: station 'y' has no service time for class 'b'"));
    assert!(with(3, json!({"class": "b", "from": "client", "to": "x"})).contains("which no route leaves"));
    let round = json!({"class": "b", "from": "x", "to": "x"});
    assert!(with(3, round).starts_with("routes: a request can circulate forever"));
}

#[test]
fn customers_must_return_to_their_class() {
    let content = |switching: Value| {
        let class = |name: &str, population: u64| json!({"name": name, "population": population, "think": 1});
        json!({
            "classes": [class("a", 2), class("b", 2), class("c", 2)],
            "stations": [{"name": "x", "service": {"a": 1, "b": 1, "c": 1}}],
            "visits": {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}},
            "switching": switching,
        })
    };
    let parts = json!({"a": {"b": 0.5, "c": 0.5}});
    assert_eq!(line(content(parts)), "switching: customers end in classes between which they never switch again");
    for meets in [json!({}), json!({"a": {"b": 1}}), json!({"a": {"b": 0.5, "c": 0.5}, "b": {"c": 1}, "c": {"b": 1}})] {
        parse(content(meets)).unwrap();
    }
}

#[test]
fn a_loop_without_time_is_rejected() {
    let content = json!({
        "classes": [{"name": "a", "population": 2}],
        "stations": [{"name": "x", "service": {"a": 0}}],
        "visits": {"a": {"x": 1}},
    });
    assert_eq!(line(content), "classes: a request takes no time at all: give a think time or a service time");
}

#[test]
fn stability_counts_legs_rates_batches_and_all_classes() {
    let unstable = |station: Value, arrivals_per_s: f64| {
        let mut station = station;
        station["name"] = json!("x");
        let content = json!({
            "classes": [{"name": "a", "arrivals_per_s": arrivals_per_s}],
            "stations": [station],
            "forks": [{"name": "f", "branches": ["x"]}],
            "visits": {"a": {"f": 1, "x": 1.5}},
        });
        parse(content).err().map(|error| error.to_string())
    };
    let service = json!({"a": 1.0});
    assert!(unstable(json!({"service": service}), 0.39).is_none());
    assert!(unstable(json!({"service": service}), 0.4).unwrap().contains("utilisation 1.0000"));
    assert!(unstable(json!({"service": service, "servers": 3}), 1.19).is_none());
    assert!(unstable(json!({"service": service, "servers": 3}), 1.2).is_some());
    assert!(unstable(json!({"service": service, "batch": 4}), 1.59).is_none());
    assert!(unstable(json!({"service": service, "rates": [9, 2]}), 0.79).is_none());
    assert!(unstable(json!({"service": service, "rates": [9, 2]}), 0.8).is_some());
    assert!(unstable(json!({"service": service, "servers": "infinite"}), 100.0).is_none());
    assert!(unstable(json!({"service": service, "capacity": 3}), 100.0).is_none());
}

#[test]
fn files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.json");
    let line = |text: &str| {
        fs::write(&path, text).unwrap();
        let line = Model::read(&path).err().unwrap().to_string();
        assert!(line.starts_with(path.to_str().unwrap()) && !line.contains('\n'), "{line}");
        line
    };
    assert!(line("{").contains("the model: is not JSON"));
    assert!(line("[]").contains("the model: must be a JSON object"));
    assert!(line("{\"format\": NaN}").contains("is not JSON"));
    let mut content = usual();
    content["stations"][1]["service"]["get"] = json!({"distribution": "empirical", "file": "t.csv", "column": "a_ms"});
    assert!(line(&content.to_string()).contains("stations[1].service.get."));
    fs::write(folder.path().join("t.csv"), "a_ms\n100\n300\n").unwrap();
    fs::write(&path, content.to_string()).unwrap();
    Model::read(&path).unwrap();
    let error = Model::read(&folder.path().join("none.json")).err().unwrap().to_string();
    assert!(error.contains("none.json: the model: cannot be read"), "{error}");
}
