//! The route of all keys: the choice of a pool by prefix, and the keys that the pool receives.

use crate::error::ConvertError;
use crate::mcrouter::handle::Handles;
use crate::mcrouter::json::{below, object};
use crate::mcrouter::modify_key::KeyChange;
use crate::output::Route;
use serde_json::Value;

/// Converts the route of all keys, which may choose a pool by prefix. Returns the name of the first pool.
pub(super) fn convert(handles: &mut Handles<'_>, root: &Value, path: &str) -> Result<String, ConvertError> {
    let handle = handles.resolve(root, path)?;
    if handle["type"] != "PrefixSelectorRoute" {
        return branch(handles, &handle, path, "", &[]);
    }
    let selector = object(&handle, path)?;
    let Some(wildcard) = selector.get("wildcard") else {
        let problem =
            "has no wildcard; here, keys without a known prefix go to the first pool: add the wildcard that they need";
        return Err(ConvertError::at_path(path, problem));
    };
    let policies = selector.get("policies").map(|policies| object(policies, &below(path, "policies"))).transpose()?;
    let prefixes: Vec<&str> = policies.into_iter().flatten().map(|(prefix, _)| prefix.as_str()).collect();
    let first = branch(handles, wildcard, &below(path, "wildcard"), "", &prefixes)?;
    for (prefix, policy) in policies.into_iter().flatten() {
        let place = below(&below(path, "policies"), prefix);
        if prefix.is_empty() {
            return Err(ConvertError::at_path(&place, "the prefix is empty; use the wildcard"));
        }
        branch(handles, policy, &place, prefix, &prefixes)?;
    }
    Ok(first)
}

/// Converts the handle for the keys with a prefix, or for all others if it is empty. Returns the name of its pool.
///
/// A change of keys can need more than one route, because it can depend on what follows the prefix. `prefixes` are those of all policies.
fn branch(
    handles: &mut Handles<'_>,
    handle: &Value,
    path: &str,
    prefix: &str,
    prefixes: &[&str],
) -> Result<String, ConvertError> {
    let handle = handles.resolve(handle, path)?;
    let (change, target, place) = KeyChange::around(handles, handle, path)?;
    let pool = handles.pool_of(&target, &place)?;
    let pool = handles.output.add(pool)?;
    let is_of_another =
        |start: &str| prefixes.iter().any(|other| other.len() > prefix.len() && start.starts_with(other));
    let starts = change.as_ref().map_or_else(|| vec![prefix], |change| change.starts(prefix));
    for start in starts.into_iter().filter(|start| !is_of_another(start)) {
        let changed = change.as_ref().map_or(Ok(start.to_string()), |change| change.of(start))?;
        if !start.is_empty() {
            let replacement = (changed != start).then_some(changed);
            handles.output.routes.push(Route { prefix: start.into(), pool: pool.clone(), replacement });
        } else if !changed.is_empty() {
            let problem = format!(
                "puts {changed:?} in front of keys of any prefix, which has no counterpart: a route has a prefix; use it for policies of a \
                 PrefixSelectorRoute, or let clients send the prefix"
            );
            return Err(ConvertError::at_path(path, problem));
        }
    }
    Ok(pool)
}
