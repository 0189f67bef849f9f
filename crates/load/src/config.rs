//! Everything that can be chosen about a run, and the check that the choices make sense together.
//! Knows no flags and no files of flags: the program `waystage` fills it in.

use crate::keys::KeySpace;
use crate::sizes::{KeySizes, ValueSizes};
use crate::think_time::ThinkTime;
use crate::trace::{Timing, TraceConfig};
use draw::{Popularity, Unit};
use placement::Placement;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The versions of all keys are kept in memory, eight bytes each.
const KEYS_MAX: u64 = 1 << 27;
/// memcached's limit on a key.
const KEY_BYTES_MAX: usize = 250;
/// Digits of the largest key number.
const DIGITS_MAX: usize = 20;
/// memcached's usual limit on a value.
const USUAL_VALUE_BYTES_MAX: usize = 1 << 20;
/// A larger value is surely a mistake.
const VALUE_BYTES_MAX: usize = 1 << 30;
/// Limits that only keep mistakes from taking all memory.
const CLIENTS_MAX: usize = 60_000;
const THREADS_MAX: usize = 255;
const RATE_MIN_PER_S: f64 = 0.001;
const RATE_MAX_PER_S: f64 = 1e8;
const PIPELINE_MAX: usize = 65_536;
const MULTI_KEY_GET_MAX: usize = 10_000;

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
        shape: draw::Distribution,
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
pub enum Distribution {
    /// The server that owns the key, as libketama has it: every client has a connection to every server.
    Ketama,
    /// Any: all servers are doors to the same data, and every client has one of them, in turn.
    Doors,
}

/// Values, or keys, of always this size.
pub fn fixed_bytes(bytes: usize) -> draw::Distribution {
    draw::Distribution::fixed(bytes as f64, Unit::Bytes)
}

/// A run. Clients, requests and times are totals over all threads.
#[derive(Clone, Debug)]
pub struct Config {
    /// HOST:PORT each.
    pub servers: Vec<String>,
    /// Sets ask for no reply: they count as answered when they are written, and what became of them is not known.
    pub noreply: bool,
    /// What several servers are.
    pub distribution: Distribution,
    /// The dialect.
    pub protocol: Protocol,
    /// The loop, open or closed, and the rate.
    pub arrivals: Arrivals,
    /// Connections, over all threads.
    pub clients: usize,
    /// Event loops, each with its share of the clients.
    pub threads: usize,
    /// Parts of the requests that are sets ...
    pub ratio_set: u32,
    /// ... and parts that are gets.
    pub ratio_get: u32,
    /// A trace to replay, instead of drawn requests. Nothing is prefilled then.
    pub trace: Option<TraceConfig>,
    /// Bytes of values.
    pub data_size: draw::Distribution,
    /// Bytes of keys, their prefix included; without, as short as their numbers.
    pub key_size: Option<draw::Distribution>,
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
            distribution: Distribution::Ketama,
            protocol: Protocol::Text,
            arrivals: Arrivals::Closed,
            clients: 1,
            threads: 1,
            ratio_set: 1,
            ratio_get: 10,
            trace: None,
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
            Distribution::Ketama => self.servers.len(),
            Distribution::Doors => 1,
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
    pub(crate) fn placement(&self) -> Option<Placement> {
        let ketama = placement::Distribution::Ketama;
        let servers: Vec<_> = self.servers.iter().map(|server| (ketama.name_of(server), 1)).collect();
        (self.lanes_per_client() > 1).then(|| Placement::new(ketama, ketama.usual_hash(), &servers))
    }

    /// Refuses what cannot be run, in one line that says what to change.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), String> {
        let prefix_is_text = self.key_prefix.bytes().all(|byte| byte.is_ascii_graphic());
        let window_is_empty = self.requests.is_none() && self.test_time.is_zero();
        let checks = [
            (self.servers.is_empty(), "no server to load; give --server HOST:PORT".to_owned()),
            (self.threads == 0 || self.threads > THREADS_MAX, format!("--threads must be 1 to {THREADS_MAX}")),
            (
                self.clients < self.threads,
                format!("--clients {} is a total and cannot be shared by --threads {}", self.clients, self.threads),
            ),
            (self.clients > CLIENTS_MAX, format!("--clients must be at most {CLIENTS_MAX}")),
            (
                self.ratio_set == 0 && self.ratio_get == 0,
                "--ratio 0:0 leaves nothing to send; it is set:get, for example 1:10".to_owned(),
            ),
            (
                self.key_maximum < self.key_minimum,
                format!("--key-maximum {} is below --key-minimum {}", self.key_maximum, self.key_minimum),
            ),
            (!prefix_is_text, "--key-prefix must be visible ASCII characters without spaces".to_owned()),
            (
                self.key_prefix.len() > KEY_BYTES_MAX - DIGITS_MAX,
                format!("--key-prefix must be at most {} bytes", KEY_BYTES_MAX - DIGITS_MAX),
            ),
            (
                self.value_sizes().largest() > VALUE_BYTES_MAX,
                format!("--data-size must be at most {VALUE_BYTES_MAX} bytes"),
            ),
            (
                self.multi_key_get == 0 || self.multi_key_get > MULTI_KEY_GET_MAX,
                format!("--multi-key-get must be 1 to {MULTI_KEY_GET_MAX}"),
            ),
            (
                self.pipeline == 0 || self.pipeline > PIPELINE_MAX,
                format!("--pipeline must be 1 to {PIPELINE_MAX}; 1 is one request at a time"),
            ),
            (window_is_empty, "--test-time 0 leaves nothing to measure".to_owned()),
            (self.requests == Some(0), "--requests 0 leaves nothing to measure".to_owned()),
            (self.reply_timeout.is_zero(), "--reply-timeout must be more than 0".to_owned()),
            (
                self.arrivals.per_s().is_some_and(|per_s| !(RATE_MIN_PER_S..=RATE_MAX_PER_S).contains(&per_s)),
                format!("--rate must be {RATE_MIN_PER_S} to {RATE_MAX_PER_S} requests per second"),
            ),
            (
                self.arrivals.per_s().is_some() && self.think_time != ThinkTime::NONE,
                "--rate and --think-time contradict each other: an open loop does not wait for replies".to_owned(),
            ),
            (
                matches!(&self.arrivals, Arrivals::Bursty { on, off, .. } if on.is_zero() || off.is_zero()),
                "--arrivals bursty needs times above 0: bursty:200ms:800ms".to_owned(),
            ),
            (
                self.connections() > CLIENTS_MAX,
                format!(
                    "--clients {} with a connection to each of {} servers are too many; at most {CLIENTS_MAX} in all",
                    self.clients,
                    self.servers.len()
                ),
            ),
        ];
        if let Some(trace) = &self.trace {
            trace.check().map_err(|error| format!("--trace: {error}"))?;
            if self.arrivals != Arrivals::Closed || self.requests.is_some() || self.multi_key_get > 1 {
                return Err(
                    "--trace says itself what is asked and when: without --rate, --requests (see --trace-rows) \
                    and --multi-key-get"
                        .to_owned(),
                );
            }
        }
        if let Some((_, line)) = checks.into_iter().find(|(refused, _)| *refused) {
            return Err(line);
        }
        if let Arrivals::Gaps { shape, .. } = &self.arrivals
            && shape.finite_mean().is_ok_and(|mean| mean <= 0.0)
        {
            return Err(format!("--arrivals gaps:{shape}: their mean must be above 0"));
        }
        if self.keys() > KEYS_MAX {
            return Err(format!("{} keys are too many to verify; at most {KEYS_MAX}", self.keys()));
        }
        self.key_pattern.check(self.keys()).map_err(|error| format!("--key-pattern: {error}"))?;
        Ok(())
    }

    /// What can be run but may surprise, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.value_sizes().largest() > USUAL_VALUE_BYTES_MAX {
            lines.push("--data-size is above 1 MiB, which memcached refuses unless started with -I".to_owned());
        }
        let smallest = self.data_size.quantile(0.0);
        if smallest < 16.0 {
            lines.push(format!(
                "a value of {smallest:.0} bytes cannot hold its key and version (16): {} cannot be told",
                if smallest > 8.0 { "some old versions" } else { "old versions and some foreign values" }
            ));
        }
        if self.ratio_set > 0 && self.keys() < (self.clients * self.pipeline) as u64 {
            lines.push("fewer keys than requests in flight: a set that finds its key busy becomes a get".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Config {
        Config { servers: vec!["127.0.0.1:11211".into()], ..Config::default() }
    }

    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = valid();
        change(&mut config);
        config.check().unwrap_err()
    }

    #[test]
    fn the_default_can_be_run_and_surprises_nobody() {
        assert_eq!(valid().check(), Ok(()));
        assert_eq!(valid().warnings(), Vec::<String>::new());
    }

    #[test]
    fn contradictions_are_one_line_that_names_the_flag() {
        assert!(refusal(|config| config.servers.clear()).contains("--server"));
        assert!(refusal(|config| config.threads = 2).contains("--clients 1 is a total"));
        assert!(refusal(|config| (config.ratio_set, config.ratio_get) = (0, 0)).contains("--ratio 0:0"));
        assert!(refusal(|config| config.key_minimum = 20_000).contains("--key-maximum 10000 is below"));
        assert!(refusal(|config| config.pipeline = 0).contains("--pipeline"));
        assert!(refusal(|config| config.multi_key_get = 0).contains("--multi-key-get"));
        assert!(refusal(|config| config.key_prefix = "a b".into()).contains("--key-prefix"));
        assert!(refusal(|config| config.key_maximum = u64::MAX).contains("too many"));
        assert!(refusal(|config| config.test_time = Duration::ZERO).contains("--test-time"));
        assert!(refusal(|config| config.requests = Some(0)).contains("--requests"));
    }

    #[test]
    fn an_open_loop_needs_a_rate_that_can_be_and_no_thinking() {
        let open = |arrivals| refusal(move |config| config.arrivals = arrivals);
        assert!(open(Arrivals::Constant { per_s: 0.0 }).contains("--rate"));
        assert!(open(Arrivals::Poisson { per_s: f64::NAN }).contains("--rate"));
        let (on, off) = (Duration::ZERO, Duration::from_secs(1));
        assert!(open(Arrivals::Bursty { per_s: 1.0, on, off }).contains("bursty"));
        let thinking = refusal(|config| {
            config.arrivals = Arrivals::Poisson { per_s: 1.0 };
            config.think_time = ThinkTime::fixed(Duration::from_secs(1));
        });
        assert!(thinking.contains("contradict"), "{thinking}");
    }

    #[test]
    fn surprises_are_warned_of() {
        let warned = |change: fn(&mut Config)| {
            let mut config = valid();
            change(&mut config);
            assert_eq!(config.check(), Ok(()));
            config.warnings().join("\n")
        };
        assert!(warned(|config| config.data_size = fixed_bytes(2 << 20)).contains("1 MiB"));
        assert!(warned(|config| config.data_size = fixed_bytes(10)).contains("some old versions"));
        assert!(warned(|config| config.key_maximum = 0).is_empty());
        assert!(warned(|config| (config.key_maximum, config.clients) = (0, 2)).contains("fewer keys"));
    }
}
