//! `waystage cache`: a memcached-compatible server with a configured service time.

use crate::command_line::host_port;
use crate::ready::{StopSignals, announce};
use cache::{Config, RecordsConfig, ServiceTime, Stall};
use clap::Args;
use clock::Clock;
use records::report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// Address to listen on; port 0 takes a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211", value_parser = host_port)]
    listen: String,
    /// Memory for items; beyond it the least recently used items are evicted.
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = quantity::bytes)]
    memory_limit: usize,
    /// Service time of a request: none, fixed:200us, exp:200us or uniform:100us:300us.
    #[arg(long, value_name = "DISTRIBUTION", default_value = "none", value_parser = service_time)]
    service_time: ServiceTime,
    /// Virtual workers that serve one common queue.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = workers)]
    workers: usize,
    /// Pause the whole server for LENGTH at the end of every PERIOD, as a garbage collection would: 200ms:1s.
    #[arg(long, value_name = "LENGTH:PERIOD", value_parser = stall)]
    stall: Option<Stall>,
    /// Seed of the service times.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write records of sampled requests to a file in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    records: Option<PathBuf>,
    /// Record one request in NUMBER.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    sample: u32,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &CacheArguments) -> Result<ExitCode, String> {
    let mut signals = StopSignals::take_over()?;
    let config = Config {
        listen: arguments.listen.clone(),
        memory_limit_bytes: arguments.memory_limit,
        service_time: arguments.service_time,
        workers: arguments.workers,
        stall: arguments.stall,
        seed: arguments.seed,
        records: arguments.records.clone().map(|directory| RecordsConfig { directory, sample: arguments.sample }),
        ..Config::default()
    };
    let running = cache::start(&config, Clock::monotonic()).map_err(|error| error.to_string())?;
    announce(&format!(
        "waystage cache ready on {} service-time={} workers={} seed={}",
        running.address(),
        config.service_time,
        config.workers,
        config.seed
    ));
    signals.wait();
    running.stop();
    let totals = running.join().map_err(|error| error.to_string())?;
    if totals.records_dropped > 0 {
        report(format_args!("waystage: {} records were dropped because the disk was too slow", totals.records_dropped));
    }
    Ok(ExitCode::SUCCESS)
}

fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "give a number from 1 to 65536".into())
}

/// Parses the length and the period of the pauses.
fn stall(text: &str) -> Result<Stall, String> {
    let (length, period) = text.split_once(':').ok_or("expected LENGTH:PERIOD such as 200ms:1s")?;
    Ok(Stall { length: quantity::duration(length)?, period: quantity::duration(period)? })
}

/// Parses the distribution of the service time.
fn service_time(text: &str) -> Result<ServiceTime, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let durations = parts.map(quantity::duration).collect::<Result<Vec<_>, String>>()?;
    match (name, durations.as_slice()) {
        ("none", []) => Ok(ServiceTime::None),
        ("fixed", &[time]) => Ok(ServiceTime::Fixed(time)),
        ("exp", &[mean]) => Ok(ServiceTime::Exponential(mean)),
        ("uniform", &[low, high]) => Ok(ServiceTime::Uniform(low, high)),
        _ => Err("expected none, fixed:200us, exp:200us or uniform:100us:300us".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn service_times_are_read() {
        let us = Duration::from_micros;
        assert_eq!(service_time("none"), Ok(ServiceTime::None));
        assert_eq!(service_time("fixed:200us"), Ok(ServiceTime::Fixed(us(200))));
        assert_eq!(service_time("exp:0.2ms"), Ok(ServiceTime::Exponential(us(200))));
        assert_eq!(service_time("uniform:100us:300us"), Ok(ServiceTime::Uniform(us(100), us(300))));
        for text in ["", "fixed", "fixed:", "fixed:200", "exp:1us:2us", "uniform:1us", "none:1us", "gamma:1us"] {
            assert!(service_time(text).is_err(), "{text}");
        }
    }
}
