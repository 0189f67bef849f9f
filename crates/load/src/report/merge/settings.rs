//! The settings of several generators together: sums of what can be added, lists of what differs in kind, and otherwise
//! the settings of the first, with a note.

use super::Named;
use crate::report::settings::{MIXED, Settings};
use serde_json::Value;

/// Keys that are summed, joined or expected to differ, so they need no note.
const MAY_DIFFER: [&str; 13] = [
    "servers",
    "loop",
    "arrivals",
    "offered_per_s",
    "clients",
    "threads",
    "key_minimum",
    "key_maximum",
    "key_prefix",
    "requests",
    "prefill",
    "seed",
    "reply_timeout_s",
];

/// The settings of all parts together, and a note if they differ in a setting that has only one value.
pub(super) fn merged(parts: &[Named<'_>]) -> (Settings, Option<String>) {
    let (name, first) = parts[0];
    let mut merged = first.settings.clone();
    for (_, part) in &parts[1..] {
        let other = &part.settings;
        for server in &other.servers {
            if !merged.servers.contains(server) {
                merged.servers.push(server.clone());
            }
        }
        if merged.r#loop != other.r#loop {
            merged.r#loop = MIXED.into();
        }
        merged.offered_per_s = match (merged.offered_per_s, other.offered_per_s) {
            (Some(own), Some(other)) => Some(own + other),
            (own, other) => own.or(other),
        };
        merged.requests = merged.requests.zip(other.requests).map(|(own, other)| own + other);
        // Every request without an answer waited at least for the shortest timeout.
        merged.reply_timeout_s = merged.reply_timeout_s.min(other.reply_timeout_s);
        merged.clients += other.clients;
        merged.threads += other.threads;
        merged.key_minimum = merged.key_minimum.min(other.key_minimum);
        merged.key_maximum = merged.key_maximum.max(other.key_maximum);
    }
    merged.arrivals = together(parts.iter().filter_map(|(_, part)| part.settings.arrivals.as_deref()));
    let mut prefixes: Vec<&str> = parts.iter().map(|(_, part)| part.settings.key_prefix.as_str()).collect();
    prefixes.dedup();
    merged.key_prefix = prefixes.join(", ");
    let differing = differing(parts);
    let note = (!differing.is_empty()).then(|| {
        format!("the generators differ in {}; `settings` has those of {name}, `parts` has all", differing.join(", "))
    });
    (merged, note)
}

/// Several arrival processes: "poisson 5000/s + 2 x constant 100/s".
fn together<'a>(texts: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for text in texts {
        match counted.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counted.push((text, 1)),
        }
    }
    let times = |(text, count): &(&str, usize)| if *count == 1 { (*text).into() } else { format!("{count} x {text}") };
    (!counted.is_empty()).then(|| counted.iter().map(times).collect::<Vec<String>>().join(" + "))
}

/// The names of the settings that differ.
fn differing(parts: &[Named<'_>]) -> Vec<String> {
    let objects: Vec<Value> = parts.iter().filter_map(|(_, part)| serde_json::to_value(&part.settings).ok()).collect();
    let Some(Value::Object(first)) = objects.first() else { return Vec::new() };
    let differs = |key: &String| objects.iter().any(|object| object.get(key) != first.get(key));
    first.keys().filter(|key| !MAY_DIFFER.contains(&key.as_str()) && differs(key)).cloned().collect()
}
