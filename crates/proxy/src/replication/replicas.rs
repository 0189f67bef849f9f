//! Which of a key's backends a request is sent to: first, and after other backends have failed or did not have the key.
//! A backend with a pending invalidation of the key is never read.

use crate::config::{Failover, Reads};
use crate::observe::counters::LoopCounters;
use crate::path::job::{Candidate, Job, Leg, LegCommand};
use crate::path::jobs::Outstanding;
use crate::path::late::{Fate, LateRequest};
use crate::path::route::Router;
use crate::replication::pending_invalidations::{LINGER, PendingInvalidations};
use crate::replication::policy::Policy;
use clock::Nanos;
use records::Outcome;
use std::sync::Arc;
use std::time::Duration;
use wire::Verb;

/// How much longer than its time to live a value may be returned: memcached's clock ticks once a second.
const EXPIRY_MARGIN: Duration = Duration::from_secs(3);

/// The backends of all pools, with what one event loop knows about them.
#[derive(Debug)]
pub(crate) struct Replicas {
    pub(crate) router: Arc<Router>,
    /// By pool.
    pub(crate) policies: Vec<Policy>,
    /// By backend.
    pub(crate) pending: Vec<PendingInvalidations>,
    pub(crate) counters: Arc<LoopCounters>,
}

/// A backend chosen for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) backend: u16,
    pub(crate) candidate: Candidate,
    /// An invalidation of the key is pending there, so the request must not be sent.
    pub(crate) is_withheld: bool,
}

impl Replicas {
    /// The key's primary, for requests that no other backend may answer.
    pub(crate) fn primary(&self, pool: usize, key: &[u8]) -> Choice {
        self.at_primary(self.router.pool(pool).primary(key), key)
    }

    /// The same if it is known which backend is the primary.
    pub(crate) fn at_primary(&self, backend: u16, key: &[u8]) -> Choice {
        Choice { backend, candidate: Candidate::Primary, is_withheld: self.is_pending(backend, key) }
    }

    /// The pool that serves a key: that of the client's listener, or that of the key's route. A plain `get` goes to its read pool. Other
    /// reads need the pool that writes change: their cas tokens are valid there, and it has the value that they touch.
    pub(crate) fn serving_pool(&self, key: &[u8], listener_pool: Option<usize>, verb: Verb) -> usize {
        let pool = listener_pool.unwrap_or_else(|| self.router.pool_of(key));
        if verb == Verb::Get { self.read_pool(pool) } else { pool }
    }

    /// The pool to which plain reads of the keys of this one are sent.
    pub(crate) fn read_pool(&self, pool: usize) -> usize {
        self.policies[pool].read_pool.unwrap_or(pool)
    }

    /// The backend that a read of a key is sent to first, given the key's primary. `turn` differs from request to request, so that reads
    /// are spread evenly.
    pub(crate) fn first_read(
        &self,
        pool: usize,
        (primary, key): (u16, &[u8]),
        turn: usize,
        outstanding: &Outstanding,
    ) -> Choice {
        let policy = &self.policies[pool];
        if policy.replicas == 1 || (policy.reads == Reads::Primary && policy.failover == Failover::Never) {
            return self.at_primary(primary, key);
        }
        let (servers, replicas) = (self.router.pool(pool), u16::from(policy.replicas));
        let offset = (turn % usize::from(replicas)) as u16;
        let start = match policy.reads {
            Reads::Primary => 0,
            Reads::Any => offset,
            Reads::LeastOutstanding => {
                let steps = (0..replicas).map(|step| (step + offset) % replicas);
                steps.min_by_key(|&step| outstanding.of(servers.replica(primary, step))).unwrap_or(0)
            }
        };
        let usable = (0..replicas).map(|tried| (tried, (start + tried) % replicas)).find(|&(_, step)| {
            let backend = servers.replica(primary, step);
            self.is_up(backend) && !self.is_pending(backend, key)
        });
        let (tried, step) = usable.unwrap_or((0, start));
        let backend = servers.replica(primary, step);
        let candidate = Candidate::Replica { step: step as u8, tried: tried as u8 };
        Choice { backend, candidate, is_withheld: usable.is_none() && self.is_pending(backend, key) }
    }

    /// The backend that a read is sent to after `candidate` has failed or, if `is_miss`, did not have the key.
    pub(crate) fn next_read(&self, pool: usize, key: &[u8], candidate: Candidate, is_miss: bool) -> Option<Choice> {
        let (step, tried) = candidate.place()?;
        let policy = &self.policies[pool];
        let may_read_replicas = match policy.failover {
            Failover::Never => false,
            Failover::OnError => !is_miss,
            Failover::OnMiss => true,
        };
        if may_read_replicas && let Some(choice) = self.next_replica(pool, key, step, tried) {
            return Some(choice);
        }
        if is_miss {
            let backend = self.warm_up_source(pool, key)?;
            return Some(Choice { backend, candidate: Candidate::WarmUp, is_withheld: false });
        }
        let (other, _) = policy.failover_pool?;
        // That pool may have no replicas itself, and still have pending invalidations: of keys that this pool has changed.
        let backend = self.router.pool(other).primary(key);
        let candidate = Candidate::FailoverPool;
        (!self.is_pending(backend, key)).then_some(Choice { backend, candidate, is_withheld: false })
    }

    /// The backend of the warm-up pool from which a value is read if it is missing on the primary. None if an invalidation of
    /// the key is pending there, or if this backend is the primary itself because the pools share servers.
    pub(crate) fn warm_up_source(&self, pool: usize, key: &[u8]) -> Option<u16> {
        let (other, _) = self.policies[pool].warm_up?;
        let source = self.router.pool(other).primary(key);
        let own = self.own_replica_at(pool, key, source);
        let is_pending = |backend| self.is_pending(backend, key);
        // A late write can still be on its way to an own replica, and the read below uses another connection.
        let may_be_read = |own| {
            own != self.router.pool(pool).primary(key) && !is_pending(own) && !self.policies[pool].has_late_replicas()
        };
        let is_usable = own.is_none_or(may_be_read);
        (is_usable && !is_pending(source)).then_some(source)
    }

    /// The replica of a key that is the same server as this backend of another pool.
    fn own_replica_at(&self, pool: usize, key: &[u8], backend: u16) -> Option<u16> {
        let servers = self.router.pool(pool);
        let own = (0..self.policies[pool].replicas).map(|step| servers.replica(servers.primary(key), step.into()));
        own.into_iter().find(|&own| self.router.is_same_server(own, backend))
    }

    /// The next replica that can be read, after the one `step` servers behind the primary and `tried` others before it.
    pub(crate) fn next_replica(&self, pool: usize, key: &[u8], step: u8, tried: u8) -> Option<Choice> {
        let (servers, replicas) = (self.router.pool(pool), self.policies[pool].replicas);
        let primary = servers.primary(key);
        (tried + 1..replicas).find_map(|count| {
            let step = (step + (count - tried)) % replicas;
            let backend = servers.replica(primary, u16::from(step));
            let is_usable = self.is_up(backend) && !self.is_pending(backend, key);
            let candidate = Candidate::Replica { step, tried: count };
            is_usable.then_some(Choice { backend, candidate, is_withheld: false })
        })
    }

    /// Adds legs to the replicas of a key, starting `from` servers behind its primary.
    pub(crate) fn add_replicas(&self, job: &mut Job, pool: usize, primary: u16, from: u8, command: LegCommand) {
        for step in from..self.policies[pool].replicas {
            let leg = job.add_leg(self.router.pool(pool).replica(primary, step.into()));
            job.leg(leg).command = command;
        }
    }

    /// Adds deletions on the warm-up pool, so that the old value does not come back from there. Servers of that pool that are
    /// also replicas of the key need none, because the write itself has replaced the value there.
    pub(crate) fn add_warm_up_deletions(&self, job: &mut Job, pool: usize) {
        let Some((other, _)) = self.policies[pool].warm_up else { return };
        let servers = self.router.pool(other);
        for step in 0..self.policies[other].replicas {
            let backend = servers.replica(servers.primary(job.key()), step.into());
            let own = self.own_replica_at(pool, job.key(), backend);
            let primary = self.router.pool(pool).primary(job.key());
            // `mg` has set an expiry time on the primary only.
            if own.is_some_and(|own| job.verb != Verb::Mg || own == primary) {
                continue;
            }
            let leg = job.add_leg(backend);
            (job.leg(leg).command, job.leg(leg).is_secondary) = (LegCommand::Delete, true);
        }
    }

    /// Adds deletions on the other pools that deletes of this pool reach. Returns whether there are any. A deletion that fails is
    /// repeated as a pending invalidation.
    pub(crate) fn add_deletions(&self, job: &mut Job, pool: usize) -> bool {
        let legs = job.legs().len();
        for &other in &self.policies[pool].delete_pools {
            let servers = self.router.pool(other);
            let primary = servers.primary(job.key());
            for step in 0..self.policies[other].replicas {
                let backend = servers.replica(primary, step.into());
                // A warm-up pool that both pools use receives the deletion already.
                if job.legs()[..legs].iter().any(|leg| leg.backend == backend && leg.command == LegCommand::Delete) {
                    continue;
                }
                let leg = job.add_leg(backend);
                (job.leg(leg).command, job.leg(leg).is_secondary) = (LegCommand::Delete, true);
            }
        }
        job.legs().len() > legs
    }

    /// Adds legs that keep a value of the failover pool from being read after this write. Returns whether there are any: while no
    /// write of the pool has failed over for `expiry`, its failover pool has no value.
    ///
    /// The legs are sent when the pool has answered the write, not together with it. An earlier write of the client can still be
    /// on its way to the failover pool until then.
    pub(crate) fn add_failover_deletions(&self, job: &mut Job, pool: usize, now: Nanos) -> bool {
        let Some((other, seconds)) = self.policies[pool].failover_pool else { return false };
        if job.has_failover_deletions || !self.may_hold_failover_values(other, now) {
            return false;
        }
        job.has_failover_deletions = true;
        let command = match job.verb {
            Verb::Touch => LegCommand::CapExpiry { seconds },
            _ => LegCommand::Delete,
        };
        for step in 0..self.policies[other].replicas {
            let servers = self.router.pool(other);
            let leg = job.add_leg(servers.replica(servers.primary(job.key()), step.into()));
            (job.leg(leg).command, job.leg(leg).is_secondary) = (command, true);
        }
        if let Verb::Touch = job.verb {
            self.hold_failover_values(other, seconds, now);
        }
        true
    }

    /// Invalidates the key on the failover pool after a write that may or may not have been applied.
    pub(crate) fn invalidate_failover_pool(&self, pool: usize, key: &[u8], now: Nanos) {
        let Some((other, _)) = self.policies[pool].failover_pool else { return };
        if self.may_hold_failover_values(other, now) {
            let servers = self.router.pool(other);
            let backends =
                (0..self.policies[other].replicas).map(|step| servers.replica(servers.primary(key), step.into()));
            backends.for_each(|backend| self.pending[usize::from(backend)].add(key, None, now));
        }
    }

    /// Invalidates the key on the backend of a leg that has failed, and that the server may still apply.
    pub(crate) fn invalidate_failed_leg(&self, leg: &Leg, key: &[u8], now: Nanos) {
        let pending = &self.pending[usize::from(leg.backend)];
        match &leg.late {
            Some(late) => pending.add_late(key, late, now),
            None => pending.add(key, may_linger(leg).then_some(LINGER), now),
        }
    }

    /// Records that a failover pool may store values for `seconds` from now.
    pub(crate) fn hold_failover_values(&self, pool: usize, seconds: u32, now: Nanos) {
        let until = now + Duration::from_secs(seconds.into()) + EXPIRY_MARGIN;
        self.router.pool(pool).all().for_each(|backend| self.pending[usize::from(backend)].hold_failover_values(until));
    }

    /// Whether a failover pool may store values of other pools.
    fn may_hold_failover_values(&self, pool: usize, now: Nanos) -> bool {
        self.router.pool(pool).all().any(|backend| self.pending[usize::from(backend)].may_hold_failover_values(now))
    }

    /// Whether an invalidation of a key is pending on a backend.
    pub(crate) fn is_pending(&self, backend: u16, key: &[u8]) -> bool {
        self.pending[usize::from(backend)].is_pending(key)
    }

    /// Whether this loop had a connection to the backend that accepts requests at the end of the last turn.
    pub(crate) fn is_up(&self, backend: u16) -> bool {
        self.counters.backends[usize::from(backend)].is_up.get() > 0
    }
}

/// Adds a leg that sends the request to this candidate too.
pub(crate) fn add_candidate(job: &mut Job, choice: &Choice) -> u16 {
    let leg = job.add_leg(choice.backend);
    job.leg(leg).candidate = choice.candidate;
    leg
}

/// The leg that fetches a part of a multi-get from the chosen backend; it is added if there is none.
pub(crate) fn part_leg(job: &mut Job, choice: &Choice) -> u16 {
    let fits = |leg: &Leg| {
        let is_new = !leg.is_placed && !leg.answered.is_set();
        leg.backend == choice.backend && leg.is_withheld == choice.is_withheld && is_new
    };
    let known = job.legs().iter().position(fits);
    known.map_or_else(
        || {
            let leg = job.add_leg(choice.backend);
            job.leg(leg).is_withheld = choice.is_withheld;
            leg
        },
        |leg| leg as u16,
    )
}

/// Whether the server has answered a leg, and not with an error.
pub(crate) fn is_answered(leg: &Leg) -> bool {
    leg.answered.is_set() && leg.outcome == Outcome::Answered
}

/// How long after the first deletion the server may still apply a request that has failed.
pub(crate) fn linger(leg: &Leg, policy: &Policy) -> Option<Duration> {
    match leg.late.as_ref().map(LateRequest::fate) {
        Some(Fate::InFlight) => Some(policy.reply_timeout + LINGER),
        // A deletion that is sent now follows it.
        Some(Fate::Answered) => None,
        Some(Fate::Lost) | None => may_linger(leg).then_some(LINGER),
    }
}

/// Whether the server may still apply the request: it has timed out and is in flight, or the server has it in its receive buffer
/// although the connection was closed.
pub(crate) fn may_linger(leg: &Leg) -> bool {
    leg.sent.is_set() && matches!(leg.outcome, Outcome::Timeout | Outcome::BackendLost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, FailoverPool, PoolConfig, WarmUp};

    /// A pool with a replica of each value on each of four backends, all up. Backend 4 is its failover pool, and 5 its warm-up pool.
    fn replicas(change: impl FnOnce(&mut PoolConfig)) -> Replicas {
        let servers = |from: usize, to| (from..to).map(|index| format!("host{index}:11311")).collect::<Vec<_>>();
        let mut config = Config::new("127.0.0.1:0", &servers(0, 4));
        config.pools.push(PoolConfig::new("failover", &servers(4, 5)));
        config.pools.push(PoolConfig::new("source", &servers(5, 6)));
        let (pool, expiry) = (&mut config.pools[0], Duration::from_secs(60));
        (pool.replicas, pool.failover) = (4, Failover::OnError);
        pool.failover_pool = Some(FailoverPool { pool: "failover".into(), expiry });
        pool.warm_up = Some(WarmUp { from: "source".into(), expiry });
        change(pool);
        config.check().unwrap();
        let counters = Arc::new(LoopCounters::new(3, 6, 0));
        counters.backends.iter().for_each(|backend| backend.is_up.set(1));
        let pending = (0..6).map(|_| PendingInvalidations::default()).collect();
        Replicas { router: Arc::new(Router::new(&config)), policies: Policy::all(&config), pending, counters }
    }

    /// The backend `step` servers behind the primary of the key `k`.
    fn server(replicas: &Replicas, step: u16) -> u16 {
        let pool = replicas.router.pool(0);
        pool.replica(pool.primary(b"k"), step)
    }

    fn invalidate(replicas: &Replicas, backend: u16) {
        replicas.pending[usize::from(backend)].add(b"k", None, Nanos(1));
    }

    fn down(replicas: &Replicas, backend: u16) {
        replicas.counters.backends[usize::from(backend)].is_up.set(0);
    }

    /// The backends that a read is sent to one after another, when each fails or, if `is_miss`, does not have the key: steps
    /// from the primary, or the numbers of backends of other pools.
    fn read_from(replicas: &Replicas, turn: usize, is_miss: bool) -> Vec<u16> {
        let first = replicas.first_read(0, (replicas.router.primary(b"k"), b"k"), turn, &Outstanding::default());
        let next = |choice: &Choice| replicas.next_read(0, b"k", choice.candidate, is_miss);
        let choices = std::iter::successors(Some(first), next);
        let step = |backend| (0..4).find(|&step| server(replicas, step) == backend).unwrap_or(backend);
        choices.map(|choice| step(choice.backend)).collect()
    }

    #[test]
    fn replicas_are_read_in_order_and_then_the_other_pool() {
        let on_error = replicas(|_| {});
        assert_eq!(read_from(&on_error, 2, false), [0, 1, 2, 3, 4]);
        assert_eq!(read_from(&on_error, 2, true), [0, 5], "a miss is not an error");
        let on_miss = replicas(|pool| pool.failover = Failover::OnMiss);
        assert_eq!(read_from(&on_miss, 2, true), [0, 1, 2, 3, 5]);
        assert_eq!(read_from(&on_miss, 2, false), [0, 1, 2, 3, 4]);
        let never = replicas(|pool| pool.failover = Failover::Never);
        assert_eq!((read_from(&never, 2, false), read_from(&never, 2, true)), (vec![0, 4], vec![0, 5]));
        let any = replicas(|pool| pool.reads = Reads::Any);
        assert_eq!((read_from(&any, 2, false), read_from(&any, 7, false)), (vec![2, 3, 0, 1, 4], vec![3, 0, 1, 2, 4]));
    }

    #[test]
    fn a_backend_that_is_down_or_has_a_pending_invalidation_is_skipped() {
        for make_unusable in [down, invalidate] {
            let replicas = replicas(|_| {});
            make_unusable(&replicas, server(&replicas, 1));
            assert_eq!(read_from(&replicas, 0, false), [0, 2, 3, 4]);
            make_unusable(&replicas, server(&replicas, 0));
            assert_eq!(read_from(&replicas, 0, false), [2, 3, 4]);
        }
        let any = replicas(|pool| pool.reads = Reads::Any);
        down(&any, server(&any, 2));
        assert_eq!(read_from(&any, 2, false), [3, 0, 1, 4]);
    }

    #[test]
    fn if_no_replica_can_be_read_the_first_is_withheld_only_for_a_pending_invalidation() {
        let replicas = replicas(|_| {});
        (0..4).for_each(|step| down(&replicas, server(&replicas, step)));
        let first = || replicas.first_read(0, (replicas.router.primary(b"k"), b"k"), 0, &Outstanding::default());
        assert_eq!((first().backend, first().is_withheld), (server(&replicas, 0), false));
        invalidate(&replicas, server(&replicas, 0));
        assert_eq!((first().backend, first().is_withheld), (server(&replicas, 0), true));
        assert!(replicas.primary(0, b"k").is_withheld && !replicas.primary(0, b"other").is_withheld);
        assert_eq!(read_from(&replicas, 0, false), [0, 4]);
    }

    #[test]
    fn another_pool_with_a_pending_invalidation_is_not_read_even_without_replicas() {
        let replicas = replicas(|_| {});
        [4, 5].iter().for_each(|&backend| invalidate(&replicas, backend));
        assert_eq!((read_from(&replicas, 0, false), read_from(&replicas, 0, true)), (vec![0, 1, 2, 3], vec![0]));
    }

    #[test]
    fn the_replica_with_the_fewest_outstanding_is_read_and_equal_ones_in_turn() {
        let replicas = replicas(|pool| pool.reads = Reads::LeastOutstanding);
        let mut outstanding = Outstanding::default();
        let mut busy = |step, legs| (0..legs).for_each(|_| outstanding.add(server(&replicas, step), false));
        [(0, 3), (1, 1), (2, 2), (3, 1)].iter().for_each(|&(step, legs)| busy(step, legs));
        let chosen = |turn| replicas.first_read(0, (replicas.router.primary(b"k"), b"k"), turn, &outstanding).backend;
        assert_eq!([0, 1, 2, 3].map(chosen), [1, 1, 3, 3].map(|step| server(&replicas, step)));
        down(&replicas, server(&replicas, 1));
        assert_eq!(chosen(0), server(&replicas, 2), "the next one that is up");
    }
}
