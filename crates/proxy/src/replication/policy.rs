//! The policies of one pool: its configuration with pool names resolved to numbers and shares to thresholds.

use crate::config::{Config, Failover, Hedge, Reads, Writes};
use std::time::Duration;

/// The policies of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// How many backends store each value.
    pub(crate) replicas: u8,
    /// How many replicas must apply a write before the client gets its reply.
    pub(crate) quorum: u8,
    pub(crate) reads: Reads,
    pub(crate) failover: Failover,
    pub(crate) hedge: Option<Hedge>,
    /// The failover pool, and the longest time to live, in seconds, of a value stored there.
    pub(crate) failover_pool: Option<(usize, u32)>,
    /// The pool that missing values are fetched from, and the longest time to live, in seconds, of a value stored from there.
    pub(crate) warm_up: Option<(usize, u32)>,
    pub(crate) shadow: Option<ShadowPolicy>,
    /// The pool to which plain reads of its keys are sent instead.
    pub(crate) read_pool: Option<usize>,
    /// The pools to which deletes of its keys are sent, too.
    pub(crate) delete_pools: Vec<usize>,
    /// Whether `flush_all` reaches its backends.
    pub(crate) flush: bool,
    /// How long a request may be in flight to a backend.
    pub(crate) reply_timeout: Duration,
}

/// Which requests are also sent to the shadow pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShadowPolicy {
    pub(crate) pool: usize,
    /// A key is in the share if its hash is below this threshold.
    threshold: u64,
    pub(crate) reads: bool,
}

impl Policy {
    /// The policies of all pools, in their order.
    pub(crate) fn all(config: &Config) -> Vec<Policy> {
        (0..config.pools.len()).map(|index| Policy::new(config, index)).collect()
    }

    fn new(config: &Config, index: usize) -> Policy {
        let pool = &config.pools[index];
        let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
        let index_of = |name: &str| config.pool(name).unwrap_or_default();
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
            failover_pool: pool.failover_pool.as_ref().map(|pool| (index_of(&pool.pool), seconds(pool.expiry))),
            warm_up: pool.warm_up.as_ref().map(|pool| (index_of(&pool.from), seconds(pool.expiry))),
            shadow: pool.shadow.as_ref().map(|shadow| ShadowPolicy {
                pool: index_of(&shadow.to),
                threshold: (shadow.share * u64::MAX as f64) as u64,
                reads: shadow.reads,
            }),
            read_pool: pool.read_pool.as_deref().map(index_of),
            delete_pools: config.pools_of_deletes(index),
            flush: pool.flush,
            reply_timeout: pool.timeouts.reply,
        }
    }

    /// The policies for shadow requests. A shadow request never reaches the pool that it was copied from. That pool has already
    /// applied the request, so the copy would be applied twice there, or would delete the value that the pool has stored. Nor does
    /// it reach the pools to which a shadow pool's own clients send reads and deletes.
    pub(crate) fn for_shadows(policies: &[Policy]) -> Vec<Policy> {
        let of_pool = |(place, policy): (usize, &Policy)| {
            let is_other =
                |&(other, _): &(usize, u32)| policies[other].shadow.is_none_or(|shadow| shadow.pool != place);
            Policy {
                failover_pool: policy.failover_pool.filter(is_other),
                warm_up: policy.warm_up.filter(is_other),
                read_pool: None,
                delete_pools: Vec::new(),
                ..policy.clone()
            }
        };
        policies.iter().enumerate().map(of_pool).collect()
    }

    /// Whether requests for keys of the pool `from` can reach the pool `to`: it is the pool itself, or a failover, warm-up, shadow or
    /// read pool, also of one of these.
    pub(crate) fn reaches(policies: &[Policy], from: usize, to: usize) -> bool {
        let mut reached = vec![from];
        let mut next = 0;
        while let Some(&pool) = reached.get(next) {
            let Policy { failover_pool, warm_up, shadow, read_pool, .. } = &policies[pool];
            let others = [failover_pool.map(|(other, _)| other), warm_up.map(|(other, _)| other)];
            for other in others.into_iter().chain([shadow.map(|shadow| shadow.pool), *read_pool]).flatten() {
                if !reached.contains(&other) {
                    reached.push(other);
                }
            }
            next += 1;
        }
        reached.contains(&to)
    }

    /// Whether every request that is sent to the pool has one leg, to the key's primary, unless the pool has a shadow pool or its deletes
    /// reach other pools.
    pub(crate) fn has_one_leg(&self) -> bool {
        !self.has_replicas()
    }

    /// Whether a read may be sent to a second backend.
    pub(crate) fn may_read_again(&self) -> bool {
        let reads_replicas = self.replicas > 1 && (self.failover != Failover::Never || self.hedge.is_some());
        reads_replicas || self.failover_pool.is_some() || self.warm_up.is_some()
    }

    /// Whether values of this pool are stored in more than one place, so that a write may fail in one and succeed in another.
    pub(crate) fn has_replicas(&self) -> bool {
        self.replicas > 1 || self.failover_pool.is_some() || self.warm_up.is_some()
    }

    /// Whether a write is acknowledged before all replicas have answered, so that the next write may be sent meanwhile.
    pub(crate) fn has_late_replicas(&self) -> bool {
        self.quorum < self.replicas
    }

    /// Whether one connection to each backend already keeps a client's requests in order: reads go to the primary only, and no
    /// request is sent twice.
    pub(crate) fn keeps_order(&self) -> bool {
        self.read_pool.is_none() && !self.may_read_again() && (self.replicas == 1 || self.reads == Reads::Primary)
    }
}

impl ShadowPolicy {
    /// Whether a key is in the share. Every proxy gives the same answer, so all proxies shadow the same keys.
    pub(crate) fn includes(&self, key: &[u8]) -> bool {
        // FNV-1a, then a finaliser: the high bits of FNV alone depend little on the last characters.
        let hash = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.threshold == u64::MAX || (hash ^ (hash >> 33)) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FailoverPool, PoolConfig, Shadow, WarmUp};

    #[test]
    fn a_pool_reaches_the_pools_that_it_refers_to() {
        let mut config = Config::new("", &["a:1".into()]);
        let expiry = Duration::from_secs(1);
        for name in ["b", "c", "d"] {
            config.pools.push(PoolConfig::new(name, &[format!("{name}:1")]));
        }
        config.pools[0].failover_pool = Some(FailoverPool { pool: "b".into(), expiry });
        config.pools[1].warm_up = Some(WarmUp { from: "c".into(), expiry });
        config.pools[2].shadow = Some(Shadow { to: "b".into(), share: 0.5, reads: false });
        let policies = Policy::all(&config);
        let reached = |from| (0..4).filter(|&to| Policy::reaches(&policies, from, to)).collect::<Vec<_>>();
        assert_eq!([reached(0), reached(1), reached(2), reached(3)], [vec![0, 1, 2], vec![1, 2], vec![1, 2], vec![3]]);
        config.pools[3].read_pool = Some("a".into());
        config.pools[0].name = "a".into();
        let policies = Policy::all(&config);
        assert_eq!((0..4).filter(|&to| Policy::reaches(&policies, 3, to)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_delete_reaches_every_pool_that_could_return_the_value() {
        let mut config = Config::new("", &["a:1".into()]);
        let expiry = Duration::from_secs(1);
        for name in ["near", "gutter", "old", "far"] {
            config.pools.push(PoolConfig::new(name, &[format!("{name}:1")]));
        }
        config.pools[0].name = "main".into();
        let reached =
            |config: &Config| Policy::all(config).into_iter().map(|policy| policy.delete_pools).collect::<Vec<_>>();
        config.pools[0].warm_up = Some(WarmUp { from: "old".into(), expiry });
        assert!(reached(&config).iter().all(Vec::is_empty));
        // It is the cache of another pool, which fails over.
        config.pools[0].read_pool = Some("near".into());
        config.pools[1].warm_up = Some(WarmUp { from: "main".into(), expiry });
        config.pools[1].failover_pool = Some(FailoverPool { pool: "gutter".into(), expiry });
        assert_eq!(reached(&config)[0], [1, 2]);
        // Two pools that delete in each other.
        config.pools[0].delete_pools = vec!["far".into(), "near".into()];
        config.pools[4].delete_pools = vec!["main".into()];
        config.pools[4].warm_up = Some(WarmUp { from: "old".into(), expiry });
        assert_eq!(reached(&config), [vec![1, 2, 3, 4], vec![], vec![], vec![], vec![0, 1, 2, 3]]);
        let shadows = Policy::for_shadows(&Policy::all(&config));
        assert!(shadows.iter().all(|policy| policy.read_pool.is_none() && policy.delete_pools.is_empty()));
        assert!(!Policy::all(&config)[0].keeps_order() && Policy::all(&config)[2].keeps_order());
        assert!(!Policy::all(&config)[4].has_one_leg() && Policy::all(&config)[2].has_one_leg());
    }

    #[test]
    fn a_shadow_gets_its_share_of_keys_and_always_the_same_keys() {
        for (share, expected) in [(0.0, 0), (0.1, 1000), (0.5, 5000), (1.0, 10_000)] {
            let shadow = ShadowPolicy { pool: 1, threshold: (share * u64::MAX as f64) as u64, reads: false };
            let shadowed = (0..10_000).filter(|number| shadow.includes(format!("user:{number}").as_bytes())).count();
            assert!(shadowed.abs_diff(expected) < 300, "{shadowed} of {expected}");
        }
    }
}
