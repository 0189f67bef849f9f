//! The checked configuration of a proxy. It has the limits of all queues, windows and buffers that load can fill.

use crate::config::client_limits::ClientLimits;
use crate::config::listener::ListenerConfig;
use crate::config::logging::LogConfig;
use crate::config::named::named;
use crate::config::operations::Operations;
use crate::config::pool::{PoolConfig, RouteConfig, ServerConfig, Timeouts};
use crate::config::tracing::TracesConfig;
use crate::config::transport::TransportConfig;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Which requests are stamped at every stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// None: requests are only counted.
    Off,
    /// The requests that are recorded or traced.
    Sampled,
    /// All requests.
    All,
}

/// The reply to a multi-get if the backend of some of its keys fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartFailure {
    /// The keys of that backend are missing from the reply. If the backends of all keys fail, the error alone.
    Miss,
    /// The values from the other backends, then the error in place of END.
    Partial,
    /// The error alone.
    Error,
}

/// How many requests may be in flight, and where the others wait. Numbers of slots are for the whole proxy; each event loop has its
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// No request waits: each is sent at once on the one connection to its backend.
    Pipelined,
    /// Each backend has a queue of reads, served by slots of one request each. Writes are sent at once on connections of their own.
    PerBackend {
        /// The slots for reads of each backend, each with its own connection.
        readers: usize,
        /// The connections for writes of each backend.
        writers: usize,
        /// A published fault, for experiments: writers notice a new write only after they have polled their sockets, for at most
        /// this time or until a reply arrives.
        fault_write_poll: Option<Duration>,
    },
    /// All backends have one queue, served by slots of one request each.
    Shared {
        /// The slots, each with a connection to every backend. A slot is busy until the whole request is answered.
        workers: usize,
        /// Which backends answer a `get` of several keys.
        multi_get: MultiGet,
        /// A published fault, for experiments: a write holds its worker for at least this time.
        fault_write_hold: Option<Duration>,
    },
}

/// Which backends answer a `get` of several keys in the discipline `shared`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiGet {
    /// The primary of each key.
    ByKey,
    /// All backends, each for a part of consecutive keys.
    Sharded,
    /// The primary of the first key.
    Whole,
}

/// Where records are written, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsConfig {
    /// The directory.
    pub directory: PathBuf,
    /// One request in this many is recorded.
    pub sample: u32,
}

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The listeners whose clients use the routes. Pools can have further ones.
    pub listen: Vec<ListenerConfig>,
    /// Name resolution, TLS and hand-over.
    pub transport: TransportConfig,
    /// The pools of backends. The first has the keys that no route matches.
    pub pools: Vec<PoolConfig>,
    /// The routes. If several match, the one with the longest prefix counts.
    pub routes: Vec<RouteConfig>,
    /// The number of event loops.
    pub loops: usize,
    /// How many times slower each event loop works than on this machine, for experiments only.
    pub slow_down: Option<f64>,
    /// The discipline.
    pub discipline: Discipline,
    /// The most requests in each queue of each loop.
    pub queue: usize,
    /// Which requests are stamped.
    pub stamps: Stamps,
    /// The records, if any.
    pub records: Option<RecordsConfig>,
    /// The address of the metrics, if they are served.
    pub metrics: Option<String>,
    /// The configuration of hot keys.
    pub operations: Operations,
    /// The configuration of the log.
    pub log: LogConfig,
    /// The tracing of requests, if any are traced.
    pub traces: Option<TracesConfig>,
    /// The reply to a multi-get of which a part fails.
    pub part_failure: PartFailure,
    /// The most requests in flight on one connection to a backend.
    pub backend_window: usize,
    /// The most requests in flight of one client before the proxy stops reading from it.
    pub client_window: usize,
    /// The most bytes of replies held for one client. Beyond it, the proxy stops reading from the client, and reads replies
    /// again later.
    pub client_buffer_bytes: u64,
    /// The most bytes held for all clients.
    pub memory_bytes: u64,
    /// The most unwritten bytes for one backend before requests are refused.
    pub backend_buffer_bytes: u64,
    /// The largest value that the proxy accepts from a client.
    pub value_bytes: usize,
    /// The largest reply that the proxy accepts from a backend.
    pub reply_bytes: usize,
    /// The most clients at one time.
    pub clients_max: usize,
    /// Timeouts of clients, and limits of their addresses.
    pub client_limits: ClientLimits,
    /// The file of the users whose clients are served. Without it, clients need not authenticate.
    pub client_auth_file: Option<PathBuf>,
}

/// The most slots of one kind.
pub(crate) const SLOTS_MAX: usize = 1024;

named!(Stamps { Off = "off", Sampled = "sampled", All = "all" });
named!(PartFailure { Miss = "miss", Partial = "partial", Error = "error" });
named!(MultiGet { ByKey = "by-key", Sharded = "sharded", Whole = "whole" });

impl Discipline {
    /// The name, as in the argument `--dispatch`.
    pub fn name(self) -> &'static str {
        match self {
            Discipline::Pipelined => "pipelined",
            Discipline::PerBackend { .. } => "per-backend",
            Discipline::Shared { .. } => "shared",
        }
    }

    /// Its kinds of slots: the configuration key and the number of each.
    pub fn slots(self) -> impl Iterator<Item = (&'static str, usize)> {
        let slots = match self {
            Discipline::Pipelined => [None, None],
            Discipline::PerBackend { readers, writers, .. } => [Some(("readers", readers)), Some(("writers", writers))],
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

/// The number of `slots` of the loop with this index. Slots are divided as evenly as possible.
pub(crate) fn share(slots: usize, loops: usize, index: usize) -> usize {
    slots / loops + usize::from(index < slots % loops)
}

impl Config {
    /// A configuration with one pool of these backends, and defaults for everything else.
    pub fn new(listen: &str, servers: &[String]) -> Config {
        Config {
            listen: vec![listen.into()],
            transport: TransportConfig::default(),
            pools: vec![PoolConfig::new("default", servers)],
            routes: Vec::new(),
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            slow_down: None,
            discipline: Discipline::Pipelined,
            queue: 64 * 1024,
            stamps: Stamps::All,
            records: None,
            metrics: None,
            operations: Operations::default(),
            log: LogConfig::default(),
            traces: None,
            part_failure: PartFailure::Miss,
            backend_window: 64 * 1024,
            client_window: 1024,
            client_buffer_bytes: 1 << 20,
            memory_bytes: 1 << 30,
            backend_buffer_bytes: 64 << 20,
            value_bytes: 8 << 20,
            reply_bytes: 64 << 20,
            clients_max: 16 * 1024,
            client_limits: ClientLimits::default(),
            client_auth_file: None,
        }
    }

    /// The index of the pool with this name.
    pub fn pool(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name == name)
    }

    /// Whether the keys of clients can belong to the pool with this index: it has a listener or a route, or it is the first pool and
    /// has the keys without a route, or it is the read pool of such a pool.
    pub fn is_used_by_clients(&self, index: usize) -> bool {
        let name = Some(&self.pools[index].name);
        let is_read = |other: &usize| self.pools[*other].read_pool.as_ref() == name;
        self.has_keys(index) || (0..self.pools.len()).filter(is_read).any(|other| self.has_keys(other))
    }

    fn has_keys(&self, index: usize) -> bool {
        let pool = &self.pools[index];
        // Without a listener of any pool, sockets are passed to the proxy.
        let has_routes = !self.listen.is_empty() || self.pools.iter().all(|pool| pool.listen.is_empty());
        let is_routed = || index == 0 || self.routes.iter().any(|route| route.pool == pool.name);
        !pool.listen.is_empty() || has_routes && is_routed()
    }

    /// The pools to which deletes for keys of the pool with this index are sent besides it: its read pool, those that it names, and all
    /// that can return a value in the place of one of these. Its own failover and warm-up pool are not among them, unless another of these
    /// pools uses them, too: deletions there are steps of every write.
    pub fn pools_of_deletes(&self, index: usize) -> Vec<usize> {
        let place = |name: &String| self.pool(name);
        let own = &self.pools[index];
        let mut next: Vec<usize> = own.read_pool.iter().chain(&own.delete_pools).filter_map(place).collect();
        let mut reached = Vec::new();
        while let Some(other) = next.pop() {
            if other != index && !reached.contains(&other) {
                reached.push(other);
                let PoolConfig { failover_pool, warm_up, read_pool, .. } = &self.pools[other];
                let failover = failover_pool.as_ref().map(|failover| &failover.pool);
                let warm_up = warm_up.as_ref().map(|warm_up| &warm_up.from);
                next.extend([failover, warm_up, read_pool.as_ref()].into_iter().flatten().filter_map(place));
            }
        }
        reached.sort_unstable();
        reached
    }

    /// All listeners: first those of the proxy, then those of each pool, with its index.
    pub fn listeners(&self) -> impl Iterator<Item = (&ListenerConfig, Option<usize>)> {
        let pools = self.pools.iter().enumerate();
        let of_pools = pools.flat_map(|(index, pool)| pool.listen.iter().map(move |listener| (listener, Some(index))));
        self.listen.iter().map(|listener| (listener, None)).chain(of_pools)
    }

    /// All backends in the order of their numbers: pool by pool.
    pub fn backends(&self) -> impl Iterator<Item = (&PoolConfig, &ServerConfig)> {
        self.pools.iter().flat_map(|pool| pool.servers.iter().map(move |server| (pool, server)))
    }

    /// The longest timeout of any backend. A request that waits in a queue or behind large replies can take longer.
    pub fn longest_timeout(&self) -> Duration {
        let longest = |pool: &PoolConfig| {
            let Timeouts { connect, read, write, reply } = pool.timeouts;
            connect.max(read).max(write).max(reply)
        };
        self.pools.iter().map(longest).max().unwrap_or_default()
    }

    /// The name of each backend.
    pub fn backend_names(&self) -> Vec<String> {
        self.backends().map(|(_, server)| server.address.clone()).collect()
    }

    /// A unique name for each backend: with the pool's name in front if there are several pools.
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
    fn each_problem_is_reported_in_one_line() {
        let good = Config::new("127.0.0.1:0", &["a:1".into(), "b:2".into()]);
        assert_eq!(good.check(), Ok(()));
        let records = Some(RecordsConfig { directory: "x".into(), sample: 0 });
        let slots = |discipline| Config { discipline, loops: 2, ..good.clone() };
        let few = slots(Discipline::Shared { workers: 1, multi_get: MultiGet::ByKey, fault_write_hold: None });
        let many = slots(Discipline::PerBackend { readers: 5000, writers: 2, fault_write_poll: None });
        let writers = slots(Discipline::PerBackend { readers: 2, writers: 1, fault_write_poll: None });
        let sharded = slots(Discipline::Shared { workers: 2, multi_get: MultiGet::Sharded, fault_write_hold: None });
        let listen =
            |texts: &[&str]| Config { listen: texts.iter().map(|&text| text.into()).collect(), ..good.clone() };
        let server = |text: &str| Config { pools: Config::new("", &[text.into()]).pools, ..good.clone() };
        let pool = |change: fn(&mut PoolConfig)| {
            let mut config = good.clone();
            change(&mut config.pools[0]);
            config
        };
        let stray = RouteConfig::new("a:", "b");
        let bad: [(Config, &str); 21] = [
            (server("a"), "\"a\" is not an address (it has no port)"),
            (server("a:0"), "port 0"),
            (server("unix:"), "it has no path"),
            (listen(&["a:1", "b c:1"]), "\"b c:1\" is not an address"),
            (listen(&["a:1", "a:1"]), "listen = \"a:1\": this address is given twice"),
            (few, "workers = 1: each of 2 loops needs one; give a number from 2 to 1024"),
            (many, "readers = 5000: each of 2 loops"),
            (writers, "writers = 1: each of 2 loops"),
            (
                sharded,
                "multi-get = \"sharded\": every server receives requests for every key, so it must store every key: give replicas 2",
            ),
            (Config { queue: 0, ..good.clone() }, "queue = 0: with 0, every request would fail"),
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
            (Config { stamps: Stamps::Sampled, ..good.clone() }, "stamps = \"sampled\": without records and traces"),
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
