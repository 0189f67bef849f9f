//! Checks the settings for TLS and for the control socket, except the contents of files.

use crate::config::ConfigError;
use crate::config::check::{address, quoted};
use crate::config::proxy::Config;
use crate::config::text::list_key;
use crate::config::transport::ProxyProtocol;
use configuration::proposal;
use net::Address;
use quantity::duration_text;
use std::time::Duration;

/// The shortest interval between two lookups of a name. Each lookup needs a thread, and most of them a request to a name server.
const RESOLVE_EVERY_MIN: Duration = Duration::from_millis(100);
/// The longest path of a control socket: it must fit into a socket address, also with the process id that is added while a
/// successor starts.
const CONTROL_BYTES_MAX: usize = 96;

impl Config {
    /// Checks the path of the control socket.
    pub(super) fn check_control(&self) -> Result<(), ConfigError> {
        let Some(path) = self.transport.control.as_ref().and_then(|path| path.to_str()) else { return Ok(()) };
        let refuse = |problem: String| Err(ConfigError::value("control", quoted(path), problem));
        match path.len() {
            0 => refuse("give the path of a unix socket".into()),
            1..=CONTROL_BYTES_MAX if path.contains('\0') => refuse("a path has no zero byte".into()),
            1..=CONTROL_BYTES_MAX
                if self.listeners().any(|(listener, _)| listener.address.strip_prefix("unix:") == Some(path)) =>
            {
                refuse("clients connect there; give another path".into())
            }
            1..=CONTROL_BYTES_MAX => Ok(()),
            _ => refuse(format!("the path is longer than {CONTROL_BYTES_MAX} bytes")),
        }
    }

    /// Checks how often names are resolved.
    pub(super) fn check_resolve_every(&self) -> Result<(), ConfigError> {
        let every = self.transport.resolve_every;
        if !every.is_zero() && every < RESOLVE_EVERY_MIN {
            let problem = "give at least 100ms, or 0s to resolve names only after a connection has failed";
            return Err(ConfigError::value("resolve-every", quoted(&duration_text(every)), problem));
        }
        Ok(())
    }

    /// Checks which listeners have the PROXY protocol.
    pub(super) fn check_proxy_protocol(&self) -> Result<(), ConfigError> {
        let ProxyProtocol { listeners, timeout, .. } = &self.transport.proxy_protocol;
        let known: Vec<&str> = self.listeners().map(|(listener, _)| listener.address.as_str()).collect();
        for (index, text) in listeners.iter().enumerate() {
            let key = list_key("proxy-protocol", listeners, index);
            address(&key, text)?;
            if !known.contains(&text.as_str()) {
                let problem = format!("no listener has this address{}", proposal(text, &known));
                return Err(ConfigError::value(key, quoted(text), problem));
            }
        }
        if timeout.is_zero() {
            return Err(ConfigError::value(
                "proxy-protocol-timeout",
                "\"0s\"",
                "no client could send its header in time; give more than 0s",
            ));
        }
        Ok(())
    }

    /// Checks the paths of the files with users and passwords.
    pub(super) fn check_auth_files(&self) -> Result<(), ConfigError> {
        let of_pools = self.pools.iter().enumerate();
        let of_pools =
            of_pools.map(|(index, pool)| (format!("pools.{index}.server-auth-file"), &pool.server_auth_file));
        let mut files = [("client-auth-file".to_string(), &self.client_auth_file)].into_iter().chain(of_pools);
        match files.find(|(_, file)| file.as_ref().is_some_and(|path| path.as_os_str().is_empty())) {
            Some((key, _)) => Err(ConfigError::value(key, quoted(""), "give the path of a file with user:password")),
            None => Ok(()),
        }
    }

    /// Checks that the settings for TLS fit the addresses. With `has_other_sockets`, another process passes sockets, which can be
    /// for TLS, too.
    pub(super) fn check_tls(&self, has_other_sockets: bool) -> Result<(), ConfigError> {
        let is_tls = |text: &str| text.parse().is_ok_and(|address: Address| address.is_tls());
        let tls = &self.transport.tls;
        let listener = self.listeners().zip(self.listener_keys()).find(|((listener, _), _)| is_tls(&listener.address));
        match (&tls.identity, listener) {
            (None, Some(((listener, _), key))) => {
                let problem = "uses TLS; give tls-certificate and tls-key";
                return Err(ConfigError::value(key, quoted(&listener.address), problem));
            }
            (None, None) if !tls.other_identities.is_empty() => {
                let problem = "needs tls-certificate and tls-key, for clients that request none of its names";
                return Err(ConfigError::at("tls-certificates", problem));
            }
            (None, None) if tls.client_authority.is_some() => {
                return Err(ConfigError::at("tls-client-authority", "needs tls-certificate and tls-key"));
            }
            (Some(_), None) if !has_other_sockets => {
                let problem = "no listener uses TLS; give listen an address tls:HOST:PORT";
                return Err(ConfigError::at("tls-certificate", problem));
            }
            _ => {}
        }
        let servers = self.pools.iter().enumerate().flat_map(|(pool, config)| {
            let servers = config.servers.iter().enumerate();
            servers.map(move |(index, server)| (format!("pools.{pool}.servers.{index}"), server.address.as_str()))
        });
        let server = servers.into_iter().find(|(_, address)| is_tls(address));
        match (&tls.backend_authority, server) {
            (None, Some((key, address))) => {
                let problem = "uses TLS; give tls-backend-authority, the authority that signed its certificate";
                Err(ConfigError::value(key, quoted(address), problem))
            }
            (None, None) if tls.backend_identity.is_some() => {
                Err(ConfigError::at("tls-backend-certificate", "needs tls-backend-authority"))
            }
            (Some(_), None) => {
                let problem = "no server uses TLS; give a server at tls:HOST:PORT";
                Err(ConfigError::at("tls-backend-authority", problem))
            }
            _ => Ok(()),
        }
    }
}
