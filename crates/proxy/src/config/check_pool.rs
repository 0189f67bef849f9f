//! Checks the configuration of one pool.

use crate::config::ConfigError;
use crate::config::check::{address, quoted};
use crate::config::pool::{Failover, PoolConfig, Reads, Timeouts};
use crate::config::{Distribution, Hash};
use std::time::Duration;

const NAME_BYTES_MAX: usize = 64;
const SERVER_NAME_BYTES_MAX: usize = 250;
/// Some key distributions list a server as often as its weight, so weights must be limited.
const WEIGHT_MAX: u32 = 1000;
/// memcached reads a larger time to live as a Unix time.
const EXPIRY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// More keys per second than a proxy can forward.
const RATE_MAX: u32 = 10_000_000;
const NEAR_LIFETIME_MAX: Duration = Duration::from_secs(1);
const NEAR_MEMORY_MIN: u64 = 4096;
const NEAR_MEMORY_MAX: u64 = 1 << 30;

impl PoolConfig {
    /// Checks this pool, which has this index.
    pub(super) fn check(&self, index: usize) -> Result<(), ConfigError> {
        let found = self
            .check_own_name()
            .and_then(|()| self.check_servers())
            .and_then(|()| self.check_distribution())
            .and_then(|()| self.check_replicas())
            .and_then(|()| self.check_timeouts())
            .and_then(|()| self.check_hedge())
            .and_then(|()| self.check_rate_limit())
            .and_then(|()| self.check_near_cache())
            .and_then(|()| self.check_others());
        found.map_err(|error| ConfigError { key: format!("pools.{index}.{}", error.key), ..error })
    }

    fn check_own_name(&self) -> Result<(), ConfigError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if (1..=NAME_BYTES_MAX).contains(&self.name.len()) && self.name.bytes().all(is_plain) {
            return Ok(());
        }
        let problem = format!("give 1 to {NAME_BYTES_MAX} letters, digits or any of - _ .");
        Err(ConfigError::value("name", quoted(&self.name), problem))
    }

    fn check_servers(&self) -> Result<(), ConfigError> {
        if self.servers.is_empty() {
            return Err(ConfigError::at("servers", format!("pool {:?} has none; give at least one", self.name)));
        }
        for (index, server) in self.servers.iter().enumerate() {
            let key = format!("servers.{index}");
            let read = address(&key, &server.address)?;
            if read.host_port().is_some_and(|host_port| host_port.port() == 0) {
                return Err(ConfigError::value(key, quoted(&server.address), "no server listens on port 0"));
            }
            let earlier = &self.servers[..index];
            if earlier.iter().any(|other| other.address == server.address) {
                return Err(ConfigError::value(key, quoted(&server.address), "this server is given twice"));
            }
            let name = server.hashed_name(self.distribution);
            if earlier.iter().any(|other| other.hashed_name(self.distribution) == name) {
                let problem = "another server has this name; they would have the same keys";
                return Err(ConfigError::value(format!("{key}.name"), quoted(name), problem));
            }
            let is_plain = |byte: u8| !byte.is_ascii_control() && byte != b' ';
            if server.name.is_some()
                && !((1..=SERVER_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain))
            {
                let problem = format!("give 1 to {SERVER_NAME_BYTES_MAX} characters without spaces");
                return Err(ConfigError::value(format!("{key}.name"), quoted(name), problem));
            }
            if !(1..=WEIGHT_MAX).contains(&server.weight) {
                let problem = format!("give a number from 1 to {WEIGHT_MAX}; leave out a server without keys");
                return Err(ConfigError::value(format!("{key}.weight"), server.weight, problem));
            }
        }
        Ok(())
    }

    fn check_distribution(&self) -> Result<(), ConfigError> {
        if !self.distribution.can_use(self.hash()) {
            let problem = match (self.distribution, self.hash()) {
                (Distribution::Ch3, _) => "ch3 needs the hash of mcrouter: \"murmur_64a\", or none given".into(),
                (_, Hash::Murmur64a) => "this hash is for distribution \"ch3\" only; give another, or none".into(),
                (other, _) => format!("{} needs a hash of 64 bits: \"xxh3_64\", or none given", other.name()),
            };
            return Err(ConfigError::value("hash", quoted(self.hash().name()), problem));
        }
        let weights: Vec<u32> = self.servers.iter().map(|server| server.weight).collect();
        if let Some(index) = self.distribution.server_without_keys(&weights) {
            let problem = "below a fortieth of the average weight, ketama gives a server no keys; \
                           give more, or distribution \"rendezvous\"";
            return Err(ConfigError::value(format!("servers.{index}.weight"), weights[index], problem));
        }
        match self.hash_tag {
            Some(tag) if !tag.iter().all(u8::is_ascii_graphic) => {
                let text: String = tag.iter().map(|&byte| char::from(byte)).collect();
                Err(ConfigError::value("hash-tag", quoted(&text), "give two visible ASCII characters such as \"{}\""))
            }
            _ => Ok(()),
        }
    }

    fn check_replicas(&self) -> Result<(), ConfigError> {
        let servers = self.servers.len();
        if !(1..=servers).contains(&self.replicas) {
            let problem = match servers {
                1 => "there is 1 server; give 1".into(),
                _ => format!("there are {servers} servers; give a number from 1 to {servers}"),
            };
            return Err(ConfigError::value("replicas", self.replicas, problem));
        }
        if self.replicas > 1 {
            return Ok(());
        }
        let problem = "with replicas 1 there is no other replica; increase replicas";
        if self.reads != Reads::Primary {
            return Err(ConfigError::value("reads", quoted(self.reads.name()), problem));
        }
        if self.failover != Failover::Never {
            return Err(ConfigError::value("failover", quoted(self.failover.name()), problem));
        }
        if self.hedge.is_some() {
            return Err(ConfigError::at("hedge", problem));
        }
        Ok(())
    }

    fn check_timeouts(&self) -> Result<(), ConfigError> {
        let Timeouts { connect, read, write, reply } = self.timeouts;
        let others = [("timeouts.connect", connect), ("timeouts.read", read), ("timeouts.write", write)];
        for (key, time) in others.into_iter().chain([("timeouts.reply", reply)]) {
            if time.is_zero() || time > TIMEOUT_MAX {
                let problem = format!("give more than 0s and at most {}", quantity::duration_text(TIMEOUT_MAX));
                return Err(timed(key, time, problem));
            }
        }
        if let Some((key, time)) = others.into_iter().find(|&(_, time)| time > reply) {
            let problem = format!("give at least as much as {key}, which is {}", quantity::duration_text(time));
            return Err(timed("timeouts.reply", reply, problem));
        }
        if self.failures == 0 {
            return Err(ConfigError::value("failures", 0, "give at least 1"));
        }
        let servers = self.servers.len();
        if self.ready_servers > servers.max(1) {
            let problem = format!("there are {servers} servers; give a number from 0 to {servers}");
            return Err(ConfigError::value("ready-servers", self.ready_servers, problem));
        }
        Ok(())
    }

    fn check_hedge(&self) -> Result<(), ConfigError> {
        let Some(hedge) = self.hedge else { return Ok(()) };
        if hedge.delay.is_zero() || hedge.delay >= self.timeouts.read {
            let read = quantity::duration_text(self.timeouts.read);
            let problem = format!("give more than 0s and less than timeouts.read, which is {read}");
            return Err(timed("hedge.delay", hedge.delay, problem));
        }
        share("hedge.budget", hedge.budget)
    }

    fn check_rate_limit(&self) -> Result<(), ConfigError> {
        let Some(limit) = self.rate_limit else { return Ok(()) };
        for (key, number) in [("rate-limit.per-second", limit.per_second), ("rate-limit.burst", limit.burst())] {
            if !(1..=RATE_MAX).contains(&number) {
                return Err(ConfigError::value(key, number, format!("give a number from 1 to {RATE_MAX}")));
            }
        }
        Ok(())
    }

    fn check_near_cache(&self) -> Result<(), ConfigError> {
        let Some(near) = self.near_cache else { return Ok(()) };
        if near.lifetime.is_zero() || near.lifetime > NEAR_LIFETIME_MAX {
            let problem = format!("give more than 0s and at most {}", quantity::duration_text(NEAR_LIFETIME_MAX));
            return Err(timed("near-cache.lifetime", near.lifetime, problem));
        }
        if (NEAR_MEMORY_MIN..=NEAR_MEMORY_MAX).contains(&near.memory_bytes()) {
            return Ok(());
        }
        let size = |bytes| quantity::bytes_text(bytes);
        let problem = format!("give {} to {}", size(NEAR_MEMORY_MIN), size(NEAR_MEMORY_MAX));
        Err(ConfigError::value("near-cache.memory", quoted(&size(near.memory_bytes())), problem))
    }

    /// Checks the references to other pools, except their names.
    fn check_others(&self) -> Result<(), ConfigError> {
        if let Some(failover) = &self.failover_pool {
            expiry("failover-pool.expiry", failover.expiry)?;
        }
        if let Some(warm_up) = &self.warm_up {
            expiry("warm-up.expiry", warm_up.expiry)?;
        }
        self.shadow.as_ref().map_or(Ok(()), |shadow| share("shadow.share", shadow.share))
    }
}

fn timed(key: &str, time: Duration, problem: String) -> ConfigError {
    ConfigError::value(key, quoted(&quantity::duration_text(time)), problem)
}

/// Checks a time to live that memcached accepts.
fn expiry(key: &str, time: Duration) -> Result<(), ConfigError> {
    if !time.is_zero() && time.subsec_nanos() == 0 && time <= EXPIRY_MAX {
        return Ok(());
    }
    Err(timed(key, time, format!("give whole seconds, from 1s to {}", quantity::duration_text(EXPIRY_MAX))))
}

fn share(key: &str, share: f64) -> Result<(), ConfigError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    Err(ConfigError::value(key, share, "give a share above 0 and up to 1"))
}
