//! Checks that pools have no server in common where clients could read overwritten values, or requests would be applied twice.
//! The check runs twice: on addresses as they are written, and at the start on what their names resolve to.

use crate::config::ConfigError;
use crate::config::check::quoted;
use crate::config::pool::PoolConfig;
use crate::config::proxy::Config;
use net::Address;

/// For each backend, the first one that is the same server. Pools may share servers.
pub(crate) type FirstSame = Vec<u16>;

/// For each item, the index of the first equal item.
pub(crate) fn first_same<T>(items: &[T], is_same: impl Fn(&T, &T) -> bool) -> FirstSame {
    let first = |item| items.iter().position(|other| is_same(other, item)).unwrap_or_default() as u16;
    items.iter().map(first).collect()
}

/// Whether two addresses name the same server, with or without TLS.
pub(crate) fn is_same_address(own: &Address, other: &Address) -> bool {
    let host_port = own.host_port().map(ToString::to_string);
    own == other || host_port.is_some() && host_port == other.host_port().map(ToString::to_string)
}

impl Config {
    /// For each backend, the first one whose address is written like its own.
    pub(crate) fn same_as_written(&self) -> FirstSame {
        let addresses: Vec<_> = self.backends().map(|(_, server)| (&server.address, server.address.parse())).collect();
        first_same(&addresses, |own, other| match (&own.1, &other.1) {
            (Ok(own), Ok(other)) => is_same_address(own, other),
            _ => own.0 == other.0,
        })
    }

    /// Checks the servers that pools have in common. A warm-up pool may share servers with its pool.
    ///
    /// # Errors
    /// The first problem, in one line.
    pub(crate) fn check_shared_servers(&self, same: &[u16]) -> Result<(), ConfigError> {
        for (index, pool) in self.pools.iter().enumerate() {
            // Otherwise the proxy would read a server of the failover pool although an invalidation is pending on it, or would
            // apply shadow requests twice.
            for (key, name) in pool.named_pools().filter(|&(key, _)| key != "warm-up.from") {
                if let Some(shared) = self.shared_server(name, &pool.name, same) {
                    let problem = format!("{shared} is a server of both pools; give this one servers of its own");
                    return Err(ConfigError::value(format!("pools.{index}.{key}"), quoted(name), problem));
                }
            }
            if let Some(shadow) = &pool.shadow
                && let Some(problem) = self.problem_of_shadow(pool, &shadow.to, same)
            {
                return Err(ConfigError::value(format!("pools.{index}.shadow.to"), quoted(&shadow.to), problem));
            }
        }
        Ok(())
    }

    /// Checks that no server is twice in one pool under different names.
    ///
    /// # Errors
    /// If such a pool has replicas: both copies of a value would be on one server, and a deletion of one would delete the other.
    /// Otherwise returns a warning for each such server.
    pub(crate) fn check_same_servers(&self, same: &[u16]) -> Result<Vec<String>, ConfigError> {
        let servers: Vec<_> = self.backends().zip(same).collect();
        let mut warnings = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            let own: Vec<_> = servers.iter().filter(|((other, _), _)| other.name == pool.name).collect();
            for (place, ((_, server), first)) in own.iter().enumerate() {
                let Some(((_, other), _)) = own[..place].iter().find(|(_, earlier)| earlier == first) else { continue };
                let problem = format!("this is the same server as {}", other.address);
                if pool.replicas > 1 {
                    let problem =
                        format!("{problem}, so replicas of a key would be on one server; leave one of them out");
                    let key = format!("pools.{index}.servers.{place}");
                    return Err(ConfigError::value(key, quoted(&server.address), problem));
                }
                warnings.push(format!(
                    "pool {}: {} is the same server as {}, and has the keys of both",
                    pool.name, server.address, other.address
                ));
            }
        }
        Ok(warnings)
    }

    /// Returns why a pool must not have this shadow pool. The proxy ignores failures of shadow requests and does not order
    /// them with other requests, so they must not reach any server that clients read.
    fn problem_of_shadow(&self, pool: &PoolConfig, shadow: &str, same: &[u16]) -> Option<String> {
        // The other pools of the shadow pool itself are read for shadow requests only.
        for reader in self.pools.iter().filter(|reader| reader.name != shadow) {
            let read = reader.read_pool.as_deref().map(|name| ("read", name));
            for (role, read) in sources(reader).chain(read) {
                let stale =
                    format!("the {role} pool of \"{}\", which could return values that were overwritten", reader.name);
                if read == shadow {
                    return Some(format!("this is {stale}; name another pool"));
                }
                if let Some(shared) = self.shared_server(shadow, read, same) {
                    return Some(format!("{shared} is also a server of {stale}; give this pool servers of its own"));
                }
            }
        }
        // Shadow requests never reach the pool that they are copied from, but another pool could lead to its servers.
        let own = self.pool(shadow).map(|place| &self.pools[place])?;
        let (role, shared) = sources(own)
            .filter(|&(_, changed)| changed != pool.name)
            .find_map(|(role, changed)| Some((role, self.shared_server(changed, &pool.name, same)?)))?;
        Some(format!(
            "its {role} pool has {shared}, a server of \"{}\", where shadow requests would change values; \
             give the {role} pool servers of its own",
            pool.name
        ))
    }

    /// The address of a server of the pool `name` that is also a server of the pool `other`.
    fn shared_server(&self, name: &str, other: &str, same: &[u16]) -> Option<&str> {
        let servers: Vec<_> = self.backends().zip(same).collect();
        let is_of_other = |first| servers.iter().any(|((pool, _), known)| pool.name == other && *known == first);
        let shared = servers.iter().find(|((pool, _), first)| pool.name == name && is_of_other(*first));
        shared.map(|((_, server), _)| server.address.as_str())
    }
}

/// The pools that this one reads besides itself, with their roles.
fn sources(pool: &PoolConfig) -> impl Iterator<Item = (&'static str, &str)> {
    let failover = pool.failover_pool.as_ref().map(|failover| ("failover", failover.pool.as_str()));
    let warm_up = pool.warm_up.as_ref().map(|warm_up| ("warm-up", warm_up.from.as_str()));
    failover.into_iter().chain(warm_up)
}
