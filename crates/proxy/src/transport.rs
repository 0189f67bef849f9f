//! How the proxy is reached and how it reaches its backends: the settings beside the addresses themselves.

use crate::running::ProxyError;
use net::{Address, ClientTls, Endpoint, HostPort, IdentityFiles, Listening, ServerTls, TlsTo};
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

/// A backend's address, with what is needed to reach it once its name is known.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    /// For a backend that speaks TLS.
    pub(crate) tls: Option<TlsTo>,
}

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

impl Target {
    /// Where it is, if that needs no lookup.
    pub(crate) fn fixed(&self) -> Option<Endpoint> {
        match &self.address {
            Address::Unix(path) => Some(Endpoint::Unix(path.as_path().into())),
            Address::Tcp(host_port) | Address::Tls(host_port) => host_port.number().map(|socket| self.at(socket)),
        }
    }

    /// Where it is when its name means this socket.
    pub(crate) fn at(&self, socket: SocketAddr) -> Endpoint {
        match &self.tls {
            None => Endpoint::Tcp(socket),
            Some(tls) => Endpoint::Tls(socket, tls.clone()),
        }
    }
}

/// Adds TLS to the listening sockets that need it.
pub(crate) fn equip(listeners: &mut [Listening], config: &TlsConfig) -> Result<(), ProxyError> {
    if config.handshake_timeout.is_zero() {
        return Err(TlsConfigError::NoTime.into());
    }
    let mut listeners = listeners.iter_mut().filter(|listening| listening.address().is_tls()).peekable();
    let Some(identity) = &config.identity else {
        return Err(match (listeners.peek(), &config.client_authority) {
            (Some(listening), _) => TlsConfigError::NoIdentity(listening.address().clone()).into(),
            (None, Some(_)) => TlsConfigError::NoIdentityForClients.into(),
            (None, None) => return Ok(()),
        });
    };
    let tls = ServerTls::load(identity, config.client_authority.as_deref())?;
    if listeners.peek().is_none() {
        return Err(TlsConfigError::NoListener.into());
    }
    listeners.for_each(|listening| listening.speak_tls(tls.clone()));
    Ok(())
}

/// The backends' addresses, with TLS for those that need it.
pub(crate) fn targets(servers: &[String], config: &TlsConfig) -> Result<Vec<Target>, ProxyError> {
    let addresses = servers.iter().map(|server| server.parse()).collect::<Result<Vec<Address>, _>>()?;
    let speaking = addresses.iter().find(|address| address.is_tls());
    let tls = match (&config.backend_authority, speaking) {
        (Some(authority), Some(_)) => Some(ClientTls::load(authority, config.backend_identity.as_ref())?),
        (Some(_), None) => return Err(TlsConfigError::NoServer.into()),
        (None, Some(address)) => return Err(TlsConfigError::NoAuthority(address.clone()).into()),
        (None, None) if config.backend_identity.is_some() => return Err(TlsConfigError::NoAuthorityForIdentity.into()),
        (None, None) => None,
    };
    let target = |address: Address| {
        let tls = match (&address, &tls) {
            (Address::Tls(host_port), Some(tls)) => Some(tls.of(host_port)?),
            _ => None,
        };
        Ok(Target { address, tls })
    };
    addresses.into_iter().map(target).collect()
}
