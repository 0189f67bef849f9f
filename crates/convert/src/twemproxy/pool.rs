//! One pool of twemproxy: each of its keys becomes a key of a pool here, or a note.

use crate::error::ConvertError;
use crate::output::{Pool, Server};
use crate::twemproxy::server;
use crate::yaml::{Node, Value};
use configuration::proposal;
use key_distribution::{Distribution, Hash};
use quantity::duration_text;
use std::time::Duration;

/// Every key of a pool in twemproxy.
const KEYS: [&str; 18] = [
    "listen",
    "hash",
    "hash_tag",
    "distribution",
    "timeout",
    "backlog",
    "client_connections",
    "tcpkeepalive",
    "reuseport",
    "redis",
    "redis_auth",
    "redis_db",
    "preconnect",
    "auto_eject_hosts",
    "server_connections",
    "server_retry_timeout",
    "server_failure_limit",
    "servers",
];
const HASHES: [&str; 12] = [
    "one_at_a_time",
    "md5",
    "crc16",
    "crc32",
    "crc32a",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "hsieh",
    "murmur",
    "jenkins",
];
const DISTRIBUTIONS: [&str; 3] = ["ketama", "modula", "random"];
/// The defaults of twemproxy.
const HASH: &str = "fnv1a_64";
const FAILURE_LIMIT: u32 = 2;
/// The longest timeout, and the largest weight, of a server of this proxy.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
const WEIGHT_MAX: u32 = 1000;

/// The keys of one pool, of which each is given once.
struct Keys<'y> {
    keys: Vec<(&'y str, &'y Node)>,
}

/// Converts the pool with this name, whose name is on this line.
pub(super) fn convert(line: usize, name: &str, keys: &[(Node, Node)]) -> Result<Pool, ConvertError> {
    let keys = Keys::read(keys)?;
    let missing = |key: &str| ConvertError::at_line(line, format!("pool {name:?}: {key} is missing"));
    let mut pool = Pool::named(name);
    set_listener(&mut pool, keys.get("listen").ok_or_else(|| missing("listen"))?)?;
    refuse_redis(&keys, &mut pool)?;
    let mut servers = read_servers(keys.get("servers").ok_or_else(|| missing("servers"))?)?;
    set_distribution(&mut pool, &keys, &mut servers)?;
    set_hash_tag(&mut pool, &keys)?;
    set_timeouts(&mut pool, &keys)?;
    set_failures(&mut pool, &keys)?;
    note_others(&mut pool, &keys)?;
    Ok(pool)
}

impl<'y> Keys<'y> {
    fn read(pairs: &'y [(Node, Node)]) -> Result<Keys<'y>, ConvertError> {
        let mut keys: Vec<(&str, &Node)> = Vec::new();
        for (key, value) in pairs {
            let Some(name) = key.text() else {
                return Err(ConvertError::at_line(key.line, "a key is no text"));
            };
            if !KEYS.contains(&name) {
                let problem = format!("{name}: twemproxy has no such key{}", proposal(name, &KEYS));
                return Err(ConvertError::at_line(key.line, problem));
            }
            if keys.iter().any(|(known, _)| *known == name) {
                return Err(ConvertError::at_line(key.line, format!("{name}: is given twice; leave one of them out")));
            }
            if name != "servers" && value.text().is_none() {
                return Err(ConvertError::at_line(key.line, format!("{name}: give one value")));
            }
            keys.push((name, value));
        }
        Ok(Keys { keys })
    }

    fn get(&self, name: &str) -> Option<&'y Node> {
        self.keys.iter().find(|(known, _)| *known == name).map(|&(_, node)| node)
    }

    fn text(&self, name: &str) -> Option<(&'y str, usize)> {
        self.get(name).and_then(|node| Some((node.text()?, node.line)))
    }

    /// A number, with its line.
    fn number(&self, name: &str, unit: &str) -> Result<Option<(u32, usize)>, ConvertError> {
        let Some((text, line)) = self.text(name) else { return Ok(None) };
        match server::number(text) {
            Some(number) => Ok(Some((number, line))),
            None => Err(ConvertError::at_line(line, format!("{name}: {text:?} is no {unit}; give digits only"))),
        }
    }

    /// Yes or no. twemproxy knows no other spellings.
    fn flag(&self, name: &str) -> Result<Option<(bool, usize)>, ConvertError> {
        match self.text(name) {
            None => Ok(None),
            Some(("true", line)) => Ok(Some((true, line))),
            Some(("false", line)) => Ok(Some((false, line))),
            Some((text, line)) => {
                Err(ConvertError::at_line(line, format!("{name}: {text:?} is neither true nor false")))
            }
        }
    }
}

fn set_listener(pool: &mut Pool, node: &Node) -> Result<(), ConvertError> {
    let text = node.text().unwrap_or_default();
    let (address, permissions) =
        server::listener(text).map_err(|problem| ConvertError::at_line(node.line, format!("listen: {problem}")))?;
    pool.set_text("listen", &address);
    if let Some(permissions) = permissions {
        pool.note(format!(
            "listen: the permissions {permissions} have no counterpart: the umask of the proxy decides on the socket file."
        ));
    }
    Ok(())
}

/// This proxy has no Redis.
fn refuse_redis(keys: &Keys<'_>, pool: &mut Pool) -> Result<(), ConvertError> {
    if let Some((true, line)) = keys.flag("redis")? {
        let problem = "redis: true: the proxy speaks memcached's protocol only; leave this pool out";
        return Err(ConvertError::at_line(line, problem));
    }
    if keys.get("redis_auth").is_some() {
        pool.note("redis_auth has no counterpart: this pool has no Redis.");
    }
    if let Some((number, _)) = keys.number("redis_db", "number")? {
        pool.note(format!("redis_db: {number} has no counterpart: this pool has no Redis."));
    }
    Ok(())
}

/// The servers with the names that twemproxy hashes.
fn read_servers(node: &Node) -> Result<Vec<(Server, String)>, ConvertError> {
    let Value::List(list) = &node.value else {
        return Err(ConvertError::at_line(
            node.line,
            "servers: give a list, with a line `- HOST:PORT:WEIGHT` for each",
        ));
    };
    let mut servers: Vec<(Server, String)> = Vec::new();
    for item in list {
        let fail = |problem: String| ConvertError::at_line(item.line, problem);
        let text = item.text().ok_or_else(|| fail("give HOST:PORT:WEIGHT".into()))?;
        let (server, name) = server::parse(text).map_err(fail)?;
        if servers.iter().any(|(_, other)| *other == name) {
            return Err(fail(format!("{text:?}: another server has the name {name:?}; twemproxy refuses this too")));
        }
        if servers.iter().any(|(other, _)| other.address == server.address) {
            let problem = format!("{text:?}: another server has this address; give one server the weight of both");
            return Err(fail(problem));
        }
        servers.push((server, name));
    }
    if servers.is_empty() {
        return Err(ConvertError::at_line(node.line, "servers: give at least one"));
    }
    Ok(servers)
}

/// Sets the servers, the key distribution and the hash.
fn set_distribution(pool: &mut Pool, keys: &Keys<'_>, servers: &mut [(Server, String)]) -> Result<(), ConvertError> {
    let own_line = keys.get("servers").map_or(0, |node| node.line);
    let (name, line) = keys.text("distribution").unwrap_or(("ketama", own_line));
    let (hash, hash_line) = keys.text("hash").unwrap_or((HASH, own_line));
    if !DISTRIBUTIONS.contains(&name) {
        let advice = proposal(name, &DISTRIBUTIONS);
        let problem = format!("distribution: {name:?} is no distribution of twemproxy{advice}");
        return Err(ConvertError::at_line(line, problem));
    }
    if !HASHES.contains(&hash) {
        let problem = format!("hash: {hash:?} is no hash of twemproxy{}", proposal(hash, &HASHES));
        return Err(ConvertError::at_line(hash_line, problem));
    }
    if let [(server, _)] = servers {
        // Nothing is hashed, and there is nothing to compare the weight with.
        pool.set_servers(&[Server { weight: 1, ..server.clone() }]);
        return Ok(());
    }
    let distribution = match name {
        "ketama" => Distribution::Ketama,
        "modula" => Distribution::Modulo,
        _ => {
            let problem = "distribution: random sends each request to any server, so a key has no place; \
                           choose ketama, or write a pool with replicas on all servers and reads = \"any\"";
            return Err(ConvertError::at_line(line, problem));
        }
    };
    let Some(known) = Hash::named(hash) else {
        let problem = format!(
            "hash: {hash:?} does not exist here, so keys would move; choose md5, fnv1a_64 or crc32 and expect an empty cache"
        );
        return Err(ConvertError::at_line(hash_line, problem));
    };
    reduce_weights(distribution, servers, own_line)?;
    if distribution == Distribution::Modulo {
        server::sort(servers);
        pool.note(
            "The servers are in the order in which twemproxy numbers them. Keep it: it decides which server has a key.",
        );
    }
    pool.set_servers(&servers.iter().map(|(server, _)| server.clone()).collect::<Vec<_>>());
    pool.set_text("distribution", distribution.name());
    pool.set_text("hash", known.name());
    Ok(())
}

/// Divides weights that are too large, if that moves no key.
fn reduce_weights(
    distribution: Distribution,
    servers: &mut [(Server, String)],
    line: usize,
) -> Result<(), ConvertError> {
    let largest = |servers: &[(Server, String)]| servers.iter().map(|(server, _)| server.weight).max().unwrap_or(1);
    // Only the ratios of weights count for ketama. For modula, a server is listed as often as it weighs.
    if distribution == Distribution::Ketama && largest(servers) > WEIGHT_MAX {
        let common = servers.iter().fold(0, |common, (server, _)| greatest_divisor(common, server.weight));
        servers.iter_mut().for_each(|(server, _)| server.weight /= common.max(1));
    }
    match largest(servers) {
        0..=WEIGHT_MAX => Ok(()),
        weight => {
            let problem =
                format!("servers: the weight {weight} is more than {WEIGHT_MAX}; no equal smaller weights exist");
            Err(ConvertError::at_line(line, problem))
        }
    }
}

fn greatest_divisor(first: u32, second: u32) -> u32 {
    if second == 0 { first } else { greatest_divisor(second, first % second) }
}

fn set_hash_tag(pool: &mut Pool, keys: &Keys<'_>) -> Result<(), ConvertError> {
    let Some((text, line)) = keys.text("hash_tag") else { return Ok(()) };
    if text.len() != 2 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConvertError::at_line(line, format!("hash_tag: {text:?} is not two characters such as \"{{}}\"")));
    }
    pool.set_text("hash-tag", text);
    Ok(())
}

fn set_timeouts(pool: &mut Pool, keys: &Keys<'_>) -> Result<(), ConvertError> {
    let default = "the default here is 1s, because a request that waits forever holds its client";
    match keys.number("timeout", "number of milliseconds")? {
        None => pool.note(format!("timeout is missing: twemproxy waits without a limit; {default}.")),
        Some((0, _)) => pool.note(format!("timeout: 0 is no timeout in twemproxy; {default}.")),
        Some((milliseconds, _)) => {
            let time = Duration::from_millis(milliseconds.into());
            if time > TIMEOUT_MAX {
                pool.note(format!("timeout: {milliseconds} is more than the longest timeout, which is 1h."));
            }
            let text = format!("{:?}", duration_text(time.min(TIMEOUT_MAX)));
            pool.set("timeouts", format!("{{ connect = {text}, read = {text}, write = {text} }}"));
        }
    }
    Ok(())
}

/// What becomes of `auto_eject_hosts`.
fn set_failures(pool: &mut Pool, keys: &Keys<'_>) -> Result<(), ConvertError> {
    let limit = keys.number("server_failure_limit", "number")?;
    if let Some((0, line)) = limit {
        return Err(ConvertError::at_line(line, "server_failure_limit: 0: give at least 1"));
    }
    match (keys.flag("auto_eject_hosts")?, limit) {
        (Some((true, _)), limit) => {
            pool.set("failures", limit.map_or(FAILURE_LIMIT, |(limit, _)| limit).to_string());
            pool.note(
                "auto_eject_hosts: true means something else: a server is ejected after this many timeouts in a row, but its keys do not \
                 move to the others, where they would leave old values. Until it answers again, requests for them fail at once, or go \
                 to a failover-pool if you add one.",
            );
        }
        (flag, limit) => {
            if flag.is_some() {
                pool.note(
                    "auto_eject_hosts: false: keys never move, as here. A server that does not answer is ejected all the same: \
                     requests for its keys fail at once until it answers again.",
                );
            }
            if let Some((limit, _)) = limit {
                pool.note(format!(
                    "server_failure_limit: {limit} counts only with auto_eject_hosts: true. See `failures` for the same here."
                ));
            }
        }
    }
    if let Some((time, _)) = keys.number("server_retry_timeout", "number of milliseconds")? {
        pool.note(format!(
            "server_retry_timeout: {time} has no counterpart: an ejected server is probed with pauses that grow from 20ms to 1s."
        ));
    }
    Ok(())
}

/// Notes the keys that have no counterpart.
fn note_others(pool: &mut Pool, keys: &Keys<'_>) -> Result<(), ConvertError> {
    match keys.number("server_connections", "number")? {
        Some((0, line)) => return Err(ConvertError::at_line(line, "server_connections: 0: give at least 1")),
        None | Some((1, _)) => {}
        Some((count, _)) => pool.note(format!(
            "server_connections: {count} has no counterpart: each event loop has one connection to each server. See `loops`."
        )),
    }
    if let Some((count, _)) = keys.number("client_connections", "number")? {
        pool.note(format!(
            "client_connections: {count} has no counterpart for one pool. `clients-max` limits the clients of all pools."
        ));
    }
    if let Some((count, _)) = keys.number("backlog", "number")? {
        pool.note(format!("backlog: {count} has no counterpart: a listener has a backlog of 1024."));
    }
    match keys.flag("tcpkeepalive")? {
        Some((true, _)) => pool.note("tcpkeepalive: true is the default here, after 60s without a byte."),
        Some((false, _)) => pool.note(
            "tcpkeepalive: false has no counterpart for one pool. `tcp-keepalive = \"0s\"` before the pools is for all of them.",
        ),
        None => {}
    }
    if let Some((flag, _)) = keys.flag("reuseport")? {
        pool.note(format!(
            "reuseport: {flag} has no counterpart: a new process takes over the sockets of the old one."
        ));
    }
    match keys.flag("preconnect")? {
        Some((true, _)) => pool.note("preconnect: true is what the proxy always does."),
        Some((false, _)) => {
            pool.note("preconnect: false has no counterpart: the proxy connects to all servers when it starts.")
        }
        None => {}
    }
    Ok(())
}
