//! The counters of all threads. Any thread may read a counter, but only one writes it, so counting needs no locked instruction.

use records::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::Verb;

/// A counter or gauge with one writing thread.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// The counters of one loop.
#[derive(Debug)]
pub(crate) struct LoopCounters {
    /// Requests that have ended, by operation and outcome.
    pub(crate) requests: [[Counter; Outcome::ALL.len()]; Verb::ALL.len()],
    pub(crate) keys_read: Counter,
    /// Keys that were stored on a backend, by operation.
    pub(crate) hits: [Counter; Verb::ALL.len()],
    /// Keys that were not stored on a backend, by operation.
    pub(crate) misses: [Counter; Verb::ALL.len()],
    /// `cas` commands that failed because the value had changed.
    pub(crate) cas_conflicts: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) replied_bytes: Counter,
    pub(crate) clients_accepted: Counter,
    pub(crate) clients_open: Counter,
    /// Clients whose TLS handshake failed: a refused certificate, bytes that are not TLS, or a timeout.
    pub(crate) clients_tls_failed: Counter,
    /// Clients that were refused because they speak the binary protocol.
    pub(crate) clients_refused_binary: Counter,
    /// Clients that have authenticated, attempts that failed, and other requests before the authentication.
    pub(crate) clients_authenticated: Counter,
    pub(crate) client_auth_failed: Counter,
    pub(crate) client_unauthenticated: Counter,
    /// Clients that did not begin with the header of a load balancer, or not in time.
    pub(crate) clients_header_failed: Counter,
    /// Clients behind a load balancer that were closed because their address had too many.
    pub(crate) clients_refused_address: Counter,
    /// How often the proxy stopped reading from a client that had too much in flight or unread.
    pub(crate) clients_paused: Counter,
    /// Clients closed by a timeout: idle, with an unfinished request, or with unread replies.
    pub(crate) clients_closed_idle: Counter,
    pub(crate) clients_closed_request: Counter,
    pub(crate) clients_closed_unread: Counter,
    /// Bytes held for clients: replies, unread output, input, and requests in flight.
    pub(crate) held_bytes: Counter,
    /// Replies that were dropped because they could not be held, and reads that were sent again after that.
    pub(crate) replies_dropped: Counter,
    pub(crate) reads_repeated: Counter,
    /// Reads that failed after that: because the proxy holds as much as it may, or because a later write had been sent.
    pub(crate) replies_refused_memory: Counter,
    pub(crate) replies_refused_order: Counter,
    /// Values of clients that were refused because the proxy holds as much as it may.
    pub(crate) values_refused_memory: Counter,
    /// Requests that were refused because the listener does not allow their command.
    pub(crate) commands_refused: Counter,
    /// Multi-gets of which a part failed.
    pub(crate) parts_failed: Counter,
    /// How often a request was blocked until earlier requests of its client were answered.
    pub(crate) order_waits: Counter,
    pub(crate) records_dropped: Counter,
    /// Requests that took as long as `slow-requests`, and those of them that were not logged because there were too many.
    pub(crate) slow_requests: Counter,
    pub(crate) slow_requests_unlogged: Counter,
    pub(crate) pools: Vec<PoolCounters>,
    pub(crate) backends: Vec<BackendCounters>,
    pub(crate) queues: Vec<QueueCounters>,
}

/// The counters of the accepting thread.
#[derive(Debug, Default)]
pub(crate) struct AcceptCounters {
    /// Clients closed at once because there were too many, or because the loop's mailbox was full.
    pub(crate) refused: Counter,
    /// Clients closed at once because their address had too many.
    pub(crate) refused_address: Counter,
    /// Clients closed at once because their address is not that of a load balancer.
    pub(crate) refused_relay: Counter,
    /// Pauses because the kernel had no descriptor left.
    pub(crate) pauses: Counter,
}

/// The counters of the metrics server.
#[derive(Debug, Default)]
pub(crate) struct ScrapeCounters {
    /// Requests for the metrics.
    pub(crate) scrapes: Counter,
    /// How often a loop did not answer a scrape in time.
    pub(crate) stale_loops: Counter,
    /// Connections closed because the client took too long to send its request or to read the reply.
    pub(crate) closed_timeout: Counter,
    /// Connections closed because too many were open.
    pub(crate) closed_limit: Counter,
    /// Connections closed because the request was too large.
    pub(crate) closed_size: Counter,
}

/// The counters of the resolver, for each backend.
#[derive(Debug)]
pub(crate) struct NameCounters {
    pub(crate) names: Vec<NameCounter>,
}

/// The counters of one backend's name.
#[derive(Debug, Default)]
pub(crate) struct NameCounter {
    /// Lookups that returned no address.
    pub(crate) lookups_failed: Counter,
    /// How often the backend has moved to another address.
    pub(crate) moves: Counter,
}

/// The counters of the list of servers of one pool, which comes from a file or from the addresses of names.
#[derive(Debug, Default)]
pub(crate) struct ListCounter {
    /// How often the pool has got other servers.
    pub(crate) changes: Counter,
    /// Lists that could not be used.
    pub(crate) failures: Counter,
}

/// The counters of one pool in one loop.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// Reads and writes, including those that it receives as a shadow pool.
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    /// How often a read went to another replica, because one was down, failed or did not have the key.
    pub(crate) failovers: Counter,
    /// Hedged reads, and those of them that the second replica answered first.
    pub(crate) hedges: Counter,
    pub(crate) hedges_won: Counter,
    /// Requests sent to the failover pool in place of this pool.
    pub(crate) failover_pool_requests: Counter,
    /// Keys that this pool did not have and the warm-up pool had, and those of them that this pool has stored.
    pub(crate) warm_up_hits: Counter,
    pub(crate) warm_up_fills: Counter,
    /// Requests that were also sent to the shadow pool.
    pub(crate) shadowed: Counter,
    /// Writes that were acknowledged although a replica failed.
    pub(crate) writes_degraded: Counter,
    /// Reads withheld because an invalidation of the key was pending.
    pub(crate) withheld_reads: Counter,
    /// Requests refused because of the rate limit.
    pub(crate) rate_limited: Counter,
    /// Requests answered from the near-cache.
    pub(crate) near_cache_hits: Counter,
}

/// The counters of one queue of one loop.
#[derive(Debug, Default)]
pub(crate) struct QueueCounters {
    /// Requests waiting in it.
    pub(crate) length: Counter,
    /// Busy slots.
    pub(crate) slots_busy: Counter,
    /// Requests refused because it was full.
    pub(crate) full: Counter,
}

/// Why a connection to a backend is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Requests were not answered in time.
    Timeout = 1,
    /// A reply did not fit its request.
    OutOfStep,
    /// The peer has closed it, or it broke.
    Lost,
    /// It could not be opened.
    Unreachable,
    /// The server has refused the user and the password.
    LoginRefused,
    /// The server requires a user and a password, and the proxy has none for it.
    LoginRequired,
}

impl Loss {
    const ALL: [Loss; 6] =
        [Loss::Timeout, Loss::OutOfStep, Loss::Lost, Loss::Unreachable, Loss::LoginRefused, Loss::LoginRequired];

    /// The loss with this code, as `BackendCounters::last_loss` has it.
    pub(crate) fn of_code(code: u64) -> Option<Loss> {
        Loss::ALL.into_iter().find(|loss| *loss as u64 == code)
    }

    /// The name in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Loss::Timeout => "timeout",
            Loss::OutOfStep => "out_of_step",
            Loss::Lost => "lost",
            Loss::Unreachable => "unreachable",
            Loss::LoginRefused => "login_refused",
            Loss::LoginRequired => "login_required",
        }
    }

    /// The reason in a sentence.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Loss::Timeout => "requests timed out",
            Loss::OutOfStep => "a reply did not fit its request",
            Loss::Lost => "its connection was lost",
            Loss::Unreachable => "it cannot be connected to",
            Loss::LoginRefused => "it refuses the user and password in server-auth-file",
            Loss::LoginRequired => "it requires a user and password; give its pool a server-auth-file",
        }
    }
}

/// The counters of one loop's connections to one backend.
#[derive(Debug, Default)]
pub(crate) struct BackendCounters {
    pub(crate) requests: Counter,
    /// Those sent on the connection for large replies.
    pub(crate) bulk_requests: Counter,
    /// Replies, including errors.
    pub(crate) replies: Counter,
    /// Requests that failed, sent or not, by outcome.
    pub(crate) errors: [Counter; Outcome::ALL.len()],
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    /// Connections opened.
    pub(crate) connects: Counter,
    /// Replies that arrived after their request had timed out, and were dropped.
    pub(crate) late_replies: Counter,
    /// Requests that were sent on the next connection, because the one before was lost before a byte of them was written.
    pub(crate) carried_over: Counter,
    /// Connections closed because requests timed out.
    pub(crate) timeouts: Counter,
    /// Connections that were lost or could not be opened.
    pub(crate) lost: Counter,
    /// Lost connections whose replies did not fit their requests.
    pub(crate) out_of_step: Counter,
    /// Connections closed because the server did not accept the authentication, or required one.
    pub(crate) unauthenticated: Counter,
    /// Lost connections on which TLS failed.
    pub(crate) tls_failed: Counter,
    /// Connections that accept requests.
    pub(crate) is_up: Counter,
    /// Those that a backend has answered on: they are open.
    pub(crate) is_open: Counter,
    /// Whether the configuration drains it.
    pub(crate) is_drained: Counter,
    /// How often the last of these was lost.
    pub(crate) ejections: Counter,
    /// The `ServerVersion` that the backend has last replied with; 0 if it is unknown.
    pub(crate) version: Counter,
    /// The code of the last `Loss`; 0 if there was none.
    pub(crate) last_loss: Counter,
    /// Invalidations that the backend has answered, and those that failed.
    pub(crate) invalidations_sent: Counter,
    pub(crate) invalidations_failed: Counter,
    /// Requests in flight.
    pub(crate) in_flight: Counter,
}

impl Counter {
    /// Adds a number. Only the one writer may call this.
    pub(crate) fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Changes a gauge that is a sum, when one of its terms changes.
    pub(crate) fn change(&self, before: u64, after: u64) {
        self.add(after.wrapping_sub(before));
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl BackendCounters {
    /// Counts a request that failed.
    pub(crate) fn note(&self, outcome: Outcome) {
        if outcome != Outcome::Answered {
            self.errors[outcome as usize].add(1);
        }
    }

    /// Counts a connection that has come up or gone down. A backend without any is ejected.
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
            clients_refused_binary: Counter::default(),
            clients_authenticated: Counter::default(),
            client_auth_failed: Counter::default(),
            client_unauthenticated: Counter::default(),
            clients_header_failed: Counter::default(),
            clients_refused_address: Counter::default(),
            clients_paused: Counter::default(),
            clients_closed_idle: Counter::default(),
            clients_closed_request: Counter::default(),
            clients_closed_unread: Counter::default(),
            held_bytes: Counter::default(),
            replies_dropped: Counter::default(),
            reads_repeated: Counter::default(),
            replies_refused_memory: Counter::default(),
            replies_refused_order: Counter::default(),
            values_refused_memory: Counter::default(),
            commands_refused: Counter::default(),
            parts_failed: Counter::default(),
            order_waits: Counter::default(),
            records_dropped: Counter::default(),
            slow_requests: Counter::default(),
            slow_requests_unlogged: Counter::default(),
            pools: (0..pools).map(|_| PoolCounters::default()).collect(),
            backends: (0..backends).map(|_| BackendCounters::default()).collect(),
            queues: (0..queues).map(|_| QueueCounters::default()).collect(),
        }
    }

    /// The sum of a counter over all pools.
    pub(crate) fn of_pools(&self, field: impl Fn(&PoolCounters) -> &Counter) -> u64 {
        self.pools.iter().map(|pool| field(pool).get()).sum()
    }

    /// All requests that have ended.
    pub(crate) fn requests_total(&self) -> u64 {
        self.requests.iter().flatten().map(Counter::get).sum()
    }

    /// Requests of this operation that have ended.
    pub(crate) fn ended_by_verb(&self, verb: Verb) -> u64 {
        self.requests[verb as usize].iter().map(Counter::get).sum()
    }

    /// Requests that have ended with this outcome.
    pub(crate) fn ended_by_outcome(&self, outcome: Outcome) -> u64 {
        self.requests.iter().map(|outcomes| outcomes[outcome as usize].get()).sum()
    }
}
