//! How the proxy is reached and how it reaches its backends: the settings beside the addresses themselves.

use net::{Address, HostPort, IdentityFiles};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The settings of transports.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportConfig {
    /// How often the names of backends are looked up again; zero: only when a connection has failed.
    pub resolve_every: Duration,
    /// What tells the meaning of a name.
    pub lookup: Lookup,
    /// What TLS is spoken with.
    pub tls: TlsConfig,
    /// The unix socket on which a successor may ask for the listening sockets.
    pub control: Option<PathBuf>,
    /// The control socket of the process that is to be replaced.
    pub take_over: Option<PathBuf>,
    /// How long clients may stay when a successor has taken over.
    pub hand_over_wait: Duration,
}

/// The files for TLS, and its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// What the proxy shows to clients.
    pub identity: Option<IdentityFiles>,
    /// Whose certificates clients must show; without it they need none.
    pub client_authority: Option<PathBuf>,
    /// How long a client may take until both sides have agreed.
    pub handshake_timeout: Duration,
    /// Whose certificates backends must show.
    pub backend_authority: Option<PathBuf>,
    /// What the proxy shows to backends that ask for a certificate.
    pub backend_identity: Option<IdentityFiles>,
}

/// Settings of TLS that cannot work, beside the files themselves.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum TlsConfigError {
    #[error("{0} speaks TLS: give --tls-certificate and --tls-key")]
    NoIdentity(Address),
    #[error("--server {0} speaks TLS: give --tls-backend-authority, the file of whoever signed its certificate")]
    NoAuthority(Address),
    #[error("--tls-client-authority needs --tls-certificate and --tls-key")]
    NoIdentityForClients,
    #[error("--tls-backend-certificate needs --tls-backend-authority")]
    NoAuthorityForIdentity,
    #[error("--tls-certificate: nothing speaks TLS with clients; give a --listen tls:HOST:PORT")]
    NoListener,
    #[error("--tls-backend-authority: no server speaks TLS; give a --server tls:HOST:PORT")]
    NoServer,
    #[error("--tls-handshake-timeout must not be zero")]
    NoTime,
}

/// Tells at which addresses a host is. It may take long: it is called on a thread of its own.
#[derive(Clone)]
pub struct Lookup(Arc<LookUp>);

type LookUp = dyn Fn(&HostPort) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl Default for TransportConfig {
    fn default() -> TransportConfig {
        TransportConfig {
            resolve_every: Duration::from_secs(30),
            lookup: Lookup::default(),
            tls: TlsConfig::default(),
            control: None,
            take_over: None,
            hand_over_wait: Duration::from_secs(30),
        }
    }
}

impl Default for TlsConfig {
    fn default() -> TlsConfig {
        TlsConfig {
            identity: None,
            client_authority: None,
            handshake_timeout: Duration::from_secs(5),
            backend_authority: None,
            backend_identity: None,
        }
    }
}

impl Default for Lookup {
    /// As the operating system does it.
    fn default() -> Lookup {
        Lookup::new(|host_port| Ok((host_port.host(), host_port.port()).to_socket_addrs()?.collect()))
    }
}

/// Functions cannot be compared: configurations that differ in nothing else count as equal.
impl PartialEq for Lookup {
    fn eq(&self, _other: &Lookup) -> bool {
        true
    }
}

impl Lookup {
    /// Whatever this function says.
    pub fn new(look_up: impl Fn(&HostPort) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Lookup {
        Lookup(Arc::new(look_up))
    }

    /// The addresses of a host.
    pub(crate) fn look_up(&self, host_port: &HostPort) -> io::Result<Vec<SocketAddr>> {
        (self.0)(host_port)
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lookup")
    }
}
