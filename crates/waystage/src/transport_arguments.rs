//! The arguments of `waystage proxy` that say how it is reached and how it reaches its servers, beside the addresses; and
//! the listening sockets that the service manager passes.

use clap::Args;
use listenfd::ListenFd;
use net::Inherited;
use proxy::ProxyFile;
use quantity::duration;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

/// How clients and servers are reached.
#[derive(Debug, Args)]
pub(crate) struct TransportArguments {
    /// How often the names of servers are looked up again; 0s: only when a connection has failed
    /// [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    resolve_every: Option<Duration>,
    /// Let a successor take over the listening sockets, through a unix socket at this path.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Replace the proxy whose --control is this path: go on with its listening sockets, so that nobody is refused.
    #[arg(long, value_name = "PATH")]
    pub(crate) take_over: Option<PathBuf>,
    /// Time that clients may stay when a successor has taken over [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hand_over_wait: Option<Duration>,
    #[command(flatten)]
    tls: TlsArguments,
}

/// With what TLS is spoken.
#[derive(Debug, Args)]
struct TlsArguments {
    /// The certificate for clients of `--listen tls:HOST:PORT`, in PEM form, followed by those between it and the authority.
    #[arg(long = "tls-certificate", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its private key, in PEM form.
    #[arg(long = "tls-key", value_name = "FILE")]
    key: Option<PathBuf>,
    /// Let in only clients whose certificate this authority has signed, in PEM form.
    #[arg(long = "tls-client-authority", value_name = "FILE")]
    client_authority: Option<PathBuf>,
    /// Time that a client may take until TLS is agreed upon [default: 5s].
    #[arg(long = "tls-handshake-timeout", value_name = "TIME", value_parser = duration)]
    handshake_timeout: Option<Duration>,
    /// Who must have signed the certificates of servers at `tls:HOST:PORT`, in PEM form. They must be for that host.
    #[arg(long = "tls-backend-authority", value_name = "FILE")]
    backend_authority: Option<PathBuf>,
    /// The certificate for servers that ask for one, in PEM form.
    #[arg(long = "tls-backend-certificate", value_name = "FILE")]
    backend_certificate: Option<PathBuf>,
    /// Its private key, in PEM form.
    #[arg(long = "tls-backend-key", value_name = "FILE")]
    backend_key: Option<PathBuf>,
}

impl TransportArguments {
    /// What they say. Sockets that were passed or are taken over need not be opened.
    pub(crate) fn settings(&self, activated: &[Inherited]) -> ProxyFile {
        let tls = &self.tls;
        ProxyFile {
            is_given_sockets: !activated.is_empty() || self.take_over.is_some(),
            resolve_every: self.resolve_every,
            control: self.control.clone(),
            hand_over_wait: self.hand_over_wait,
            tls_certificate: tls.certificate.clone(),
            tls_key: tls.key.clone(),
            tls_client_authority: tls.client_authority.clone(),
            tls_handshake_timeout: tls.handshake_timeout,
            tls_backend_authority: tls.backend_authority.clone(),
            tls_backend_certificate: tls.backend_certificate.clone(),
            tls_backend_key: tls.backend_key.clone(),
            ..ProxyFile::default()
        }
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
