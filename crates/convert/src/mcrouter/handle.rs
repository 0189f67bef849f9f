//! Route handles: each becomes a pool, with policies, that receives what the handle would receive.

use crate::error::ConvertError;
use crate::mcrouter::json::{below, object};
use crate::mcrouter::{pools, refused};
use crate::output::{Output, Pool};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The deepest nesting of handles. Handles with names could otherwise refer to each other in a circle.
const DEPTH_MAX: usize = 30;

/// The handles of a configuration, and what has been made of them.
pub(super) struct Handles<'j> {
    pub(super) pools: &'j Map<String, Value>,
    /// Those with a name.
    named: BTreeMap<&'j str, &'j Value>,
    pub(super) output: Output,
    depth: usize,
}

impl<'j> Handles<'j> {
    /// The handles and pools of this configuration.
    pub(super) fn new(top: &'j Map<String, Value>) -> Result<Handles<'j>, ConvertError> {
        let Some(pools) = top.get("pools") else {
            return Err(ConvertError::new("has no pools; give pools with their servers"));
        };
        let mut named = BTreeMap::new();
        match top.get("named_handles") {
            None => {}
            Some(Value::Object(handles)) => named.extend(handles.iter().map(|(name, handle)| (name.as_str(), handle))),
            Some(Value::Array(handles)) => {
                let name = |handle: &'j Value| Some((handle.get("name")?.as_str()?, handle));
                named.extend(handles.iter().filter_map(name));
            }
            Some(_) => return Err(ConvertError::at_path("named_handles", "give a list or an object")),
        }
        Ok(Handles { pools: object(pools, "pools")?, named, output: Output::default(), depth: 0 })
    }

    /// A handle as an object with a type: short forms such as `PoolRoute|A` are written out.
    pub(super) fn resolve(&self, value: &Value, path: &str) -> Result<Value, ConvertError> {
        let mut value = value;
        for _ in 0..DEPTH_MAX {
            let Some(text) = value.as_str() else {
                return match value.get("type").and_then(Value::as_str) {
                    Some(_) => Ok(value.clone()),
                    None => Err(ConvertError::at_path(path, "give a route handle: a text, or an object with a type")),
                };
            };
            if text.starts_with(['@', '%']) {
                let problem = format!(
                    "{text:?} is a macro, which has no counterpart; convert what mcrouter makes of it: get __mcrouter__.preprocessed_config"
                );
                return Err(ConvertError::at_path(path, problem));
            }
            match (self.named.get(text), text.split_once('|')) {
                (Some(handle), _) => value = *handle,
                (None, Some(("PoolRoute", pool))) => return Ok(json!({"type": "PoolRoute", "pool": pool})),
                (None, Some((kind, children))) => return Ok(json!({"type": kind, "children": children})),
                (None, None) => return Ok(json!({"type": text})),
            }
        }
        Err(ConvertError::at_path(path, "handles with names refer to each other in a circle"))
    }

    /// The pool that stands for a child of a handle. It is not added to the output yet, but the pools that it refers to are.
    pub(super) fn pool_of_child(&mut self, child: &Value, path: &str) -> Result<Pool, ConvertError> {
        let handle = self.resolve(child, path)?;
        self.pool_of(&handle, path)
    }

    /// The same for a resolved handle.
    pub(super) fn pool_of(&mut self, handle: &Value, path: &str) -> Result<Pool, ConvertError> {
        if self.depth == DEPTH_MAX {
            return Err(ConvertError::at_path(path, "route handles are nested too deeply"));
        }
        self.depth += 1;
        let pool = self.convert(object(handle, path)?, path);
        self.depth -= 1;
        pool
    }

    fn convert(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let kind = handle.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "PoolRoute" => self.pool_route(handle, path),
            "HashRoute" => self.hash_route(handle, path),
            "FailoverRoute" | "FailoverWithExptimeRoute" => self.failover(kind, handle, path),
            "MissFailoverRoute" => self.miss_failover(handle, path),
            "WarmUpRoute" => self.warm_up(handle, path),
            "AllSyncRoute" | "AllMajorityRoute" | "AllFastestRoute" | "AllInitialRoute" | "AllAsyncRoute" => {
                self.replicated(kind, handle, path)
            }
            "OperationSelectorRoute" => self.operations(handle, path),
            _ => Err(ConvertError::at_path(path, refused::advice(kind))),
        }
    }

    fn pool_route(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let Some(pool) = handle.get("pool") else {
            return Err(ConvertError::at_path(path, "PoolRoute has no pool"));
        };
        if handle.contains_key("shadows") {
            let problem =
                "shadows are not converted; leave them out here, and write shadow = { to = ..., share = ... } by hand";
            return Err(ConvertError::at_path(&below(path, "shadows"), problem));
        }
        let (mut made, servers) = pools::convert(self.pools, pool, &below(path, "pool"))?;
        pools::set_hash(&mut made, handle.get("hash"), servers, &below(path, "hash"))?;
        note_others(&mut made, "PoolRoute", handle, &["pool", "hash"]);
        Ok(made)
    }

    /// `HashRoute|Pool|A` is `PoolRoute|A`.
    fn hash_route(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let children = handle.get("children").and_then(Value::as_str).and_then(|text| text.strip_prefix("Pool|"));
        let Some(pool) = children else {
            let problem =
                "HashRoute over route handles has no counterpart; give it the servers of one pool: \"Pool|NAME\"";
            return Err(ConvertError::at_path(path, problem));
        };
        let (mut made, servers) = pools::convert(self.pools, &pool.into(), path)?;
        let hash = handle.contains_key("hash_func").then(|| Value::Object(handle.clone()));
        pools::set_hash(&mut made, hash.as_ref(), servers, path)?;
        note_others(&mut made, "HashRoute", handle, &["children", "hash_func", "salt"]);
        Ok(made)
    }
}

/// Notes the keys of a handle that have no counterpart.
pub(super) fn note_others(pool: &mut Pool, kind: &str, handle: &Map<String, Value>, known: &[&str]) {
    for key in handle.keys().filter(|key| !known.contains(&key.as_str()) && !matches!(key.as_str(), "type" | "name")) {
        pool.note(format!("{key} of {kind} has no counterpart."));
    }
}
