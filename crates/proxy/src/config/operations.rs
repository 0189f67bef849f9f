//! The configuration of hot keys.

use crate::config::ConfigError;

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    /// How many of the most frequent keys are shown. 0 switches counting off.
    pub hot_keys: usize,
    /// Whether the metrics show them too, each as its own series.
    pub hot_keys_metrics: bool,
}

/// The most keys that may be shown.
const HOT_KEYS_MAX: usize = 256;

impl Default for Operations {
    fn default() -> Operations {
        Operations { hot_keys: 32, hot_keys_metrics: false }
    }
}

impl Operations {
    /// Checks the settings.
    pub(crate) fn check(&self, has_metrics: bool) -> Result<(), ConfigError> {
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
            let outcome = Operations { hot_keys, hot_keys_metrics }.check(has_metrics);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!(line(0, false, false), Ok(()));
        assert_eq!(line(256, true, true), Ok(()));
        assert_eq!(line(257, false, true).unwrap_err(), "hot-keys = 257: give a number from 0 (off) to 256");
        assert!(line(0, true, true).unwrap_err().contains("hot-keys is 0"));
        assert!(line(9, true, false).unwrap_err().contains("give metrics an address"));
    }
}
