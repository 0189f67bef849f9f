//! The arguments of `waystage load`, and the configuration that follows from them.

use crate::load_command::messages::MessageArguments;
use crate::load_command::output::OutputArguments;
use crate::load_command::trace::TraceArguments;
use crate::load_command::values::{Shape, distribution, hit_ratio, protocol, rate, ratio, shape, sizes, think_time};
use clap::Args;
use load::{Arrivals, Config, Protocol, ServerChoice, ThinkTime};
use quantity::duration;
use std::path::PathBuf;
use std::time::Duration;
use variates::Popularity;

/// Arguments of one run, and of the runs of a search.
#[derive(Debug, Args)]
#[command(
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
pub(crate) struct RunArguments {
    /// A server; may be given several times, see --distribution.
    #[arg(long = "server", value_name = "HOST:PORT", required_unless_present = "messages")]
    servers: Vec<String>,
    /// What several servers are: each owns the keys that libketama gives it, and every client is connected to all
    /// (ketama), or any server accepts any key, as several proxies do, and clients take the servers in turn (any).
    #[arg(long, value_name = "ketama|any", default_value = "ketama", value_parser = distribution)]
    distribution: ServerChoice,
    /// The dialect: get and set (text), or mg and ms (meta).
    #[arg(long, value_name = "text|meta", default_value = "text", value_parser = protocol)]
    protocol: Protocol,
    /// Open loop: intend so many requests per second, in total, whether replies come or not.
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with = "think_time")]
    pub(crate) rate: Option<f64>,
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
    /// Wait by asking again and again instead of sleeping: sends closer to the intended time and sees replies sooner. Each
    /// thread then needs a core that nothing else uses.
    #[arg(long)]
    spin: bool,
    /// Shares of sets and gets, in this order; drawn for each request.
    #[arg(long, value_name = "SET:GET", default_value = "1:10", value_parser = ratio)]
    ratio: (u32, u32),
    /// Bytes of values [default: 128, or 200 with --messages], such as 128, uniform:100:2k or fb_value (docs/random-variates.md); from 16 on a value holds its
    /// key and version, from 24 on any damage is found.
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    data_size: Option<variates::Variate>,
    /// Bytes of keys, such as 30 or fb_key: zeros before their numbers make it up [default: as short as can be].
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    key_size: Option<variates::Variate>,
    /// Which keys are asked for: uniform, sequential, zipf:0.99, gaussian or hot:0.1:0.9 (docs/random-variates.md).
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
    /// Length of the measured window, which begins after the warm-up [default: 10s, or the whole of --trace].
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "requests")]
    test_time: Option<Duration>,
    /// Time before the measured window [default: 1s, or 0s with --requests or --trace].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warm_up: Option<Duration>,
    /// Measure this many requests, issued after the warm-up, instead of a time.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Time between a reply and the client's next request: none, fixed:1ms, exp:1ms (exponential with this mean) or any
    /// other distribution of times (docs/random-variates.md).
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
    trace: TraceArguments,
    #[command(flatten)]
    pub(crate) messages: MessageArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    /// Write a record of one request in --sample to a file in this directory.
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Keep the record of one request in N.
    #[arg(long, value_name = "N", default_value_t = 100)]
    sample: u32,
    /// Serve metrics for Prometheus on this address while the run goes on.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,
    /// Call the run invalid when fewer of the keys read are found than this share.
    #[arg(long, value_name = "0..1", value_parser = hit_ratio)]
    expect_hit_ratio: Option<f64>,
    /// No line per second, and no progress of the prefill.
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl RunArguments {
    /// The configuration of a run.
    pub(crate) fn config(self) -> Config {
        let trace = self.trace.config();
        let messages = self.messages.config();
        let usual_bytes = if messages.is_some() { 200 } else { 128 };
        let warm_up = if self.requests.is_some() || trace.is_some() { Duration::ZERO } else { Duration::from_secs(1) };
        let test_time = if trace.is_some() { Duration::MAX } else { Duration::from_secs(10) };
        Config {
            servers: if messages.is_some() { self.messages.messages } else { self.servers },
            messages,
            noreply: self.noreply,
            distribution: self.distribution,
            protocol: self.protocol,
            arrivals: self
                .rate
                .map_or(Arrivals::Closed, |per_s| self.arrivals.clone().unwrap_or(Shape::Poisson).at(per_s)),
            clients: self.clients,
            threads: self.threads,
            spin: self.spin,
            ratio_set: self.ratio.0,
            ratio_get: self.ratio.1,
            trace,
            data_size: self.data_size.unwrap_or_else(|| load::fixed_bytes(usual_bytes)),
            key_size: self.key_size,
            key_pattern: self.key_pattern,
            key_minimum: self.key_minimum,
            key_maximum: self.key_maximum,
            key_prefix: self.key_prefix,
            multi_key_get: self.multi_key_get,
            pipeline: self.pipeline,
            test_time: self.test_time.unwrap_or(test_time),
            warm_up: self.warm_up.unwrap_or(warm_up),
            requests: self.requests,
            think_time: self.think_time,
            seed: self.seed,
            prefill: !self.no_prefill,
            reply_timeout: self.reply_timeout,
            records: self.records,
            sample: self.sample,
            percentiles: self.output.print_percentiles,
            expect_hit_ratio: self.expect_hit_ratio,
            arguments: std::env::args().collect(),
        }
    }
}
