//! The arguments of `waystage proxy` that say how it is reached and how it reaches its servers, beside the addresses; and
//! the listening sockets that the service manager passes.

use crate::quantity::duration;
use clap::Args;
use listenfd::ListenFd;
use net::Inherited;
use proxy::TransportConfig;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

/// Where clients connect when nothing else is said.
const LISTEN: &str = "127.0.0.1:11211";

/// How clients and servers are reached.
#[derive(Debug, Args)]
pub(crate) struct TransportArguments {
    /// How often the names of servers are looked up again; 0s: only when a connection has failed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    resolve_every: Duration,
    /// Let a successor take over the listening sockets, through a unix socket at this path.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Replace the proxy whose --control is this path: go on with its listening sockets, so that nobody is refused.
    #[arg(long, value_name = "PATH")]
    take_over: Option<PathBuf>,
    /// Time that clients may stay when a successor has taken over.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    hand_over_wait: Duration,
}

impl TransportArguments {
    /// The settings.
    pub(crate) fn config(&self) -> TransportConfig {
        TransportConfig {
            resolve_every: self.resolve_every,
            control: self.control.clone(),
            take_over: self.take_over.clone(),
            hand_over_wait: self.hand_over_wait,
            ..TransportConfig::default()
        }
    }

    /// The addresses to listen on: those that are given, or the usual one if no other process has opened any.
    pub(crate) fn listen(&self, given: &[String], activated: &[Inherited]) -> Vec<String> {
        if given.is_empty() && activated.is_empty() && self.take_over.is_none() {
            return vec![LISTEN.into()];
        }
        given.to_vec()
    }
}

/// The sockets that the service manager has opened for this process: LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES.
pub(crate) fn activated() -> Result<Vec<Inherited>, String> {
    let mut passed = ListenFd::from_env();
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_string();
        let tcp = passed.take_tcp_listener(index).ok().flatten().map(OwnedFd::from);
        let socket = match tcp {
            Some(socket) => socket,
            None => match passed.take_unix_listener(index) {
                Ok(Some(socket)) => socket.into(),
                _ => return Err(format!("LISTEN_FDS: the socket named {name:?} is neither TCP nor a unix stream")),
            },
        };
        sockets.push(Inherited { name, owns_file: false, socket });
    }
    Ok(sockets)
}
