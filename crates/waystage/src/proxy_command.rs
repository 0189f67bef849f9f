//! `waystage proxy`: arguments to configuration, and the life of the process.

use crate::quantity::{bytes, duration};
use crate::ready::{announce, signals, wait};
use clap::{Args, ValueEnum};
use clock::Clock;
use proxy::{Config, PartFailure, RecordsConfig, Stamps};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `waystage proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyArguments {
    /// Where clients connect; port 0 takes a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    listen: String,
    /// A memcached server; give one for each. Their order is the order of replicas.
    #[arg(long = "server", value_name = "HOST:PORT", required = true)]
    servers: Vec<String>,
    /// Copies of each value: writes go to the key's server and its R-1 successors, reads to the key's server.
    #[arg(long, value_name = "R", default_value_t = 1)]
    replicas: usize,
    /// Event loops [default: one for each core].
    #[arg(long, value_name = "N")]
    loops: Option<usize>,
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

impl ProxyArguments {
    fn config(self) -> Config {
        let sample = self.sample;
        let defaults = Config::new(&self.listen, &self.servers);
        Config {
            replicas: self.replicas,
            loops: self.loops.unwrap_or(defaults.loops),
            hash_tag: self.hash_tag,
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
            backend_timeout: self.backend_timeout,
            backend_window: self.backend_window,
            backend_buffer_bytes: self.backend_buffer as u64,
            client_window: self.client_window,
            client_buffer_bytes: self.client_buffer as u64,
            value_bytes: self.value_max,
            reply_bytes: self.reply_max,
            clients_max: self.clients_max,
            ..defaults
        }
    }
}

/// Descriptors that are neither a client's nor a backend's.
const OTHER_DESCRIPTORS: usize = 32;

/// Raises the limit of open files as far as it goes, and admits only so many clients that backends always find one.
fn fit_into_descriptors(config: &mut Config) {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(available) = getrlimit(Resource::Nofile).current else { return };
    // Twice, since a connection to a backend may be replaced before the kernel has let go of the old one.
    let reserved = OTHER_DESCRIPTORS + config.loops * (2 * config.servers.len() + 4);
    let room = usize::try_from(available).unwrap_or(usize::MAX).saturating_sub(reserved).max(1);
    if room < config.clients_max {
        announce(&format!(
            "waystage proxy admits {room} clients, not {}: open files are limited to {available}",
            config.clients_max
        ));
        config.clients_max = room;
    }
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(arguments: ProxyArguments) -> Result<ExitCode, String> {
    let mut signals = signals()?;
    let mut config = arguments.config();
    fit_into_descriptors(&mut config);
    let running = proxy::start(config, Clock::monotonic()).map_err(|error| error.to_string())?;
    if let Some(address) = running.metrics_address {
        announce(&format!("waystage proxy metrics on {address}"));
    }
    let config = running.config();
    announce(&format!(
        "waystage proxy ready on {} ({} backends, {} replicas, {} loops, pipelined)",
        running.address,
        config.servers.len(),
        config.replicas,
        config.loops
    ));
    wait(&mut signals);
    let totals = running.stop().map_err(|error| error.to_string())?;
    if let Some(records) = totals.records {
        announce(&format!("waystage proxy records written {} dropped {}", records.written, records.dropped));
    }
    announce(&format!("waystage proxy stopped after {} requests, {} lost", totals.requests, totals.lost));
    Ok(if totals.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    <[u8; 2]>::try_from(text.as_bytes()).map_err(|_| format!("{text:?} is not two characters such as {{}}"))
}
