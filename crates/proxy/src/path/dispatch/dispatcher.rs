//! Step 4. Routes a request and gives it legs, one for each backend that must answer. A request for one key of a pool without
//! policies has one leg, to the key's primary; the legs of all others are chosen in `replication`.

use crate::config::Config;
use crate::observe::counters::LoopCounters;
use crate::path::backend::connections::Connections;
use crate::path::dispatch::discipline::LegSender;
use crate::path::job::{FollowUp, Job, JobId, NextStep};
use crate::path::jobs::{AnsweredJobs, Time};
use crate::path::leg_request::{first_key, is_read};
use crate::path::meta;
use crate::path::route::Router;
use crate::replication::pending_invalidations::PendingInvalidations;
use crate::replication::{PlainPool, Replication};
use clock::{Nanos, Stage};
use std::sync::Arc;
use wire::{Limits, Request, Verb};

/// One loop's way from requests to backends.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    router: Arc<Router>,
    /// For each pool, which of its requests no policy concerns.
    plain: Vec<PlainPool>,
    sender: LegSender,
    replication: Replication,
    counters: Arc<LoopCounters>,
}

impl Dispatcher {
    /// A dispatcher for the loop with this index. `pending` has an entry for each backend.
    pub(crate) fn new(
        config: &Config,
        router: Arc<Router>,
        index: usize,
        connections: Connections,
        pending: Vec<PendingInvalidations>,
        counters: &Arc<LoopCounters>,
    ) -> Dispatcher {
        Dispatcher {
            plain: PlainPool::all(config),
            sender: LegSender::new(config, index, connections, router.clone(), counters),
            replication: Replication::new(config, router.clone(), pending, counters.clone()),
            router,
            counters: counters.clone(),
        }
    }

    /// Routes a request and sends its legs. If a backend refuses a leg, the leg is answered with an error at once.
    pub(crate) fn dispatch(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        let is_read = is_read(request.verb());
        let has_several_keys = matches!(request, Request::Get { keys, .. } if keys.are_more_than(1));
        // Of a multi-get, `wanted` has the keys, unless all go to one backend.
        if is_read && !has_several_keys {
            answered.jobs.get(id).keep(request);
        }
        if let Some((pool, primary)) = self.plain_primary(request, answered.jobs.get(id)) {
            let counters = &self.counters.pools[pool];
            if is_read { &counters.reads } else { &counters.writes }.add(1);
            let job = answered.jobs.get(id);
            if let Request::Meta(meta) = request {
                job.keep_line(meta);
            }
            job.keys = 1;
            job.add_leg(primary);
            job.stamp(Stage::Routed, time.now(job.is_timed));
            return self.sender.send_legs(id, request, answered, time);
        }
        let Dispatcher { sender, replication, .. } = self;
        let mut send = |id, request: &Request<'_>, answered: &mut AnsweredJobs<'_>| {
            sender.send_legs(id, request, answered, time);
        };
        replication.send_request(id, request, answered, time, &mut send);
    }

    /// Decides what follows for a job some of whose legs have answered, and sends the legs that follow.
    pub(crate) fn after_leg_answered(
        &mut self,
        id: JobId,
        limits: &Limits,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) -> NextStep {
        if answered.jobs.get(id).follow_up == FollowUp::None {
            return NextStep::Reply;
        }
        let Dispatcher { sender, replication, .. } = self;
        let mut send = |id, request: &Request<'_>, answered: &mut AnsweredJobs<'_>| {
            sender.send_legs(id, request, answered, time);
        };
        replication.after_leg_answered(id, limits, answered, time.turn, &mut send)
    }

    /// Sends what is due, and lets queued requests take the slots that have become free.
    pub(crate) fn tick(&mut self, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        let Dispatcher { sender, replication, .. } = self;
        let mut send = |id, request: &Request<'_>, answered: &mut AnsweredJobs<'_>| {
            sender.send_legs(id, request, answered, time);
        };
        replication.send_due(answered, time.turn, &mut send);
        self.sender.fill_slots(answered, time);
    }

    /// The next time at which `tick` or a connection has something to do; it may be too early, but never too late.
    pub(crate) fn deadline(&self) -> Nanos {
        self.sender.deadline().min(self.replication.deadline())
    }

    /// Records the result of a background job that has ended.
    pub(crate) fn finish_background(&self, job: &Job, now: Nanos) {
        self.replication.finish_background(job, now);
    }

    /// Lets the connections for large replies open before they are needed.
    pub(crate) fn open_bulk(&mut self, now: Nanos) {
        self.sender.open_bulk(now);
    }

    /// The connections, for the event loop to read from.
    pub(crate) fn connections(&mut self) -> &mut Connections {
        &mut self.sender.connections
    }

    /// Whether a connection may have more to read than its turn allowed.
    pub(crate) fn is_readable(&self) -> bool {
        self.sender.connections.is_readable()
    }

    /// Writes the requests that were added to connections in this turn.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        self.sender.flush(answered, time);
    }

    /// Publishes the gauges at the end of a turn.
    pub(crate) fn end_turn(&mut self) {
        self.sender.end_turn();
    }

    /// Closes every connection, and fails all requests that are queued or in flight.
    pub(crate) fn close(&mut self, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        self.sender.close(answered, time);
    }

    /// The pool and the primary of a request for one key, if no policy of the pool and no invalidation concerns it.
    fn plain_primary(&self, request: &Request<'_>, job: &Job) -> Option<(usize, u16)> {
        if matches!(request, Request::Get { keys, .. } if keys.are_more_than(1)) {
            return None;
        }
        let mut decoded = None;
        let key = first_key(request, &mut decoded)?;
        let pool = job.pool.map_or_else(|| self.router.pool_of(key), usize::from);
        let own = &self.plain[pool];
        if !own.is_plain(request.verb()) {
            return None;
        }
        let is_elsewhere = usize::from(own.read_pool) != pool && is_plain_read(request, job.verb);
        let pool = if is_elsewhere { own.read_pool.into() } else { pool };
        if !self.plain[pool].has_one_leg {
            return None;
        }
        let primary = self.router.pool(pool).primary(key);
        // After a reload, a server can have pending invalidations that a pool with replicas has left.
        self.replication.has_nothing_pending(primary).then_some((pool, primary))
    }
}

/// Whether a request goes to the read pool of its pool. A `gat` whose values are read again is encoded as `get`, but the job has the
/// verb of its client.
fn is_plain_read(request: &Request<'_>, verb_of_client: Verb) -> bool {
    match request {
        Request::Get { verb, .. } => *verb == Verb::Get && verb_of_client == Verb::Get,
        Request::Meta(meta) => meta::may_read_replicas(meta),
        _ => false,
    }
}
