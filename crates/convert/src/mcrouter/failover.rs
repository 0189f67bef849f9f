//! Handles that use a second pool: after an error, after a miss, or to fill a cold cache.

use crate::error::ConvertError;
use crate::mcrouter::handle::{Handles, note_others};
use crate::mcrouter::json::below;
use crate::output::Pool;
use serde_json::{Map, Value};

/// The expiry time of `FailoverWithExptimeRoute` in mcrouter.
const FAILOVER_SECONDS: u64 = 60;
/// The expiry time of a value that is taken from a warm cache, if none is given.
const WARM_UP_SECONDS: u64 = 3600;
/// The longest time to live of a value in another pool.
const SECONDS_MAX: u64 = 30 * 24 * 3600;

impl Handles<'_> {
    /// `FailoverRoute` and `FailoverWithExptimeRoute`.
    pub(super) fn failover(
        &mut self,
        kind: &str,
        handle: &Map<String, Value>,
        path: &str,
    ) -> Result<Pool, ConvertError> {
        let (mut children, known): (Vec<(Value, String)>, &[&str]) = match kind {
            "FailoverRoute" => (children(handle, "children", path)?, &["children", "failover_exptime"]),
            _ => {
                let normal = handle.get("normal").ok_or_else(|| ConvertError::at_path(path, "has no normal"))?;
                let mut all = vec![(normal.clone(), below(path, "normal"))];
                all.extend(children(handle, "failover", path)?);
                (all, &["normal", "failover", "failover_exptime"])
            }
        };
        let seconds = seconds(handle, "failover_exptime", path)?;
        let mut next: Option<String> = None;
        while let Some((child, place)) = children.pop() {
            let mut pool = self.pool_of_child(&child, &place)?;
            if let Some(name) = next.take() {
                if sets(&pool, "failover-pool") {
                    return Err(ConvertError::at_path(
                        &place,
                        "this route fails over already; give one list of all pools",
                    ));
                }
                let expiry = seconds.unwrap_or(FAILOVER_SECONDS);
                pool.set("failover-pool", format!("{{ pool = \"{name}\", expiry = \"{expiry}s\" }}"));
                // FailoverWithExptimeRoute has the same default.
                if seconds.is_none() && (kind == "FailoverRoute" || handle.contains_key("failover_exptime")) {
                    let keeper = if handle.contains_key("failover_exptime") { "failover_exptime: 0" } else { kind };
                    pool.note(format!(
                        "{keeper} keeps values in the other pool as long as in this one. Here, they live for the expiry at most, so \
                         that an old value does not return in a later outage."
                    ));
                }
            }
            if children.is_empty() {
                note_others(&mut pool, kind, handle, known);
                return Ok(pool);
            }
            next = Some(self.output.add(pool)?);
        }
        Err(ConvertError::at_path(path, format!("{kind} has no children")))
    }

    /// `MissFailoverRoute` over two pools.
    pub(super) fn miss_failover(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let children = children(handle, "children", path)?;
        let [(first, first_place), (second, second_place)] = &children[..] else {
            let problem = "MissFailoverRoute is converted for two pools; leave the others out";
            return Err(ConvertError::at_path(path, problem));
        };
        let mut pool = self.pool_of_child(first, first_place)?;
        let other = self.pool_of_child(second, second_place)?;
        let other = self.output.add(other)?;
        set_warm_up(&mut pool, &other, WARM_UP_SECONDS, first_place)?;
        pool.note(
            "MissFailoverRoute stores nothing in this pool. Here, a value that is found in the other pool is also stored in this one, for \
             the expiry.",
        );
        note_others(&mut pool, "MissFailoverRoute", handle, &["children"]);
        Ok(pool)
    }

    /// `WarmUpRoute`.
    pub(super) fn warm_up(&mut self, handle: &Map<String, Value>, path: &str) -> Result<Pool, ConvertError> {
        let child = |name: &str| match handle.get(name) {
            Some(child) => Ok((child, below(path, name))),
            None => Err(ConvertError::at_path(path, format!("WarmUpRoute has no {name}"))),
        };
        let ((cold, cold_place), (warm, warm_place)) = (child("cold")?, child("warm")?);
        let seconds = seconds(handle, "exptime", path)?;
        let mut pool = self.pool_of_child(cold, &cold_place)?;
        let other = self.pool_of_child(warm, &warm_place)?;
        let other = self.output.add(other)?;
        set_warm_up(&mut pool, &other, seconds.unwrap_or(WARM_UP_SECONDS), &cold_place)?;
        if seconds.is_none() {
            pool.note("WarmUpRoute had no exptime, or 0. Values from the other pool live for this expiry; choose another one if you like.");
        }
        note_others(&mut pool, "WarmUpRoute", handle, &["cold", "warm", "exptime"]);
        Ok(pool)
    }
}

/// The children under this key: a list, or a single one. Each has its place.
pub(super) fn children(
    handle: &Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Vec<(Value, String)>, ConvertError> {
    let path = below(path, key);
    match handle.get(key) {
        Some(Value::Array(list)) if !list.is_empty() => {
            let place = |(index, child): (usize, &Value)| (child.clone(), format!("{path}.{index}"));
            Ok(list.iter().enumerate().map(place).collect())
        }
        Some(Value::String(text)) if text.starts_with("Pool|") => {
            let problem = "fails over among the servers of one pool; use a pool for each, or AllSyncRoute in an OperationSelectorRoute";
            Err(ConvertError::at_path(&path, problem))
        }
        Some(child @ (Value::String(_) | Value::Object(_))) => Ok(vec![(child.clone(), path)]),
        _ => Err(ConvertError::at_path(&path, "give a list of route handles")),
    }
}

/// A time of whole seconds. Zero counts as none.
fn seconds(handle: &Map<String, Value>, key: &str, path: &str) -> Result<Option<u64>, ConvertError> {
    match handle.get(key) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(0) => Ok(None),
            Some(seconds @ 1..=SECONDS_MAX) => Ok(Some(seconds)),
            _ => {
                let problem = format!("{value} is no number of seconds up to {SECONDS_MAX}");
                Err(ConvertError::at_path(&below(path, key), problem))
            }
        },
    }
}

fn set_warm_up(pool: &mut Pool, other: &str, seconds: u64, place: &str) -> Result<(), ConvertError> {
    if sets(pool, "warm-up") {
        return Err(ConvertError::at_path(place, "this route reads another pool already; a pool has one warm-up pool"));
    }
    pool.set("warm-up", format!("{{ from = \"{other}\", expiry = \"{seconds}s\" }}"));
    Ok(())
}

pub(super) fn sets(pool: &Pool, key: &str) -> bool {
    pool.items.iter().any(|item| matches!(item, crate::output::Item::Key(known, _) if *known == key))
}
