//! mcrouter's JSON: pools, and a tree of route handles. The wiki of mcrouter, and its sources in mcrouter/routes, are the measure.

mod destinations;
mod failover;
mod handle;
mod json;
mod modify_key;
mod operations;
mod pools;
mod refused;
mod replicated;
mod routes;

use crate::error::ConvertError;
use crate::mcrouter::handle::Handles;
use crate::mcrouter::json::{below, object};
use crate::output::Output;
use serde_json::{Map, Value};

pub(crate) use json::is_json;

/// The error for macros and imports.
const EXPANDED: &str = "macros have no counterpart; convert what mcrouter makes of them: the reply to get __mcrouter__.preprocessed_config";
/// The keys at the top.
const KEYS: [&str; 4] = ["pools", "route", "routes", "named_handles"];

/// Converts a configuration. `route_prefix` chooses one of several entries of `routes`.
pub(crate) fn convert(text: &str, route_prefix: Option<&str>) -> Result<Output, ConvertError> {
    let value = json::parse(text)?;
    let top = object(&value, "")?;
    for key in ["macros", "consts"] {
        if top.contains_key(key) {
            return Err(ConvertError::at_path(key, EXPANDED));
        }
    }
    if let Some(key) = top.keys().find(|key| top[*key].as_str().is_some_and(|text| text.starts_with("@import"))) {
        return Err(ConvertError::at_path(key, EXPANDED));
    }
    let mut handles = Handles::new(top)?;
    handles
        .output
        .notes
        .push("mcrouter takes its address from the command line. Add `listen`, or use --listen.".into());
    handles.output.notes.push(
        "Keys with a routing prefix such as /a/b/ or a hash stop |#| mean something else: they are sent and hashed as they are.".into(),
    );
    for key in top.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        handles.output.notes.push(format!("{key} has no counterpart."));
    }
    let (root, path) = root(top, route_prefix)?;
    let first = routes::convert(&mut handles, root, &path)?;
    let mut output = handles.output;
    // The first pool has the keys without a route.
    let at = output.pools.iter().position(|pool| pool.name == first).unwrap_or_default();
    output.pools[..=at].rotate_right(1);
    Ok(output)
}

/// The route of all keys, and its place.
fn root<'j>(top: &'j Map<String, Value>, route_prefix: Option<&str>) -> Result<(&'j Value, String), ConvertError> {
    match (top.get("route"), top.get("routes")) {
        (Some(route), None) => Ok((route, "route".into())),
        (None, Some(routes)) => choose(routes, route_prefix),
        (Some(_), Some(_)) => Err(ConvertError::new("has route and routes; leave one of them out")),
        (None, None) => Err(ConvertError::new("has no route; give route or routes")),
    }
}

/// The entry of `routes` with this routing prefix, or the only one.
fn choose<'j>(routes: &'j Value, route_prefix: Option<&str>) -> Result<(&'j Value, String), ConvertError> {
    let mut entries: Vec<(Vec<&str>, &Value, String)> = Vec::new();
    match routes {
        Value::Object(map) => {
            entries.extend(map.iter().map(|(prefix, route)| (vec![prefix.as_str()], route, below("routes", prefix))));
        }
        Value::Array(list) => {
            for (index, entry) in list.iter().enumerate() {
                let path = format!("routes.{index}");
                let entry = object(entry, &path)?;
                let aliases = entry.get("aliases").and_then(Value::as_array).into_iter().flatten();
                let aliases: Vec<&str> = aliases.filter_map(Value::as_str).collect();
                let route = entry.get("route").ok_or_else(|| ConvertError::at_path(&path, "has no route"))?;
                entries.push((aliases, route, below(&path, "route")));
            }
        }
        _ => return Err(ConvertError::at_path("routes", "give a list, or an object of routing prefixes")),
    }
    let known = || entries.iter().flat_map(|(aliases, _, _)| aliases).copied().collect::<Vec<_>>().join(", ");
    let found = match route_prefix {
        Some(prefix) => entries.iter().find(|(aliases, _, _)| aliases.contains(&prefix)),
        None if entries.len() == 1 => entries.first(),
        None => None,
    };
    match (found, route_prefix) {
        (Some((_, route, path)), _) => Ok((*route, path.clone())),
        (None, Some(prefix)) => {
            let problem =
                format!("no entry has the routing prefix {prefix:?}; give --route-prefix with one of: {}", known());
            Err(ConvertError::at_path("routes", problem))
        }
        (None, None) => {
            let problem = format!("one entry is converted at a time; give --route-prefix with one of: {}", known());
            Err(ConvertError::at_path("routes", problem))
        }
    }
}

#[cfg(test)]
mod tests;
