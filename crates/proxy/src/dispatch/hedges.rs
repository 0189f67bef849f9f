//! Reads that are asked a second time when the first copy is slow, within a budget.
//!
//! Source: J. Dean and L. A. Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013: hedged requests. The budget
//! is a bucket that each read fills a little and each second request empties by one, so that a slow pool is not asked twice
//! for everything.

use crate::job::Job;
use crate::jobs::{JobId, Jobs};
use clock::Nanos;
use std::collections::VecDeque;

/// Second requests that may be saved up.
const BURST: f64 = 10.0;

/// Reads of one pool that are waiting for their first copy.
#[derive(Debug)]
pub(crate) struct Hedges {
    delay: std::time::Duration,
    budget: f64,
    saved: f64,
    /// In the order in which they become due, as all have the same time.
    waiting: VecDeque<Entry>,
}

/// A read, and by what to know it again: numbers of jobs are used again.
#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Nanos,
    job: JobId,
    connection: u32,
    sequence: u32,
}

impl Hedges {
    pub(crate) fn new(delay: std::time::Duration, budget: f64) -> Hedges {
        Hedges { delay, budget, saved: 1.0, waiting: VecDeque::new() }
    }

    /// Notes that a read has been sent.
    pub(crate) fn watch(&mut self, id: JobId, job: &Job, now: Nanos) {
        self.saved = (self.saved + self.budget).min(BURST);
        let (connection, sequence) = (job.session.connection, job.sequence);
        self.waiting.push_back(Entry { due: now + self.delay, job: id, connection, sequence });
    }

    /// When the next one is due.
    pub(crate) fn deadline(&self) -> Nanos {
        self.waiting.front().map_or(Nanos::NEVER, |entry| entry.due)
    }

    /// The next read that is due and still waits for its only leg.
    pub(crate) fn next_due(&mut self, jobs: &mut Jobs, now: Nanos) -> Option<JobId> {
        while let Some(entry) = self.waiting.front().copied().filter(|entry| entry.due <= now) {
            self.waiting.pop_front();
            let is_waiting = jobs.find(entry.job).is_some_and(|job| {
                (job.session.connection, job.sequence) == (entry.connection, entry.sequence)
                    // What copies a value goes the way of the client that has asked for it, and is no read.
                    && job.errand.is_none()
                    && !job.is_over
                    && !job.is_listed
                    && job.is_waiting()
                    && job.legs().len() == 1
            });
            if is_waiting {
                return Some(entry.job);
            }
        }
        None
    }

    /// Takes one second request out of the budget.
    pub(crate) fn spend(&mut self) -> bool {
        let may = self.saved >= 1.0;
        self.saved -= if may { 1.0 } else { 0.0 };
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Errand;
    use std::time::Duration;

    #[test]
    fn second_requests_stay_within_their_share() {
        let mut hedges = Hedges::new(Duration::from_millis(1), 0.05);
        let mut jobs = Jobs::default();
        let mut spent = 0;
        for now in 0..10_000 {
            let id = jobs.begin();
            let job = jobs.get(id);
            job.add_leg(0);
            job.sequence = now as u32;
            hedges.watch(id, job, Nanos(now));
            assert_eq!(hedges.next_due(&mut jobs, Nanos(now)), None, "it is not due yet");
            assert_eq!(hedges.next_due(&mut jobs, Nanos(now + 1_000_000)), Some(id));
            spent += u32::from(hedges.spend());
        }
        assert!((500..=501).contains(&spent), "{spent}");
    }

    #[test]
    fn what_has_been_answered_is_not_asked_again() {
        let mut hedges = Hedges::new(Duration::from_millis(1), 1.0);
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        hedges.watch(id, jobs.get(id), Nanos(0));
        jobs.end(id);
        assert_eq!(hedges.next_due(&mut jobs, Nanos(1_000_000)), None);
        let again = jobs.begin();
        let job = jobs.get(again);
        job.sequence = 7;
        job.add_leg(0);
        hedges.watch(id, jobs.get(id), Nanos(0));
        jobs.get(again).sequence = 8;
        assert_eq!(hedges.next_due(&mut jobs, Nanos(1_000_000)), None, "another request has got the number");
        hedges.watch(id, jobs.get(id), Nanos(0));
        jobs.get(again).errand = Some(Errand::Fill);
        assert_eq!(hedges.next_due(&mut jobs, Nanos(1_000_000)), None, "an errand of the client's has got the number");
    }
}
