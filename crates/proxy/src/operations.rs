//! What an operator is shown beyond the ordinary metrics.

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    /// How many of the most frequent keys are shown; 0 counts none.
    pub hot_keys: usize,
    /// Whether they are in the metrics too, each as a series of its own.
    pub hot_keys_metrics: bool,
}

/// The most keys that may be shown.
const HOT_KEYS_MAX: usize = 256;

/// Settings that cannot work: what is wrong and what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum OperationsError {
    #[error("--hot-keys {0}: give a number from 0 (off) to {HOT_KEYS_MAX}")]
    HotKeys(usize),
    #[error("--hot-keys-metrics with --hot-keys 0: there are no keys to show; give --hot-keys a number")]
    NoKeysToShow,
    #[error("--hot-keys-metrics needs --metrics HOST:PORT, where they are to be shown")]
    NoMetrics,
}

impl Default for Operations {
    fn default() -> Operations {
        Operations { hot_keys: 32, hot_keys_metrics: false }
    }
}

impl Operations {
    /// Finds the first thing that cannot work.
    pub(crate) fn check(&self, has_metrics: bool) -> Result<(), OperationsError> {
        match (self.hot_keys, self.hot_keys_metrics) {
            (shown, _) if shown > HOT_KEYS_MAX => Err(OperationsError::HotKeys(shown)),
            (0, true) => Err(OperationsError::NoKeysToShow),
            (_, true) if !has_metrics => Err(OperationsError::NoMetrics),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_one_clear_line() {
        let line = |hot_keys, hot_keys_metrics, has_metrics| {
            let outcome = Operations { hot_keys, hot_keys_metrics }.check(has_metrics);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!(line(0, false, false), Ok(()));
        assert_eq!(line(256, true, true), Ok(()));
        assert_eq!(line(257, false, true).unwrap_err(), "--hot-keys 257: give a number from 0 (off) to 256");
        assert!(line(0, true, true).unwrap_err().starts_with("--hot-keys-metrics with --hot-keys 0"));
        assert!(line(9, true, false).unwrap_err().contains("needs --metrics"));
    }
}
