//! The arguments of `waystage proxy` as a `ProxyFile`: only what is given, so that it can be applied over a file.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use proxy::{
    DispatchConfig, Distribution, Hash, LogFormat, LogLevel, MultiGet, PartFailure, PoolFile, ProxyFile, ServerConfig,
    Stamps, Timeouts,
};
use quantity::{bytes, duration};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments for one pool: the only one, or the first one of the file.
#[derive(Debug, Args)]
pub(crate) struct PoolFlags {
    /// A memcached server: HOST:PORT, tls:HOST:PORT or unix:PATH. HOST:PORT:WEIGHT also gives its share of the keys,
    /// relative to other servers. Repeat it for several servers; their order is the order of replicas. With --config,
    /// these servers replace those of the first pool.
    #[arg(long = "server", value_name = "ADDRESS", value_parser = server)]
    servers: Vec<ServerConfig>,
    /// The key distribution [default: ketama].
    #[arg(help_heading = "Keys", long, value_name = "NAME", value_parser = distribution())]
    distribution: Option<Distribution>,
    /// The hash of a key [default: md5 for ketama, xxh3_64 for all others].
    #[arg(help_heading = "Keys", long, value_name = "NAME", value_parser = hash())]
    hash: Option<Hash>,
    /// Two characters. If a key contains both, only the text between them is hashed, for example "{}".
    #[arg(help_heading = "Keys", long, value_name = "AB", value_parser = hash_tag)]
    hash_tag: Option<[u8; 2]>,
    /// Replicas of each value: writes go to the key's primary and to the R-1 servers after it in the list, reads to the
    /// primary [default: 1].
    #[arg(long, value_name = "R")]
    replicas: Option<usize>,
}

/// Arguments for the whole proxy.
#[derive(Debug, Args)]
pub(crate) struct ProxyFlags {
    /// Address to listen on: HOST:PORT, tls:HOST:PORT or unix:PATH. Repeat it for several addresses. Port 0 selects a
    /// free port [default: 127.0.0.1:11211, unless sockets are passed or taken over].
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Number of event loops [default: one per core].
    #[arg(help_heading = "Dispatch", long, value_name = "N")]
    loops: Option<usize>,
    /// For experiments only: each event loop works as if its core were this many times slower. It rests after each turn.
    #[arg(help_heading = "Faults, for experiments only", long, value_name = "FACTOR")]
    slow_down: Option<f64>,
    /// Dispatch discipline: which requests are in flight at a server, and where the others wait [default: pipelined].
    #[arg(help_heading = "Dispatch", long, value_enum)]
    dispatch: Option<DispatchArgument>,
    /// With per-backend: reads in flight at each server, each on its own connection, divided among the event loops
    /// [default: 16].
    #[arg(help_heading = "Dispatch", long, value_name = "T")]
    readers: Option<usize>,
    /// With per-backend: connections to each server for writes, divided among the event loops. The writes in flight are
    /// not limited [default: one per event loop].
    #[arg(help_heading = "Dispatch", long, value_name = "N")]
    writers: Option<usize>,
    /// With per-backend, for experiments only: a fault of a published middleware. Its writers notice a new write only
    /// after they have polled their sockets, for at most this time or until a reply arrives.
    #[arg(help_heading = "Faults, for experiments only", long, value_name = "TIME", value_parser = duration)]
    fault_write_poll: Option<Duration>,
    /// With shared: requests in flight, divided among the event loops. Each holds a connection to every server until
    /// all its replies have arrived [default: 16]. A server that hangs can hold them all until its requests time out.
    #[arg(help_heading = "Dispatch", long, value_name = "N")]
    workers: Option<usize>,
    /// With shared: the servers that answer a get of several keys [default: by-key]. sharded and whole need a replica of
    /// each value on every server.
    #[arg(help_heading = "Dispatch", long, value_enum)]
    multi_get: Option<MultiGetArgument>,
    /// With shared, for experiments only: a fault of a published middleware. A write holds its worker for at least this
    /// time, even if all replies arrive earlier.
    #[arg(help_heading = "Faults, for experiments only", long, value_name = "TIME", value_parser = duration)]
    fault_write_hold: Option<Duration>,
    /// With per-backend and shared: largest number of requests in each queue of each event loop; more are refused at
    /// once [default: 65536].
    #[arg(help_heading = "Dispatch", long, value_name = "N")]
    queue: Option<usize>,
    /// Requests for which the proxy reads the clock at every stage [default: all].
    #[arg(help_heading = "Measurement", long, value_enum)]
    stamps: Option<StampsArgument>,
    /// Write records of sampled requests to a file in this directory.
    #[arg(help_heading = "Measurement", long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// With --records: write a record of one request in N [default: 100].
    #[arg(help_heading = "Measurement", long, value_name = "N")]
    sample: Option<u32>,
    /// Serve Prometheus metrics at http://HOST:PORT/metrics.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// What a client receives for a get of several keys if the server of some of the keys fails [default: miss].
    #[arg(help_heading = "Keys", long, value_enum)]
    part_failure: Option<PartFailureArgument>,
    /// Timeout of a server for connecting and answering. After it the requests fail, and the proxy probes the server
    /// until it answers [default: 1s]. With --config, this sets all timeouts of the first
    /// pool.
    #[arg(help_heading = "Limits", long, value_name = "TIME", value_parser = duration)]
    backend_timeout: Option<Duration>,
    /// Requests in flight to one server, per event loop; more are refused at once [default: 65536].
    #[arg(help_heading = "Limits", long, value_name = "N")]
    backend_window: Option<usize>,
    /// Bytes buffered for one server, per event loop; beyond it requests are refused at once [default: 64m].
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = bytes)]
    backend_buffer: Option<usize>,
    /// Requests of one client in flight before the proxy stops reading from it [default: 1024].
    #[arg(help_heading = "Limits", long, value_name = "N")]
    client_window: Option<usize>,
    /// Bytes of replies buffered for one client. Beyond it, the proxy stops reading from the client, and reads replies again
    /// later [default: 1m].
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = bytes)]
    client_buffer: Option<usize>,
    /// Bytes in memory for all clients: replies, input and requests in flight. Beyond it, large values are refused [default: 1g].
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<usize>,
    /// Largest value that is forwarded; larger ones are refused and not stored in memory [default: 8m].
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = bytes)]
    value_max: Option<usize>,
    /// Largest reply that is forwarded; the rest of a larger one is dropped, and the client receives an error [default:
    /// 64m].
    #[arg(help_heading = "Limits", long, value_name = "SIZE", value_parser = bytes)]
    reply_max: Option<usize>,
    /// Largest number of connected clients; further connections are closed at once [default: 16384].
    #[arg(help_heading = "Limits", long, value_name = "N")]
    clients_max: Option<usize>,
    /// Number of keys in `stats hotkeys`: the most requested keys of the last seconds. One key in 16 is counted; 0 turns
    /// counting off [default: 32].
    #[arg(help_heading = "Measurement", long, value_name = "N")]
    hot_keys: Option<usize>,
    /// Add the keys of `stats hotkeys` to the metrics. Every key that was ever hot remains a series in Prometheus.
    #[arg(help_heading = "Measurement", long)]
    hot_keys_metrics: bool,
    /// Lines of the log on standard error: off, error, warn or info, each with those before it [default: info].
    #[arg(help_heading = "Log", long, value_name = "LEVEL", value_parser = log_level())]
    log_level: Option<LogLevel>,
    /// Form of a line of the log: text or json [default: text].
    #[arg(help_heading = "Log", long, value_name = "FORM", value_parser = log_format())]
    log_format: Option<LogFormat>,
    /// Log every request that takes at least this long, with its stages.
    #[arg(help_heading = "Log", long, value_name = "TIME", value_parser = duration)]
    slow_requests: Option<Duration>,
}

/// The dispatch discipline.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DispatchArgument {
    /// All requests are in flight, on one connection to each server.
    Pipelined,
    /// For each server a queue of reads with --readers slots, and --writers connections for writes.
    PerBackend,
    /// One queue with --workers slots, each with a connection to every server.
    Shared,
}

/// The servers that answer a get of several keys.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MultiGetArgument {
    /// The server of each key.
    ByKey,
    /// All servers. Each answers one group of consecutive keys.
    Sharded,
    /// The server of the first key, for all keys.
    Whole,
}

/// The requests for which the clock is read.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StampsArgument {
    /// None: requests are only counted.
    Off,
    /// Those with a record or with spans.
    Sampled,
    /// All: the histograms of stages are complete.
    All,
}

/// The effect of a failed part on a multi-get.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PartFailureArgument {
    /// The keys of the failed server are misses, and the proxy counts them. If all servers of the keys fail, the error.
    Miss,
    /// The other values, then the error instead of END.
    Partial,
    /// The error only.
    Error,
}

impl PoolFlags {
    /// The given arguments, as settings of the first pool.
    pub(crate) fn settings(&self) -> ProxyFile {
        let pool = PoolFile {
            servers: Some(self.servers.clone()).filter(|servers| !servers.is_empty()),
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
    /// The given arguments.
    pub(crate) fn settings(&self) -> ProxyFile {
        let pool = PoolFile { timeouts: self.backend_timeout.map(Timeouts::all), ..PoolFile::default() };
        let size = |bytes: Option<usize>| bytes.map(|bytes| bytes as u64);
        ProxyFile {
            listen: Some(self.listen.iter().map(|address| address.as_str().into()).collect::<Vec<_>>())
                .filter(|listen| !listen.is_empty()),
            loops: self.loops,
            slow_down: self.slow_down,
            dispatch: self.dispatch.map(|dispatch| match dispatch {
                DispatchArgument::Pipelined => DispatchConfig::Pipelined,
                DispatchArgument::PerBackend => DispatchConfig::PerBackend,
                DispatchArgument::Shared => DispatchConfig::Shared,
            }),
            readers: self.readers,
            writers: self.writers,
            fault_write_poll: self.fault_write_poll,
            workers: self.workers,
            multi_get: self.multi_get.map(|multi_get| match multi_get {
                MultiGetArgument::ByKey => MultiGet::ByKey,
                MultiGetArgument::Sharded => MultiGet::Sharded,
                MultiGetArgument::Whole => MultiGet::Whole,
            }),
            fault_write_hold: self.fault_write_hold,
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
            memory: size(self.memory),
            value_max: size(self.value_max),
            reply_max: size(self.reply_max),
            clients_max: self.clients_max,
            hot_keys: self.hot_keys,
            hot_keys_metrics: self.hot_keys_metrics.then_some(true),
            log_level: self.log_level,
            log_format: self.log_format,
            slow_requests: self.slow_requests,
            ..of_pool(pool)
        }
    }
}

/// Settings of the first pool alone.
fn of_pool(pool: PoolFile) -> ProxyFile {
    let is_empty = pool == PoolFile::default();
    ProxyFile { pools: if is_empty { Vec::new() } else { vec![pool] }, ..ProxyFile::default() }
}

fn distribution() -> impl TypedValueParser<Value = Distribution> {
    let names = PossibleValuesParser::new(Distribution::NAMES.iter().copied());
    names.try_map(|name| Distribution::named(&name).ok_or("there is no such distribution"))
}

fn log_level() -> impl TypedValueParser<Value = LogLevel> {
    let names = PossibleValuesParser::new(LogLevel::NAMES.iter().copied());
    names.try_map(|name| LogLevel::named(&name).ok_or("there is no such level"))
}

fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    let names = PossibleValuesParser::new(LogFormat::NAMES.iter().copied());
    names.try_map(|name| LogFormat::named(&name).ok_or("there is no such form"))
}

fn hash() -> impl TypedValueParser<Value = Hash> {
    let names = PossibleValuesParser::new(Hash::NAMES.iter().copied());
    names.try_map(|name| Hash::named(&name).ok_or("there is no such hash"))
}

/// A server, with or without a weight.
fn server(text: &str) -> Result<ServerConfig, Infallible> {
    Ok(ServerConfig::weighted(text))
}

fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    <[u8; 2]>::try_from(text.as_bytes()).map_err(|_| format!("{text:?} is not two characters such as {{}}"))
}
