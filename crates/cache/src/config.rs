//! The configuration of a cache, checked before anything is opened.

use clock::{Nanos, duration_ns};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A larger number of workers is a mistake in the arguments.
pub const WORKERS_MAXIMUM: usize = 65_536;
/// A longer service time is a mistake in the arguments.
pub const SERVICE_TIME_MAXIMUM: Duration = Duration::from_secs(3600);

/// The configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host:port`; port 0 takes a free port.
    pub listen: String,
    /// Bytes of items, overhead included. Beyond them the least recently used items are evicted.
    pub memory_limit_bytes: usize,
    /// The service time of a request.
    pub service_time: ServiceTime,
    /// Virtual workers that serve one queue; no effect without a service time.
    pub workers: usize,
    /// Regular pauses of the whole server.
    pub stall: Option<Stall>,
    /// Seed of the service times.
    pub seed: u64,
    /// Client connections at once. Beyond them no client is accepted until another disconnects.
    pub connections_maximum: usize,
    /// The record file, if any.
    pub records: Option<RecordsConfig>,
}

/// The record file.
#[derive(Clone, Debug)]
pub struct RecordsConfig {
    /// The directory of the file `cache-<pid>.way`.
    pub directory: PathBuf,
    /// One request in this many is recorded.
    pub sample: u32,
}

/// A pause of the whole server, as a garbage collection or a slow disk causes one, at regular times, so that a test of an
/// instrument can compute its effect: at the end of every period, counted from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Duration of the pause.
    pub length: Duration,
    /// From the start of one pause to the start of the next.
    pub period: Duration,
}

/// The distribution of the service time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTime {
    /// No service time, no workers and no queue.
    #[default]
    None,
    /// Constant.
    Fixed(Duration),
    /// Exponential with this mean.
    Exponential(Duration),
    /// Uniform between two bounds, both included.
    Uniform(Duration, Duration),
}

/// The reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum ConfigError {
    #[error("the memory limit must be above 0")]
    NoMemory,
    #[error("{0} workers: give a number from 1 to {WORKERS_MAXIMUM}")]
    Workers(usize),
    #[error("the cache must accept at least one connection")]
    NoConnections,
    #[error("service time {0}: no duration may be above {SERVICE_TIME_MAXIMUM:?}")]
    TooLong(ServiceTime),
    #[error("service time {0}: the mean must be above 0")]
    NoMean(ServiceTime),
    #[error("service time {0}: the lower bound must not be above the upper one")]
    Reversed(ServiceTime),
    #[error(
        "a stall of {0:?} every {1:?}: both must be above 0, the first below the second, and neither above {SERVICE_TIME_MAXIMUM:?}"
    )]
    Stall(Duration, Duration),
    #[error("the sample must be above 0: 1 records every request, 100 one in a hundred")]
    NoSample,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: "127.0.0.1:0".into(),
            memory_limit_bytes: 64 * 1024 * 1024,
            service_time: ServiceTime::None,
            workers: 1,
            stall: None,
            seed: 1,
            connections_maximum: 10_000,
            records: None,
        }
    }
}

impl Config {
    /// Refuses a configuration that cannot work.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.memory_limit_bytes == 0 {
            return Err(ConfigError::NoMemory);
        }
        if !(1..=WORKERS_MAXIMUM).contains(&self.workers) {
            return Err(ConfigError::Workers(self.workers));
        }
        if self.connections_maximum == 0 {
            return Err(ConfigError::NoConnections);
        }
        if self.records.as_ref().is_some_and(|records| records.sample == 0) {
            return Err(ConfigError::NoSample);
        }
        if let Some(Stall { length, period }) = self.stall
            && (length.is_zero() || length >= period || period > SERVICE_TIME_MAXIMUM)
        {
            return Err(ConfigError::Stall(length, period));
        }
        self.service_time.check()
    }
}

impl Stall {
    /// What remains of the pause at `now`; zero outside a pause.
    pub(crate) fn left(self, start: Nanos, now: Nanos) -> Duration {
        let (length_ns, period_ns) = (duration_ns(self.length), duration_ns(self.period));
        let into_period_ns = now.since(start) % period_ns;
        let working_ns = period_ns - length_ns;
        if into_period_ns < working_ns { Duration::ZERO } else { Duration::from_nanos(period_ns - into_period_ns) }
    }
}

impl ServiceTime {
    fn check(self) -> Result<(), ConfigError> {
        let longest = match self {
            ServiceTime::None => Duration::ZERO,
            ServiceTime::Exponential(Duration::ZERO) => return Err(ConfigError::NoMean(self)),
            ServiceTime::Fixed(time) | ServiceTime::Exponential(time) => time,
            ServiceTime::Uniform(low, high) if low > high => return Err(ConfigError::Reversed(self)),
            ServiceTime::Uniform(_, high) => high,
        };
        if longest > SERVICE_TIME_MAXIMUM { Err(ConfigError::TooLong(self)) } else { Ok(()) }
    }
}

impl fmt::Display for ServiceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As on the command line, which writes microseconds with a u.
        let text = |time: &Duration| format!("{time:?}").replace('µ', "u");
        match self {
            ServiceTime::None => write!(f, "none"),
            ServiceTime::Fixed(time) => write!(f, "fixed:{}", text(time)),
            ServiceTime::Exponential(mean) => write!(f, "exp:{}", text(mean)),
            ServiceTime::Uniform(low, high) => write!(f, "uniform:{}:{}", text(low), text(high)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_text_is_refused() {
        let second = Duration::from_secs(1);
        let with = |service_time| Config { service_time, ..Config::default() }.check();
        assert_eq!(with(ServiceTime::Fixed(Duration::ZERO)), Ok(()));
        assert_eq!(with(ServiceTime::Uniform(second, second)), Ok(()));
        assert!(matches!(with(ServiceTime::Exponential(Duration::ZERO)), Err(ConfigError::NoMean(_))));
        assert!(matches!(with(ServiceTime::Uniform(second, second / 2)), Err(ConfigError::Reversed(_))));
        assert!(matches!(with(ServiceTime::Fixed(3601 * second)), Err(ConfigError::TooLong(_))));
        assert_eq!(ServiceTime::Uniform(second / 10_000, second).to_string(), "uniform:100us:1s");
        assert_eq!(Config { workers: 0, ..Config::default() }.check(), Err(ConfigError::Workers(0)));
        assert_eq!(Config { memory_limit_bytes: 0, ..Config::default() }.check(), Err(ConfigError::NoMemory));
    }

    #[test]
    fn the_pause_is_at_the_end_of_each_period() {
        let stall = Stall { length: Duration::from_nanos(200), period: Duration::from_nanos(1000) };
        let left = |after: u64| stall.left(Nanos(77), Nanos(77 + after)).as_nanos();
        assert_eq!([0, 799, 800, 999, 1000, 1799, 1900].map(left), [0, 0, 200, 1, 0, 0, 100]);
    }
}
