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
