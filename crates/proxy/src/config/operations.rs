//! The configuration of hot keys, and the limits of the metrics port.

use crate::config::ConfigError;
use quantity::duration_text;
use std::time::Duration;

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    /// How many of the most frequent keys are shown. 0 switches counting off.
    pub hot_keys: usize,
    /// Whether the metrics show them too, each as its own series.
    pub hot_keys_metrics: bool,
    /// How long a client of the metrics may take to send its request, and then to read the reply.
    pub metrics_timeout: Duration,
    /// The most connections to the metrics. One more closes the oldest.
    pub metrics_connections: usize,
}

/// The most keys that may be shown.
const HOT_KEYS_MAX: usize = 256;
/// The longest time for a scrape.
const METRICS_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The most connections to the metrics that may be allowed.
const METRICS_CONNECTIONS_MAX: usize = 1024;

impl Default for Operations {
    fn default() -> Operations {
        Operations {
            hot_keys: 32,
            hot_keys_metrics: false,
            metrics_timeout: Duration::from_secs(10),
            metrics_connections: 32,
        }
    }
}

impl Operations {
    /// Checks the settings.
    pub(crate) fn check(&self, has_metrics: bool) -> Result<(), ConfigError> {
        if !(1..=METRICS_CONNECTIONS_MAX).contains(&self.metrics_connections) {
            let problem = format!("give a number from 1 to {METRICS_CONNECTIONS_MAX}");
            return Err(ConfigError::value("metrics-connections", self.metrics_connections, problem));
        }
        if self.metrics_timeout.is_zero() || self.metrics_timeout > METRICS_TIMEOUT_MAX {
            let value = format!("{:?}", duration_text(self.metrics_timeout));
            return Err(ConfigError::value("metrics-timeout", value, "give more than 0s and at most 1h"));
        }
        let refuse = |problem: &str| Err(ConfigError::value("hot-keys-metrics", true, problem));
        match (self.hot_keys, self.hot_keys_metrics) {
            (shown, _) if shown > HOT_KEYS_MAX => {
                let problem = format!("give a number from 0 (off) to {HOT_KEYS_MAX}");
                Err(ConfigError::value("hot-keys", shown, problem))
            }
            (0, true) => refuse("hot-keys is 0, so there are no keys to show; give hot-keys a number"),
            (_, true) if !has_metrics => refuse("there is no place to show them; give metrics an address"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_reported_in_one_line() {
        let line = |hot_keys, hot_keys_metrics, has_metrics| {
            let outcome = Operations { hot_keys, hot_keys_metrics, ..Operations::default() }.check(has_metrics);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!(line(0, false, false), Ok(()));
        assert_eq!(line(256, true, true), Ok(()));
        assert_eq!(line(257, false, true).unwrap_err(), "hot-keys = 257: give a number from 0 (off) to 256");
        assert!(line(0, true, true).unwrap_err().contains("hot-keys is 0"));
        assert!(line(9, true, false).unwrap_err().contains("give metrics an address"));
    }
}
