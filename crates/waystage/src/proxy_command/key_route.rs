//! The output of `waystage proxy route`: the servers of keys, as text or JSON.

use crate::proxy_command::policies;
use proxy::{Config, FailoverPool, Hedge, PoolConfig, Router, Shadow, WarmUp};
use serde::Serialize;

/// The length of the longest key.
const KEY_BYTES_MAX: usize = 250;

/// The whole output.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) keys: Vec<KeyRoute>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spread: Option<Vec<PoolShare>>,
}

/// The route of one key.
#[derive(Debug, Serialize)]
pub(crate) struct KeyRoute {
    #[serde(skip)]
    is_of_only_pool: bool,
    key: String,
    pool: String,
    /// Prefix of the route that matches the key.
    prefix: Option<String>,
    /// The key that the servers receive.
    sent: String,
    /// The part of that key which is hashed.
    hashed: String,
    hash_tag: Option<String>,
    distribution: &'static str,
    hash: &'static str,
    primary: String,
    replicas: Vec<String>,
    reads: &'static str,
    failover: &'static str,
    hedge: Option<Hedge>,
    writes: &'static str,
    failover_pool: Option<FailoverPool>,
    /// Servers of the key in the failover pool, the primary first.
    failover_servers: Vec<String>,
    warm_up: Option<WarmUp>,
    shadow: Option<Shadow>,
    /// The pool that plain reads go to, if it is another one.
    read_pool: Option<PoolServers>,
    /// The other pools that deletes are sent to.
    delete_pools: Vec<PoolServers>,
}

/// The servers of a key in another pool, the primary first.
#[derive(Debug, Serialize)]
struct PoolServers {
    pool: String,
    servers: Vec<String>,
}

/// Number of keys on standard input that belong to a pool.
#[derive(Debug, Serialize)]
pub(crate) struct PoolShare {
    pool: String,
    keys: u64,
    servers: Vec<ServerShare>,
}

/// Number of these keys whose primary is this server.
#[derive(Debug, Serialize)]
struct ServerShare {
    server: String,
    weight: u32,
    keys: u64,
    /// Share of the pool's keys; none if it has no keys.
    share: Option<f64>,
    share_by_weight: f64,
}

impl KeyRoute {
    /// Routes a key, by the routes or in the given pool.
    pub(crate) fn new(config: &Config, router: &Router, only_pool: Option<usize>, key: &[u8]) -> KeyRoute {
        let placement = match only_pool {
            Some(pool) => router.explain_in(pool, key),
            None => router.explain(key),
        };
        let pool = &config.pools[placement.pool];
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let names = config.backend_names();
        let named = |numbers: &[u16]| numbers.iter().map(|&number| names[usize::from(number)].clone()).collect();
        let mut replicas: Vec<String> = named(&placement.backends);
        let failover = pool.failover_pool.as_ref().and_then(|failover| config.pool(&failover.pool));
        let failover_servers = failover.map(|place| named(&router.explain_in(place, &placement.sent).backends));
        let servers_in = |place: usize| PoolServers {
            pool: config.pools[place].name.clone(),
            servers: named(&router.explain_in(place, &placement.sent).backends),
        };
        let read_pool = pool.read_pool.as_ref().and_then(|name| config.pool(name));
        KeyRoute {
            is_of_only_pool: only_pool.is_some(),
            key: text(key),
            pool: pool.name.clone(),
            prefix: placement.prefix.map(text),
            sent: text(&placement.sent),
            hashed: text(&placement.hashed),
            hash_tag: pool.hash_tag.map(|tag| tag.map(char::from).iter().collect()),
            distribution: pool.distribution.name(),
            hash: pool.hash().name(),
            primary: replicas.remove(0),
            replicas,
            reads: pool.reads.name(),
            failover: pool.failover.name(),
            hedge: pool.hedge,
            writes: pool.writes.name(),
            failover_pool: pool.failover_pool.clone(),
            failover_servers: failover_servers.unwrap_or_default(),
            warm_up: pool.warm_up.clone(),
            shadow: pool.shadow.clone(),
            read_pool: read_pool.map(servers_in),
            delete_pools: config.pools_of_deletes(placement.pool).into_iter().map(servers_in).collect(),
        }
    }

    fn text(&self, config: &Config, pool: &PoolConfig) -> String {
        let replicas: Vec<&str> = std::iter::once(&self.primary).chain(&self.replicas).map(String::as_str).collect();
        let why = match &self.prefix {
            Some(prefix) => format!("the longest matching route is {prefix:?}"),
            None if self.is_of_only_pool => "as for clients of its listener".into(),
            None => "the first pool, because no route matches".into(),
        };
        let part = match &self.hash_tag {
            Some(tag) if self.hashed != self.sent => format!(", the part between {}", shown(tag)),
            Some(tag) => format!(", the whole key, because it has no part between {}", shown(tag)),
            None => ", the whole key".into(),
        };
        let mut lines = vec![("pool", format!("{}: {why}", self.pool))];
        if self.sent != self.key {
            let is_possible = (1..=KEY_BYTES_MAX).contains(&self.sent.len());
            let refused = if is_possible { "" } else { ", which is refused: a key has 1 to 250 bytes" };
            lines.push(("sent as", format!("{}{refused}", shown(&self.sent))));
        }
        lines.extend([
            ("hashed", format!("{}{part}", shown(&self.hashed))),
            ("by", policies::key_distribution(pool)),
            ("primary", self.primary.clone()),
        ]);
        if !self.replicas.is_empty() {
            lines.push(("replicas", self.replicas.join(", ")));
        }
        lines.push(("reads", self.reads(config).unwrap_or_else(|| policies::reads(pool, &replicas))));
        lines.push(("writes", policies::writes(pool, &replicas)));
        for PoolServers { pool, servers } in &self.delete_pools {
            lines.push(("deletes", format!("also pool {pool}: {}", servers.join(", "))));
        }
        for (name, text) in policies::others(pool) {
            let servers =
                if name == "failover" { format!(": {}", self.failover_servers.join(", ")) } else { String::new() };
            lines.push((name, text + &servers));
        }
        let lines = lines.into_iter().map(|(name, text)| format!("  {name:<8} {text}\n"));
        format!("{}\n{}", shown(&self.key), lines.collect::<String>())
    }
}

impl KeyRoute {
    /// Which servers plain reads use, if they use another pool.
    fn reads(&self, config: &Config) -> Option<String> {
        let PoolServers { pool, servers } = self.read_pool.as_ref()?;
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let reads = policies::reads(&config.pools[config.pool(pool)?], &servers);
        Some(policies::reads_elsewhere(pool, &reads, &self.primary))
    }
}

impl Report {
    /// Computes the shares from the number of keys of each backend.
    pub(crate) fn spread(config: &Config, counts: &[u64]) -> Vec<PoolShare> {
        let mut counts = counts.iter().copied();
        let share = |pool: &PoolConfig| {
            let total: u32 = pool.servers.iter().map(|server| server.weight).sum();
            let counts: Vec<u64> = counts.by_ref().take(pool.servers.len()).collect();
            let keys: u64 = counts.iter().sum();
            let server = |(server, count): (&proxy::ServerConfig, u64)| ServerShare {
                server: server.address.clone(),
                weight: server.weight,
                keys: count,
                share: (keys > 0).then(|| count as f64 / keys as f64),
                share_by_weight: f64::from(server.weight) / f64::from(total),
            };
            PoolShare { pool: pool.name.clone(), keys, servers: pool.servers.iter().zip(counts).map(server).collect() }
        };
        config.pools.iter().map(share).collect()
    }

    /// The output as text.
    pub(crate) fn text(&self, config: &Config) -> String {
        let pool = |name: &str| config.pools.iter().find(|pool| pool.name == name);
        let mut parts: Vec<String> =
            self.keys.iter().filter_map(|key| pool(&key.pool).map(|pool| key.text(config, pool))).collect();
        for share in self.spread.iter().flatten() {
            let by = pool(&share.pool).map(policies::key_distribution).unwrap_or_default();
            let width = share.servers.iter().map(|server| server.server.len()).max().unwrap_or(0).max(6);
            let mut text = format!("{}: {} keys, {by}\n", share.pool, share.keys);
            text += &format!("  {:<width$}  weight       keys    share  by weight\n", "server");
            for server in &share.servers {
                let of_keys = server.share.map_or("-".into(), |share| format!("{:.2} %", share * 100.0));
                let by_weight = format!("{:.2} %", server.share_by_weight * 100.0);
                text += &format!(
                    "  {:<width$}  {:>6} {:>10} {of_keys:>8} {by_weight:>10}\n",
                    server.server, server.weight, server.keys
                );
            }
            parts.push(text);
        }
        parts.join("\n")
    }
}

/// Text of a key for a terminal, with control characters escaped.
fn shown(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
