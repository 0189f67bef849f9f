//! The arguments of `waystage load`, and the configuration that follows from them.

use crate::load_command::agent::AgentArguments;
use crate::load_command::control_arguments::ControlArguments;
use crate::load_command::merge::MergeArguments;
use crate::load_command::output::OutputArguments;
use clap::{Args, Subcommand};
use draw::{Popularity, Unit};
use load::{Arrivals, Config, Distribution, Protocol, ThinkTime};
use quantity::duration;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `waystage load`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    about = "Load memcached servers in an open or a closed loop, measure latency and verify every value",
    after_help = "Traps:
  --clients is the total over all threads, not per thread as in memtier and mutilate.
  --ratio is set:get, as in memtier: 1:10 is one set to ten gets.
  Without --rate the loop is closed: clients wait for replies, so a slow server is asked less often, and its
  worst moments are hardly seen. With --rate it is open: requests are due whether replies come or not.
  Latency counts from when a request was due (closed loop: from the end of thinking) to the last byte of the reply.
  --rate is the total over all clients, not per connection; --clients and --pipeline bound what is in flight.
  --warm-up comes before --test-time, it is not part of it.
  Latency and counts are of requests answered other than by an error; errors are apart.
  Keys of one get are drawn independently: with few keys one may be named twice.
  Two generators must not write the same keys: give each its own --key-prefix.

Exit codes: 0 the run is valid, 1 it is not or could not begin, 2 the arguments make no sense."
)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub(crate) command: Option<LoadCommand>,
    /// A server; may be given several times, see --distribution.
    #[arg(long = "server", value_name = "HOST:PORT", required = true)]
    servers: Vec<String>,
    /// What several servers are: each owns the keys that libketama gives it, and every client is connected to all
    /// (ketama), or all are doors to the same data, such as proxies, and clients take them in turn (doors).
    #[arg(long, value_name = "ketama|doors", default_value = "ketama", value_parser = distribution)]
    distribution: Distribution,
    /// The dialect: get and set (text), or mg and ms (meta).
    #[arg(long, value_name = "text|meta", default_value = "text", value_parser = protocol)]
    protocol: Protocol,
    /// Open loop: intend so many requests per second, in total, whether replies come or not.
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with = "think_time")]
    rate: Option<f64>,
    /// How they come [default: poisson]. Bursty: poisson for ON, then nothing for OFF; --rate is the mean over both.
    /// Gaps: of any distribution of times, such as gaps:fb_ia, stretched to the rate.
    #[arg(long, value_name = "constant|poisson|bursty:ON:OFF|gaps:TIMES", value_parser = shape, requires = "rate")]
    arrivals: Option<Shape>,
    /// Clients, one connection each: the total over all threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// Threads that the clients are shared among.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Shares of sets and gets, in this order; drawn for each request.
    #[arg(long, value_name = "SET:GET", default_value = "1:10", value_parser = ratio)]
    ratio: (u32, u32),
    /// Bytes of values, such as 128, uniform:100:2k or fb_value (docs/distributions.md); from 16 on a value holds its
    /// key and version, from 24 on any damage is found.
    #[arg(long, value_name = "SIZES", default_value = "128", value_parser = sizes)]
    data_size: draw::Distribution,
    /// Bytes of keys, such as 30 or fb_key: zeros before their numbers make it up [default: as short as can be].
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    key_size: Option<draw::Distribution>,
    /// Which keys are asked for: uniform, sequential, zipf:0.99, gaussian or hot:0.1:0.9 (docs/distributions.md).
    #[arg(long, value_name = "PATTERN", default_value = "uniform")]
    key_pattern: Popularity,
    /// The smallest key number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    key_minimum: u64,
    /// The largest key number.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    key_maximum: u64,
    /// What stands before the number in each key.
    #[arg(long, value_name = "TEXT", default_value = "key-")]
    key_prefix: String,
    /// Keys named by each get.
    #[arg(long, value_name = "K", default_value_t = 1)]
    multi_key_get: usize,
    /// Requests that each client keeps in flight.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: usize,
    /// Length of the measured window, which begins after the warm-up.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, conflicts_with = "requests")]
    test_time: Duration,
    /// Time before the measured window [default: 1s, or 0s with --requests].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warm_up: Option<Duration>,
    /// Measure this many requests, issued after the warm-up, instead of a time.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Time between a reply and the client's next request: none, fixed:1ms, exp:1ms (exponential with this mean) or any
    /// other distribution of times (docs/distributions.md).
    #[arg(long, value_name = "none|TIMES", default_value = "none", value_parser = think_time)]
    think_time: ThinkTime,
    /// Ask for no reply to sets: they count as answered when written, and what became of them is not known.
    #[arg(long)]
    noreply: bool,
    /// Decides everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not set every key before the run; a key is judged for freshness from its first acknowledged set on.
    #[arg(long)]
    no_prefill: bool,
    /// Give up a connection whose oldest request has no reply for so long.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    reply_timeout: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
    /// Write a record of one request in --sample to a file in this directory.
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Keep the record of one request in N.
    #[arg(long, value_name = "N", default_value_t = 100)]
    sample: u32,
    /// No line per second, and no progress of the prefill.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// What else there is to do with a load.
#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Put together the summaries of several generators that ran at the same time.
    Merge(MergeArguments),
    /// Wait for work from a controller (a load with --agent), one run after another.
    Agent(AgentArguments),
}

impl LoadArguments {
    /// The configuration of a run.
    pub(crate) fn config(self) -> Config {
        let warm_up = if self.requests.is_some() { Duration::ZERO } else { Duration::from_secs(1) };
        Config {
            servers: self.servers,
            noreply: self.noreply,
            distribution: self.distribution,
            protocol: self.protocol,
            arrivals: self
                .rate
                .map_or(Arrivals::Closed, |per_s| self.arrivals.clone().unwrap_or(Shape::Poisson).at(per_s)),
            clients: self.clients,
            threads: self.threads,
            ratio_set: self.ratio.0,
            ratio_get: self.ratio.1,
            data_size: self.data_size,
            key_size: self.key_size,
            key_pattern: self.key_pattern,
            key_minimum: self.key_minimum,
            key_maximum: self.key_maximum,
            key_prefix: self.key_prefix,
            multi_key_get: self.multi_key_get,
            pipeline: self.pipeline,
            test_time: self.test_time,
            warm_up: self.warm_up.unwrap_or(warm_up),
            requests: self.requests,
            think_time: self.think_time,
            seed: self.seed,
            prefill: !self.no_prefill,
            reply_timeout: self.reply_timeout,
            records: self.records,
            sample: self.sample,
            percentiles: self.output.print_percentiles,
            expect_hit_ratio: None,
            arguments: std::env::args().collect(),
        }
    }
}

fn ratio(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(set, get)| Some((set.parse().ok()?, get.parse().ok()?)));
    parts.ok_or_else(|| format!("{text:?} is not set:get such as 1:10"))
}

/// How the requests of an open loop come.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Constant,
    Poisson,
    Gaps(draw::Distribution),
    Bursty { on: Duration, off: Duration },
}

impl Shape {
    fn at(self, per_s: f64) -> Arrivals {
        match self {
            Shape::Constant => Arrivals::Constant { per_s },
            Shape::Poisson => Arrivals::Poisson { per_s },
            Shape::Gaps(shape) => Arrivals::Gaps { per_s, shape },
            Shape::Bursty { on, off } => Arrivals::Bursty { per_s, on, off },
        }
    }
}

fn shape(text: &str) -> Result<Shape, String> {
    if let Some(gaps) = text.strip_prefix("gaps:") {
        let gaps = draw::Distribution::parse(gaps, Unit::Time).map_err(|error| error.to_string())?;
        gaps.finite_mean().map_err(|error| error.to_string())?;
        return Ok(Shape::Gaps(gaps));
    }
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("constant"), None, ..) => Ok(Shape::Constant),
        (Some("poisson"), None, ..) => Ok(Shape::Poisson),
        (Some("bursty"), Some(on), Some(off), None) => Ok(Shape::Bursty { on: duration(on)?, off: duration(off)? }),
        _ => Err(format!("{text:?} is not constant, poisson, bursty:200ms:800ms or gaps:fb_ia")),
    }
}

/// Requests per second; `k` and `m` are thousands and millions.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    let per_s = digits.parse::<f64>().ok().map(|number| number * factor).filter(|per_s| per_s.is_finite());
    per_s.ok_or_else(|| format!("{text:?} is not a number of requests per second such as 5000 or 5k"))
}

fn distribution(text: &str) -> Result<Distribution, String> {
    match text {
        "ketama" => Ok(Distribution::Ketama),
        "doors" => Ok(Distribution::Doors),
        _ => Err(format!("{text:?} is not ketama or doors")),
    }
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "text" => Ok(Protocol::Text),
        "meta" => Ok(Protocol::Meta),
        _ => Err(format!("{text:?} is not text or meta")),
    }
}

fn think_time(text: &str) -> Result<ThinkTime, String> {
    if text == "none" {
        return Ok(ThinkTime::NONE);
    }
    let times = draw::Distribution::parse(text, Unit::Time).map_err(|error| format!("none, or {error}"))?;
    times.finite_mean().map_err(|error| error.to_string())?;
    Ok(ThinkTime::drawn(times))
}

fn sizes(text: &str) -> Result<draw::Distribution, String> {
    draw::Distribution::parse(text, Unit::Bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_dialects_are_read() {
        assert_eq!((rate("5000"), rate("2.5k"), rate("1m")), (Ok(5000.0), Ok(2500.0), Ok(1e6)));
        let (on, off) = (Duration::from_millis(200), Duration::from_secs(1));
        assert_eq!(shape("bursty:200ms:1s"), Ok(Shape::Bursty { on, off }));
        assert_eq!((shape("constant"), shape("poisson")), (Ok(Shape::Constant), Ok(Shape::Poisson)));
        assert_eq!((protocol("meta"), distribution("doors")), (Ok(Protocol::Meta), Ok(Distribution::Doors)));
        for text in ["", "k", "5 k", "nan", "inf", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "bursty", "bursty:1s", "bursty:1s:1s:1s", "poisson:1s", "bursty:1:1"] {
            assert!(shape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ratios_and_think_times_are_read() {
        assert_eq!(ratio("1:10"), Ok((1, 10)));
        assert_eq!(think_time("none"), Ok(ThinkTime::NONE));
        assert_eq!(think_time("fixed:1ms"), Ok(ThinkTime::fixed(Duration::from_millis(1))));
        assert_eq!(think_time("exp:1.5ms"), Ok(ThinkTime::exponential(Duration::from_micros(1500))));
        for text in ["", "1", "1:", "-1:1", "1:2:3"] {
            assert!(ratio(text).is_err(), "{text}");
        }
        for text in ["", "1ms", "fixed", "exp:", "none:1ms", "exp:1"] {
            assert!(think_time(text).is_err(), "{text}");
        }
    }
}
