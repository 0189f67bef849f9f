//! Checks a configuration as a whole. `check_pool` checks each pool, `check_shared` the servers that pools have in common, and
//! `check_routes` the routes.

use crate::config::ConfigError;
use crate::config::listener::ListenerConfig;
use crate::config::pool::{Failover, PoolConfig, Reads, Writes};
use crate::config::proxy::{Config, Discipline, MultiGet, SLOTS_MAX, Stamps, share};
use configuration::proposal;
use net::{Address, HostPort};
use std::net::IpAddr;
use std::time::Duration;

/// The most backends in all pools.
const BACKENDS_MAX: usize = 250;
const LOOPS_MAX: usize = 250;
const SLOW_DOWN_MAX: f64 = 10_000.0;
/// The most listeners of the proxy and all pools together.
const LISTENERS_MAX: usize = 250;

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first problem, in one line.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_pools()?;
        self.check_routes()?;
        self.check_addresses()?;
        self.check_control()?;
        self.check_resolve_every()?;
        self.check_proxy_protocol()?;
        self.check_auth_files()?;
        if !(1..=LOOPS_MAX).contains(&self.loops) {
            return Err(ConfigError::value("loops", self.loops, format!("give a number from 1 to {LOOPS_MAX}")));
        }
        if let Some(factor) = self.slow_down.filter(|factor| !(1.0..=SLOW_DOWN_MAX).contains(factor)) {
            let problem = format!("give a number from 1 to {SLOW_DOWN_MAX}, or leave it out");
            return Err(ConfigError::value("slow-down", factor, problem));
        }
        self.check_discipline()?;
        self.check_records()?;
        self.operations.check(self.metrics.is_some())?;
        self.log.check(Some(self.stamps.name()).filter(|_| self.stamps != Stamps::All))?;
        if let Some(traces) = &self.traces {
            traces.check(self.stamps != Stamps::Off)?;
        }
        self.client_limits.check(self.clients_max)?;
        self.check_limits()
    }

    fn check_pools(&self) -> Result<(), ConfigError> {
        // Checked first, because later checks compare every server with every other.
        let count = self.backends().count();
        if count > BACKENDS_MAX {
            let problem = format!("{count} servers in all; at most {BACKENDS_MAX} are supported");
            return Err(ConfigError::at("pools", problem));
        }
        for (index, pool) in self.pools.iter().enumerate() {
            if self.pools[..index].iter().any(|other| other.name == pool.name) {
                let problem = "another pool has this name; give each pool one of its own";
                return Err(ConfigError::value(format!("pools.{index}.name"), quoted(&pool.name), problem));
            }
            pool.check(index)?;
            if pool.near_cache.is_some() && self.operations.hot_keys == 0 {
                let problem = "with hot-keys 0 no key is hot; increase hot-keys, or leave out near-cache";
                return Err(ConfigError::at(format!("pools.{index}.near-cache"), problem));
            }
            for (key, name) in pool.named_pools() {
                let key = format!("pools.{index}.{key}");
                if name == pool.name {
                    return Err(ConfigError::value(key, quoted(name), "this is the pool itself; name another one"));
                }
                self.check_name(key, name)?;
            }
            self.check_read_pool(index)?;
        }
        if let Some(index) = (0..self.pools.len()).find(|&index| self.fails_over_to_itself(index)) {
            let key = format!("pools.{index}.failover-pool.pool");
            let name = self.failover_of(index).map_or("", |failover| self.pools[failover].name.as_str());
            let problem = "the failover pools form a cycle, which leads back to this pool; remove the failover-pool of one of them";
            return Err(ConfigError::value(key, quoted(name), problem));
        }
        self.check_shared_servers(&self.same_as_written())?;
        match count {
            0 => Err(ConfigError::at("pools", "there are no servers; give at least one pool with a server")),
            _ => Ok(()),
        }
    }

    /// Checks the read pool of the pool with this index, and the list of those that receive its deletes.
    fn check_read_pool(&self, index: usize) -> Result<(), ConfigError> {
        let pool = &self.pools[index];
        let is_twice = |&place: &usize| pool.delete_pools[..place].contains(&pool.delete_pools[place]);
        if let Some(place) = (0..pool.delete_pools.len()).find(is_twice) {
            let name = quoted(&pool.delete_pools[place]);
            let problem = "this pool is given twice; leave one of them out";
            return Err(ConfigError::value(format!("pools.{index}.delete-pools"), name, problem));
        }
        let Some(name) = &pool.read_pool else { return Ok(()) };
        if let Some(next) = self.pool(name).and_then(|place| self.pools[place].read_pool.as_ref()) {
            let problem = format!("reads of this pool go to {next:?} themselves; name that pool");
            return Err(ConfigError::value(format!("pools.{index}.read-pool"), quoted(name), problem));
        }
        let unused = [
            ("reads", pool.reads != Reads::Primary),
            ("failover", pool.failover != Failover::Never),
            ("hedge", pool.hedge.is_some()),
        ];
        match unused.into_iter().find(|&(_, is_set)| is_set) {
            Some((key, _)) => {
                let problem = format!("has no effect, because reads go to read-pool; set it in pool {name:?}");
                Err(ConfigError::at(format!("pools.{index}.{key}"), problem))
            }
            None => Ok(()),
        }
    }

    fn failover_of(&self, index: usize) -> Option<usize> {
        self.pools[index].failover_pool.as_ref().and_then(|failover| self.pool(&failover.pool))
    }

    /// Whether the chain of failover pools leads back to this pool.
    fn fails_over_to_itself(&self, index: usize) -> bool {
        let mut next = self.failover_of(index);
        for _ in 0..self.pools.len() {
            match next {
                Some(place) if place == index => return true,
                Some(place) => next = self.failover_of(place),
                None => return false,
            }
        }
        false
    }

    pub(super) fn check_name(&self, key: String, name: &str) -> Result<(), ConfigError> {
        if self.pool(name).is_some() {
            return Ok(());
        }
        let known: Vec<&str> = self.pools.iter().map(|pool| pool.name.as_str()).collect();
        Err(ConfigError::value(key, quoted(name), format!("there is no such pool{}", proposal(name, &known))))
    }

    /// The key of each listener's address. A single address is no list, so its key has no index.
    pub(super) fn listener_keys(&self) -> impl Iterator<Item = String> {
        let keys = |above: String, count: usize| {
            (0..count).map(move |index| if count == 1 { above.clone() } else { format!("{above}.{index}") })
        };
        let pools = self.pools.iter().enumerate();
        let of_pools = pools.flat_map(move |(index, pool)| keys(format!("pools.{index}.listen"), pool.listen.len()));
        keys("listen".into(), self.listen.len()).chain(of_pools)
    }

    fn check_addresses(&self) -> Result<(), ConfigError> {
        let count = self.listeners().count();
        if count > LISTENERS_MAX {
            let problem =
                format!("{count} addresses of the proxy and its pools; at most {LISTENERS_MAX} are supported");
            return Err(ConfigError::at("pools", problem));
        }
        let keys: Vec<String> = self.listener_keys().collect();
        let mut earlier: Vec<(Address, Option<usize>, &ListenerConfig)> = Vec::new();
        for ((listener, pool), key) in self.listeners().zip(keys) {
            listener.check_commands(&key)?;
            let refuse = |problem: &str| Err(ConfigError::value(key.clone(), quoted(&listener.address), problem));
            let read = address(&key, &listener.address)?;
            // Those with port 0 have different ports. But after a reload, the proxy could not distinguish their clients.
            let is_ambiguous = |(known, _, other): &(Address, Option<usize>, &ListenerConfig)| {
                *known == read && !cannot_both_listen(known, &read) && other.commands() != listener.commands()
            };
            if earlier.iter().any(is_ambiguous) {
                return refuse("another listener with this address allows other commands; give each a port of its own");
            }
            if let Some((known, other, _)) = earlier.iter().find(|(known, ..)| cannot_both_listen(known, &read)) {
                return match other {
                    _ if *known != read => {
                        refuse(&format!("{known} is also given, and uses the same port; give another port"))
                    }
                    Some(_) if *other != pool => {
                        refuse("another pool listens there; give each pool an address of its own")
                    }
                    None if pool.is_some() => {
                        refuse("the proxy listens there for all pools; give this pool another address")
                    }
                    _ => refuse("this address is given twice; leave one of them out"),
                };
            }
            earlier.push((read, pool, listener));
        }
        if self.transport.tls.handshake_timeout.is_zero() {
            return Err(ConfigError::value(
                "tls-handshake-timeout",
                "\"0s\"",
                "no client could finish its handshake; give more than 0s",
            ));
        }
        let Some(metrics) = &self.metrics else { return Ok(()) };
        let read = address("metrics", metrics)?;
        let Address::Tcp(_) = &read else {
            return Err(ConfigError::value("metrics", quoted(metrics), "metrics are served at HOST:PORT only"));
        };
        if earlier.iter().any(|(listen, ..)| cannot_both_listen(listen, &read)) {
            return Err(ConfigError::value("metrics", quoted(metrics), "clients connect there; give another port"));
        }
        Ok(())
    }

    fn check_discipline(&self) -> Result<(), ConfigError> {
        let loops = self.loops;
        for (key, slots) in self.discipline.slots() {
            if !(loops..=SLOTS_MAX).contains(&slots) {
                let problem = format!("each of {loops} loops needs one; give a number from {loops} to {SLOTS_MAX}");
                return Err(ConfigError::value(key, slots, problem));
            }
        }
        if let Discipline::PerBackend { fault_write_poll: Some(Duration::ZERO), .. } = self.discipline {
            return Err(ConfigError::value("fault-write-poll", "\"0s\"", "give more than 0s, or leave it out"));
        }
        let Discipline::Shared { multi_get, fault_write_hold, .. } = self.discipline else { return Ok(()) };
        if fault_write_hold == Some(Duration::ZERO) {
            return Err(ConfigError::value("fault-write-hold", "\"0s\"", "give more than 0s, or leave it out"));
        }
        for (index, pool) in self.pools.iter().enumerate() {
            // If a slot were free before a replica has answered, the next write could overtake this one on that replica.
            if pool.writes != Writes::All && pool.replicas > 1 {
                let problem = "dispatch shared keeps a slot busy until all replicas have answered; give all";
                return Err(ConfigError::value(format!("pools.{index}.writes"), quoted(pool.writes.name()), problem));
            }
            if pool.hedge.is_some() {
                let problem = "dispatch shared sends nothing a second time; leave it out";
                return Err(ConfigError::at(format!("pools.{index}.hedge"), problem));
            }
        }
        let is_partial = |pool: &&PoolConfig| pool.replicas < pool.servers.len();
        match self.pools.iter().find(is_partial) {
            Some(pool) if multi_get != MultiGet::ByKey => {
                let servers = pool.servers.len();
                let problem = format!(
                    "every server receives requests for every key, so it must store every key: give replicas {servers} in pool {:?}",
                    pool.name
                );
                Err(ConfigError::value("multi-get", quoted(multi_get.name()), problem))
            }
            _ => Ok(()),
        }
    }

    fn check_records(&self) -> Result<(), ConfigError> {
        match (&self.records, self.stamps) {
            (Some(_), Stamps::Off) => Err(ConfigError::value(
                "stamps",
                quoted("off"),
                "records need stamps; give sampled or all, or no records",
            )),
            (None, Stamps::Sampled) if self.traces.is_none() => Err(ConfigError::value(
                "stamps",
                quoted("sampled"),
                "without records and traces no request is sampled; give records or traces",
            )),
            (Some(records), _) if records.sample == 0 => {
                Err(ConfigError::value("sample", 0, "give 1 to keep every record, or no records to keep none"))
            }
            (Some(records), _) if records.directory.as_os_str().is_empty() => {
                Err(ConfigError::value("records", quoted(""), "give a directory"))
            }
            _ => Ok(()),
        }
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = [
            ("queue", self.queue == 0),
            ("backend-window", self.backend_window == 0),
            ("client-window", self.client_window == 0),
            ("client-buffer", self.client_buffer_bytes == 0),
            ("backend-buffer", self.backend_buffer_bytes == 0),
            ("value-max", self.value_bytes == 0),
            ("reply-max", self.reply_bytes == 0),
            ("clients-max", self.clients_max == 0),
        ];
        let bytes = self.client_buffer_bytes;
        if self.memory_bytes < bytes {
            let problem = format!("less than client-buffer, {bytes} bytes, which one client may have; give more");
            return Err(ConfigError::value("memory", self.memory_bytes, problem));
        }
        match limits.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((key, _)) => {
                Err(ConfigError::value(key, 0, "with 0, every request would fail; give a number above 0"))
            }
            None => Ok(()),
        }
    }

    /// The most connections of one loop to one backend.
    pub fn connections_per_backend(&self) -> usize {
        match self.discipline {
            Discipline::Pipelined => 1,
            discipline => discipline.slots().map(|(_, slots)| share(slots, self.loops, 0)).sum(),
        }
    }
}

/// Whether only one of these addresses can be opened: they are the same, or have the same port and one of them is a wildcard that
/// includes the other. The IPv6 wildcard includes all IPv4 addresses, because `net` opens it so. Names are not resolved.
fn cannot_both_listen(own: &Address, other: &Address) -> bool {
    let (Some(own), Some(other)) = (own.host_port(), other.host_port()) else { return own == other };
    if own.port() != other.port() || own.port() == 0 {
        return false;
    }
    let host = |host_port: &HostPort| host_port.number().map(|socket| socket.ip().to_canonical());
    match (host(own), host(other)) {
        (Some(IpAddr::V6(wildcard)), _) | (_, Some(IpAddr::V6(wildcard))) if wildcard.is_unspecified() => true,
        (Some(own), Some(other)) => {
            own == other || own.is_ipv4() && other.is_ipv4() && (own.is_unspecified() || other.is_unspecified())
        }
        _ => own.host() == other.host(),
    }
}

/// Text in quotes, as in the file.
pub(super) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Parses an address.
pub(super) fn address(key: &str, text: &str) -> Result<Address, ConfigError> {
    text.parse().map_err(|error: net::AddressError| ConfigError::at(key, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_takes_its_port_of_every_address() {
        let meets = |own: &str, other: &str| {
            let (own, other) = (own.parse().unwrap(), other.parse().unwrap());
            assert_eq!(cannot_both_listen(&own, &other), cannot_both_listen(&other, &own), "{own} {other}");
            cannot_both_listen(&own, &other)
        };
        for (own, other) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("127.0.0.1:1", "tls:127.0.0.1:1"),
            ("127.0.0.1:1", "0.0.0.0:1"),
            ("127.0.0.1:1", "[::]:1"),
            ("0.0.0.0:1", "[::]:1"),
            ("[::1]:1", "[::]:1"),
            ("[::ffff:127.0.0.1]:1", "0.0.0.0:1"),
            ("localhost:1", "[::]:1"),
            ("localhost:1", "localhost:1"),
            ("unix:/a", "unix:/a"),
        ] {
            assert!(meets(own, other), "{own} {other}");
        }
        for (own, other) in [
            ("127.0.0.1:1", "0.0.0.0:2"),
            ("127.0.0.1:1", "127.0.0.2:1"),
            ("0.0.0.0:1", "[::1]:1"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("localhost:1", "127.0.0.1:1"),
            ("unix:/a", "unix:/b"),
            ("unix:/a", "127.0.0.1:1"),
        ] {
            assert!(!meets(own, other), "{own} {other}");
        }
    }
}
