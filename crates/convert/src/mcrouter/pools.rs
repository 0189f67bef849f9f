//! Pools of mcrouter: their servers and settings.

use crate::error::ConvertError;
use crate::mcrouter::json::{below, object};
use crate::output::{Pool, Server};
use serde_json::{Map, Value};

/// How many pools may inherit one from the other.
const INHERITED_MAX: usize = 10;
/// The default name of a pool that is written where it is used.
const INLINE: &str = "pool";
const TIMEOUT_MAX_MS: u64 = 3_600_000;

/// The pool with this name, or the one that is written here, and the number of its servers. The hash is not set yet.
pub(super) fn convert(pools: &Map<String, Value>, pool: &Value, path: &str) -> Result<(Pool, usize), ConvertError> {
    let (name, settings) = settings(pools, pool, path)?;
    let servers = servers_of(&settings, path)?;
    let mut made = Pool::named(&name);
    made.set_servers(&servers);
    set_timeouts(&mut made, &settings, path)?;
    for (key, value) in &settings {
        let path = below(path, key);
        match key.as_str() {
            "servers" | "name" | "type" | "inherit" | "server_timeout" | "connect_timeout" => {}
            "protocol" if value == "ascii" => {}
            "protocol" => {
                let problem =
                    format!("{value} is not spoken here, only ascii; change it, and the servers if they need it");
                return Err(ConvertError::at_path(&path, problem));
            }
            "use_ssl" | "security_mech" if is_plain(value) => {}
            "use_ssl" | "security_mech" => {
                let problem = "TLS needs the authority of the certificates; leave it out here, and write the servers as tls:HOST:PORT \
                               with tls-backend-authority by hand";
                return Err(ConvertError::at_path(&path, problem));
            }
            "hash" if value.as_str().is_some_and(is_ch3) => {}
            "hash" | "hash_func" | "hash_salt" | "salt" | "hash_weights" if servers.len() > 1 => {
                let problem =
                    "has no counterpart, so keys would move; choose Ch3 without a salt and expect an empty cache";
                return Err(ConvertError::at_path(&path, problem));
            }
            "keep_routing_prefix" if *value == true => {}
            _ => made.note(format!("{key} of the pool has no counterpart.")),
        }
    }
    Ok((made, servers.len()))
}

/// The servers of a pool.
pub(super) fn servers(pools: &Map<String, Value>, pool: &Value, path: &str) -> Result<Vec<Server>, ConvertError> {
    let (_, settings) = settings(pools, pool, path)?;
    servers_of(&settings, path)
}

/// Sets the key distribution of a `PoolRoute` over so many servers.
pub(super) fn set_hash(pool: &mut Pool, hash: Option<&Value>, servers: usize, path: &str) -> Result<(), ConvertError> {
    if servers == 1 {
        return Ok(());
    }
    let (function, salt) = match hash {
        None => ("Ch3", ""),
        Some(Value::String(function)) => (function.as_str(), ""),
        Some(Value::Object(hash)) => {
            let text = |key: &str| hash.get(key).and_then(Value::as_str);
            (text("hash_func").unwrap_or("Ch3"), text("salt").unwrap_or_default())
        }
        Some(_) => return Err(ConvertError::at_path(path, "give the name of a hash, or an object with hash_func")),
    };
    if !salt.is_empty() {
        return Err(ConvertError::at_path(
            path,
            "a salt has no counterpart, so keys would move; leave it out and expect an empty cache",
        ));
    }
    if !is_ch3(function) {
        let problem =
            format!("{function:?} does not exist here, so keys would move; choose Ch3 and expect an empty cache");
        return Err(ConvertError::at_path(path, problem));
    }
    pool.set_text("distribution", "ch3");
    Ok(())
}

/// The name and the settings of a pool, with those that it inherits.
fn settings(
    pools: &Map<String, Value>,
    pool: &Value,
    path: &str,
) -> Result<(String, Map<String, Value>), ConvertError> {
    let lookup = |name: &str| match pools.get(name) {
        Some(settings) => object(settings, &below("pools", name)).cloned(),
        None => {
            let known: Vec<&str> = pools.keys().map(String::as_str).collect();
            let problem = format!("there is no pool {name:?}{}", configuration::proposal(name, &known));
            Err(ConvertError::at_path(path, problem))
        }
    };
    let (name, mut settings) = match pool {
        Value::String(name) => (name.clone(), lookup(name)?),
        Value::Object(settings) => {
            let name = settings.get("name").and_then(Value::as_str).unwrap_or(INLINE);
            (name.to_string(), settings.clone())
        }
        _ => return Err(ConvertError::at_path(path, "give the name of a pool, or an object with servers")),
    };
    for _ in 0..INHERITED_MAX {
        let Some(parent) = settings.remove("inherit") else { return Ok((name, settings)) };
        let Some(parent) = parent.as_str() else {
            return Err(ConvertError::at_path(path, "inherit: give the name of a pool"));
        };
        let mut merged = lookup(parent)?;
        merged.append(&mut settings);
        settings = merged;
    }
    Err(ConvertError::at_path(path, "too many pools inherit one from the other"))
}

fn servers_of(settings: &Map<String, Value>, path: &str) -> Result<Vec<Server>, ConvertError> {
    let Some(list) = settings.get("servers").and_then(Value::as_array).filter(|list| !list.is_empty()) else {
        return Err(ConvertError::at_path(path, "the pool has no servers; give a list with at least one HOST:PORT"));
    };
    let server = |(index, value): (usize, &Value)| {
        let place = format!("{path}.servers.{index}");
        let text = value.as_str().ok_or_else(|| ConvertError::at_path(&place, "give HOST:PORT as a text"))?;
        let address = address(text).map_err(|problem| ConvertError::at_path(&place, problem))?;
        Ok(Server { address, name: None, weight: 1 })
    };
    list.iter().enumerate().map(server).collect()
}

/// `HOST:PORT`, with the protocol and the encryption behind it or not.
fn address(text: &str) -> Result<String, String> {
    let malformed = || format!("{text:?} is not HOST:PORT");
    let host_bytes = if text.starts_with('[') { text.find(']').map(|end| end + 1) } else { text.find(':') };
    let (host, rest) = text.split_at(host_bytes.ok_or_else(malformed)?);
    let mut parts = rest.strip_prefix(':').ok_or_else(malformed)?.split(':');
    let port: u16 = parts.next().and_then(|port| port.parse().ok()).filter(|&port| port > 0).ok_or_else(malformed)?;
    match (parts.next(), parts.next()) {
        _ if host.is_empty() => Err(malformed()),
        (None | Some("ascii"), None | Some("plain" | "none")) => Ok(format!("{host}:{port}")),
        _ => Err(format!("{text:?} is not reached over plain ascii; give HOST:PORT, and set TLS by hand")),
    }
}

/// Whether this is the name of mcrouter's default hash. Old configurations write it in small letters.
fn is_ch3(function: &str) -> bool {
    function.eq_ignore_ascii_case("Ch3")
}

/// Whether a setting for encryption says that there is none.
fn is_plain(value: &Value) -> bool {
    *value == false || matches!(value.as_str(), Some("plain" | "none"))
}

fn set_timeouts(pool: &mut Pool, settings: &Map<String, Value>, path: &str) -> Result<(), ConvertError> {
    let mut parts = Vec::new();
    for (key, names) in [("connect_timeout", &["connect"][..]), ("server_timeout", &["read", "write"][..])] {
        let Some(value) = settings.get(key) else { continue };
        match value.as_u64() {
            Some(milliseconds @ 1..=TIMEOUT_MAX_MS) => {
                let time = std::time::Duration::from_millis(milliseconds);
                let text = quantity::duration_text(time);
                parts.extend(names.iter().map(|name| format!("{name} = {text:?}")));
            }
            _ => {
                let problem = format!("{value} is no number of milliseconds from 1 to {TIMEOUT_MAX_MS}");
                return Err(ConvertError::at_path(&below(path, key), problem));
            }
        }
    }
    if !parts.is_empty() {
        pool.set("timeouts", format!("{{ {} }}", parts.join(", ")));
    }
    Ok(())
}
