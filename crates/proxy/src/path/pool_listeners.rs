//! Before step 1. Pools with listeners of their own: which pool the clients of a listener use, in this configuration and after a
//! reload.

use crate::config::Config;
use std::num::NonZeroU8;
use std::sync::Arc;

/// The listener of a pool, on which a client has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolListener {
    /// The index of the pool.
    pub(crate) pool: u8,
    /// Its number among the listeners of all pools, from 1: zero is free for `None`, so that a session stays small.
    number: NonZeroU8,
}

/// The listeners of one configuration.
#[derive(Clone, Debug)]
pub(crate) struct PoolListeners {
    /// The number of the proxy's own listeners, which precede those of the pools.
    own: usize,
    /// The address of each pool's listeners as it was configured, and the index of the pool.
    of_pools: Arc<[(Arc<str>, u8)]>,
}

impl PoolListeners {
    /// The listeners of this configuration.
    pub(crate) fn new(config: &Config) -> PoolListeners {
        let of_pool = |(address, pool): (&str, Option<usize>)| Some((address.into(), pool? as u8));
        PoolListeners { own: config.listen.len(), of_pools: config.listeners().filter_map(of_pool).collect() }
    }

    /// The pool of the listener with this index, if it is the listener of a pool.
    pub(crate) fn at(&self, listener: usize) -> Option<PoolListener> {
        let index = listener.checked_sub(self.own)?;
        let number = u8::try_from(index + 1).ok().and_then(NonZeroU8::new)?;
        self.of_pools.get(index).map(|&(_, pool)| PoolListener { pool, number })
    }

    /// The listener of a client that moves from another configuration, where it connected at this address. None if no pool of this
    /// configuration listens there.
    pub(crate) fn named(&self, address: &str) -> Option<PoolListener> {
        let index = self.of_pools.iter().position(|(known, _)| **known == *address)?;
        self.at(self.own + index)
    }

    /// The address of a listener of this configuration.
    pub(crate) fn address(&self, listener: PoolListener) -> Arc<str> {
        self.of_pools[usize::from(listener.number.get()) - 1].0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolConfig;

    fn listeners(own: &[&str], pools: &[&[&str]]) -> PoolListeners {
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let pool = |(index, list): (usize, &&[&str])| PoolConfig {
            listen: texts(list),
            ..PoolConfig::new(&format!("pool-{index}"), &["a:1".into()])
        };
        let pools = pools.iter().enumerate().map(pool).collect();
        PoolListeners::new(&Config { listen: texts(own), pools, ..Config::new("", &[]) })
    }

    #[test]
    fn the_listeners_of_pools_follow_those_of_the_proxy() {
        let listeners = listeners(&["own:1"], &[&[], &["a:1", "b:1"], &["c:1"]]);
        let pools: Vec<Option<u8>> = (0..6).map(|index| listeners.at(index).map(|found| found.pool)).collect();
        // Sockets of a service manager follow, and belong to the proxy.
        assert_eq!(pools, [None, Some(1), Some(1), Some(2), None, None]);
    }

    #[test]
    fn a_client_that_moves_keeps_the_pool_of_its_address() {
        let before = listeners(&[], &[&["a:1", "b:1"], &["c:1"]]);
        let after = listeners(&["own:1"], &[&["c:1"], &["b:1"]]);
        let moved = |index| after.named(&before.address(before.at(index).unwrap())).map(|found| found.pool);
        assert_eq!([moved(0), moved(1), moved(2)], [None, Some(1), Some(0)]);
    }
}
