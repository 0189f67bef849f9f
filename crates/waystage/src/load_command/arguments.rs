//! The arguments of `waystage load`, and the configuration that follows from them.

use crate::command_line::{command_line, host_port};
use crate::load_command::messages::MessageArguments;
use crate::load_command::output::OutputArguments;
use crate::load_command::trace::TraceArguments;
use crate::load_command::values::{
    Shape, distribution, protocol, rate, ratio, seconds, shape, share, sizes, think_time,
};
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
    after_help = "Pitfalls:
  --clients is the total over all threads, not per thread as in memtier and mutilate.
  --ratio is set:get, as in memtier: 1:10 is one set to ten gets.
  Without --rate the loop is closed: clients wait for replies, so a slow server receives fewer requests, and its \
  worst moments are hardly measured. With --rate the loop is open: requests are due independently of replies.
  Response time is measured from when a request was due (closed loop: from the end of the think time) to the last \
  byte of the reply.
  --rate is the total over all clients, not per connection; --clients and --pipeline limit the requests in flight.
  --warm-up comes before --test-time and is not part of it.
  Mean times and counts include only requests answered without an error; errors are counted separately. In \
  percentiles, requests without an answer are slower than any time.
  The keys of one get are drawn independently, so a get may contain a key twice.
  Two generators must not write the same keys: give each its own --key-prefix.

Exit codes: 0 the run is valid, 1 the run is invalid or could not start, 2 the arguments are wrong."
)]
pub(crate) struct RunArguments {
    /// A server. The flag can be repeated; see --distribution.
    #[arg(long = "server", value_name = "HOST:PORT", value_parser = host_port, required_unless_present = "messages")]
    servers: Vec<String>,
    /// How requests are distributed over several servers. ketama: each server owns the keys that libketama gives it,
    /// and every client is connected to all servers. any: every server accepts every key, as several proxies do; each
    /// client uses one server, and the clients are spread evenly over them.
    #[arg(help_heading = "Load", long, value_name = "ketama|any", default_value = "ketama", value_parser = distribution)]
    distribution: ServerChoice,
    /// The memcached protocol: get and set (text), or mg and ms (meta).
    #[arg(help_heading = "Load", long, value_name = "text|meta", default_value = "text", value_parser = protocol)]
    protocol: Protocol,
    /// Use an open loop with this total rate of requests per second, independent of replies.
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with = "think_time")]
    pub(crate) rate: Option<f64>,
    /// The arrivals of the open loop [default: poisson]. bursty: Poisson arrivals for ON, then none for OFF; --rate is
    /// the mean over both. gaps: interarrival times from any distribution of times, such as gaps:fb_ia, scaled to the
    /// rate.
    #[arg(help_heading = "Load", long, value_name = "constant|poisson|bursty:ON:OFF|gaps:TIMES", value_parser = shape, requires = "rate")]
    arrivals: Option<Shape>,
    /// Clients, each with one request in flight unless --pipeline is given: the total over all threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// Threads among which the clients are divided.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Poll instead of sleeping. Requests are sent closer to their time and replies are noticed sooner. Each thread
    /// then needs a core of its own.
    #[arg(help_heading = "Load", long)]
    spin: bool,
    /// Ratio of sets to gets. The operation of each request is drawn with it.
    #[arg(long, value_name = "SET:GET", default_value = "1:10", value_parser = ratio)]
    ratio: (u32, u32),
    /// Bytes of values [default: 128, or 200 with --messages], such as 128, uniform:100:2k or fb_value
    /// (docs/random-variates.md). A value of 16 bytes or more contains its key and version; from 24 bytes on, any
    /// damage is detected.
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    data_size: Option<variates::Variate>,
    /// Bytes of keys, such as 30 or fb_key. Keys are padded with zeros before their numbers [default: no padding].
    #[arg(help_heading = "Keys", long, value_name = "SIZES", value_parser = sizes)]
    key_size: Option<variates::Variate>,
    /// The popularity of keys: uniform, sequential, zipf:0.99, gaussian or hot:0.1:0.9 (docs/random-variates.md).
    #[arg(help_heading = "Keys", long, value_name = "PATTERN", default_value = "uniform")]
    key_pattern: Popularity,
    /// The smallest key number.
    #[arg(help_heading = "Keys", long, value_name = "N", default_value_t = 0)]
    key_minimum: u64,
    /// The largest key number.
    #[arg(help_heading = "Keys", long, value_name = "N", default_value_t = 10_000)]
    key_maximum: u64,
    /// The prefix of every key, before its number.
    #[arg(help_heading = "Keys", long, value_name = "TEXT", default_value = "key-")]
    key_prefix: String,
    /// Keys in each get.
    #[arg(help_heading = "Keys", long, value_name = "K", default_value_t = 1)]
    multi_key_get: usize,
    /// Requests that each client keeps in flight.
    #[arg(help_heading = "Load", long, value_name = "N", default_value_t = 1)]
    pipeline: usize,
    /// Length of the measured window, which starts after the warm-up, such as 30s or 2m. A number without a unit is in
    /// seconds, as in memtier [default: 10s, or the whole of --trace].
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "requests")]
    test_time: Option<Duration>,
    /// Time before the measured window [default: 1s, or 0s with --requests or --trace].
    #[arg(help_heading = "Load", long, value_name = "TIME", value_parser = duration)]
    warm_up: Option<Duration>,
    /// Measure this number of requests, issued after the warm-up, instead of a time.
    #[arg(help_heading = "Load", long, value_name = "N")]
    requests: Option<u64>,
    /// Time between a reply and the client's next request: none, fixed:1ms, exp:1ms (exponential with this mean) or any
    /// other distribution of times (docs/random-variates.md).
    #[arg(help_heading = "Load", long, value_name = "none|TIMES", default_value = "none", value_parser = think_time)]
    think_time: ThinkTime,
    /// Send sets with noreply. They count as answered when they are written, and their outcome is unknown.
    #[arg(help_heading = "Load", long)]
    noreply: bool,
    /// The seed of all random numbers.
    #[arg(help_heading = "Load", long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Skip the prefill, which sets every key before the run. The freshness of a key is then checked from its first
    /// acknowledged set on.
    #[arg(help_heading = "Load", long)]
    no_prefill: bool,
    /// Close a connection if its oldest request has no reply after this time.
    #[arg(help_heading = "Load", long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    reply_timeout: Duration,
    #[command(flatten)]
    trace: TraceArguments,
    #[command(flatten)]
    pub(crate) messages: MessageArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    /// Write records of sampled requests to a file in this directory.
    #[arg(help_heading = "Output", long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Record one request in N.
    #[arg(help_heading = "Output", long, value_name = "N", default_value_t = 100)]
    sample: u32,
    /// Serve metrics for Prometheus on this address during the run.
    #[arg(help_heading = "Output", long, value_name = "HOST:PORT", value_parser = host_port)]
    pub(crate) metrics: Option<String>,
    /// Write each second to this file when it has passed, as one line of JSON (docs/load-summary.md), for programs that
    /// follow the run.
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(crate) seconds_file: Option<PathBuf>,
    /// Make the run invalid if its hit ratio is lower than this.
    #[arg(help_heading = "Validity of the run", long, value_name = "0..1", value_parser = share)]
    expect_hit_ratio: Option<f64>,
    /// Make the run invalid if a larger share of its requests fails.
    #[arg(help_heading = "Validity of the run", long, value_name = "0..1", default_value = "0.01", value_parser = share)]
    failed_max: f64,
    /// Make the run invalid if a smaller share of the due requests of an open loop is answered within the measured
    /// window [default: 0.95, or 0.99 if most seconds are behind].
    #[arg(help_heading = "Validity of the run", long, value_name = "0..1", value_parser = share)]
    achieved_min: Option<f64>,
    /// Print no line per second and no progress of the prefill.
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
            failed_max: self.failed_max,
            achieved_min: self.achieved_min,
            arguments: command_line(),
        }
    }
}
