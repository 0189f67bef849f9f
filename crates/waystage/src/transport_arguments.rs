//! The arguments of `waystage proxy` for name resolution, restarts and TLS.

use clap::Args;
use net::Inherited;
use proxy::ProxyFile;
use quantity::duration;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments for name resolution and restarts.
#[derive(Debug, Args)]
pub(crate) struct TransportArguments {
    /// How often the proxy resolves the names of servers; 0s: only after a connection has failed [default: 30s].
    #[arg(help_heading = "Names and restarts", long, value_name = "TIME", value_parser = duration)]
    resolve_every: Option<Duration>,
    /// DNS server for SRV records, as IP or IP:PORT [default: those of /etc/resolv.conf].
    #[arg(help_heading = "Names and restarts", long, value_name = "ADDRESS")]
    resolver: Option<String>,
    /// Unix socket through which a new process can take over the listening sockets.
    #[arg(help_heading = "Names and restarts", long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Take over the listening sockets of the proxy with this --control socket, so that no client is refused.
    #[arg(help_heading = "Names and restarts", long, value_name = "PATH")]
    pub(crate) take_over: Option<PathBuf>,
    /// How long clients can stay connected after a new process has taken over [default: 30s].
    #[arg(help_heading = "Names and restarts", long, value_name = "TIME", value_parser = duration)]
    hand_over_wait: Option<Duration>,
    #[command(flatten)]
    tls: TlsArguments,
}

/// Arguments for TLS.
#[derive(Debug, Args)]
struct TlsArguments {
    /// The proxy's server certificate, for `--listen tls:HOST:PORT`, followed by the intermediate certificates (PEM).
    #[arg(help_heading = "TLS", long = "tls-certificate", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Private key of this certificate (PEM).
    #[arg(help_heading = "TLS", long = "tls-key", value_name = "FILE")]
    key: Option<PathBuf>,
    /// Accept only clients with a certificate signed by this authority (PEM).
    #[arg(help_heading = "TLS", long = "tls-client-authority", value_name = "FILE")]
    client_authority: Option<PathBuf>,
    /// Timeout of a client's TLS handshake [default: 5s].
    #[arg(help_heading = "TLS", long = "tls-handshake-timeout", value_name = "TIME", value_parser = duration)]
    handshake_timeout: Option<Duration>,
    /// Authority that must have signed the certificates of servers at `tls:HOST:PORT` (PEM). A certificate must be valid
    /// for the host in the address.
    #[arg(help_heading = "TLS", long = "tls-backend-authority", value_name = "FILE")]
    backend_authority: Option<PathBuf>,
    /// The proxy's client certificate, for servers that request one (PEM).
    #[arg(help_heading = "TLS", long = "tls-backend-certificate", value_name = "FILE")]
    backend_certificate: Option<PathBuf>,
    /// Private key of this certificate (PEM).
    #[arg(help_heading = "TLS", long = "tls-backend-key", value_name = "FILE")]
    backend_key: Option<PathBuf>,
}

impl TransportArguments {
    /// The given arguments. With passed or taken-over sockets, no address is needed.
    pub(crate) fn settings(&self, activated: &[Inherited]) -> ProxyFile {
        let tls = &self.tls;
        ProxyFile {
            is_given_sockets: !activated.is_empty() || self.take_over.is_some(),
            resolve_every: self.resolve_every,
            resolver: self.resolver.clone(),
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
