//! `waystage memory`: reads a trace twice, and prints the hit ratio that a cache would have with other amounts of memory.

mod answer;
mod progress;
mod trace_file;

use answer::CapacityAnswer;
use clap::{Args, ValueEnum};
use clock::Clock;
use hit_ratio::{
    Census, Curve, HitRatioError, Operation, Policy, Request, Simulation, SlabClasses, SlabSettings, lru_sizes,
    memcached_sizes,
};
use load::trace::{Next, TraceConfig, TraceOperation, TraceReader, WithinSecond};
use progress::TraceProgress;
use quantity::{bytes, bytes_text};
use records::report;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use trace_file::TraceFile;

/// The largest value that any memcached accepts. A larger one is a mistake in the trace.
const VALUE_BYTES_MAX: usize = 1 << 30;
const WAIT: Duration = Duration::from_millis(100);
const SIZES_MAX: usize = 100;

/// Arguments of `waystage memory`.
#[derive(Debug, Args)]
#[command(
    about = "Print the hit ratio that memcached would have with other amounts of memory, from a trace",
    after_help = "Examples:
  waystage memory trace.csv
  waystage memory trace.csv.zst --memory 64m
  waystage memory trace.csv --policy lru --sizes 10m,20m,40m --samples all --json
docs/memory.md describes the models and how well they agree with memcached. docs/traces.md describes the trace.

Exit codes: 0 success, 1 no result (one line gives the reason), 2 invalid arguments."
)]
pub(crate) struct MemoryArguments {
    /// Trace: seven columns, a regular file, plain or zstd (docs/traces.md).
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Memory of the server today. The amounts are then between a hundredth and ten times of it.
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "sizes")]
    memory: Option<usize>,
    /// Amounts of memory, separated by commas [default: up to the bytes of all items].
    #[arg(long, value_name = "SIZE,...", value_parser = bytes, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// The items that a full cache removes: as memcached 1.6 does, or the least recently used ones of all sizes.
    #[arg(long, value_name = "memcached|lru", default_value = "memcached")]
    policy: PolicyName,
    /// memcached's -f: ratio of the chunk sizes of consecutive slab classes.
    #[arg(short = 'f', long, value_name = "RATIO", default_value_t = 1.25)]
    slab_growth_factor: f64,
    /// memcached's -n: bytes for key and value in the smallest chunk.
    #[arg(short = 'n', long, value_name = "BYTES", default_value_t = 48)]
    slab_min_size: u32,
    /// memcached's -I: largest item. A larger item is counted and always misses; --policy lru ignores it.
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m", value_parser = bytes)]
    max_item_size: usize,
    /// memcached's -C: items without cas tokens, which are 8 bytes smaller.
    #[arg(short = 'C', long)]
    disable_cas: bool,
    /// Size of every value, instead of the sizes in the trace.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    value_size: Option<usize>,
    /// Store values at the writes of the trace only, not after gets that miss.
    #[arg(long)]
    no_fill: bool,
    /// Largest number of keys to simulate, chosen by their hashes; all needs more time and memory.
    #[arg(long, value_name = "N|all", default_value = "65536", value_parser = samples)]
    samples: usize,
    /// Read N rows only.
    #[arg(long, value_name = "N")]
    trace_rows: Option<u64>,
    /// Skip up to N malformed lines.
    #[arg(long, value_name = "N", default_value_t = 0)]
    trace_errors_max: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The models of a full cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    Memcached,
    Lru,
}

/// Computes the curve. A trace without an answer is a one-line error.
pub(crate) fn run(arguments: &MemoryArguments) -> Result<ExitCode, String> {
    let checked = arguments.slabs().and_then(|slabs| arguments.check(slabs.settings()).map(|()| slabs));
    let slabs = match checked {
        Ok(slabs) => slabs,
        Err(line) => {
            report(format_args!("waystage: {line}"));
            return Ok(ExitCode::from(2));
        }
    };
    let mut display = TraceProgress::new(Clock::monotonic());
    let outcome = arguments.curve(&slabs, &mut display);
    display.close();
    let (curve, skipped_lines) = outcome?;
    let answer = CapacityAnswer {
        trace: arguments.trace.display().to_string(),
        policy: arguments.policy_text(),
        unit: arguments.unit(),
        today: arguments.memory.map(|memory| memory as u64),
        item_bytes_max: (arguments.policy == PolicyName::Memcached).then_some(arguments.max_item_size as u64),
        skipped_lines,
        curve,
    };
    let text = if arguments.json { answer.json() } else { answer.text() };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader of a pipe may exit early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl MemoryArguments {
    fn slabs(&self) -> Result<SlabClasses, String> {
        let settings = SlabSettings {
            growth_factor: self.slab_growth_factor,
            smallest_bytes: self.slab_min_size,
            item_bytes_max: self.max_item_size as u64,
            has_cas: !self.disable_cas,
        };
        SlabClasses::new(settings).map_err(|error| error.to_string())
    }

    /// Rejects amounts of memory that cannot be simulated.
    fn check(&self, settings: &SlabSettings) -> Result<(), String> {
        if self.sizes.len() > SIZES_MAX {
            return Err(format!("--sizes has {} amounts; give up to {SIZES_MAX}", self.sizes.len()));
        }
        if self.value_size.is_some_and(|size| size == 0 || size > VALUE_BYTES_MAX) {
            return Err("--value-size: give 1 byte to 1g".into());
        }
        let smallest = if self.policy == PolicyName::Lru { 1 } else { settings.memory_min() };
        match self.memory.iter().chain(&self.sizes).map(|size| *size as u64).find(|size| *size < smallest) {
            None => Ok(()),
            Some(size) if self.policy == PolicyName::Lru => Err(format!("{size} bytes of memory hold nothing")),
            Some(size) => Err(format!(
                "memcached refuses a memory of {}: it must be at least twice -I, here {}",
                bytes_text(size),
                bytes_text(smallest)
            )),
        }
    }

    /// Reads the trace twice. Returns the curve, and the lines that were skipped as malformed.
    fn curve(&self, slabs: &SlabClasses, display: &mut TraceProgress) -> Result<(Curve, u64), String> {
        let settings = *slabs.settings();
        let value_bytes = self.value_size.map(|size| size as u32);
        let named = |error: HitRatioError| format!("{}: {error}", self.trace.display());
        let file = TraceFile::find(&self.trace)?;
        let mut census = Census::new(settings, value_bytes, self.samples);
        let outcome = self.read(&mut |request| {
            census.add(request);
            display.row();
        });
        // A change explains a malformed row: it may be half written.
        file.check()?;
        outcome?;
        let sample = census.finish().map_err(named)?;
        display.begin_simulation(sample.requests);
        let today = self.memory.map(|memory| memory as u64);
        let mut sizes: Vec<u64> = self.sizes.iter().map(|size| *size as u64).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let policy = match self.policy {
            PolicyName::Memcached => Policy::Memcached(slabs.clone()),
            PolicyName::Lru => Policy::Lru,
        };
        if sizes.is_empty() {
            sizes = match self.policy {
                PolicyName::Memcached => memcached_sizes(today, sample.item_bytes, &settings),
                PolicyName::Lru => lru_sizes(today, sample.item_bytes),
            };
        }
        let mut simulation = Simulation::new(sample, &policy, &sizes, settings, value_bytes, !self.no_fill);
        let mut rows = 0;
        let outcome = self.read(&mut |request| {
            simulation.add(request);
            rows += 1;
            display.row();
        });
        file.check()?;
        let skipped = outcome?;
        let curve = simulation.finish();
        file.check_rows(curve.sample.requests, rows)?;
        Ok((curve, skipped))
    }

    /// Gives every row of the trace to `take`. Returns the number of skipped lines.
    fn read(&self, take: &mut dyn FnMut(&Request<'_>)) -> Result<u64, String> {
        let config = TraceConfig {
            within_second: WithinSecond::AsRecorded,
            errors_max: self.trace_errors_max,
            rows_max: self.trace_rows,
            value_bytes_max: VALUE_BYTES_MAX,
            ..TraceConfig::new(&self.trace)
        };
        let (reader, mut queues) = TraceReader::start(&config, 1).map_err(|error| error.to_string())?;
        for rows in &mut queues {
            loop {
                match rows.wait(WAIT) {
                    Next::Row(row) => take(&Request {
                        key: row.key,
                        operation: operation(row.operation),
                        value_bytes: row.value_bytes,
                        ttl_s: row.ttl_s,
                        at_s: u32::try_from(row.at_ns / 1_000_000_000).unwrap_or(u32::MAX),
                    }),
                    Next::Pending => continue,
                    Next::End => break,
                }
                rows.advance();
            }
        }
        reader.error().map_or(Ok(reader.counts().broken), Err)
    }

    fn unit(&self) -> u64 {
        if self.policy == PolicyName::Memcached { 1 << 20 } else { 1 }
    }

    fn policy_text(&self) -> String {
        match self.policy {
            PolicyName::Lru => "LRU by bytes of items".into(),
            PolicyName::Memcached => format!(
                "memcached 1.6 -f {} -n {} -I {}{} -o no_slab_automove",
                self.slab_growth_factor,
                self.slab_min_size,
                bytes_text(self.max_item_size as u64),
                if self.disable_cas { " -C" } else { "" }
            ),
        }
    }
}

fn operation(operation: TraceOperation) -> Operation {
    match operation {
        TraceOperation::Get | TraceOperation::Gets => Operation::Get,
        TraceOperation::Set => Operation::Set,
        TraceOperation::Add => Operation::Add,
        TraceOperation::Replace | TraceOperation::Cas => Operation::Replace,
        TraceOperation::Append | TraceOperation::Prepend => Operation::Append,
        TraceOperation::Delete => Operation::Delete,
        TraceOperation::Incr | TraceOperation::Decr => Operation::Increment,
    }
}

fn samples(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(samples) if samples > 0 => Ok(samples),
        Err(_) if text == "all" => Ok(usize::MAX),
        _ => Err(format!("{text:?} is not all or a positive number of keys")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_a_number_or_all() {
        assert_eq!((samples("all"), samples("1000")), (Ok(usize::MAX), Ok(1000)));
        for text in ["", "0", "-1", "1.5", "none"] {
            assert!(samples(text).is_err(), "{text}");
        }
    }
}
