//! Checks where the servers of a pool come from, before they are read from files or names are resolved to several servers.

use crate::config::check::{address, quoted};
use crate::config::file::PoolFile;
use crate::config::pool::{Resolve, ServerConfig};
use crate::config::{ConfigError, ProxyFile};
use net::HostPort;

impl ProxyFile {
    /// Checks the keys `servers-file` and `resolve` of all pools.
    ///
    /// # Errors
    /// The first problem, in one line.
    pub fn check_lists(&self) -> Result<(), ConfigError> {
        self.pools.iter().enumerate().try_for_each(|(index, pool)| pool.check_lists(index))
    }
}

impl PoolFile {
    fn check_lists(&self, index: usize) -> Result<(), ConfigError> {
        if let Some(file) = &self.servers_file {
            let key = format!("pools.{index}.servers-file");
            if file.as_os_str().is_empty() {
                return Err(ConfigError::value(key, "\"\"", "give the path of a file, or leave it out"));
            }
            if self.servers.is_some() {
                let problem = "the pool has servers, too; give one of both";
                return Err(ConfigError::value(key, quoted(&file.display().to_string()), problem));
            }
        }
        if self.resolve != Some(Resolve::All) {
            return Ok(());
        }
        let servers = self.servers.iter().flatten().enumerate();
        servers.into_iter().try_for_each(|(place, server)| {
            let key = format!("pools.{index}.servers.{place}");
            address(&key, &server.address)?;
            server.check_several().map_err(|problem| ConfigError::value(key, quoted(&server.address), problem))
        })
    }
}

impl ServerConfig {
    /// Its host name and port, if it has a name instead of the number of an address.
    pub fn host_name(&self) -> Option<HostPort> {
        let address: net::Address = self.address.parse().ok()?;
        address.host_port().filter(|host_port| host_port.number().is_none()).cloned()
    }

    /// Checks that this server can stand for several, one at each address of its name.
    ///
    /// # Errors
    /// The problem.
    pub fn check_several(&self) -> Result<(), &'static str> {
        match self.host_name() {
            None => Ok(()),
            Some(_) if self.address.starts_with("tls:") => {
                Err("with resolve \"all\", a certificate cannot be compared with the name; give servers without TLS")
            }
            Some(_) if self.name.is_some() => {
                Err("with resolve \"all\", several servers would have this name; leave the name out")
            }
            Some(_) => Ok(()),
        }
    }
}
