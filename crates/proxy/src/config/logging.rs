//! The configuration of the log: which lines it has, in which form, and which requests count as slow.

use crate::config::ConfigError;
use crate::config::named::named;
use quantity::duration_text;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// The operator's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// The least important lines that are written.
    pub level: LogLevel,
    /// The form of a line.
    pub format: LogFormat,
    /// Requests that take at least this long are logged with their stages.
    pub slow_requests: Option<Duration>,
    /// The most lines about slow requests per second.
    pub slow_requests_per_second: u32,
    /// How keys appear in the log.
    pub keys: LoggedKeys,
    /// Where lines go.
    pub output: LogOutput,
}

/// How important a line is. A level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// No lines.
    Off,
    /// The proxy could not do what it was told.
    Error,
    /// Requests fail, or will fail.
    Warn,
    /// Ordinary changes of state.
    Info,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level and a sentence.
    Text,
    /// A JSON object.
    Json,
}

/// How keys appear in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedKeys {
    /// As they are.
    Plain,
    /// As a hash, so that two lines about one key can be recognised.
    Hashed,
    /// Not at all.
    Hidden,
}

named!(LogLevel { Off = "off", Error = "error", Warn = "warn", Info = "info" });
named!(LogFormat { Text = "text", Json = "json" });
named!(LoggedKeys { Plain = "plain", Hashed = "hashed", Hidden = "hidden" });

/// Writes a whole line, with its line end. It may block: it is called on the log's own thread.
#[derive(Clone)]
pub struct LogOutput(Arc<WriteLine>);

type WriteLine = dyn Fn(&[u8]) -> io::Result<()> + Send + Sync;

/// The most lines about slow requests per second that may be allowed.
const PER_SECOND_MAX: u32 = 100_000;
/// The longest time of a slow request.
const SLOW_MAX: Duration = Duration::from_secs(3600);

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            level: LogLevel::Info,
            format: LogFormat::Text,
            slow_requests: None,
            slow_requests_per_second: 100,
            keys: LoggedKeys::Plain,
            output: LogOutput::default(),
        }
    }
}

impl Default for LogOutput {
    /// The standard error of the process. Its lock is not held meanwhile, because others must not wait if the output blocks.
    fn default() -> LogOutput {
        LogOutput::new(|mut line| {
            while !line.is_empty() {
                match rustix::io::write(io::stderr().as_fd(), line) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => line = &line[written..],
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }
}

/// Functions cannot be compared: configurations that differ in nothing else count as equal.
impl PartialEq for LogOutput {
    fn eq(&self, _other: &LogOutput) -> bool {
        true
    }
}

impl fmt::Debug for LogOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LogOutput")
    }
}

impl LogOutput {
    /// Writes lines with this function.
    pub fn new(write: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static) -> LogOutput {
        LogOutput(Arc::new(write))
    }

    pub(crate) fn write(&self, line: &[u8]) -> io::Result<()> {
        (self.0)(line)
    }
}

impl LogConfig {
    /// Checks the settings. `few_stamps` is the name of `stamps` if not all requests are stamped.
    pub(crate) fn check(&self, few_stamps: Option<&str>) -> Result<(), ConfigError> {
        if !(1..=PER_SECOND_MAX).contains(&self.slow_requests_per_second) {
            let problem = format!("give a number from 1 to {PER_SECOND_MAX}");
            return Err(ConfigError::value("slow-requests-per-second", self.slow_requests_per_second, problem));
        }
        let Some(slow) = self.slow_requests else { return Ok(()) };
        let value = format!("{:?}", duration_text(slow));
        if slow.is_zero() || slow > SLOW_MAX {
            return Err(ConfigError::value("slow-requests", value, "give more than 0s and at most 1h"));
        }
        if let Some(stamps) = few_stamps {
            let problem = format!("needs the stages of every request, and stamps is {stamps:?}; give \"all\"");
            return Err(ConfigError::value("slow-requests", value, problem));
        }
        if self.level < LogLevel::Warn {
            let problem = format!(
                "lines about slow requests are warnings, which log-level {:?} leaves out; give \"warn\" or \"info\"",
                self.level.name()
            );
            return Err(ConfigError::value("slow-requests", value, problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_reported_in_one_line() {
        let line = |change: fn(&mut LogConfig), stamps: Option<&str>| {
            let mut config = LogConfig { slow_requests: Some(Duration::from_millis(5)), ..LogConfig::default() };
            change(&mut config);
            config.check(stamps).map_err(|error| error.to_string())
        };
        assert_eq!(line(|_| (), None), Ok(()));
        assert!(line(|_| (), Some("sampled")).unwrap_err().contains("stamps is \"sampled\""));
        assert!(line(|config| config.level = LogLevel::Error, None).unwrap_err().contains("log-level \"error\""));
        assert!(line(|config| config.slow_requests = Some(Duration::ZERO), None).unwrap_err().contains("0s"));
        let none = line(|config| config.slow_requests_per_second = 0, None).unwrap_err();
        assert_eq!(none, "slow-requests-per-second = 0: give a number from 1 to 100000");
    }
}
