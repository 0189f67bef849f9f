//! The policies of pools: replicas and quorums, failover, hedging, pending invalidations, shadow and warm-up pools.
//!
//! `path` calls [`Replication`] at two places: [`Replication::send_request`] chooses and sends the legs of a request, and
//! [`Replication::after_leg_answered`] decides what follows a reply. A timer, [`Replication::send_due`], sends hedges and
//! invalidations. Pools without policies never come here. Knows jobs and routes, but no sessions, connections or disciplines:
//! legs are sent by the function `send` that the caller passes.

mod assign;
mod background;
mod cas_token;
mod follow_up;
mod hedges;
mod kept;
pub(crate) mod pending_invalidations;
mod policy;
mod replicas;
mod warm_up;

use crate::config::{Config, Discipline, MultiGet};
use crate::observe::counters::LoopCounters;
use crate::path::job::{FollowUp, Job, JobId, NextStep};
use crate::path::jobs::{AnsweredJobs, Time};
use crate::path::leg_request::deletes;
use crate::path::route::Router;
use crate::replication::assign::Assigner;
use crate::replication::background::{send_fills, send_invalidations, send_shadows, shadow_of};
use crate::replication::hedges::Hedges;
use crate::replication::kept::send_kept;
use crate::replication::pending_invalidations::PendingInvalidations;
use crate::replication::policy::Policy;
use crate::replication::replicas::{Replicas, add_candidate};
use clock::Nanos;
use std::sync::Arc;
use std::time::Duration;
use wire::{Limits, Request, Verb};

/// The shortest time between two turns in which a loop sends invalidations.
const INVALIDATIONS_EVERY: Duration = Duration::from_millis(10);

/// The policies of all pools, as one event loop applies them.
#[derive(Debug)]
pub(crate) struct Replication {
    replicas: Replicas,
    /// The same for shadow requests.
    shadow_replicas: Replicas,
    assigner: Assigner,
    /// By pool.
    hedges: Vec<Option<Hedges>>,
    has_shadows: bool,
    has_warm_up: bool,
    /// The earliest time to send invalidations again.
    next_invalidations: Nanos,
}

impl Replication {
    /// Whether no invalidation is pending on a backend.
    pub(crate) fn has_nothing_pending(&self, backend: u16) -> bool {
        self.replicas.pending[usize::from(backend)].is_empty()
    }
}

/// Which requests for keys of a pool no policy concerns, so that they never need this room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainPool {
    /// No request, because it is copied to a shadow pool, or because multi-gets are not sent by key.
    is_never: bool,
    /// Not its deletes, which reach other pools.
    has_deletes_elsewhere: bool,
    /// The index of the pool to which plain reads go; mostly its own.
    pub(crate) read_pool: u8,
    /// A request that is sent to it has one leg.
    pub(crate) has_one_leg: bool,
}

impl PlainPool {
    /// Of each pool.
    pub(crate) fn all(config: &Config) -> Vec<PlainPool> {
        let is_by_key = multi_get(config) == MultiGet::ByKey;
        let of_pool = |(index, policy): (usize, Policy)| PlainPool {
            is_never: !is_by_key || policy.shadow.is_some(),
            has_deletes_elsewhere: !policy.delete_pools.is_empty(),
            read_pool: policy.read_pool.unwrap_or(index) as u8,
            has_one_leg: policy.has_one_leg(),
        };
        Policy::all(config).into_iter().enumerate().map(of_pool).collect()
    }

    /// Whether no policy of the key's pool concerns a request.
    pub(crate) fn is_plain(self, verb: Verb) -> bool {
        !(self.is_never || self.has_deletes_elsewhere && deletes(verb))
    }
}

/// Whether no policy lets a client's requests overtake each other.
pub(crate) fn keeps_order(config: &Config) -> bool {
    Policy::all(config).iter().all(Policy::keeps_order)
}

fn multi_get(config: &Config) -> MultiGet {
    match config.discipline {
        Discipline::Shared { multi_get, .. } => multi_get,
        Discipline::Pipelined | Discipline::PerBackend { .. } => MultiGet::ByKey,
    }
}

impl Replication {
    /// The policies of this configuration, for one loop. `pending` has an entry for each backend.
    pub(crate) fn new(
        config: &Config,
        router: Arc<Router>,
        pending: Vec<PendingInvalidations>,
        counters: Arc<LoopCounters>,
    ) -> Replication {
        let policies = Policy::all(config);
        let hedges = |policy: &Policy| policy.hedge.map(|hedge| Hedges::new(hedge.delay, hedge.budget));
        let replicas = |policies| {
            let (router, pending, counters) = (router.clone(), pending.clone(), counters.clone());
            Replicas { router, policies, pending, counters }
        };
        Replication {
            shadow_replicas: replicas(Policy::for_shadows(&policies)),
            hedges: policies.iter().map(hedges).collect(),
            has_shadows: policies.iter().any(|policy| policy.shadow.is_some()),
            has_warm_up: policies.iter().any(|policy| policy.warm_up.is_some()),
            replicas: replicas(policies),
            assigner: Assigner::new(multi_get(config)),
            next_invalidations: Nanos::UNSET,
        }
    }

    /// Chooses the legs of a client's request and sends them. A hedged read is remembered, and a shadowed request is sent to its
    /// shadow pool too.
    pub(crate) fn send_request(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
        send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
    ) {
        self.assigner.assign_and_send(id, request, &self.replicas, answered, time, send);
        if self.has_shadows {
            let job = answered.jobs.get(id);
            let (only_pool, pools) = (job.pool, std::mem::take(&mut job.rare.change().key_pools));
            let pool_at = |index: usize| only_pool.or(pools.get(index).copied()).map(usize::from);
            let shadow_of = |index, key: &[u8], is_read| shadow_of(key, is_read, pool_at(index), &self.replicas);
            send_shadows(request, shadow_of, &mut self.assigner, &self.shadow_replicas, answered, time, send);
            answered.jobs.get(id).rare.change().key_pools = pools;
        }
        let job = answered.jobs.get(id);
        if let FollowUp::Read { pool } = job.follow_up
            && let Some(hedges) = &mut self.hedges[usize::from(pool)]
            && job.is_waiting()
        {
            hedges.watch(id, job, time.turn);
        }
    }

    /// Decides what follows now that legs of a job have answered, and sends the legs that follow.
    pub(crate) fn after_leg_answered(
        &mut self,
        id: JobId,
        limits: &Limits,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
        send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
    ) -> NextStep {
        let job = answered.jobs.get(id);
        let replicas = if job.is_shadow() { &self.shadow_replicas } else { &self.replicas };
        let step = replicas.after_leg_answered(job, limits, now);
        match step {
            NextStep::SendLegs => send_kept(id, answered, send),
            NextStep::Reply if self.has_warm_up => send_fills(id, limits, &self.replicas, answered, send),
            _ => {}
        }
        step
    }

    /// Sends the hedges and the invalidations that are due.
    pub(crate) fn send_due(
        &mut self,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
        send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
    ) {
        for pool in 0..self.hedges.len() {
            self.send_hedges(pool, answered, now, send);
        }
        if self.next_invalidations <= now && self.invalidations_due() <= now {
            self.next_invalidations = now + INVALIDATIONS_EVERY;
            send_invalidations(&self.replicas, answered, now, send);
        }
    }

    fn send_hedges(
        &mut self,
        pool: usize,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
        send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
    ) {
        while let Some(hedges) = &mut self.hedges[pool]
            && let Some(id) = hedges.next_due(answered.jobs, now)
        {
            let job = answered.jobs.get(id);
            let Some((step, tried)) = job.legs()[0].candidate.place() else { continue };
            let other = self.replicas.next_replica(pool, job.key(), step, tried);
            if let Some(choice) = other.filter(|_| hedges.spend()) {
                let leg = add_candidate(job, &choice);
                job.leg(leg).is_hedge = true;
                job.has_added_legs = true;
                self.replicas.counters.pools[pool].hedges.add(1);
                send_kept(id, answered, send);
            }
        }
    }

    /// The next time at which `send_due` may have something to send; it may be too early, but never too late.
    pub(crate) fn deadline(&self) -> Nanos {
        let hedges = self.hedges.iter().flatten().map(Hedges::deadline).min().unwrap_or(Nanos::NEVER);
        hedges.min(self.invalidations_due().max(self.next_invalidations))
    }

    /// When the next invalidation is due on a backend that accepts requests.
    fn invalidations_due(&self) -> Nanos {
        let pending = self.replicas.pending.iter().enumerate().filter(|(_, pending)| !pending.is_empty());
        let up = pending.filter(|&(backend, _)| self.replicas.is_up(backend as u16));
        up.map(|(_, pending)| pending.next_due()).min().unwrap_or(Nanos::NEVER)
    }

    /// Records the result of a background job that has ended.
    pub(crate) fn finish_background(&self, job: &Job, now: Nanos) {
        background::finish(job, &self.replicas, now);
    }
}
