//! The configuration of transports: name resolution, TLS and hand-over. The addresses themselves are elsewhere.

use net::{Address, HostPort, IdentityFiles};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of transports.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportConfig {
    /// How often the names of backends are resolved again. Zero: only after a connection has failed.
    pub resolve_every: Duration,
    /// The function that resolves names.
    pub lookup: Lookup,
    /// The TLS settings.
    pub tls: TlsConfig,
    /// The unix socket on which a successor may request the listening sockets.
    pub control: Option<PathBuf>,
    /// The control socket of the process that is to be replaced.
    pub take_over: Option<PathBuf>,
    /// How long clients may stay after a successor has taken over.
    pub hand_over_wait: Duration,
}

/// The TLS files, and the handshake timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The proxy's certificate for clients.
    pub identity: Option<IdentityFiles>,
    /// The authority that must have signed clients' certificates. Without it, clients need none.
    pub client_authority: Option<PathBuf>,
    /// How long a client's TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The authority that must have signed backends' certificates.
    pub backend_authority: Option<PathBuf>,
    /// The proxy's certificate for backends that request one.
    pub backend_identity: Option<IdentityFiles>,
}

/// Why TLS settings cannot work, apart from errors in the files.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum TlsConfigError {
    #[error("{0} uses TLS: give --tls-certificate and --tls-key")]
    NoIdentity(Address),
    #[error(
        "--server {0} uses TLS: give --tls-backend-authority, the certificate of the authority that signed its certificate"
    )]
    NoAuthority(Address),
    #[error("--tls-client-authority needs --tls-certificate and --tls-key")]
    NoIdentityForClients,
    #[error("--tls-backend-certificate needs --tls-backend-authority")]
    NoAuthorityForIdentity,
    #[error("--tls-certificate: no listener uses TLS; give a --listen tls:HOST:PORT")]
    NoListener,
    #[error("--tls-backend-authority: no server uses TLS; give a --server tls:HOST:PORT")]
    NoServer,
    #[error("--tls-handshake-timeout must not be zero")]
    NoTime,
}

/// Resolves a host name to addresses. It may block: it is called on its own thread.
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
    /// Resolves names with this function.
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
