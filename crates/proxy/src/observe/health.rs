//! Whether the proxy can serve: what `/healthz` and `/readyz` of the metrics port reply.

use crate::config::Config;
use crate::observe::counters::LoopCounters;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What readiness depends on.
#[derive(Debug)]
pub(crate) struct Health {
    loops: Vec<Arc<LoopCounters>>,
    /// The pools that clients' keys go to.
    pools: Vec<PoolHealth>,
    /// The proxy stops.
    is_stopping: Arc<AtomicBool>,
}

/// One pool.
#[derive(Debug)]
struct PoolHealth {
    name: String,
    backends: Range<usize>,
    /// So many of them must be up.
    needed: usize,
    /// Those of its failover pool, of which one is enough.
    failover: Range<usize>,
}

impl Health {
    pub(crate) fn new(config: &Config, loops: Vec<Arc<LoopCounters>>, is_stopping: Arc<AtomicBool>) -> Health {
        let mut begin = 0;
        let ranges: Vec<Range<usize>> = config
            .pools
            .iter()
            .map(|pool| {
                let range = begin..begin + pool.servers.len();
                begin = range.end;
                range
            })
            .collect();
        let pools = config.pools.iter().enumerate().zip(&ranges);
        let pools = pools.filter(|&((index, _), _)| config.is_used_by_clients(index)).map(|((_, pool), range)| {
            let failover = pool.failover_pool.as_ref().and_then(|failover| config.pool(&failover.pool));
            PoolHealth {
                name: pool.name.clone(),
                backends: range.clone(),
                needed: pool.ready_servers,
                failover: failover.map_or(0..0, |pool| ranges[pool].clone()),
            }
        });
        Health { pools: pools.collect(), loops, is_stopping }
    }

    /// Why the proxy is not ready, one line for each reason; empty if it is.
    pub(crate) fn reasons(&self) -> Vec<String> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return vec!["the proxy is stopping".into()];
        }
        let reason = |pool: &PoolHealth| {
            let up = self.up(&pool.backends);
            let is_ready = up >= pool.needed || self.up(&pool.failover) > 0;
            let PoolHealth { name, backends, needed, .. } = pool;
            (!is_ready).then(|| format!("pool {name}: {up} of {} servers are up, {needed} needed", backends.len()))
        };
        self.pools.iter().filter_map(reason).collect()
    }

    /// The number of these backends that have answered every loop on an open connection.
    fn up(&self, backends: &Range<usize>) -> usize {
        let is_up = |backend: &usize| self.loops.iter().all(|counters| counters.backends[*backend].is_open.get() > 0);
        backends.clone().filter(is_up).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FailoverPool, PoolConfig, RouteConfig};
    use std::time::Duration;

    #[test]
    fn the_proxy_is_ready_if_every_routed_pool_or_its_failover_pool_has_servers() {
        let mut config = Config::new("127.0.0.1:0", &["a:1".into(), "b:1".into()]);
        config.pools[0].ready_servers = 2;
        for (name, server) in [("routed", "c:1"), ("other", "d:1"), ("spare", "e:1")] {
            config.pools.push(PoolConfig::new(name, &[server.into()]));
        }
        config.pools[1].failover_pool = Some(FailoverPool { pool: "spare".into(), expiry: Duration::from_secs(1) });
        config.routes.push(RouteConfig::new("r:", "routed"));
        let loops: Vec<_> = (0..2).map(|_| Arc::new(LoopCounters::new(4, 5, 0))).collect();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let health = Health::new(&config, loops.clone(), is_stopping.clone());
        let set =
            |backend: usize, is_up| loops.iter().for_each(|counters| counters.backends[backend].is_open.set(is_up));
        let first = "pool default: 1 of 2 servers are up, 2 needed";
        set(0, 1);
        set(2, 1);
        assert_eq!(health.reasons(), [first]);
        set(2, 0);
        assert_eq!(health.reasons(), [first, "pool routed: 0 of 1 servers are up, 1 needed"]);
        set(1, 1);
        set(4, 1);
        assert_eq!(health.reasons(), Vec::<String>::new());
        loops[1].backends[1].is_open.set(0);
        assert_eq!(health.reasons(), [first], "one loop cannot reach it");
        config.pools[2].listen = vec!["127.0.0.1:1".into()];
        let with_listener = Health::new(&config, loops.clone(), is_stopping.clone());
        assert_eq!(with_listener.reasons(), [first, "pool other: 0 of 1 servers are up, 1 needed"]);
        config.pools[2].listen.clear();
        config.pools[1].read_pool = Some("other".into());
        let with_read_pool = Health::new(&config, loops.clone(), is_stopping.clone());
        assert_eq!(with_read_pool.reasons(), [first, "pool other: 0 of 1 servers are up, 1 needed"]);
        is_stopping.store(true, Ordering::Relaxed);
        assert_eq!(health.reasons(), ["the proxy is stopping"]);
    }
}
