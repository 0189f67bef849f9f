//! How backends are reached, and TLS for the listening sockets that need it.

use crate::config::{Config, TlsConfig, TlsConfigError};
use crate::control::auth::Auth;
use crate::control::error::ProxyError;
use net::{Address, ClientTls, Endpoint, Listening, ServerTls, TlsTo};
use std::net::SocketAddr;

/// A backend's configured address, with the TLS settings to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    /// The TLS settings, for a backend that uses TLS.
    pub(crate) tls: Option<TlsTo>,
}

impl Target {
    /// Its address, if that needs no lookup.
    pub(crate) fn fixed(&self) -> Option<Endpoint> {
        match &self.address {
            Address::Unix(path) => Some(Endpoint::Unix(path.as_path().into())),
            Address::Tcp(host_port) | Address::Tls(host_port) => host_port.number().map(|socket| self.at(socket)),
        }
    }

    /// Its address if its name resolves to this one.
    pub(crate) fn at(&self, socket: SocketAddr) -> Endpoint {
        match &self.tls {
            None => Endpoint::Tcp(socket),
            Some(tls) => Endpoint::Tls(socket, tls.clone()),
        }
    }
}

/// Reads the files that a configuration names, as a start does: those of TLS, and those with users and passwords.
///
/// # Errors
/// If a file is missing or cannot be used.
pub fn check_files(config: &Config) -> Result<(), ProxyError> {
    let tls = &config.transport.tls;
    targets(&config.backend_names(), tls)?;
    if let Some(identity) = &tls.identity {
        ServerTls::load_several(identity, &tls.other_identities, tls.client_authority.as_deref())?;
    }
    Auth::load(config)?;
    Ok(())
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
    let tls = ServerTls::load_several(identity, &config.other_identities, config.client_authority.as_deref())?;
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
