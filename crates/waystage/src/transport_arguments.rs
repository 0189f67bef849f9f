//! The arguments of `waystage proxy` that say how it is reached and how it reaches its servers, beside the addresses; and
//! the listening sockets that the service manager passes.

use crate::quantity::duration;
use clap::Args;
use listenfd::ListenFd;
use net::{IdentityFiles, Inherited};
use proxy::{TlsConfig, TransportConfig};
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
    #[command(flatten)]
    tls: TlsArguments,
}

/// With what TLS is spoken.
#[derive(Debug, Args)]
struct TlsArguments {
    /// The certificate for clients of `--listen tls:HOST:PORT`, in PEM form, followed by those between it and the authority.
    #[arg(long = "tls-certificate", value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key, in PEM form.
    #[arg(long = "tls-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Let in only clients whose certificate this authority has signed, in PEM form.
    #[arg(long = "tls-client-authority", value_name = "FILE")]
    client_authority: Option<PathBuf>,
    /// Time that a client may take until TLS is agreed upon.
    #[arg(long = "tls-handshake-timeout", value_name = "TIME", default_value = "5s", value_parser = duration)]
    handshake_timeout: Duration,
    /// Who must have signed the certificates of servers at `tls:HOST:PORT`, in PEM form. They must be for that host.
    #[arg(long = "tls-backend-authority", value_name = "FILE")]
    backend_authority: Option<PathBuf>,
    /// The certificate for servers that ask for one, in PEM form.
    #[arg(long = "tls-backend-certificate", value_name = "FILE", requires = "backend_key")]
    backend_certificate: Option<PathBuf>,
    /// Its private key, in PEM form.
    #[arg(long = "tls-backend-key", value_name = "FILE", requires = "backend_certificate")]
    backend_key: Option<PathBuf>,
}

impl TlsArguments {
    fn config(&self) -> TlsConfig {
        let identity = |certificate: &Option<PathBuf>, key: &Option<PathBuf>| {
            let (certificate, key) = (certificate.clone()?, key.clone()?);
            Some(IdentityFiles { certificate, key })
        };
        TlsConfig {
            identity: identity(&self.certificate, &self.key),
            client_authority: self.client_authority.clone(),
            handshake_timeout: self.handshake_timeout,
            backend_authority: self.backend_authority.clone(),
            backend_identity: identity(&self.backend_certificate, &self.backend_key),
        }
    }
}

impl TransportArguments {
    /// The settings.
    pub(crate) fn config(&self) -> TransportConfig {
        TransportConfig {
            resolve_every: self.resolve_every,
            tls: self.tls.config(),
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
