//! What the proxy is told. Checked once, before anything starts; every queue and wait has its limit here.

use crate::config::named::named;
use crate::config::operations::Operations;
use crate::config::pool::{PoolConfig, RouteConfig, ServerConfig};
use crate::config::transport::TransportConfig;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// For which requests the clock is read at every stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// For none: only counted.
    Off,
    /// For those whose record is kept.
    Sampled,
    /// For all.
    All,
}

/// What becomes of a multi-get when the backend of some of its keys fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartFailure {
    /// Its keys are misses; counted.
    Miss,
    /// The values of the others, then the error in place of END.
    Partial,
    /// The error alone.
    Error,
}

/// Who may be in flight, and where the others wait. Slots are given for the whole proxy; each loop has its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Nobody waits: every request goes straight onto the one connection to its backend.
    Pipelined,
    /// Each backend has a queue of reads, served by slots of one request each; writes go straight onto connections of theirs.
    PerBackend {
        /// Slots for the reads of each backend, each with a connection of its own.
        readers: usize,
        /// Connections for the writes of each backend.
        writers: usize,
    },
    /// One queue, served by slots of one request each.
    Shared {
        /// Slots, each with a connection to every backend, all held until the whole request is answered.
        workers: usize,
        /// Who answers a `get` of several keys.
        multi_get: MultiGet,
    },
}

/// Who answers a `get` of several keys in the discipline `shared`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiGet {
    /// Each key's own backend.
    ByKey,
    /// As many backends as there are, each for a part of neighbouring keys.
    Sharded,
    /// The first key's backend, for all keys.
    Whole,
}

/// Where records go and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsConfig {
    /// The directory.
    pub directory: PathBuf,
    /// One request in so many.
    pub sample: u32,
}

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where clients connect, each as `net::Address` reads it.
    pub listen: Vec<String>,
    /// How clients and backends are reached, beside their addresses.
    pub transport: TransportConfig,
    /// Groups of backends. The first is for keys that no route takes.
    pub pools: Vec<PoolConfig>,
    /// Which keys go to which pool; of several that fit, the longest prefix counts.
    pub routes: Vec<RouteConfig>,
    /// Event loops.
    pub loops: usize,
    /// Who may be in flight, and where the others wait.
    pub discipline: Discipline,
    /// Requests that may wait in each queue of each loop.
    pub queue: usize,
    /// For which requests the clock is read.
    pub stamps: Stamps,
    /// Which records are kept, if any.
    pub records: Option<RecordsConfig>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<String>,
    /// What an operator is shown.
    pub operations: Operations,
    /// What a failed part does to a multi-get.
    pub part_failure: PartFailure,
    /// Requests that may wait for the answer of one backend, per loop.
    pub backend_window: usize,
    /// Requests of one client that may be in flight before no more are read from it.
    pub client_window: usize,
    /// Bytes that may wait for one client before no more are read from it.
    pub client_buffer_bytes: u64,
    /// Bytes that may wait for one backend before requests are refused.
    pub backend_buffer_bytes: u64,
    /// The largest value that is passed on to a backend.
    pub value_bytes: usize,
    /// The largest reply of a backend that is passed on to a client.
    pub reply_bytes: usize,
    /// Clients at one time.
    pub clients_max: usize,
}

/// The most slots of one kind.
pub(crate) const SLOTS_MAX: usize = 1024;

named!(Stamps { Off = "off", Sampled = "sampled", All = "all" });
named!(PartFailure { Miss = "miss", Partial = "partial", Error = "error" });
named!(MultiGet { ByKey = "by-key", Sharded = "sharded", Whole = "whole" });

impl Discipline {
    /// As in the argument `--dispatch`.
    pub fn name(self) -> &'static str {
        match self {
            Discipline::Pipelined => "pipelined",
            Discipline::PerBackend { .. } => "per-backend",
            Discipline::Shared { .. } => "shared",
        }
    }

    /// Its kinds of slots: the key that says how many there are, and how many.
    pub fn slots(self) -> impl Iterator<Item = (&'static str, usize)> {
        let slots = match self {
            Discipline::Pipelined => [None, None],
            Discipline::PerBackend { readers, writers } => [Some(("readers", readers)), Some(("writers", writers))],
            Discipline::Shared { workers, .. } => [Some(("workers", workers)), None],
        };
        slots.into_iter().flatten()
    }
}

impl fmt::Display for MultiGet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How many of `slots` belong to the loop with this index: as even as possible.
pub(crate) fn share(slots: usize, loops: usize, index: usize) -> usize {
    slots / loops + usize::from(index < slots % loops)
}

impl Config {
    /// A configuration with the defaults for everything but the backends, which are one pool.
    pub fn new(listen: &str, servers: &[String]) -> Config {
        Config {
            listen: vec![listen.into()],
            transport: TransportConfig::default(),
            pools: vec![PoolConfig::new("default", servers)],
            routes: Vec::new(),
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            discipline: Discipline::Pipelined,
            queue: 64 * 1024,
            stamps: Stamps::All,
            records: None,
            metrics: None,
            operations: Operations::default(),
            part_failure: PartFailure::Miss,
            backend_window: 64 * 1024,
            client_window: 1024,
            client_buffer_bytes: 1 << 20,
            backend_buffer_bytes: 64 << 20,
            value_bytes: 8 << 20,
            reply_bytes: 64 << 20,
            clients_max: 16 * 1024,
        }
    }

    /// The place of the pool with this name.
    pub fn pool(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name == name)
    }

    /// All backends in the order of their numbers: pool by pool.
    pub fn backends(&self) -> impl Iterator<Item = (&PoolConfig, &ServerConfig)> {
        self.pools.iter().flat_map(|pool| pool.servers.iter().map(move |server| (pool, server)))
    }

    /// The longest time that any backend has for anything.
    pub fn longest_timeout(&self) -> Duration {
        let longest = |pool: &PoolConfig| pool.timeouts.connect.max(pool.timeouts.read).max(pool.timeouts.write);
        self.pools.iter().map(longest).max().unwrap_or_default()
    }

    /// The name of each backend.
    pub fn backend_names(&self) -> Vec<String> {
        self.backends().map(|(_, server)| server.address.clone()).collect()
    }

    /// Names that tell the backends apart: with the pool's before it, if there are several pools.
    pub(crate) fn unique_backend_names(&self) -> Vec<String> {
        let has_several = self.pools.len() > 1;
        let name = |(pool, server): (&PoolConfig, &ServerConfig)| match has_several {
            true => format!("{}/{}", pool.name, server.address),
            false => server.address.clone(),
        };
        self.backends().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_one_clear_line() {
        let good = Config::new("127.0.0.1:0", &["a:1".into(), "b:2".into()]);
        assert_eq!(good.check(), Ok(()));
        let records = Some(RecordsConfig { directory: "x".into(), sample: 0 });
        let slots = |discipline| Config { discipline, loops: 2, ..good.clone() };
        let few = slots(Discipline::Shared { workers: 1, multi_get: MultiGet::ByKey });
        let many = slots(Discipline::PerBackend { readers: 5000, writers: 2 });
        let writers = slots(Discipline::PerBackend { readers: 2, writers: 1 });
        let sharded = slots(Discipline::Shared { workers: 2, multi_get: MultiGet::Sharded });
        let listen =
            |texts: &[&str]| Config { listen: texts.iter().map(ToString::to_string).collect(), ..good.clone() };
        let server = |text: &str| Config { pools: Config::new("", &[text.into()]).pools, ..good.clone() };
        let pool = |change: fn(&mut PoolConfig)| {
            let mut config = good.clone();
            change(&mut config.pools[0]);
            config
        };
        let stray = RouteConfig { prefix: "a:".into(), pool: "b".into() };
        let bad: [(Config, &str); 21] = [
            (server("a"), "\"a\" is not an address (it has no port)"),
            (server("a:0"), "port 0"),
            (server("unix:"), "it has no path"),
            (listen(&["a:1", "b c:1"]), "\"b c:1\" is not an address"),
            (listen(&["a:1", "a:1"]), "listen = \"a:1\": is given twice"),
            (few, "workers = 1: each of 2 loops needs one; give a number from 2 to 1024"),
            (many, "readers = 5000: each of 2 loops"),
            (writers, "writers = 1: each of 2 loops"),
            (
                sharded,
                "multi-get = \"sharded\": any server is asked for any key, so each needs every key: give replicas 2",
            ),
            (Config { queue: 0, ..good.clone() }, "queue = 0: nothing could pass"),
            (Config { pools: vec![], ..good.clone() }, "there are no servers"),
            (pool(|pool| pool.servers[1] = ServerConfig::new("a:1")), "given twice"),
            (pool(|pool| pool.replicas = 3), "give a number from 1 to 2"),
            (pool(|pool| pool.timeouts.read = Duration::ZERO), "timeouts.read = \"0s\": give more than 0s"),
            (Config { pools: vec![good.pools[0].clone(); 2], ..good.clone() }, "name = \"default\": another pool"),
            (Config { routes: vec![stray], ..good.clone() }, "pool = \"b\": there is no such pool"),
            (Config { loops: 0, ..good.clone() }, "loops = 0"),
            (
                Config { records: records.clone(), stamps: Stamps::Off, ..good.clone() },
                "stamps = \"off\": records need",
            ),
            (Config { records, ..good.clone() }, "sample = 0"),
            (Config { stamps: Stamps::Sampled, ..good.clone() }, "stamps = \"sampled\": without records"),
            (Config { client_window: 0, ..good.clone() }, "client-window = 0"),
        ];
        for (config, expected) in bad {
            let line = config.check().unwrap_err().to_string();
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn shares_are_even_and_lose_no_slot() {
        for slots in 1..40 {
            for loops in 1..=slots {
                let shares: Vec<usize> = (0..loops).map(|index| share(slots, loops, index)).collect();
                assert_eq!(shares.iter().sum::<usize>(), slots);
                assert!(shares[0] - shares[loops - 1] <= 1 && shares.is_sorted_by(|left, right| left >= right));
            }
        }
    }
}
