//! Hedged reads: a read whose first replica is slow is sent to a second one, within a budget.
//!
//! Source: J. Dean and L. A. Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013. The budget is a token bucket:
//! each read adds a fraction of a token, and each hedge takes one. A slow pool therefore does not get every read twice.

use crate::path::job::{Job, JobId};
use crate::path::jobs::Jobs;
use clock::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// The most tokens in the bucket.
const BURST: f64 = 10.0;
/// The most reads that are watched at one time; a read beyond is not hedged.
const WATCHED_MAX: usize = 1 << 16;

/// The reads of one pool that wait for their first replica.
#[derive(Debug)]
pub(crate) struct Hedges {
    delay: Duration,
    budget: f64,
    tokens: f64,
    /// In the order in which they become due, since all have the same delay.
    watched: VecDeque<Watched>,
}

/// One read. Job numbers are reused, so the request is identified by the number of this use too.
#[derive(Clone, Copy, Debug)]
struct Watched {
    due: Nanos,
    job: JobId,
    begun: u32,
}

impl Hedges {
    /// No reads yet, and one token.
    pub(crate) fn new(delay: Duration, budget: f64) -> Hedges {
        Hedges { delay, budget, tokens: 1.0, watched: VecDeque::new() }
    }

    /// Watches a read that has been sent.
    pub(crate) fn watch(&mut self, id: JobId, job: &Job, now: Nanos) {
        self.tokens = (self.tokens + self.budget).min(BURST);
        if self.watched.len() < WATCHED_MAX {
            self.watched.push_back(Watched { due: now + self.delay, job: id, begun: job.begun });
        }
    }

    /// When the next read is due.
    pub(crate) fn deadline(&self) -> Nanos {
        self.watched.front().map_or(Nanos::NEVER, |watched| watched.due)
    }

    /// The next read that is due and still waits for its only leg.
    pub(crate) fn next_due(&mut self, jobs: &mut Jobs, now: Nanos) -> Option<JobId> {
        while let Some(watched) = self.watched.front().copied().filter(|watched| watched.due <= now) {
            self.watched.pop_front();
            let is_waiting = jobs.find(watched.job).is_some_and(|job| {
                job.begun == watched.begun
                    // A fill has the session of the client whose read found the value.
                    && job.background.is_none()
                    && !job.is_over
                    && !job.is_listed
                    && job.is_waiting()
                    && job.legs().len() == 1
            });
            if is_waiting {
                return Some(watched.job);
            }
        }
        None
    }

    /// Takes a token, if there is one.
    pub(crate) fn spend(&mut self) -> bool {
        let has_token = self.tokens >= 1.0;
        self.tokens -= if has_token { 1.0 } else { 0.0 };
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::job::BackgroundJob;
    use std::time::Duration;

    #[test]
    fn hedges_stay_within_their_budget() {
        let mut hedges = Hedges::new(Duration::from_millis(1), 0.05);
        let mut jobs = Jobs::default();
        let mut spent = 0;
        for now in 0..10_000 {
            let id = jobs.begin();
            let job = jobs.get(id);
            job.add_leg(0);
            hedges.watch(id, job, Nanos(now));
            assert_eq!(hedges.next_due(&mut jobs, Nanos(now)), None, "the hedge is not due yet");
            assert_eq!(hedges.next_due(&mut jobs, Nanos(now + 1_000_000)), Some(id));
            spent += u32::from(hedges.spend());
        }
        assert!((500..=501).contains(&spent), "{spent}");
    }

    #[test]
    fn an_answered_read_is_not_hedged() {
        let mut hedges = Hedges::new(Duration::from_millis(1), 1.0);
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        hedges.watch(id, jobs.get(id), Nanos(0));
        jobs.end(id);
        assert_eq!(hedges.next_due(&mut jobs, Nanos(1_000_000)), None);
        let again = jobs.begin();
        let job = jobs.get(again);
        job.add_leg(0);
        hedges.watch(id, jobs.get(id), Nanos(0));
        jobs.get(again).begun += 1;
        assert_eq!(hedges.next_due(&mut jobs, Nanos(1_000_000)), None, "another request has this number now");
        hedges.watch(id, jobs.get(id), Nanos(0));
        jobs.get(again).background = Some(BackgroundJob::Fill);
        assert_eq!(
            hedges.next_due(&mut jobs, Nanos(1_000_000)),
            None,
            "a background job of the client has this number now"
        );
    }
}
