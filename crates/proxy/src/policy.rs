//! Station 4. How each pool is used: its configuration with names and shares resolved, ready for the path of a request.

use crate::config::{Config, Failover, Hedge, PoolConfig, Reads, Writes};
use std::time::Duration;
use wire::Limits;

/// The policies of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Copies of each value.
    pub(crate) replicas: u8,
    /// Copies that must have taken a write.
    pub(crate) quorum: u8,
    pub(crate) reads: Reads,
    pub(crate) failover: Failover,
    pub(crate) hedge: Option<Hedge>,
    /// The pool that stands in, and how many seconds what is stored there may live.
    pub(crate) stand_in: Option<(usize, u32)>,
    /// The pool that missing values come from, and how many seconds what is copied may live.
    pub(crate) warm_up: Option<(usize, u32)>,
    pub(crate) shadow: Option<ShadowPolicy>,
    /// Whether `flush_all` reaches its backends.
    pub(crate) flush: bool,
    /// How long a write may be on its way.
    pub(crate) write_timeout: Duration,
}

/// Which requests another pool sees too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShadowPolicy {
    pub(crate) pool: usize,
    /// Keys whose hash is below belong to it.
    below: u64,
    pub(crate) reads: bool,
}

impl Policy {
    /// The policies of all pools, in their order.
    pub(crate) fn all(config: &Config) -> Vec<Policy> {
        config.pools.iter().map(|pool| Policy::new(config, pool)).collect()
    }

    fn new(config: &Config, pool: &PoolConfig) -> Policy {
        let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
        let place = |name: &str| config.pool(name).unwrap_or_default();
        let replicas = pool.replicas as u8;
        Policy {
            replicas,
            quorum: match pool.writes {
                Writes::All => replicas,
                Writes::Majority => replicas / 2 + 1,
                Writes::First => 1,
            },
            reads: pool.reads,
            failover: pool.failover,
            hedge: pool.hedge,
            stand_in: pool.failover_pool.as_ref().map(|pool| (place(&pool.pool), seconds(pool.expiry))),
            warm_up: pool.warm_up.as_ref().map(|pool| (place(&pool.from), seconds(pool.expiry))),
            shadow: pool.shadow.as_ref().map(|shadow| ShadowPolicy {
                pool: place(&shadow.to),
                below: (shadow.share * u64::MAX as f64) as u64,
                reads: shadow.reads,
            }),
            flush: pool.flush,
            write_timeout: pool.timeouts.write,
        }
    }

    /// Whether a read may be sent a second time.
    pub(crate) fn may_ask_again(&self) -> bool {
        let has_others = self.replicas > 1 && (self.failover != Failover::Never || self.hedge.is_some());
        has_others || self.stand_in.is_some() || self.warm_up.is_some()
    }

    /// Whether a write that fails in one place and not in another leaves something behind.
    pub(crate) fn has_copies(&self) -> bool {
        self.replicas > 1 || self.stand_in.is_some() || self.warm_up.is_some()
    }

    /// Whether a copy may still be on its way to taking a write when the next one is sent.
    pub(crate) fn has_late_copies(&self) -> bool {
        self.quorum < self.replicas
    }

    /// Whether a client's requests stay in order by themselves where each backend has one connection: reads only ever ask the
    /// primary, and nothing is sent twice.
    pub(crate) fn keeps_order(&self) -> bool {
        !self.may_ask_again() && (self.replicas == 1 || self.reads == Reads::Primary)
    }
}

impl ShadowPolicy {
    /// Whether a key belongs to the share. The same answer for every proxy, so that all of them shadow the same keys.
    pub(crate) fn takes(&self, key: &[u8]) -> bool {
        // FNV-1a, then a finaliser: the high bits of FNV alone depend little on the last characters.
        let hash = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.below == u64::MAX || (hash ^ (hash >> 33)) < self.below
    }
}

/// The limits within which requests are parsed that the proxy has written itself.
pub(crate) fn own_limits(limits: &Limits) -> Limits {
    Limits { value_bytes: usize::MAX / 2, ..limits.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_takes_its_share_of_keys_and_always_the_same() {
        for (share, expected) in [(0.0, 0), (0.1, 1000), (0.5, 5000), (1.0, 10_000)] {
            let shadow = ShadowPolicy { pool: 1, below: (share * u64::MAX as f64) as u64, reads: false };
            let taken = (0..10_000).filter(|number| shadow.takes(format!("user:{number}").as_bytes())).count();
            assert!(taken.abs_diff(expected) < 300, "{taken} of {expected}");
        }
    }
}
