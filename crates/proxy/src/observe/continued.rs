//! Which counters continue after a reload. Each list names every field of its struct, so that the compiler asks about a new one. Gauges
//! are left out: they are those of the configuration in force.

use crate::observe::counters::{
    AcceptCounters, BackendCounters, Counter, ListCounter, LoopCounters, NameCounter, PoolCounters, QueueCounters,
    ScrapeCounters,
};

/// Counters that can be added to those of another configuration.
pub(crate) trait Continued {
    /// The counters, always in the same order.
    fn counters(&self) -> Vec<&Counter>;

    /// Adds the counters of another configuration. Only the one writer of these may call this.
    fn add(&self, other: &Self) {
        for (sum, one) in self.counters().into_iter().zip(other.counters()) {
            sum.add(one.get());
        }
    }
}

/// Those of the loop itself. `Tally` adds those of pools, backends and queues, which have names.
impl Continued for LoopCounters {
    fn counters(&self) -> Vec<&Counter> {
        let LoopCounters {
            requests,
            keys_read,
            hits,
            misses,
            cas_conflicts,
            received_bytes,
            replied_bytes,
            clients_accepted,
            clients_open: _,
            clients_tls_failed,
            clients_refused_binary,
            clients_authenticated,
            client_auth_failed,
            client_unauthenticated,
            clients_header_failed,
            clients_refused_address,
            clients_paused,
            clients_closed_idle,
            clients_closed_request,
            clients_closed_unread,
            held_bytes: _,
            replies_dropped,
            reads_repeated,
            replies_refused_memory,
            replies_refused_order,
            values_refused_memory,
            commands_refused,
            parts_failed,
            order_waits,
            records_dropped,
            slow_requests,
            slow_requests_unlogged,
            pools: _,
            backends: _,
            queues: _,
        } = self;
        let single = [
            keys_read,
            cas_conflicts,
            received_bytes,
            replied_bytes,
            clients_accepted,
            clients_tls_failed,
            clients_refused_binary,
            clients_authenticated,
            client_auth_failed,
            client_unauthenticated,
            clients_header_failed,
            clients_refused_address,
            clients_paused,
            clients_closed_idle,
            clients_closed_request,
            clients_closed_unread,
            replies_dropped,
            reads_repeated,
            replies_refused_memory,
            replies_refused_order,
            values_refused_memory,
            commands_refused,
            parts_failed,
            order_waits,
            records_dropped,
            slow_requests,
            slow_requests_unlogged,
        ];
        requests.iter().flatten().chain(hits).chain(misses).chain(single).collect()
    }
}

impl Continued for PoolCounters {
    fn counters(&self) -> Vec<&Counter> {
        let PoolCounters {
            reads,
            writes,
            failovers,
            hedges,
            hedges_won,
            failover_pool_requests,
            warm_up_hits,
            warm_up_fills,
            shadowed,
            writes_degraded,
            withheld_reads,
            rate_limited,
            near_cache_hits,
        } = self;
        vec![
            reads,
            writes,
            failovers,
            hedges,
            hedges_won,
            failover_pool_requests,
            warm_up_hits,
            warm_up_fills,
            shadowed,
            writes_degraded,
            withheld_reads,
            rate_limited,
            near_cache_hits,
        ]
    }
}

impl Continued for BackendCounters {
    fn counters(&self) -> Vec<&Counter> {
        let BackendCounters {
            requests,
            bulk_requests,
            replies,
            errors,
            sent_bytes,
            received_bytes,
            connects,
            late_replies,
            carried_over,
            timeouts,
            lost,
            out_of_step,
            unauthenticated,
            tls_failed,
            is_up: _,
            is_open: _,
            is_drained: _,
            ejections,
            version: _,
            last_loss: _,
            invalidations_sent,
            invalidations_failed,
            in_flight: _,
        } = self;
        let single = [
            requests,
            bulk_requests,
            replies,
            sent_bytes,
            received_bytes,
            connects,
            late_replies,
            carried_over,
            timeouts,
            lost,
            out_of_step,
            unauthenticated,
            tls_failed,
            ejections,
            invalidations_sent,
            invalidations_failed,
        ];
        errors.iter().chain(single).collect()
    }
}

impl Continued for QueueCounters {
    fn counters(&self) -> Vec<&Counter> {
        let QueueCounters { length: _, slots_busy: _, full } = self;
        vec![full]
    }
}

impl Continued for AcceptCounters {
    fn counters(&self) -> Vec<&Counter> {
        let AcceptCounters { refused, refused_address, refused_relay, pauses } = self;
        vec![refused, refused_address, refused_relay, pauses]
    }
}

impl Continued for NameCounter {
    fn counters(&self) -> Vec<&Counter> {
        let NameCounter { lookups_failed, moves } = self;
        vec![lookups_failed, moves]
    }
}

impl Continued for ListCounter {
    fn counters(&self) -> Vec<&Counter> {
        let ListCounter { changes, failures } = self;
        vec![changes, failures]
    }
}

impl Continued for ScrapeCounters {
    fn counters(&self) -> Vec<&Counter> {
        let ScrapeCounters { scrapes, stale_loops, closed_timeout, closed_limit, closed_size } = self;
        vec![scrapes, stale_loops, closed_timeout, closed_limit, closed_size]
    }
}
