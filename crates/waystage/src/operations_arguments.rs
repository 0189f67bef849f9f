//! Arguments of `waystage proxy` that say what an operator is shown.

use clap::Args;
use proxy::Operations;

/// The operator's arguments.
#[derive(Debug, Args)]
pub(crate) struct OperationsArguments {
    /// Keys that `stats hotkeys` shows: those asked for most in the last seconds. One key in 16 is counted; 0 counts none.
    #[arg(long, value_name = "N", default_value_t = Operations::default().hot_keys)]
    hot_keys: usize,
    /// Show these keys in the metrics, too. Each key that was ever hot stays a series in Prometheus.
    #[arg(long)]
    hot_keys_metrics: bool,
}

impl OperationsArguments {
    /// The settings that they say.
    pub(crate) fn settings(&self) -> Operations {
        Operations { hot_keys: self.hot_keys, hot_keys_metrics: self.hot_keys_metrics }
    }
}
