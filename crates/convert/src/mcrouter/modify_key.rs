//! `ModifyKeyRoute`: what it does to keys.

use crate::error::ConvertError;
use crate::mcrouter::handle::Handles;
use crate::mcrouter::json::{below, object};
use serde_json::{Map, Value};

/// How a `ModifyKeyRoute` changes keys. mcrouter applies the first of these that fits:
/// 1. A key that begins with `replaced` has `ensured` in its place.
/// 2. A key that begins with `ensured` stays as it is.
/// 3. All others get `ensured` in front, or in the place of as many bytes if the change is in place.
pub(super) struct KeyChange {
    ensured: String,
    replaced: Option<String>,
    is_in_place: bool,
    path: String,
}

impl KeyChange {
    /// The change of a resolved handle, if it is a `ModifyKeyRoute`, and the resolved handle inside with its place.
    pub(super) fn around(
        handles: &mut Handles<'_>,
        handle: Value,
        path: &str,
    ) -> Result<(Option<KeyChange>, Value, String), ConvertError> {
        if handle["type"] != "ModifyKeyRoute" {
            return Ok((None, handle, path.into()));
        }
        let handle = object(&handle, path)?;
        let Some(target) = handle.get("target") else {
            return Err(ConvertError::at_path(path, "ModifyKeyRoute has no target"));
        };
        let place = below(path, "target");
        let target = handles.resolve(target, &place)?;
        note_routing_prefix(handles, handle, &target, path)?;
        let replaced = text(handle, "replace_key_prefix", path)?;
        let is_in_place = match handle.get("modify_inplace") {
            None => false,
            Some(Value::Bool(_)) if replaced.is_some() => {
                let problem = "modify_inplace and replace_key_prefix exclude each other; leave one of them out";
                return Err(ConvertError::at_path(path, problem));
            }
            Some(Value::Bool(is_in_place)) => *is_in_place,
            Some(other) => {
                let problem = format!("{other} is neither true nor false");
                return Err(ConvertError::at_path(&below(path, "modify_inplace"), problem));
            }
        };
        let ensured = text(handle, "ensure_key_prefix", path)?.unwrap_or_default();
        for key in handle.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            handles.output.notes.push(format!("{path}: {key} of ModifyKeyRoute has no counterpart."));
        }
        Ok((Some(KeyChange { ensured, replaced, is_in_place, path: path.into() }), target, place))
    }

    /// The beginnings of keys with this prefix that are changed differently: the prefix, and longer ones.
    pub(super) fn starts<'c>(&'c self, prefix: &'c str) -> Vec<&'c str> {
        let mut starts = vec![prefix];
        for longer in self.replaced.iter().chain([&self.ensured]) {
            if longer.starts_with(prefix) && !starts.contains(&longer.as_str()) {
                starts.push(longer);
            }
        }
        starts
    }

    /// What keys that begin like this, and like none of the longer `starts`, begin with afterwards.
    ///
    /// # Errors
    /// The change also depends on the bytes behind.
    pub(super) fn of(&self, start: &str) -> Result<String, ConvertError> {
        let ensured = &self.ensured;
        if let Some(rest) = self.replaced.as_ref().and_then(|replaced| start.strip_prefix(replaced.as_str())) {
            return Ok(format!("{ensured}{rest}"));
        }
        if start.starts_with(ensured) {
            return Ok(start.into());
        }
        if !self.is_in_place {
            return Ok(format!("{ensured}{start}"));
        }
        match start.get(ensured.len()..) {
            Some(rest) => Ok(format!("{ensured}{rest}")),
            None => {
                let problem = format!(
                    "modify_inplace overwrites {} bytes of a key, of which the route knows only {start:?}, so it has no counterpart; use \
                     replace_key_prefix, or policies with prefixes of this length",
                    ensured.len()
                );
                Err(ConvertError::at_path(&self.path, problem))
            }
        }
    }
}

/// The keys of the handle.
const KNOWN: [&str; 7] =
    ["type", "name", "target", "ensure_key_prefix", "replace_key_prefix", "modify_inplace", "set_routing_prefix"];

/// A routing prefix chooses the route, which is done when the handle is reached. Servers receive it from a pool that keeps it only.
fn note_routing_prefix(
    handles: &mut Handles<'_>,
    handle: &Map<String, Value>,
    target: &Value,
    path: &str,
) -> Result<(), ConvertError> {
    let Some(prefix) = text(handle, "set_routing_prefix", path)? else { return Ok(()) };
    let place = below(path, "set_routing_prefix");
    let inside = prefix.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).unwrap_or_default();
    if !prefix.is_empty() && inside.split('/').filter(|part| !part.is_empty()).count() != 2 {
        return Err(ConvertError::at_path(&place, format!("{prefix:?} is not /REGION/CLUSTER/")));
    }
    if handles.pools.values().chain([target]).any(keeps_routing_prefix) {
        let problem = format!(
            "with keep_routing_prefix of a pool, servers receive {prefix:?} but it is not hashed, which has no counterpart; leave one of the \
             two out"
        );
        return Err(ConvertError::at_path(&place, problem));
    }
    handles.output.notes.push(format!("{place} has no effect on servers, because mcrouter removes routing prefixes."));
    Ok(())
}

/// Whether a pool in this value keeps the routing prefix.
fn keeps_routing_prefix(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            map.get("keep_routing_prefix").is_some_and(|keeps| *keeps == true) || map.values().any(keeps_routing_prefix)
        }
        Value::Array(list) => list.iter().any(keeps_routing_prefix),
        _ => false,
    }
}

/// A text under this key, if there is one.
fn text(handle: &Map<String, Value>, key: &str, path: &str) -> Result<Option<String>, ConvertError> {
    match handle.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(ConvertError::at_path(&below(path, key), format!("{other} is no text in quotes"))),
    }
}
