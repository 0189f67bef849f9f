//! What the scenarios of the simulation draw: settings of the configuration, commands and events. Compared with the tables of
//! docs/test-coverage.md, so that a policy that no scenario uses is noticed.

use super::random::Random;
use super::reference_keys::{keys_of, uncommented};
use super::simulated_client::Disconnect;
use super::simulated_requests::{Ask, MANY_KEYS, next};
use super::simulated_scenario::Scenario;
use proxy::{
    DispatchConfig, Distribution, Failover, Hash, LogFormat, LogLevel, LoggedKeys, MultiGet, PartFailure, Reads,
    Resolve, Stamps, Writes,
};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};
use wire::{Limits, ParsedRequest, Verb, parse_request};

/// The keys whose values are names. Each value is a policy of its own.
const NAMED: [(&str, &[&str]); 14] = [
    ("dispatch", DispatchConfig::NAMES),
    ("multi-get", MultiGet::NAMES),
    ("part-failure", PartFailure::NAMES),
    ("stamps", Stamps::NAMES),
    ("log-level", LogLevel::NAMES),
    ("log-format", LogFormat::NAMES),
    ("log-keys", LoggedKeys::NAMES),
    ("traces-keys", LoggedKeys::NAMES),
    ("pools.distribution", Distribution::NAMES),
    ("pools.hash", Hash::NAMES),
    ("pools.writes", Writes::NAMES),
    ("pools.reads", Reads::NAMES),
    ("pools.failover", Failover::NAMES),
    ("pools.resolve", Resolve::NAMES),
];
/// Tables and lists, whose keys are listed one by one.
const TABLES: [&str; 12] = [
    "listen",
    "tls-certificates",
    "pools",
    "routes",
    "pools.listen",
    "pools.hedge",
    "pools.failover-pool",
    "pools.warm-up",
    "pools.shadow",
    "pools.rate-limit",
    "pools.near-cache",
    "pools.timeouts",
];
/// The number of requests of each client that are looked at.
const REQUESTS: u64 = 200;

/// Everything that a configuration can set: keys, and values that are names, such as `pools.writes = "all"`.
pub(crate) fn possible_settings() -> BTreeSet<String> {
    let all = keys_of(&uncommented().parse().unwrap());
    let is_plain = |key: &String| !TABLES.contains(&key.as_str()) && !NAMED.iter().any(|(named, _)| named == key);
    let named = NAMED.iter().flat_map(|(key, names)| names.iter().map(move |name| setting(key, name)));
    all.into_iter().filter(is_plain).chain(named).collect()
}

fn setting(key: &str, name: &str) -> String {
    format!("{key} = {name:?}")
}

/// The settings of these scenarios. A plain key counts if it has at least two values; a missing key is one.
pub(crate) fn drawn_settings(scenarios: &[Scenario]) -> BTreeSet<String> {
    let files = scenarios.iter().flat_map(Scenario::settings).map(|setting| Table::try_from(&setting.file).unwrap());
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let mut own = BTreeMap::new();
        collect(&Value::Table(file), "", &mut own);
        for key in possible_settings() {
            own.entry(key).or_insert_with(|| BTreeSet::from(["none".into()]));
        }
        own.into_iter().for_each(|(key, found)| values.entry(key).or_default().extend(found));
    }
    let named = NAMED.iter().flat_map(|(key, names)| names.iter().map(move |name| (key, name)));
    let drawn = named.filter(|(key, name)| values.get(**key).is_some_and(|found| found.contains(&format!("{name:?}"))));
    let drawn: Vec<String> = drawn.map(|(key, name)| setting(key, name)).collect();
    let plain = values.into_iter().filter(|(key, found)| found.len() > 1 && possible_settings().contains(key));
    plain.map(|(key, _)| key).chain(drawn).collect()
}

fn collect(value: &Value, key: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    match value {
        Value::Table(table) => {
            for (name, inner) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(inner, &key, found);
            }
        }
        Value::Array(array) if array.iter().any(Value::is_table) => {
            found.entry(key.into()).or_default().insert(array.len().to_string());
            array.iter().for_each(|inner| collect(inner, key, found));
        }
        _ => _ = found.entry(key.into()).or_default().insert(value.to_string()),
    }
}

/// The commands of the protocol.
pub(crate) fn possible_commands() -> BTreeSet<String> {
    let is_command = |verb: &&Verb| !matches!(verb, Verb::Other | Verb::Invalid);
    Verb::ALL.iter().filter(is_command).map(|verb| verb.name().to_string()).collect()
}

/// The commands that clients of these scenarios send.
pub(crate) fn drawn_commands(scenarios: &[Scenario]) -> BTreeSet<String> {
    let mut verbs = BTreeSet::new();
    for (scenario, seed) in scenarios.iter().zip(1..) {
        for ask in asked(scenario, seed) {
            let mut bytes = Vec::new();
            ask.encode(0, &mut bytes);
            if let ParsedRequest::Request { request, .. } = parse_request(&bytes, &Limits::default()) {
                verbs.insert(request.verb().name().to_string());
            }
        }
    }
    let quits = |scenario: &Scenario| scenario.clients.iter().any(|plan| plan.disconnect == Disconnect::Quit);
    verbs.extend(scenarios.iter().any(quits).then(|| Verb::Quit.name().to_string()));
    verbs
}

/// Requests as the clients of a scenario send them.
fn asked(scenario: &Scenario, seed: u64) -> Vec<Ask> {
    let mut random = Random(seed);
    let plans = scenario.clients.iter();
    plans
        .flat_map(|plan| (1..REQUESTS).flat_map(|number| next(plan, number, &mut random)).collect::<Vec<_>>())
        .collect()
}

/// The events of these scenarios.
pub(crate) fn drawn_events(scenarios: &[Scenario]) -> BTreeSet<&'static str> {
    let mut events = BTreeSet::new();
    for (scenario, seed) in scenarios.iter().zip(1..) {
        let clients = || scenario.clients.iter();
        let backends = || scenario.pools.iter().flat_map(|pool| &pool.backends);
        let has = |is_so: &dyn Fn(&Ask) -> bool| asked(scenario, seed).iter().any(is_so);
        let reload = scenario.reload.as_ref().map(|(_, setting)| setting);
        let found = [
            ("a client leaves with quit", clients().any(|plan| plan.disconnect == Disconnect::Quit)),
            ("a client half-closes", clients().any(|plan| plan.disconnect == Disconnect::HalfClosed)),
            ("a client is idle until it is closed", clients().any(|plan| plan.disconnect == Disconnect::Idle)),
            (
                "a client stops within a request until it is closed",
                clients().any(|plan| plan.disconnect == Disconnect::Unfinished),
            ),
            ("a client vanishes", clients().any(|plan| plan.disconnect == Disconnect::Vanished)),
            ("a client stops reading for a while", clients().any(|plan| plan.pause.is_some())),
            ("a warm-up pool has servers of its pool", scenario.pools.iter().any(|pool| pool.shares_servers)),
            ("ms with a mode", has(&|ask| ask.meta_form().is_some() && !matches!(ask, Ask::Cas { .. }))),
            ("ms with a cas token", has(&|ask| ask.meta_form().is_some() && matches!(ask, Ask::Cas { .. }))),
            ("ms that returns a cas token", has(&|ask| matches!(ask, Ask::MetaSet { wants_token: true, .. }))),
            ("ms with an expiry time", has(&|ask| matches!(ask, Ask::MetaSet { expiry_s: 1.., .. }))),
            ("ms of a value that has expired", has(&|ask| matches!(ask, Ask::MetaSet { expiry_s: ..0, .. }))),
            ("ma that decrements", has(&|ask| matches!(ask, Ask::MetaReadCount))),
            ("ma that creates the value", has(&|ask| matches!(ask, Ask::MetaCreate { .. }))),
            ("a command that the listener does not allow", has(&|ask| scenario.shape.denies(ask))),
            ("large values", clients().any(|plan| plan.has_large)),
            ("a value that the proxy refuses", has(&|ask| matches!(ask, Ask::SetTooLarge { .. }))),
            (
                "a multi-get of more than 128 keys",
                has(&|ask| matches!(ask, Ask::Get { keys, .. } if keys.len() > MANY_KEYS)),
            ),
            ("a server is killed", backends().any(|faults| faults.forgets)),
            (
                "a server is unreachable, and keeps its values",
                backends().any(|faults| faults.outage_one_in > 0 && !faults.forgets),
            ),
            ("a server is slow", backends().any(|faults| faults.one_in > 0 && faults.stall < scenario.shape.timeout)),
            (
                "a server answers too late",
                backends().any(|faults| faults.one_in > 0 && faults.stall > scenario.shape.timeout),
            ),
            ("a server closes the connection with requests in flight", backends().any(|faults| faults.one_in > 0)),
            ("a server sends an invalid reply", backends().any(|faults| faults.one_in > 0)),
            (
                "a collector of spans is busy, silent or wrong",
                scenario.settings().any(|setting| setting.file.traces.is_some()),
            ),
            ("reload", reload.is_some()),
            ("reload that renames the pools", reload.is_some_and(|setting| setting.has_new_names())),
            ("reload that writes addresses in another way", reload.is_some_and(|setting| setting.has_new_addresses())),
        ];
        events.extend(found.into_iter().filter(|(_, is_so)| *is_so).map(|(event, _)| event));
    }
    events
}

/// A row of a table: its first cell, and the cell of the column with this name.
pub(crate) fn rows(page: &str, table: &str, column: &str) -> BTreeMap<String, String> {
    let lines: Vec<&str> = page.lines().collect();
    let start = lines.iter().position(|line| line.starts_with(&format!("| {table} |"))).expect("the table is there");
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
    let place = cells(lines[start]).iter().position(|cell| cell == column).expect("the column is there");
    let body = lines[start + 2..].iter().take_while(|line| line.starts_with('|')).map(|line| cells(line));
    body.map(|cells| (cells[0].trim_matches('`').to_string(), cells[place].clone())).collect()
}
