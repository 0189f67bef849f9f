//! How the proxy is reached and how it reaches its backends: the settings beside the addresses themselves.

use net::{Address, Endpoint, HostPort};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The settings of transports.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// How often the names of backends are looked up again; zero: only when a connection has failed.
    pub resolve_every: Duration,
    /// What tells the meaning of a name.
    pub lookup: Lookup,
    /// The unix socket on which a successor may ask for the listening sockets.
    pub control: Option<PathBuf>,
    /// The control socket of the process that is to be replaced.
    pub take_over: Option<PathBuf>,
    /// How long clients may stay when a successor has taken over.
    pub hand_over_wait: Duration,
}

/// Tells at which addresses a host is. It may take long: it is called on a thread of its own.
#[derive(Clone)]
pub struct Lookup(Arc<LookUp>);

type LookUp = dyn Fn(&HostPort) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A backend's address, with what is needed to reach it once its name is known.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
}

impl Default for TransportConfig {
    fn default() -> TransportConfig {
        TransportConfig {
            resolve_every: Duration::from_secs(30),
            lookup: Lookup::default(),
            control: None,
            take_over: None,
            hand_over_wait: Duration::from_secs(30),
        }
    }
}

impl Default for Lookup {
    /// As the operating system does it.
    fn default() -> Lookup {
        Lookup::new(|host_port| Ok((host_port.host(), host_port.port()).to_socket_addrs()?.collect()))
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
        Endpoint::Tcp(socket)
    }
}
