//! What is counted, where any thread may read it. Each counter has one writer, its loop, so counting needs no locked instruction.

use records::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::Verb;

/// A number that one thread raises and all may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// The counters of one loop.
#[derive(Debug)]
pub(crate) struct LoopCounters {
    /// Requests that have ended, by operation and outcome.
    pub(crate) requests: [[Counter; Outcome::ALL.len()]; Verb::ALL.len()],
    pub(crate) keys_read: Counter,
    /// Keys that a backend held, by operation.
    pub(crate) hits: [Counter; Verb::ALL.len()],
    /// Keys that a backend did not hold, by operation.
    pub(crate) misses: [Counter; Verb::ALL.len()],
    /// `cas` whose value had changed meanwhile.
    pub(crate) cas_conflicts: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) replied_bytes: Counter,
    pub(crate) clients_accepted: Counter,
    pub(crate) clients_open: Counter,
    /// Clients with whom TLS failed: refused certificates, bytes that are no TLS, handshakes without end.
    pub(crate) clients_tls_failed: Counter,
    /// Times that a client was not read from because too much was in flight or unread.
    pub(crate) clients_paused: Counter,
    /// Multi-gets of which a part had failed.
    pub(crate) parts_failed: Counter,
    /// Times that a request waited until an earlier one of its client was answered, to keep their order.
    pub(crate) order_waits: Counter,
    pub(crate) records_dropped: Counter,
    pub(crate) pools: Vec<PoolCounters>,
    pub(crate) backends: Vec<BackendCounters>,
    pub(crate) queues: Vec<QueueCounters>,
}

/// The counters of the accepting thread.
#[derive(Debug, Default)]
pub(crate) struct AcceptCounters {
    /// Clients closed at once because there were too many, or no loop could take them.
    pub(crate) refused: Counter,
    /// Pauses because the kernel had no descriptor left.
    pub(crate) pauses: Counter,
}

/// The counters of the thread that looks up names, for each backend.
#[derive(Debug)]
pub(crate) struct NameCounters {
    pub(crate) names: Vec<NameCounter>,
}

/// The counters of one backend's name.
#[derive(Debug, Default)]
pub(crate) struct NameCounter {
    /// Lookups that found no address.
    pub(crate) lookups_failed: Counter,
    /// Times that another address was used than before.
    pub(crate) moves: Counter,
}

/// The counters of one pool in one loop.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// Requests that read or write, those that it sees as a shadow included.
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    /// Times that a read asked another copy, because one could not be asked, had failed or had nothing.
    pub(crate) failovers: Counter,
    /// Reads that were sent a second time because the first copy was slow, and those of them that the second one answered.
    pub(crate) hedges: Counter,
    pub(crate) hedges_won: Counter,
    /// Times that the pool that stands in was asked.
    pub(crate) failover_pool_requests: Counter,
    /// Keys found in the pool that missing ones come from, and those of them that this pool has stored.
    pub(crate) warm_up_hits: Counter,
    pub(crate) warm_up_fills: Counter,
    /// Requests that the pool that shadows this one was sent too.
    pub(crate) shadowed: Counter,
    /// Writes acknowledged that a copy has not taken.
    pub(crate) writes_degraded: Counter,
    /// Reads not sent because the backend owes the key's deletion.
    pub(crate) withheld_reads: Counter,
}

/// The counters of one queue of one loop.
#[derive(Debug, Default)]
pub(crate) struct QueueCounters {
    /// Requests waiting in it.
    pub(crate) length: Counter,
    /// Slots that serve a request.
    pub(crate) slots_busy: Counter,
    /// Requests refused because it was full.
    pub(crate) full: Counter,
}

/// The counters of one loop's connections to one backend.
#[derive(Debug, Default)]
pub(crate) struct BackendCounters {
    pub(crate) requests: Counter,
    /// Replies, error replies included.
    pub(crate) replies: Counter,
    /// Requests that failed, sent or not, by how.
    pub(crate) errors: [Counter; Outcome::ALL.len()],
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    /// Connections opened.
    pub(crate) connects: Counter,
    /// Connections closed because an answer was late.
    pub(crate) timeouts: Counter,
    /// Connections lost, or not opened.
    pub(crate) lost: Counter,
    /// Of those lost, connections on which TLS failed.
    pub(crate) tls_failed: Counter,
    /// Connections that accept requests.
    pub(crate) is_up: Counter,
    /// Times that the last of them was lost.
    pub(crate) ejections: Counter,
    /// Owed deletions that it has answered, and those that failed.
    pub(crate) invalidations_sent: Counter,
    pub(crate) invalidations_failed: Counter,
    /// Requests waiting for an answer.
    pub(crate) in_flight: Counter,
}

impl Counter {
    /// Adds; only ever called by the one writer.
    pub(crate) fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Changes a gauge to which several have added: by what one of them has more, or less, than before.
    pub(crate) fn change(&self, before: u64, after: u64) {
        self.add(after.wrapping_sub(before));
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl BackendCounters {
    /// Counts how a request ended, if it did not end well.
    pub(crate) fn note(&self, outcome: Outcome) {
        if outcome != Outcome::Answered {
            self.errors[outcome as usize].add(1);
        }
    }

    /// Counts a connection that accepts requests from now on, or no longer. Without any, the backend is ejected.
    pub(crate) fn connection_up(&self, before: u64, after: u64) {
        self.is_up.change(before, after);
        self.ejections.add(u64::from(before > after && self.is_up.get() == 0));
    }
}

impl NameCounters {
    /// All zero.
    pub(crate) fn new(backends: usize) -> NameCounters {
        NameCounters { names: (0..backends).map(|_| NameCounter::default()).collect() }
    }
}

impl LoopCounters {
    /// All zero.
    pub(crate) fn new(pools: usize, backends: usize, queues: usize) -> LoopCounters {
        LoopCounters {
            requests: Default::default(),
            keys_read: Counter::default(),
            hits: Default::default(),
            misses: Default::default(),
            cas_conflicts: Counter::default(),
            received_bytes: Counter::default(),
            replied_bytes: Counter::default(),
            clients_accepted: Counter::default(),
            clients_open: Counter::default(),
            clients_tls_failed: Counter::default(),
            clients_paused: Counter::default(),
            parts_failed: Counter::default(),
            order_waits: Counter::default(),
            records_dropped: Counter::default(),
            pools: (0..pools).map(|_| PoolCounters::default()).collect(),
            backends: (0..backends).map(|_| BackendCounters::default()).collect(),
            queues: (0..queues).map(|_| QueueCounters::default()).collect(),
        }
    }

    /// The sum over the pools.
    pub(crate) fn of_pools(&self, field: impl Fn(&PoolCounters) -> &Counter) -> u64 {
        self.pools.iter().map(|pool| field(pool).get()).sum()
    }

    /// Requests that have ended, all together.
    pub(crate) fn requests_total(&self) -> u64 {
        self.requests.iter().flatten().map(Counter::get).sum()
    }

    /// Requests of this operation that have ended.
    pub(crate) fn ended_by_verb(&self, verb: Verb) -> u64 {
        self.requests[verb as usize].iter().map(Counter::get).sum()
    }

    /// Requests that have ended so.
    pub(crate) fn ended_by_outcome(&self, outcome: Outcome) -> u64 {
        self.requests.iter().map(|outcomes| outcomes[outcome as usize].get()).sum()
    }
}
