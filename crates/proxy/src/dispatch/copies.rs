//! Station 4. Which of a key's backends is asked: first, and after others have failed or did not have it.
//! A backend that owes a key's deletion is never asked for it.

use crate::config::{Failover, Reads};
use crate::counters::LoopCounters;
use crate::debts::Debts;
use crate::jobs::Outstanding;
use crate::leg::Candidate;
use crate::policy::Policy;
use crate::route::Router;
use std::sync::Arc;

/// All pools' backends, with what one loop knows of them.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(crate) router: Router,
    /// By pool.
    pub(crate) policies: Vec<Policy>,
    /// By backend.
    pub(crate) debts: Vec<Arc<Debts>>,
    pub(crate) counters: Arc<LoopCounters>,
}

/// A backend for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) backend: u16,
    pub(crate) candidate: Candidate,
    /// It must not be asked: it owes the key's deletion.
    pub(crate) is_fenced: bool,
}

impl Copies {
    pub(crate) fn new(
        router: Router,
        policies: Vec<Policy>,
        debts: Vec<Arc<Debts>>,
        counters: Arc<LoopCounters>,
    ) -> Copies {
        Copies { router, policies, debts, counters }
    }

    /// The key's primary, for what no other backend may answer.
    pub(crate) fn primary(&self, pool: usize, key: &[u8]) -> Choice {
        let backend = self.router.pool(pool).primary(key);
        let is_fenced = self.policies[pool].has_copies() && self.owes(backend, key);
        Choice { backend, candidate: Candidate::Primary, is_fenced }
    }

    /// The backend that a read asks first. `turn` is another number for each request, so that copies are used evenly.
    pub(crate) fn first(&self, pool: usize, key: &[u8], turn: usize, outstanding: &Outstanding) -> Choice {
        let policy = &self.policies[pool];
        if policy.replicas == 1 || (policy.reads == Reads::Primary && policy.failover == Failover::Never) {
            return self.primary(pool, key);
        }
        let (place, replicas) = (self.router.pool(pool), u16::from(policy.replicas));
        let primary = place.primary(key);
        let offset = (turn % usize::from(replicas)) as u16;
        let start = match policy.reads {
            Reads::Primary => 0,
            Reads::Any => offset,
            Reads::LeastOutstanding => {
                let steps = (0..replicas).map(|step| (step + offset) % replicas);
                steps.min_by_key(|&step| outstanding.of(place.copy(primary, step))).unwrap_or(0)
            }
        };
        let usable = (0..replicas).map(|after| (after, (start + after) % replicas)).find(|&(_, step)| {
            let backend = place.copy(primary, step);
            self.is_up(backend) && !self.owes(backend, key)
        });
        let (after, step) = usable.unwrap_or((0, start));
        let backend = place.copy(primary, step);
        let candidate = Candidate::Copy { step: step as u8, after: after as u8 };
        Choice { backend, candidate, is_fenced: usable.is_none() && self.owes(backend, key) }
    }

    /// The backend that a read asks when `candidate` has failed or, if `is_miss`, did not have the key.
    pub(crate) fn next(&self, pool: usize, key: &[u8], candidate: Candidate, is_miss: bool) -> Option<Choice> {
        let (step, after) = match candidate {
            Candidate::Primary => (0, 0),
            Candidate::Copy { step, after } => (step, after),
            Candidate::StandIn | Candidate::WarmUp => return None,
        };
        let policy = &self.policies[pool];
        let may_ask_copies = match policy.failover {
            Failover::Never => false,
            Failover::OnError => !is_miss,
            Failover::OnMiss => true,
        };
        if may_ask_copies && let Some(choice) = self.copy_after(pool, key, step, after) {
            return Some(choice);
        }
        let (other, candidate) = match is_miss {
            true => (policy.warm_up, Candidate::WarmUp),
            false => (policy.stand_in, Candidate::StandIn),
        };
        let (other, _) = other?;
        // Such a pool may have no copies of its own, and owe deletions all the same: what this one has changed.
        let backend = self.router.pool(other).primary(key);
        (!self.owes(backend, key)).then_some(Choice { backend, candidate, is_fenced: false })
    }

    /// The next copy that can be asked, after one that is so many steps from the primary and `after` others.
    pub(crate) fn copy_after(&self, pool: usize, key: &[u8], step: u8, after: u8) -> Option<Choice> {
        let (place, replicas) = (self.router.pool(pool), self.policies[pool].replicas);
        let primary = place.primary(key);
        (after + 1..replicas).find_map(|count| {
            let step = (step + (count - after)) % replicas;
            let backend = place.copy(primary, u16::from(step));
            let is_usable = self.is_up(backend) && !self.owes(backend, key);
            let candidate = Candidate::Copy { step, after: count };
            is_usable.then_some(Choice { backend, candidate, is_fenced: false })
        })
    }

    /// Whether a backend owes the deletion of a key.
    pub(crate) fn owes(&self, backend: u16, key: &[u8]) -> bool {
        self.debts[usize::from(backend)].owes(key)
    }

    /// Whether this loop has a connection to a backend that takes requests, as it was at the end of the last turn.
    pub(crate) fn is_up(&self, backend: u16) -> bool {
        self.counters.backends[usize::from(backend)].is_up.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, FailoverPool, PoolConfig, WarmUp};
    use clock::Nanos;
    use std::time::Duration;

    /// A pool with copies everywhere on four backends, all up; backend 4 stands in for it, and 5 is where missing values come from.
    fn copies(change: impl FnOnce(&mut PoolConfig)) -> Copies {
        let servers = |from: usize, to| (from..to).map(|index| format!("host{index}:11311")).collect::<Vec<_>>();
        let mut config = Config::new("127.0.0.1:0", &servers(0, 4));
        config.pools.push(PoolConfig::new("stand-in", &servers(4, 5)));
        config.pools.push(PoolConfig::new("source", &servers(5, 6)));
        let (pool, expiry) = (&mut config.pools[0], Duration::from_secs(60));
        (pool.replicas, pool.failover) = (4, Failover::OnError);
        pool.failover_pool = Some(FailoverPool { pool: "stand-in".into(), expiry });
        pool.warm_up = Some(WarmUp { from: "source".into(), expiry });
        change(pool);
        config.check().unwrap();
        let counters = Arc::new(LoopCounters::new(3, 6, 0));
        counters.backends.iter().for_each(|backend| backend.is_up.set(1));
        let debts = (0..6).map(|_| Arc::default()).collect();
        Copies::new(Router::new(&config), Policy::all(&config), debts, counters)
    }

    /// The backend that is so many steps from the primary of the key `k`.
    fn copy(copies: &Copies, step: u16) -> u16 {
        let pool = copies.router.pool(0);
        pool.copy(pool.primary(b"k"), step)
    }

    fn owe(copies: &Copies, backend: u16) {
        copies.debts[usize::from(backend)].owe(b"k", None, Nanos(1));
    }

    fn down(copies: &Copies, backend: u16) {
        copies.counters.backends[usize::from(backend)].is_up.set(0);
    }

    /// All that a read asks in turn, when each fails or, if `is_miss`, does not have the key: steps, or numbers of others.
    fn asked(copies: &Copies, turn: usize, is_miss: bool) -> Vec<u16> {
        let first = copies.first(0, b"k", turn, &Outstanding::default());
        let next = |choice: &Choice| copies.next(0, b"k", choice.candidate, is_miss);
        let choices = std::iter::successors(Some(first), next);
        let step = |backend| (0..4).find(|&step| copy(copies, step) == backend).unwrap_or(backend);
        choices.map(|choice| step(choice.backend)).collect()
    }

    #[test]
    fn copies_are_asked_in_their_order_and_then_the_other_pool() {
        let on_error = copies(|_| {});
        assert_eq!(asked(&on_error, 2, false), [0, 1, 2, 3, 4]);
        assert_eq!(asked(&on_error, 2, true), [0, 5], "a miss is no error");
        let on_miss = copies(|pool| pool.failover = Failover::OnMiss);
        assert_eq!(asked(&on_miss, 2, true), [0, 1, 2, 3, 5]);
        assert_eq!(asked(&on_miss, 2, false), [0, 1, 2, 3, 4]);
        let never = copies(|pool| pool.failover = Failover::Never);
        assert_eq!((asked(&never, 2, false), asked(&never, 2, true)), (vec![0, 4], vec![0, 5]));
        let any = copies(|pool| pool.reads = Reads::Any);
        assert_eq!((asked(&any, 2, false), asked(&any, 7, false)), (vec![2, 3, 0, 1, 4], vec![3, 0, 1, 2, 4]));
    }

    #[test]
    fn what_is_down_or_owes_the_key_is_passed_over_and_not_asked_later() {
        for pass_over in [down, owe] {
            let copies = copies(|_| {});
            pass_over(&copies, copy(&copies, 1));
            assert_eq!(asked(&copies, 0, false), [0, 2, 3, 4]);
            pass_over(&copies, copy(&copies, 0));
            assert_eq!(asked(&copies, 0, false), [2, 3, 4]);
        }
        let any = copies(|pool| pool.reads = Reads::Any);
        down(&any, copy(&any, 2));
        assert_eq!(asked(&any, 2, false), [3, 0, 1, 4]);
    }

    #[test]
    fn where_nobody_can_be_asked_the_first_refuses_and_is_fenced_only_if_it_owes() {
        let copies = copies(|_| {});
        (0..4).for_each(|step| down(&copies, copy(&copies, step)));
        let first = || copies.first(0, b"k", 0, &Outstanding::default());
        assert_eq!((first().backend, first().is_fenced), (copy(&copies, 0), false));
        owe(&copies, copy(&copies, 0));
        assert_eq!((first().backend, first().is_fenced), (copy(&copies, 0), true));
        assert!(copies.primary(0, b"k").is_fenced && !copies.primary(0, b"other").is_fenced);
        assert_eq!(asked(&copies, 0, false), [0, 4]);
    }

    #[test]
    fn another_pool_that_owes_the_key_is_not_asked_though_it_has_no_copies() {
        let copies = copies(|_| {});
        [4, 5].iter().for_each(|&backend| owe(&copies, backend));
        assert_eq!((asked(&copies, 0, false), asked(&copies, 0, true)), (vec![0, 1, 2, 3], vec![0]));
    }

    #[test]
    fn the_copy_with_the_fewest_outstanding_is_asked_and_equal_ones_in_turn() {
        let copies = copies(|pool| pool.reads = Reads::LeastOutstanding);
        let mut outstanding = Outstanding::default();
        let mut busy = |step, legs| (0..legs).for_each(|_| outstanding.add(copy(&copies, step)));
        [(0, 3), (1, 1), (2, 2), (3, 1)].iter().for_each(|&(step, legs)| busy(step, legs));
        let chosen = |turn| copies.first(0, b"k", turn, &outstanding).backend;
        assert_eq!([0, 1, 2, 3].map(chosen), [1, 1, 3, 3].map(|step| copy(&copies, step)));
        down(&copies, copy(&copies, 1));
        assert_eq!(chosen(0), copy(&copies, 2), "the next one that is up");
    }
}
