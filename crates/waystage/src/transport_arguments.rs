//! The arguments of `waystage proxy` that say how it is reached and how it reaches its servers, beside the addresses.

use crate::quantity::duration;
use clap::Args;
use proxy::TransportConfig;
use std::time::Duration;

/// How clients and servers are reached.
#[derive(Debug, Args)]
pub(crate) struct TransportArguments {
    /// How often the names of servers are looked up again; 0s: only when a connection has failed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    resolve_every: Duration,
}

impl TransportArguments {
    /// The settings.
    pub(crate) fn config(&self) -> TransportConfig {
        TransportConfig { resolve_every: self.resolve_every, ..TransportConfig::default() }
    }
}
