//! The arguments that describe a proxy, as settings: what is said and nothing else, so that a file can say the rest.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use proxy::{
    DispatchConfig, Distribution, Hash, MultiGet, PartFailure, PoolFile, ProxyFile, ServerConfig, Stamps, Timeouts,
};
use quantity::{bytes, duration};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments about one pool: the only one, or the first one of the file.
#[derive(Debug, Args)]
pub(crate) struct PoolFlags {
    /// A memcached server: HOST:PORT, tls:HOST:PORT or unix:PATH; give one for each. Their order is the order of replicas.
    /// With --config, they replace the servers of the first pool.
    #[arg(long = "server", value_name = "ADDRESS")]
    servers: Vec<String>,
    /// How keys are spread over the servers [default: ketama].
    #[arg(long, value_name = "NAME", value_parser = distribution())]
    distribution: Option<Distribution>,
    /// What keys are hashed with [default: md5 for ketama, xxh3_64 for the others].
    #[arg(long, value_name = "NAME", value_parser = hash())]
    hash: Option<Hash>,
    /// Two characters; of a key with both, only what stands between them is hashed, for example "{}".
    #[arg(long, value_name = "AB", value_parser = hash_tag)]
    hash_tag: Option<[u8; 2]>,
    /// Copies of each value: writes go to the key's server and its R-1 successors, reads to the key's server
    /// [default: 1].
    #[arg(long, value_name = "R")]
    replicas: Option<usize>,
}

/// The other arguments.
#[derive(Debug, Args)]
pub(crate) struct ProxyFlags {
    /// Where clients connect: HOST:PORT, tls:HOST:PORT or unix:PATH; may be given several times. Port 0 takes a free port
    /// [default: 127.0.0.1:11211, unless sockets are passed or taken over].
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Event loops [default: one for each core].
    #[arg(long, value_name = "N")]
    loops: Option<usize>,
    /// Who may be in flight at a server, and where the others wait [default: pipelined].
    #[arg(long, value_enum)]
    dispatch: Option<DispatchArgument>,
    /// With per-backend: requests that read, in flight at each server, each on a connection of its own
    /// [default: 16]. Shared among the loops.
    #[arg(long, value_name = "T")]
    readers: Option<usize>,
    /// With per-backend: connections to each server for requests that write, as many in flight as come
    /// [default: one for each loop]. Shared among the loops.
    #[arg(long, value_name = "N")]
    writers: Option<usize>,
    /// With shared: requests in flight, each with a connection to every server until all have answered
    /// [default: 16]. Shared among the loops.
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// With shared: who answers a get of several keys [default: by-key]. The others than by-key need a copy of
    /// each value on every server.
    #[arg(long, value_enum)]
    multi_get: Option<MultiGetArgument>,
    /// With per-backend and shared: requests that may wait in each queue, per loop; more are refused at once
    /// [default: 65536].
    #[arg(long, value_name = "N")]
    queue: Option<usize>,
    /// For which requests the clock is read at every stage [default: all].
    #[arg(long, value_enum)]
    stamps: Option<StampsArgument>,
    /// Write a record of one request in --sample to a file in this directory.
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// With --records: keep the record of one request in N [default: 100].
    #[arg(long, value_name = "N")]
    sample: Option<u32>,
    /// Serve Prometheus metrics at http://HOST:PORT/metrics.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// What a multi-get answers when the server of some of its keys fails: treat them as misses (counted),
    /// put the error in place of END, or answer the error alone [default: miss].
    #[arg(long, value_enum)]
    part_failure: Option<PartFailureArgument>,
    /// Time that a server has to connect and to answer; then its requests fail and it is probed until it answers again
    /// [default: 1s]. With --config, for all requests to the first pool.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    backend_timeout: Option<Duration>,
    /// Requests that may wait for one server, per loop; more are refused at once [default: 65536].
    #[arg(long, value_name = "N")]
    backend_window: Option<usize>,
    /// Bytes that may wait for one server, per loop; beyond, requests are refused at once [default: 64m].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    backend_buffer: Option<usize>,
    /// Requests of one client in flight before no more are read from it [default: 1024].
    #[arg(long, value_name = "N")]
    client_window: Option<usize>,
    /// Bytes that may wait for one client before no more requests are read from it [default: 1m].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    client_buffer: Option<usize>,
    /// The largest value that is passed on; larger ones are refused without being held in memory [default: 8m].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    value_max: Option<usize>,
    /// The largest reply that is passed on to a client; of a larger one the rest is dropped and the answer is an error
    /// [default: 64m].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    reply_max: Option<usize>,
    /// Clients at one time; more are closed at once [default: 16384].
    #[arg(long, value_name = "N")]
    clients_max: Option<usize>,
    /// Keys that `stats hotkeys` shows: those asked for most in the last seconds. One key in 16 is counted; 0 counts none
    /// [default: 32].
    #[arg(long, value_name = "N")]
    hot_keys: Option<usize>,
    /// Show these keys in the metrics, too. Each key that was ever hot stays a series in Prometheus.
    #[arg(long)]
    hot_keys_metrics: bool,
}

/// Who may be in flight.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DispatchArgument {
    /// All: every request goes straight onto the one connection to its server.
    Pipelined,
    /// For each server a queue of reads with --readers slots, and --writers connections for writes.
    PerBackend,
    /// One queue with --workers slots, each with a connection to every server.
    Shared,
}

/// Who answers a get of several keys.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MultiGetArgument {
    /// The server of each key.
    ByKey,
    /// Every server, each for a part of neighbouring keys.
    Sharded,
    /// The server of the first key, for all.
    Whole,
}

/// For which requests the clock is read.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StampsArgument {
    /// None: requests are only counted.
    Off,
    /// Those whose record is kept.
    Sampled,
    /// All: per-stage histograms are complete.
    All,
}

/// What a failed part does to a multi-get.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PartFailureArgument {
    /// Its keys are misses.
    Miss,
    /// The other values, then the error.
    Partial,
    /// The error alone.
    Error,
}

impl PoolFlags {
    /// What they say about the first pool, if anything.
    pub(crate) fn settings(&self) -> ProxyFile {
        let servers = self.servers.iter().map(|server| ServerConfig::new(server)).collect::<Vec<_>>();
        let pool = PoolFile {
            servers: Some(servers).filter(|servers| !servers.is_empty()),
            distribution: self.distribution,
            hash: self.hash,
            hash_tag: self.hash_tag,
            replicas: self.replicas,
            ..PoolFile::default()
        };
        of_pool(pool)
    }
}

impl ProxyFlags {
    /// What they say.
    pub(crate) fn settings(&self) -> ProxyFile {
        let pool = PoolFile { timeouts: self.backend_timeout.map(Timeouts::all), ..PoolFile::default() };
        let size = |bytes: Option<usize>| bytes.map(|bytes| bytes as u64);
        ProxyFile {
            listen: Some(self.listen.clone()).filter(|listen| !listen.is_empty()),
            loops: self.loops,
            dispatch: self.dispatch.map(|dispatch| match dispatch {
                DispatchArgument::Pipelined => DispatchConfig::Pipelined,
                DispatchArgument::PerBackend => DispatchConfig::PerBackend,
                DispatchArgument::Shared => DispatchConfig::Shared,
            }),
            readers: self.readers,
            writers: self.writers,
            workers: self.workers,
            multi_get: self.multi_get.map(|multi_get| match multi_get {
                MultiGetArgument::ByKey => MultiGet::ByKey,
                MultiGetArgument::Sharded => MultiGet::Sharded,
                MultiGetArgument::Whole => MultiGet::Whole,
            }),
            queue: self.queue,
            part_failure: self.part_failure.map(|part_failure| match part_failure {
                PartFailureArgument::Miss => PartFailure::Miss,
                PartFailureArgument::Partial => PartFailure::Partial,
                PartFailureArgument::Error => PartFailure::Error,
            }),
            metrics: self.metrics.clone(),
            stamps: self.stamps.map(|stamps| match stamps {
                StampsArgument::Off => Stamps::Off,
                StampsArgument::Sampled => Stamps::Sampled,
                StampsArgument::All => Stamps::All,
            }),
            records: self.records.clone(),
            sample: self.sample,
            backend_window: self.backend_window,
            backend_buffer: size(self.backend_buffer),
            client_window: self.client_window,
            client_buffer: size(self.client_buffer),
            value_max: size(self.value_max),
            reply_max: size(self.reply_max),
            clients_max: self.clients_max,
            hot_keys: self.hot_keys,
            hot_keys_metrics: self.hot_keys_metrics.then_some(true),
            ..of_pool(pool)
        }
    }
}

/// Settings of the first pool alone.
fn of_pool(pool: PoolFile) -> ProxyFile {
    let says_nothing = pool == PoolFile::default();
    ProxyFile { pools: if says_nothing { Vec::new() } else { vec![pool] }, ..ProxyFile::default() }
}

fn distribution() -> impl TypedValueParser<Value = Distribution> {
    let names = PossibleValuesParser::new(Distribution::NAMES.iter().copied());
    names.try_map(|name| Distribution::named(&name).ok_or("there is no such distribution"))
}

fn hash() -> impl TypedValueParser<Value = Hash> {
    let names = PossibleValuesParser::new(Hash::NAMES.iter().copied());
    names.try_map(|name| Hash::named(&name).ok_or("there is no such hash"))
}

fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    <[u8; 2]>::try_from(text.as_bytes()).map_err(|_| format!("{text:?} is not two characters such as {{}}"))
}
