//! The settings of a trace. Knows no flags: the program fills it in.

use super::TraceError;
use std::fmt;
use std::path::PathBuf;

/// memcached's default limit on an item.
const USUAL_VALUE_BYTES_MAX: usize = 1 << 20;

/// Which trace to replay, how much of it, and how fast.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The file. Its first bytes decide whether it is plain or compressed with zstd.
    pub path: PathBuf,
    /// How recorded times become replay times.
    pub timing: Timing,
    /// Where a row lies within its second, if its recorded time is a whole second.
    pub within_second: WithinSecond,
    /// The number of malformed lines to skip and count; one more ends the replay. 0 rejects the first.
    pub errors_max: u64,
    /// The number of rows to replay.
    pub rows_max: Option<u64>,
    /// The largest value that the server accepts. A row with a larger value is malformed.
    pub value_bytes_max: usize,
}

/// How recorded times become replay times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Timing {
    /// As recorded.
    #[default]
    Original,
    /// Faster by this factor; 2 takes half the time.
    Scaled(f64),
    /// As fast as the server replies: every row is due at once.
    Max,
}

/// Where a row lies within its second. Traces are recorded in whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinSecond {
    /// The rows of a second are spread over it evenly, in the order of the file.
    #[default]
    Spread,
    /// All rows of a second are due at its start.
    AsRecorded,
}

impl TraceConfig {
    /// A whole trace with its own timing and without malformed lines.
    pub fn new(path: impl Into<PathBuf>) -> TraceConfig {
        TraceConfig {
            path: path.into(),
            timing: Timing::Original,
            within_second: WithinSecond::Spread,
            errors_max: 0,
            rows_max: None,
            value_bytes_max: USUAL_VALUE_BYTES_MAX,
        }
    }

    /// Rejects settings that cannot be replayed.
    ///
    /// # Errors
    /// One line that says how to correct it.
    pub fn check(&self) -> Result<(), TraceError> {
        if let Timing::Scaled(factor) = self.timing
            && !(Timing::FACTOR_MIN..=Timing::FACTOR_MAX).contains(&factor)
        {
            return Err(TraceError::Config(Timing::out_of_range(factor)));
        }
        if self.rows_max == Some(0) {
            return Err(TraceError::Config("a trace of 0 rows has nothing to replay; give at least one row".into()));
        }
        Ok(())
    }

    /// The path for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Timing {
    const FACTOR_MIN: f64 = 1e-6;
    const FACTOR_MAX: f64 = 1e6;

    /// Parses `original`, `scaled:FACTOR` or `max`.
    ///
    /// # Errors
    /// One line with the accepted values.
    pub fn parse(text: &str) -> Result<Timing, String> {
        let refuse = || format!("{text:?} is not original, scaled:2 (twice as fast) or max");
        match text.split_once(':') {
            None if text == "original" => Ok(Timing::Original),
            None if text == "max" => Ok(Timing::Max),
            Some(("scaled", factor)) => match factor.parse() {
                Ok(factor) if (Timing::FACTOR_MIN..=Timing::FACTOR_MAX).contains(&factor) => Ok(Timing::Scaled(factor)),
                Ok(factor) => Err(Timing::out_of_range(factor)),
                Err(_) => Err(refuse()),
            },
            _ => Err(refuse()),
        }
    }

    /// The replay time of a row from its recorded time. Both are nanoseconds since the first row.
    pub(super) fn replayed_ns(self, recorded_ns: u64) -> u64 {
        match self {
            Timing::Original => recorded_ns,
            // Exact to a nanosecond for a hundred days.
            Timing::Scaled(factor) => (recorded_ns as f64 / factor) as u64,
            Timing::Max => 0,
        }
    }

    fn out_of_range(factor: f64) -> String {
        format!("scaled:{factor} is not between scaled:{} and scaled:{}", Timing::FACTOR_MIN, Timing::FACTOR_MAX)
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timing::Original => formatter.write_str("original"),
            Timing::Scaled(factor) => write!(formatter, "scaled:{factor}"),
            Timing::Max => formatter.write_str("max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_parsed_and_printed() {
        for text in ["original", "max", "scaled:2", "scaled:0.5"] {
            assert_eq!(Timing::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "fast", "scaled", "scaled:", "scaled:x", "scaled:0", "scaled:-1", "scaled:inf", "scaled:nan"] {
            assert!(Timing::parse(text).is_err(), "{text}");
        }
        assert_eq!(Timing::Scaled(2.0).replayed_ns(3_000_000_000), 1_500_000_000);
        assert_eq!(Timing::Max.replayed_ns(3_000_000_000), 0);
    }

    #[test]
    fn traces_that_cannot_be_replayed_are_rejected() {
        assert!(TraceConfig::new("t").check().is_ok());
        assert!(TraceConfig { timing: Timing::Scaled(0.0), ..TraceConfig::new("t") }.check().is_err());
        assert!(TraceConfig { rows_max: Some(0), ..TraceConfig::new("t") }.check().is_err());
    }
}
