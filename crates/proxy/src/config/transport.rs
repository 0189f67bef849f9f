//! The configuration of transports: name resolution, TLS and hand-over. The addresses themselves are elsewhere.

use net::{Address, HostPort, IdentityFiles, Network};
use serde::{Deserialize, Serialize};
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
    /// The listeners with the PROXY protocol.
    pub proxy_protocol: ProxyProtocol,
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
    /// Certificates for clients that request a host name for which one of them is valid.
    pub other_identities: Vec<IdentityFiles>,
    /// The authority that must have signed clients' certificates. Without it, clients need none.
    pub client_authority: Option<PathBuf>,
    /// How long a client's TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The authority that must have signed backends' certificates.
    pub backend_authority: Option<PathBuf>,
    /// The proxy's certificate for backends that request one.
    pub backend_identity: Option<IdentityFiles>,
}

/// The PROXY protocol, in which a load balancer reports the address of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// The addresses of the listeners, as they are written there. Each connection to one of them begins with a header.
    pub listeners: Vec<String>,
    /// The networks of the load balancers. Connections from elsewhere are closed. If empty, all are accepted.
    pub from: Vec<Network>,
    /// How long the header may take.
    pub timeout: Duration,
}

/// One of several certificates and its key, as the file gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, expecting = "a table")]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
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
            proxy_protocol: ProxyProtocol::default(),
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
            other_identities: Vec::new(),
            client_authority: None,
            handshake_timeout: Duration::from_secs(5),
            backend_authority: None,
            backend_identity: None,
        }
    }
}

impl Default for ProxyProtocol {
    fn default() -> ProxyProtocol {
        ProxyProtocol { listeners: Vec::new(), from: Vec::new(), timeout: Duration::from_secs(5) }
    }
}

impl ProxyProtocol {
    /// Whether each connection to this listener begins with a header.
    pub(crate) fn applies_to(&self, listener: &Address) -> bool {
        self.listeners.iter().any(|text| text.parse().is_ok_and(|address: Address| address == *listener))
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
    ///
    /// # Errors
    /// If the name cannot be resolved.
    pub fn look_up(&self, host_port: &HostPort) -> io::Result<Vec<SocketAddr>> {
        (self.0)(host_port)
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lookup")
    }
}
