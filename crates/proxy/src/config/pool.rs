//! The configuration of pools: groups of backends over which keys are distributed, and the policies of each group.

use crate::config::listener::ListenerConfig;
use crate::config::named::named;
use configuration::text::{opt_size, time};
use key_distribution::{Distribution, Hash};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How many replicas must apply a write before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// All.
    #[default]
    All,
    /// More than half.
    Majority,
    /// One.
    First,
}

/// Which replica a read is sent to first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The key's primary.
    #[default]
    Primary,
    /// Each replica in turn.
    Any,
    /// The replica with the fewest requests in flight.
    LeastOutstanding,
}

/// When a read is sent to another replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// Never.
    #[default]
    Never,
    /// When the first replica has failed.
    OnError,
    /// When the first replica has failed or does not have the key.
    OnMiss,
}

/// How many servers a host name stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolve {
    /// One, at one of the addresses of the name.
    #[default]
    One,
    /// One at each address of the name.
    All,
}

/// Hedging: a second request for a slow read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct Hedge {
    /// How long the first replica may take before the read is hedged.
    #[serde(with = "time")]
    pub delay: Duration,
    /// The largest share of reads that may be hedged, from 0 to 1.
    pub budget: f64,
}

/// The failover pool, which serves requests while backends of this pool are down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct FailoverPool {
    /// Its name.
    pub pool: String,
    /// The longest time to live of a value stored there.
    #[serde(with = "time")]
    pub expiry: Duration,
}

/// The warm-up pool, from which missing values are fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct WarmUp {
    /// Its name.
    pub from: String,
    /// The longest time to live of a value stored from there.
    #[serde(with = "time")]
    pub expiry: Duration,
}

/// The shadow pool, which receives the requests for a share of the keys, too. Its replies are dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct Shadow {
    /// Its name.
    pub to: String,
    /// The share of keys, from 0 to 1. A key is in it always or never.
    pub share: f64,
    /// Whether reads are sent there, too, and not only writes.
    #[serde(default)]
    pub reads: bool,
}

/// The rate limit: a token bucket, from which each key of a request takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct RateLimit {
    /// The keys per second.
    pub per_second: u32,
    /// The largest number of keys at once. By default, those of one second.
    pub burst: Option<u32>,
}

/// The near-cache: each event loop answers a `get` of a hot key with a value that a server has returned within the lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct NearCache {
    /// The largest age of a value.
    #[serde(with = "time")]
    pub lifetime: Duration,
    /// The bytes of values that each event loop keeps.
    #[serde(with = "opt_size", default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Whether every key is kept, and not only hot ones. For tests; not a key of the file.
    #[serde(skip)]
    pub keeps_every_key: bool,
}

/// The default bytes of values of a near-cache in each event loop.
const NEAR_CACHE_BYTES: u64 = 1 << 20;

/// The default time to answer a request completely.
const REPLY: Duration = Duration::from_secs(10);

/// The timeouts of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The time to accept a connection, and to send nothing while the first probe is in flight.
    pub connect: Duration,
    /// How long the backend may send nothing while a read is in flight.
    pub read: Duration,
    /// The same for any other request.
    pub write: Duration,
    /// The time to answer a request completely, whatever the backend sends meanwhile.
    pub reply: Duration,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its address.
    pub address: String,
    /// The name that is hashed instead of its address, so that a replacement keeps its keys.
    pub name: Option<String>,
    /// Its share of the keys, relative to other servers' weights.
    pub weight: u32,
    /// Whether it receives no requests, as if it were down. It keeps its keys.
    pub is_drained: bool,
}

/// A route: keys with this prefix belong to this pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct RouteConfig {
    /// The prefix of the keys.
    pub prefix: String,
    /// The pool's name.
    pub pool: String,
    /// Whether the servers receive the keys without the prefix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strip_prefix: bool,
    /// What the servers receive in the place of the prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix: Option<String>,
}

impl RouteConfig {
    /// A route that does not change keys.
    pub fn new(prefix: &str, pool: &str) -> RouteConfig {
        RouteConfig { prefix: prefix.into(), pool: pool.into(), strip_prefix: false, replace_prefix: None }
    }

    /// What the servers receive in the place of the prefix, if the route changes keys.
    pub fn replacement(&self) -> Option<&str> {
        if self.strip_prefix { Some("") } else { self.replace_prefix.as_deref() }
    }
}

/// One pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// The listeners whose clients use this pool, whatever the routes say.
    pub listen: Vec<ListenerConfig>,
    /// Its backends, in the order in which replicas follow each other.
    pub servers: Vec<ServerConfig>,
    /// The file from which the servers were read.
    pub servers_file: Option<PathBuf>,
    /// The name with SRV records of which the servers were made.
    pub srv: Option<String>,
    /// How many servers each host name among them stands for.
    pub resolve: Resolve,
    /// The key distribution.
    pub distribution: Distribution,
    /// The hash function; by default, that of the key distribution.
    pub hash: Option<Hash>,
    /// The two characters that enclose the hashed part of a key.
    pub hash_tag: Option<[u8; 2]>,
    /// The number of backends that store each value.
    pub replicas: usize,
    /// How many replicas must apply a write.
    pub writes: Writes,
    /// Which replica a read is sent to first.
    pub reads: Reads,
    /// When a read is sent to another replica.
    pub failover: Failover,
    /// Whether slow reads are hedged.
    pub hedge: Option<Hedge>,
    /// The failover pool.
    pub failover_pool: Option<FailoverPool>,
    /// The warm-up pool.
    pub warm_up: Option<WarmUp>,
    /// The shadow pool.
    pub shadow: Option<Shadow>,
    /// The pool to which plain reads of its keys are sent instead.
    pub read_pool: Option<String>,
    /// The pools to which deletes of its keys are sent, too.
    pub delete_pools: Vec<String>,
    /// Whether `flush_all` reaches its backends.
    pub flush: bool,
    /// How many keys clients may request.
    pub rate_limit: Option<RateLimit>,
    /// The near-cache for hot keys.
    pub near_cache: Option<NearCache>,
    /// The timeouts of its backends.
    pub timeouts: Timeouts,
    /// After how many timeouts in a row, without a reply between, a backend is ejected.
    pub failures: u32,
    /// How many servers must be up for the proxy to be ready.
    pub ready_servers: usize,
    /// The file of the user with which the proxy authenticates to the servers.
    pub server_auth_file: Option<PathBuf>,
}

named!(Writes { All = "all", Majority = "majority", First = "first" });
named!(Reads { Primary = "primary", Any = "any", LeastOutstanding = "least-outstanding" });
named!(Resolve { One = "one", All = "all" });
named!(Failover { Never = "never", OnError = "on-error", OnMiss = "on-miss" });

impl RateLimit {
    /// The largest number of keys at once.
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(self.per_second)
    }
}

impl NearCache {
    /// A near-cache for hot keys, with the default memory.
    pub fn new(lifetime: Duration) -> NearCache {
        NearCache { lifetime, memory: None, keeps_every_key: false }
    }

    /// The bytes of values that each event loop keeps.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(NEAR_CACHE_BYTES)
    }
}

impl Timeouts {
    /// The same timeout for everything except a whole reply, which may take longer.
    pub fn all(time: Duration) -> Timeouts {
        Timeouts { connect: time, read: time, write: time, reply: time.max(REPLY) }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts::all(Duration::from_secs(1))
    }
}

impl ServerConfig {
    /// A backend of weight one.
    pub fn new(address: &str) -> ServerConfig {
        ServerConfig { address: address.into(), name: None, weight: 1, is_drained: false }
    }

    /// The name that the key distribution hashes.
    pub(crate) fn hashed_name(&self, distribution: Distribution) -> &str {
        self.name.as_deref().unwrap_or_else(|| distribution.name_of(&self.address))
    }
}

impl PoolConfig {
    /// A pool of backends of equal weight, with the defaults for everything else.
    pub fn new(name: &str, servers: &[String]) -> PoolConfig {
        PoolConfig {
            name: name.into(),
            listen: Vec::new(),
            servers: servers.iter().map(|server| ServerConfig::new(server)).collect(),
            servers_file: None,
            srv: None,
            resolve: Resolve::One,
            distribution: Distribution::Ketama,
            hash: None,
            hash_tag: None,
            replicas: 1,
            writes: Writes::All,
            reads: Reads::Primary,
            failover: Failover::Never,
            hedge: None,
            failover_pool: None,
            warm_up: None,
            shadow: None,
            read_pool: None,
            delete_pools: Vec::new(),
            flush: true,
            rate_limit: None,
            near_cache: None,
            timeouts: Timeouts::default(),
            failures: 3,
            ready_servers: 1,
            server_auth_file: None,
        }
    }

    /// The hash function.
    pub fn hash(&self) -> Hash {
        self.hash.unwrap_or(self.distribution.usual_hash())
    }

    /// The other pools that this one refers to: the key and the name of each.
    pub fn named_pools(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let failover = self.failover_pool.as_ref().map(|failover| ("failover-pool.pool", failover.pool.as_str()));
        let warm_up = self.warm_up.as_ref().map(|warm_up| ("warm-up.from", warm_up.from.as_str()));
        let shadow = self.shadow.as_ref().map(|shadow| ("shadow.to", shadow.to.as_str()));
        let read = self.read_pool.as_deref().map(|name| ("read-pool", name));
        let delete = self.delete_pools.iter().map(|name| ("delete-pools", name.as_str()));
        [failover, warm_up, shadow, read].into_iter().flatten().chain(delete)
    }
}
