//! Pools: groups of backends that share keys among them, and how each of them is used.

use crate::config::named::named;
use configuration::text::time;
use key_distribution::{Distribution, Hash};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How many copies must have taken a write before it is acknowledged.
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

/// Which copy a read asks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The key's primary.
    #[default]
    Primary,
    /// Each in turn.
    Any,
    /// The one that has fewest requests under way.
    LeastOutstanding,
}

/// When a read asks another copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// Never.
    #[default]
    Never,
    /// When the first one failed.
    OnError,
    /// When the first one failed, or does not have the key.
    OnMiss,
}

/// A second request for a read that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct Hedge {
    /// How long the first copy has.
    #[serde(with = "time")]
    pub delay: Duration,
    /// The largest share of reads that may be asked twice, from 0 to 1.
    pub budget: f64,
}

/// A pool that stands in while backends of this one are down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct FailoverPool {
    /// Its name.
    pub pool: String,
    /// What is stored there lives at most so long.
    #[serde(with = "time")]
    pub expiry: Duration,
}

/// A pool from which missing values are fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct WarmUp {
    /// Its name.
    pub from: String,
    /// What is copied lives at most so long.
    #[serde(with = "time")]
    pub expiry: Duration,
}

/// A pool to which a share of the keys is sent too, and whose replies nobody waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct Shadow {
    /// Its name.
    pub to: String,
    /// The share of keys, from 0 to 1; a key belongs to it always or never.
    pub share: f64,
    /// Whether reads are sent there, and not only writes.
    #[serde(default)]
    pub reads: bool,
}

/// Times that a backend has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To accept a connection and answer the first probe.
    pub connect: Duration,
    /// To answer a request that reads.
    pub read: Duration,
    /// To answer any other request.
    pub write: Duration,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it listens.
    pub address: String,
    /// What it is called for the distribution instead of its address, so that whatever takes its place keeps its keys.
    pub name: Option<String>,
    /// Its share of the keys, relative to the others'.
    pub weight: u32,
}

/// Which keys go to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct RouteConfig {
    /// What the keys begin with.
    pub prefix: String,
    /// The pool's name.
    pub pool: String,
}

/// One pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// Its backends; their order is the order of replicas.
    pub servers: Vec<ServerConfig>,
    /// How keys are spread.
    pub distribution: Distribution,
    /// What keys are hashed with; if nothing is said, what suits the distribution.
    pub hash: Option<Hash>,
    /// Two characters between which the hashed part of a key stands.
    pub hash_tag: Option<[u8; 2]>,
    /// Replicas of each value.
    pub replicas: usize,
    /// How many of them must have taken a write.
    pub writes: Writes,
    /// Which of them a read asks first.
    pub reads: Reads,
    /// When a read asks another one.
    pub failover: Failover,
    /// Whether a slow read is asked twice.
    pub hedge: Option<Hedge>,
    /// What stands in while backends are down.
    pub failover_pool: Option<FailoverPool>,
    /// Where missing values are fetched from.
    pub warm_up: Option<WarmUp>,
    /// Where a share of the keys is sent too.
    pub shadow: Option<Shadow>,
    /// Whether `flush_all` reaches its backends.
    pub flush: bool,
    /// Times that its backends have.
    pub timeouts: Timeouts,
}

named!(Writes { All = "all", Majority = "majority", First = "first" });
named!(Reads { Primary = "primary", Any = "any", LeastOutstanding = "least-outstanding" });
named!(Failover { Never = "never", OnError = "on-error", OnMiss = "on-miss" });

impl Timeouts {
    /// The same for everything.
    pub fn all(time: Duration) -> Timeouts {
        Timeouts { connect: time, read: time, write: time }
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
        ServerConfig { address: address.into(), name: None, weight: 1 }
    }

    /// What the distribution calls it.
    pub(crate) fn hashed_name(&self, distribution: Distribution) -> &str {
        self.name.as_deref().unwrap_or_else(|| distribution.name_of(&self.address))
    }
}

impl PoolConfig {
    /// A pool of backends of equal weight, with the defaults for everything else.
    pub fn new(name: &str, servers: &[String]) -> PoolConfig {
        PoolConfig {
            name: name.into(),
            servers: servers.iter().map(|server| ServerConfig::new(server)).collect(),
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
            flush: true,
            timeouts: Timeouts::default(),
        }
    }

    /// What keys are hashed with.
    pub fn hash(&self) -> Hash {
        self.hash.unwrap_or(self.distribution.usual_hash())
    }

    /// Other pools that this one names: at which key, and which.
    pub fn named_pools(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let failover = self.failover_pool.as_ref().map(|failover| ("failover-pool.pool", failover.pool.as_str()));
        let warm_up = self.warm_up.as_ref().map(|warm_up| ("warm-up.from", warm_up.from.as_str()));
        let shadow = self.shadow.as_ref().map(|shadow| ("shadow.to", shadow.to.as_str()));
        [failover, warm_up, shadow].into_iter().flatten()
    }
}
