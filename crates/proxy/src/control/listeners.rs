//! Opens the listening sockets, or goes on with those that another process has opened.

use crate::config::ConfigError;
use crate::control::error::ProxyError;
use net::{Address, BindError, Inherited, Listening};

/// What other processes have opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// By the service manager, for this process: all are listened on.
    pub(crate) activated: Vec<Inherited>,
    /// By the process that is replaced: those that are still configured are listened on.
    pub(crate) handed: Vec<Inherited>,
}

/// A listening socket for each address, and for each that the service manager has opened. An address on which another
/// process has opened one takes that.
pub(crate) fn open(listen: &[String], opened: Opened) -> Result<Vec<Listening>, ProxyError> {
    let Opened { mut activated, mut handed } = opened;
    let mut listeners = Vec::new();
    for text in listen {
        let address: Address = text.parse()?;
        let found = take(&mut handed, &address).or_else(|| take(&mut activated, &address));
        listeners.push(match found {
            Some(inherited) => adopt(address, inherited)?,
            None => Listening::bind(&address)?,
        });
    }
    // Without any address, a successor listens where its predecessor did.
    let unnamed = if listen.is_empty() { handed } else { Vec::new() };
    for inherited in activated.into_iter().chain(unnamed) {
        let address = inherited.address().map_err(|source| ProxyError::Inherited { source })?;
        let address = inherited.name.parse().unwrap_or(address);
        listeners.push(adopt(address, inherited)?);
    }
    if listeners.is_empty() {
        return Err(ConfigError::at("listen", "there is no address to listen on; give at least one").into());
    }
    Ok(listeners)
}

fn take(inherited: &mut Vec<Inherited>, address: &Address) -> Option<Inherited> {
    let at = inherited.iter().position(|inherited| inherited.is_at(address))?;
    Some(inherited.remove(at))
}

fn adopt(address: Address, inherited: Inherited) -> Result<Listening, ProxyError> {
    inherited.address().map_err(|source| ProxyError::Inherited { source })?;
    Listening::adopt(&address, inherited).map_err(|source| BindError::Address { address, source }.into())
}
