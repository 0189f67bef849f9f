//! The settings of a run, and the check that they are consistent. Knows no flags and no files: the program `waystage`
//! fills it in.

mod check;
mod memory;
pub(crate) mod messages;

use crate::config::messages::MessagesConfig;
use crate::workload::keys::KeySpace;
use crate::workload::sizes::{KeySizes, ValueSizes};
use crate::workload::think_time::ThinkTime;
use crate::workload::trace::{Timing, TraceConfig};
use key_distribution::KeyDistribution;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use variates::{Popularity, Unit};

/// The default of the largest share of failed requests in a valid run.
pub(crate) const FAILED_MAX: f64 = 0.01;
/// memcached's limit on a key.
pub(crate) const KEY_BYTES_MAX: usize = 250;

/// When requests are intended to be sent. Rates are totals over all clients.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: when a client has thought after its last reply.
    Closed,
    /// Open loop: at equal intervals.
    Constant {
        /// Requests per second.
        per_s: f64,
    },
    /// Open loop: with exponential gaps, as from many independent clients.
    Poisson {
        /// Requests per second.
        per_s: f64,
    },
    /// Open loop: with gaps of this shape, scaled to the rate. Each thread draws its own.
    Gaps {
        /// Requests per second.
        per_s: f64,
        /// The gaps. Only the ratios between them matter.
        shape: variates::Variate,
    },
    /// Open loop: exponential gaps during the on phases, and no requests during the off phases.
    Bursty {
        /// Requests per second, averaged over both phases.
        per_s: f64,
        /// The length of an on phase.
        on: Duration,
        /// The length of an off phase.
        off: Duration,
    },
}

/// The memcached protocol to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `get` and `set`.
    Text,
    /// `mg` and `ms`.
    Meta,
}

/// Which server a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerChoice {
    /// The server that owns the key in the ketama hash ring. Every client has a connection to every server.
    Ketama,
    /// Any server, because every server accepts every key. Each client uses one server, in turn.
    Any,
}

/// Values, or keys, of this fixed size.
pub fn fixed_bytes(bytes: usize) -> variates::Variate {
    variates::Variate::fixed(bytes as f64, Unit::Bytes)
}

/// The settings of a run. Clients, requests and times are totals over all threads.
#[derive(Clone, Debug)]
pub struct Config {
    /// HOST:PORT of each server.
    pub servers: Vec<String>,
    /// Sets request no reply. They count as answered when they are written, and their outcome is unknown.
    pub noreply: bool,
    /// How requests are distributed over several servers.
    pub distribution: ServerChoice,
    /// The memcached protocol.
    pub protocol: Protocol,
    /// The loop, open or closed, and the rate.
    pub arrivals: Arrivals,
    /// Clients, over all threads.
    pub clients: usize,
    /// Event loops, each with its share of the clients.
    pub threads: usize,
    /// Whether threads poll instead of sleeping.
    pub spin: bool,
    /// The weight of sets ...
    pub ratio_set: u32,
    /// ... and the weight of gets.
    pub ratio_get: u32,
    /// A trace to replay instead of random requests. Nothing is prefilled then.
    pub trace: Option<TraceConfig>,
    /// Messages instead of keys and values. The servers are then message services.
    pub messages: Option<MessagesConfig>,
    /// Bytes of values, or of message bodies.
    pub data_size: variates::Variate,
    /// Bytes of keys including their prefix; none makes them as short as their numbers.
    pub key_size: Option<variates::Variate>,
    /// The popularity of the keys.
    pub key_pattern: Popularity,
    /// The smallest key number.
    pub key_minimum: u64,
    /// The largest key number, inclusive.
    pub key_maximum: u64,
    /// The prefix of every key.
    pub key_prefix: String,
    /// Keys of every get. They are drawn independently, so a get may name a key twice.
    pub multi_key_get: usize,
    /// Requests that each client keeps in flight.
    pub pipeline: usize,
    /// The length of the measured window, which starts after the warm-up.
    pub test_time: Duration,
    /// The time before the measured window.
    pub warm_up: Duration,
    /// Requests to issue after the warm-up, instead of a test time.
    pub requests: Option<u64>,
    /// The time between a reply and the next request.
    pub think_time: ThinkTime,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Whether to set every key once before the run.
    pub prefill: bool,
    /// A request without a reply for this long times out, and its connection is closed.
    pub reply_timeout: Duration,
    /// The folder for records, if they are wanted.
    pub records: Option<PathBuf>,
    /// One request in this many is recorded.
    pub sample: u32,
    /// The percentiles to show; the default ones if empty.
    pub percentiles: Vec<f64>,
    /// The run is invalid if the hit ratio is lower than this.
    pub expect_hit_ratio: Option<f64>,
    /// The run is invalid if a larger share of its requests failed.
    pub failed_max: f64,
    /// The run is invalid if a smaller share of the due requests of an open loop was answered within the window. None
    /// is 0.95, and 0.99 if most seconds were behind.
    pub achieved_min: Option<f64>,
    /// The command line, for the summary.
    pub arguments: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            servers: Vec::new(),
            noreply: false,
            distribution: ServerChoice::Ketama,
            protocol: Protocol::Text,
            arrivals: Arrivals::Closed,
            clients: 1,
            threads: 1,
            spin: false,
            ratio_set: 1,
            ratio_get: 10,
            trace: None,
            messages: None,
            data_size: fixed_bytes(128),
            key_size: None,
            key_pattern: Popularity::Uniform,
            key_minimum: 0,
            key_maximum: 10_000,
            key_prefix: "key-".into(),
            multi_key_get: 1,
            pipeline: 1,
            test_time: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            requests: None,
            think_time: ThinkTime::NONE,
            seed: 1,
            prefill: true,
            reply_timeout: Duration::from_secs(10),
            records: None,
            sample: 100,
            percentiles: Vec::new(),
            expect_hit_ratio: None,
            failed_max: FAILED_MAX,
            achieved_min: None,
            arguments: Vec::new(),
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrivals::Closed => formatter.write_str("closed"),
            Arrivals::Constant { .. } => formatter.write_str("constant"),
            Arrivals::Poisson { .. } => formatter.write_str("poisson"),
            Arrivals::Gaps { shape, .. } => write!(formatter, "gaps:{shape}"),
            Arrivals::Bursty { on, off, .. } => write!(formatter, "bursty:{}us:{}us", on.as_micros(), off.as_micros()),
        }
    }
}

impl Arrivals {
    /// The offered rate in requests per second; none for a closed loop.
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Arrivals::Closed => None,
            Arrivals::Constant { per_s }
            | Arrivals::Poisson { per_s }
            | Arrivals::Gaps { per_s, .. }
            | Arrivals::Bursty { per_s, .. } => Some(*per_s),
        }
    }
}

impl Config {
    /// The number of keys.
    pub fn keys(&self) -> u64 {
        (self.key_maximum - self.key_minimum).saturating_add(1)
    }

    /// Whether requests are due independently of replies.
    pub fn is_open(&self) -> bool {
        self.trace.as_ref().map_or(self.arrivals.per_s().is_some(), |trace| trace.timing != Timing::Max)
    }

    /// The number of connections of each client.
    pub(crate) fn lanes_per_client(&self) -> usize {
        match self.distribution {
            _ if self.messages.is_some() => 1,
            ServerChoice::Ketama => self.servers.len(),
            ServerChoice::Any => 1,
        }
    }

    /// The total number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.clients * self.lanes_per_client()
    }

    /// How key numbers become key texts.
    pub(crate) fn key_space(&self) -> KeySpace {
        let sizes = self.key_size.as_ref().map(|sizes| KeySizes::new(sizes, KEY_BYTES_MAX));
        KeySpace::new(&self.key_prefix, sizes)
    }

    /// The sizes of values.
    pub(crate) fn value_sizes(&self) -> ValueSizes {
        ValueSizes::new(&self.data_size)
    }

    /// Which server owns which key; none if every connection accepts all keys.
    pub(crate) fn key_distribution(&self) -> Option<KeyDistribution> {
        let ketama = key_distribution::Distribution::Ketama;
        let servers: Vec<_> = self.servers.iter().map(|server| (ketama.name_of(server), 1)).collect();
        (self.lanes_per_client() > 1).then(|| KeyDistribution::new(ketama, ketama.usual_hash(), &servers))
    }
}
