//! Everything that can be chosen about a run, and the check that the choices make sense together.
//! Knows no flags and no files of flags: the program `waystage` fills it in.

mod check;
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

/// memcached's limit on a key.
pub(crate) const KEY_BYTES_MAX: usize = 250;

/// When requests are intended to be sent. Rates are totals over all clients.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: when a client is done thinking about its last reply.
    Closed,
    /// Open loop: one request after the other, evenly.
    Constant {
        /// Requests per second.
        per_s: f64,
    },
    /// Open loop: with exponential gaps, as from very many clients that know nothing of each other.
    Poisson {
        /// Requests per second.
        per_s: f64,
    },
    /// Open loop: with gaps that have this shape, stretched to the rate. Each thread draws its own.
    Gaps {
        /// Requests per second.
        per_s: f64,
        /// The gaps; only the ratios between them count.
        shape: variates::Variate,
    },
    /// Open loop: exponential gaps while it is on, and nothing while it is off.
    Bursty {
        /// Requests per second, on average over both.
        per_s: f64,
        /// How long requests come ...
        on: Duration,
        /// ... and how long none come.
        off: Duration,
    },
}

/// The dialect that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// get and set.
    Text,
    /// mg and ms.
    Meta,
}

/// Which server a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerChoice {
    /// The server that owns the key, as libketama has it: every client has a connection to every server.
    Ketama,
    /// Any: all servers are doors to the same data, and every client has one of them, in turn.
    Any,
}

/// Values, or keys, of always this size.
pub fn fixed_bytes(bytes: usize) -> variates::Variate {
    variates::Variate::fixed(bytes as f64, Unit::Bytes)
}

/// A run. Clients, requests and times are totals over all threads.
#[derive(Clone, Debug)]
pub struct Config {
    /// HOST:PORT each.
    pub servers: Vec<String>,
    /// Sets ask for no reply: they count as answered when they are written, and what became of them is not known.
    pub noreply: bool,
    /// What several servers are.
    pub distribution: ServerChoice,
    /// The dialect.
    pub protocol: Protocol,
    /// The loop, open or closed, and the rate.
    pub arrivals: Arrivals,
    /// Connections, over all threads.
    pub clients: usize,
    /// Event loops, each with its share of the clients.
    pub threads: usize,
    /// Whether threads wait by asking again and again instead of sleeping.
    pub spin: bool,
    /// Parts of the requests that are sets ...
    pub ratio_set: u32,
    /// ... and parts that are gets.
    pub ratio_get: u32,
    /// A trace to replay, instead of drawn requests. Nothing is prefilled then.
    pub trace: Option<TraceConfig>,
    /// Messages, instead of keys and values; the servers are message services then.
    pub messages: Option<MessagesConfig>,
    /// Bytes of values, or of messages.
    pub data_size: variates::Variate,
    /// Bytes of keys, their prefix included; without, as short as their numbers.
    pub key_size: Option<variates::Variate>,
    /// Which keys are asked for more often.
    pub key_pattern: Popularity,
    /// The smallest key number.
    pub key_minimum: u64,
    /// The largest key number, itself included.
    pub key_maximum: u64,
    /// What stands before the number in a key.
    pub key_prefix: String,
    /// Keys named by every get, drawn independently: a key may be named twice.
    pub multi_key_get: usize,
    /// Requests that each client keeps in flight.
    pub pipeline: usize,
    /// Length of the measured window; it begins when the warm-up is over.
    pub test_time: Duration,
    /// Time before the measured window.
    pub warm_up: Duration,
    /// Requests to issue after the warm-up, instead of a test time.
    pub requests: Option<u64>,
    /// Time between a reply and the next request.
    pub think_time: ThinkTime,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Whether to set every key once before the run.
    pub prefill: bool,
    /// A request without a reply for so long is given up together with its connection.
    pub reply_timeout: Duration,
    /// Where to write records, if anywhere.
    pub records: Option<PathBuf>,
    /// One request in so many is recorded.
    pub sample: u32,
    /// Percentiles that are shown; the usual ones when empty.
    pub percentiles: Vec<f64>,
    /// A run with fewer hits than this share of the keys read is not valid.
    pub expect_hit_ratio: Option<f64>,
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
    /// Requests per second that are offered; none in a closed loop.
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
    /// How many keys there are.
    pub fn keys(&self) -> u64 {
        (self.key_maximum - self.key_minimum).saturating_add(1)
    }

    /// Whether requests are due at times of their own, whether replies come or not.
    pub fn is_open(&self) -> bool {
        self.trace.as_ref().map_or(self.arrivals.per_s().is_some(), |trace| trace.timing != Timing::Max)
    }

    /// Connections of each client.
    pub(crate) fn lanes_per_client(&self) -> usize {
        match self.distribution {
            _ if self.messages.is_some() => 1,
            ServerChoice::Ketama => self.servers.len(),
            ServerChoice::Any => 1,
        }
    }

    /// Connections in all.
    pub(crate) fn connections(&self) -> usize {
        self.clients * self.lanes_per_client()
    }

    /// How keys are written.
    pub(crate) fn key_space(&self) -> KeySpace {
        let sizes = self.key_size.as_ref().map(|sizes| KeySizes::new(sizes, KEY_BYTES_MAX));
        KeySpace::new(&self.key_prefix, sizes)
    }

    /// How large values are.
    pub(crate) fn value_sizes(&self) -> ValueSizes {
        ValueSizes::new(&self.data_size)
    }

    /// Which server owns which key; none where every connection is good for all keys.
    pub(crate) fn key_distribution(&self) -> Option<KeyDistribution> {
        let ketama = key_distribution::Distribution::Ketama;
        let servers: Vec<_> = self.servers.iter().map(|server| (ketama.name_of(server), 1)).collect();
        (self.lanes_per_client() > 1).then(|| KeyDistribution::new(ketama, ketama.usual_hash(), &servers))
    }
}
