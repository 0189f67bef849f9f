//! What one configuration counts, and the sums over all configurations of the process.
//!
//! Each configuration has counters of its own: while a reload moves the clients, the event loops of both count, and a counter has one
//! writer. A counter continues under the same name: that of a backend if the pool and the server's address stay.

use crate::observe::continued::Continued;
use crate::observe::counters::{
    AcceptCounters, Counter, ListCounter, LoopCounters, NameCounter, NameCounters, QueueCounters, ScrapeCounters,
};
use crate::observe::log::queue::LogCounters;
use crate::observe::traces::counters::TraceCounters;
use std::collections::HashMap;
use std::hash::Hash;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The names of what a configuration counts.
#[derive(Debug)]
pub(crate) struct CountedNames {
    pub(crate) pools: Vec<String>,
    pub(crate) servers: Vec<ServerName>,
    /// Those of each loop.
    pub(crate) queues: Vec<String>,
}

/// A backend, and the pool that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerName {
    pub(crate) pool: String,
    pub(crate) address: String,
}

/// The counters of one configuration.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) named: Arc<CountedNames>,
    pub(crate) loops: Vec<Arc<LoopCounters>>,
    pub(crate) accept: Arc<AcceptCounters>,
    pub(crate) resolver: Arc<NameCounters>,
    /// By pool. The thread that reloads the configuration writes them.
    pub(crate) lists: Vec<ListCounter>,
    pub(crate) log: Arc<LogCounters>,
    pub(crate) traces: Arc<TraceCounters>,
    pub(crate) scrapes: Arc<ScrapeCounters>,
}

impl Tally {
    /// All zero.
    pub(crate) fn new(named: Arc<CountedNames>, loops: usize) -> Tally {
        let CountedNames { pools, servers, queues } = &*named;
        let of_loop = || Arc::new(LoopCounters::new(pools.len(), servers.len(), queues.len()));
        Tally {
            loops: (0..loops).map(|_| of_loop()).collect(),
            accept: Arc::default(),
            resolver: Arc::new(NameCounters::new(servers.len())),
            lists: pools.iter().map(|_| ListCounter::default()).collect(),
            log: Arc::default(),
            traces: Arc::default(),
            scrapes: Arc::default(),
            named,
        }
    }

    /// All zero, with the same names and the same number of loops.
    pub(crate) fn zero(&self) -> Tally {
        Tally::new(self.named.clone(), self.loops.len())
    }

    /// Adds the counters of another configuration, as far as this one has their names. This one has no other writer.
    pub(crate) fn add(&self, other: &Tally) {
        self.accept.add(&other.accept);
        self.scrapes.add(&other.scrapes);
        self.log.written.fetch_add(other.log.written.load(Ordering::Relaxed), Ordering::Relaxed);
        self.log.lost.fetch_add(other.log.lost.load(Ordering::Relaxed), Ordering::Relaxed);
        self.traces.add(&other.traces);
        let pools = pairs(&self.named.pools, &other.named.pools);
        let servers = pairs(&self.named.servers, &other.named.servers);
        let queues = pairs(&self.named.queues, &other.named.queues);
        for &(to, from) in &servers {
            self.resolver.names[to].add(&other.resolver.names[from]);
        }
        pools.iter().for_each(|&(to, from)| self.lists[to].add(&other.lists[from]));
        let last = self.loops.len() - 1;
        for (index, one) in other.loops.iter().enumerate() {
            // Only the names of queues contain the number of their loop.
            let sum = &self.loops[index.min(last)];
            sum.add(one);
            pools.iter().for_each(|&(to, from)| sum.pools[to].add(&one.pools[from]));
            servers.iter().for_each(|&(to, from)| sum.backends[to].add(&one.backends[from]));
            if index <= last {
                queues.iter().for_each(|&(to, from)| sum.queues[to].add(&one.queues[from]));
            }
        }
    }
}

/// For each name that both have, its places.
fn pairs<T: Hash + Eq>(mine: &[T], others: &[T]) -> Vec<(usize, usize)> {
    if mine == others {
        return (0..mine.len()).map(|index| (index, index)).collect();
    }
    let places: HashMap<&T, usize> = others.iter().enumerate().map(|(index, name)| (name, index)).collect();
    mine.iter().enumerate().filter_map(|(index, name)| Some((index, *places.get(name)?))).collect()
}

/// The counters of one configuration, and those of the others of the process under its names. Gauges are its own.
#[derive(Debug)]
pub(crate) struct Sums {
    pub(crate) own: Arc<Tally>,
    /// Without gauges. None before the first reload.
    pub(crate) others: Option<Tally>,
}

impl Sums {
    /// The sum over all loops.
    pub(crate) fn of_loops(&self, of: impl Fn(&LoopCounters) -> u64) -> u64 {
        self.all().flat_map(|tally| &tally.loops).map(|loops| of(loops)).sum()
    }

    /// A counter of the accepting threads.
    pub(crate) fn of_accept(&self, field: impl Fn(&AcceptCounters) -> &Counter) -> u64 {
        self.all().map(|tally| field(&tally.accept).get()).sum()
    }

    /// A counter of a backend's name.
    pub(crate) fn of_name(&self, backend: usize, field: impl Fn(&NameCounter) -> &Counter) -> u64 {
        self.all().map(|tally| field(&tally.resolver.names[backend]).get()).sum()
    }

    /// A counter of a pool's list of servers.
    pub(crate) fn of_list(&self, pool: usize, field: impl Fn(&ListCounter) -> &Counter) -> u64 {
        self.all().map(|tally| field(&tally.lists[pool]).get()).sum()
    }

    /// A counter or gauge of one queue of one loop.
    pub(crate) fn of_queue(&self, loop_index: usize, queue: usize, field: impl Fn(&QueueCounters) -> &Counter) -> u64 {
        self.all().map(|tally| field(&tally.loops[loop_index].queues[queue]).get()).sum()
    }

    /// A counter of the log.
    pub(crate) fn of_log(&self, field: impl Fn(&LogCounters) -> &AtomicU64) -> u64 {
        self.all().map(|tally| field(&tally.log).load(Ordering::Relaxed)).sum()
    }

    /// A counter of traces.
    pub(crate) fn of_traces(&self, field: impl Fn(&TraceCounters) -> &AtomicU64) -> u64 {
        self.all().map(|tally| field(&tally.traces).load(Ordering::Relaxed)).sum()
    }

    /// A counter of the metrics servers.
    pub(crate) fn of_scrapes(&self, field: impl Fn(&ScrapeCounters) -> &Counter) -> u64 {
        self.all().map(|tally| field(&tally.scrapes).get()).sum()
    }

    fn all(&self) -> impl Iterator<Item = &Tally> {
        once(&*self.own).chain(&self.others)
    }
}
