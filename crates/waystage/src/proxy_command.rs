//! `waystage proxy`: arguments to configuration, and the life of the process.

use crate::quantity::{bytes, duration};
use crate::ready::{announce, signals};
use crate::transport_arguments::{TransportArguments, activated};
use clap::{Args, ValueEnum};
use clock::Clock;
use net::Inherited;
use proxy::{Config, Discipline, MultiGet, PartFailure, RecordsConfig, Running, Stamps, Timeouts};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

/// Arguments of `waystage proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyArguments {
    /// Where clients connect: HOST:PORT, tls:HOST:PORT or unix:PATH; may be given several times. Port 0 takes a free port
    /// [default: 127.0.0.1:11211, unless sockets are passed or taken over].
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// A memcached server, HOST:PORT, tls:HOST:PORT or unix:PATH; give one for each. Their order is the order of
    /// replicas.
    #[arg(long = "server", value_name = "ADDRESS", required = true)]
    servers: Vec<String>,
    #[command(flatten)]
    transport: TransportArguments,
    /// Copies of each value: writes go to the key's server and its R-1 successors, reads to the key's server.
    #[arg(long, value_name = "R", default_value_t = 1)]
    replicas: usize,
    /// Event loops [default: one for each core].
    #[arg(long, value_name = "N")]
    loops: Option<usize>,
    /// Who may be in flight at a server, and where the others wait.
    #[arg(long, value_enum, default_value = "pipelined")]
    dispatch: DispatchArgument,
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
    /// Two characters; of a key with both, only what stands between them is hashed, for example "{}".
    #[arg(long, value_name = "AB", value_parser = hash_tag)]
    hash_tag: Option<[u8; 2]>,
    /// For which requests the clock is read at every stage.
    #[arg(long, value_enum, default_value = "all")]
    stamps: StampsArgument,
    /// Write a record of one request in --sample to a file in this directory.
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Keep the record of one request in N.
    #[arg(long, value_name = "N", default_value_t = 100)]
    sample: u32,
    /// Serve Prometheus metrics at http://HOST:PORT/metrics.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// What a multi-get answers when the server of some of its keys fails: treat them as misses (counted),
    /// put the error in place of END, or answer the error alone.
    #[arg(long, value_enum, default_value = "miss")]
    part_failure: PartFailureArgument,
    /// Time that a server has to connect and to answer; then its requests fail and it is probed until it answers again.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    backend_timeout: Duration,
    /// Requests that may wait for one server, per loop; more are refused at once.
    #[arg(long, value_name = "N", default_value_t = 65536)]
    backend_window: usize,
    /// Bytes that may wait for one server, per loop; beyond, requests are refused at once.
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = bytes)]
    backend_buffer: usize,
    /// Requests of one client in flight before no more are read from it.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    client_window: usize,
    /// Bytes that may wait for one client before no more requests are read from it.
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = bytes)]
    client_buffer: usize,
    /// The largest value that is passed on; larger ones are refused without being held in memory.
    #[arg(long, value_name = "SIZE", default_value = "8m", value_parser = bytes)]
    value_max: usize,
    /// The largest reply that is passed on to a client; of a larger one the rest is dropped and the answer is an error.
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = bytes)]
    reply_max: usize,
    /// Clients at one time; more are closed at once.
    #[arg(long, value_name = "N", default_value_t = 16384)]
    clients_max: usize,
}

/// Who may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// Slots of a kind of which none were given.
const SLOTS: usize = 16;

impl ProxyArguments {
    /// The discipline. An argument that says nothing in it is a mistake, not a wish to be passed over.
    fn discipline(&self, loops: usize) -> Result<Discipline, String> {
        let belongs = [
            ("--readers", self.readers.is_some(), "per-backend"),
            ("--writers", self.writers.is_some(), "per-backend"),
            ("--workers", self.workers.is_some(), "shared"),
            ("--multi-get", self.multi_get.is_some(), "shared"),
        ];
        let discipline = match self.dispatch {
            DispatchArgument::Pipelined => Discipline::Pipelined,
            DispatchArgument::PerBackend => Discipline::PerBackend {
                readers: self.readers.unwrap_or(SLOTS),
                writers: self.writers.unwrap_or(loops),
            },
            DispatchArgument::Shared => Discipline::Shared {
                workers: self.workers.unwrap_or(SLOTS),
                multi_get: match self.multi_get.unwrap_or(MultiGetArgument::ByKey) {
                    MultiGetArgument::ByKey => MultiGet::ByKey,
                    MultiGetArgument::Sharded => MultiGet::Sharded,
                    MultiGetArgument::Whole => MultiGet::Whole,
                },
            },
        };
        let stray = belongs.iter().find(|(_, is_given, of)| *is_given && *of != discipline.name());
        if let Some((argument, _, of)) = stray {
            return Err(format!("{argument} belongs to --dispatch {of}, not to {}", discipline.name()));
        }
        if self.queue.is_some() && discipline == Discipline::Pipelined {
            return Err("--queue: --dispatch pipelined has no queue; --backend-window limits what waits".into());
        }
        Ok(discipline)
    }

    fn config(self, activated: &[Inherited]) -> Result<Config, String> {
        let sample = self.sample;
        let (listen, transport) = (self.transport.listen(&self.listen, activated), self.transport.config());
        let mut defaults = Config { listen, transport, ..Config::new("", &self.servers) };
        let pool = &mut defaults.pools[0];
        pool.replicas = self.replicas;
        pool.hash_tag = self.hash_tag;
        pool.timeouts = Timeouts::all(self.backend_timeout);
        let discipline = self.discipline(self.loops.unwrap_or(defaults.loops))?;
        Ok(Config {
            discipline,
            queue: self.queue.unwrap_or(defaults.queue),
            loops: self.loops.unwrap_or(defaults.loops),
            stamps: match self.stamps {
                StampsArgument::Off => Stamps::Off,
                StampsArgument::Sampled => Stamps::Sampled,
                StampsArgument::All => Stamps::All,
            },
            records: self.records.map(|directory| RecordsConfig { directory, sample }),
            metrics: self.metrics,
            part_failure: match self.part_failure {
                PartFailureArgument::Miss => PartFailure::Miss,
                PartFailureArgument::Partial => PartFailure::Partial,
                PartFailureArgument::Error => PartFailure::Error,
            },
            backend_window: self.backend_window,
            backend_buffer_bytes: self.backend_buffer as u64,
            client_window: self.client_window,
            client_buffer_bytes: self.client_buffer as u64,
            value_bytes: self.value_max,
            reply_bytes: self.reply_max,
            clients_max: self.clients_max,
            ..defaults
        })
    }
}

/// Descriptors that are neither a client's nor a backend's; sixteen lookups of names may be under way among them.
const OTHER_DESCRIPTORS: usize = 64;

/// Raises the limit of open files as far as it goes, and admits only so many clients that backends always find one.
fn fit_into_descriptors(config: &mut Config) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(available) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    // Twice, since a connection to a backend may be replaced before the kernel has let go of the old one.
    let connections = config.backends().count() * config.connections_per_backend();
    // A listening socket is copied when a successor asks for it.
    let reserved = OTHER_DESCRIPTORS + 2 * config.listen.len() + config.loops * (2 * connections + 4);
    let room = usize::try_from(available).unwrap_or(usize::MAX).saturating_sub(reserved);
    if room == 0 {
        return Err(format!(
            "connections to the servers take up to {reserved} open files, but only {available} are allowed: \
             raise the limit (ulimit -n) or use fewer slots"
        ));
    }
    if room < config.clients_max {
        announce(&format!(
            "waystage proxy admits {room} clients, not {}: open files are limited to {available}",
            config.clients_max
        ));
        config.clients_max = room;
    }
    Ok(())
}

/// Returns when a signal has come, or when a successor has taken over and the clients that were left have gone.
fn wait_for_end(mut signals: Signals, running: &mut Running) -> Result<(), String> {
    let (sender, reasons) = sync_channel(2);
    let spawn = |name: &str, wait: Box<dyn FnOnce() + Send>| {
        let spawned = Builder::new().name(name.into()).spawn(wait);
        spawned.map(|_| ()).map_err(|error| format!("cannot start the thread {name}: {error}"))
    };
    if let Some(notice) = running.handed_over() {
        let sender = sender.clone();
        spawn(
            "successor",
            Box::new(move || {
                if notice.recv().is_ok() {
                    let _ = sender.try_send("taken over");
                }
            }),
        )?;
    }
    spawn(
        "signals",
        Box::new(move || {
            for _ in signals.forever() {
                let _ = sender.try_send("signal");
            }
        }),
    )?;
    if reasons.recv() == Ok("taken over") {
        announce("waystage proxy is taken over: it serves the clients it has");
    }
    // A signal cuts it short.
    running.linger(|| reasons.try_recv().is_ok());
    Ok(())
}

/// Serves until SIGTERM or SIGINT, or until a successor has taken over.
pub(crate) fn run(arguments: ProxyArguments) -> Result<ExitCode, String> {
    let signals = signals()?;
    let activated = activated()?;
    let mut config = arguments.config(&activated)?;
    config.check().map_err(|error| error.to_string())?;
    fit_into_descriptors(&mut config)?;
    let mut running = proxy::start_with(config, activated, Clock::monotonic()).map_err(|error| error.to_string())?;
    for warning in &running.warnings {
        eprintln!("waystage: {warning}");
    }
    if let Some(address) = running.metrics_address {
        announce(&format!("waystage proxy metrics on {address}"));
    }
    let config = running.config();
    let listening: Vec<String> = running.listening.iter().map(ToString::to_string).collect();
    announce(&format!(
        "waystage proxy ready on {} ({} backends, {} replicas, {} loops, {})",
        listening.join(" and "),
        config.backends().count(),
        config.pools[0].replicas,
        config.loops,
        discipline_text(config.discipline)
    ));
    wait_for_end(signals, &mut running)?;
    let totals = running.stop().map_err(|error| error.to_string())?;
    if let Some(records) = totals.records {
        announce(&format!("waystage proxy records written {} dropped {}", records.written, records.dropped));
    }
    announce(&format!("waystage proxy stopped after {} requests, {} lost", totals.requests, totals.lost));
    Ok(if totals.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The discipline with its slots, as in "shared, 8 workers".
fn discipline_text(discipline: Discipline) -> String {
    let slots = discipline.slots().map(|(name, count)| format!(", {count} {}", name.trim_start_matches('-')));
    discipline.name().to_string() + &slots.collect::<String>()
}

fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    <[u8; 2]>::try_from(text.as_bytes()).map_err(|_| format!("{text:?} is not two characters such as {{}}"))
}
