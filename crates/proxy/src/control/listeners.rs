//! Opens the listening sockets, or adopts sockets that another process has opened.

use crate::config::ConfigError;
use crate::control::error::ProxyError;
use net::{Address, BindError, Inherited, Listening};

/// Listening sockets that other processes have opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Sockets from the service manager: all are used.
    pub(crate) activated: Vec<Inherited>,
    /// Sockets from the replaced process: those whose address is still configured are used.
    pub(crate) handed: Vec<Inherited>,
}

/// Returns a listening socket for each configured address, in their order, and then those of the service manager. An inherited socket with a configured
/// address is used instead of a new one. Also returns the sockets of the replaced process or configuration that are not used.
pub(crate) fn open(listen: &[&str], opened: Opened) -> Result<(Vec<Listening>, Vec<Inherited>), ProxyError> {
    let Opened { mut activated, mut handed } = opened;
    // A service manager also passes the sockets on which the replaced process listens.
    handed.retain(|handed| !activated.iter().any(|activated| activated.is_same_socket(handed)));
    let mut listeners = Vec::new();
    for text in listen {
        let address: Address = text.parse()?;
        let found = take(&mut handed, &address).or_else(|| take(&mut activated, &address));
        listeners.push(match found {
            Some(inherited) => adopt(address, inherited)?,
            None => Listening::bind(&address)?,
        });
    }
    // Without a configured address, a successor listens on its predecessor's addresses.
    let (unnamed, unused) = if listen.is_empty() { (handed, Vec::new()) } else { (Vec::new(), handed) };
    for inherited in activated.into_iter().chain(unnamed) {
        let address = inherited.address().map_err(|source| ProxyError::Inherited { source })?;
        // The name is the address as it was configured, if the socket listens there.
        let named = inherited.name.parse().ok().filter(|named| inherited.is_at(named));
        let address = named.unwrap_or(address);
        listeners.push(adopt(address, inherited)?);
    }
    if listeners.is_empty() {
        return Err(ConfigError::at("listen", "there is no address to listen on; give at least one").into());
    }
    Ok((listeners, unused))
}

fn take(inherited: &mut Vec<Inherited>, address: &Address) -> Option<Inherited> {
    let at = inherited.iter().position(|inherited| inherited.is_at(address))?;
    Some(inherited.remove(at))
}

fn adopt(address: Address, inherited: Inherited) -> Result<Listening, ProxyError> {
    inherited.address().map_err(|source| ProxyError::Inherited { source })?;
    Listening::adopt(&address, inherited).map_err(|source| BindError::Address { address, source }.into())
}
