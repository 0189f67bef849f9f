//! Checks where the servers of a pool come from, before they are read from files or names are resolved to several servers.

use crate::config::check::{address, quoted};
use crate::config::file::PoolFile;
use crate::config::pool::{Resolve, ServerConfig};
use crate::config::{ConfigError, ProxyFile};
use net::HostPort;
use std::net::{IpAddr, SocketAddr};

/// The port of DNS servers, if none is given.
const DNS_PORT: u16 = 53;
/// The longest name in DNS, as text, and the longest part between its dots.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

impl ProxyFile {
    /// Checks the keys `servers-file`, `srv` and `resolve` of all pools, and `resolver`.
    ///
    /// # Errors
    /// The first problem, in one line.
    pub fn check_lists(&self) -> Result<(), ConfigError> {
        self.dns_server()?;
        self.pools.iter().enumerate().try_for_each(|(index, pool)| pool.check_lists(index))
    }

    /// The DNS server for SRV records. None: those of the system.
    ///
    /// # Errors
    /// If it is not an address.
    pub fn dns_server(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(text) = &self.resolver else { return Ok(None) };
        let read = text.parse().or_else(|_| text.parse().map(|address: IpAddr| SocketAddr::new(address, DNS_PORT)));
        match read {
            Ok(server) if server.port() > 0 => Ok(Some(server)),
            _ => {
                let problem =
                    "give the IP address of a DNS server, or IP:PORT; leave it out to use those of /etc/resolv.conf";
                Err(ConfigError::value("resolver", quoted(text), problem))
            }
        }
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
        if let Some(name) = &self.srv {
            let fail = |problem: &str| Err(ConfigError::value(format!("pools.{index}.srv"), quoted(name), problem));
            if self.servers.is_some() || self.servers_file.is_some() {
                return fail("the pool has servers or servers-file, too; give one of them");
            }
            if !is_name(name) {
                return fail("give a name with SRV records, for example \"_memcached._tcp.cache.internal\"");
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

/// Whether DNS can have records for this name.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_plain);
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
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
