//! The requests in flight on one connection to a backend, first in, first out.

use crate::path::backend::match_reply::Expect;
use crate::path::job::LegRef;
use crate::path::jobs::Jobs;
use clock::Nanos;
use std::collections::VecDeque;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The leg that it belongs to; none for a probe.
    pub(crate) leg: Option<LegRef>,
    pub(crate) expect: Expect,
    /// The offsets in the output at which the request begins and ends.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) deadline: Nanos,
}

/// The requests in flight, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pending: VecDeque<Pending>,
    /// The number of requests at the end that the kernel has not accepted completely.
    unsent: usize,
}

impl InFlight {
    /// The number of requests.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether there is no request.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The oldest request, whose reply is next.
    pub(crate) fn head(&self) -> Option<&Pending> {
        self.pending.front()
    }

    /// Gives the oldest request more time; returns its leg.
    pub(crate) fn extend_head(&mut self, deadline: Nanos) -> Option<LegRef> {
        let head = self.pending.front_mut()?;
        head.deadline = deadline;
        head.leg
    }

    /// Adds a request that is not written yet. Its reply comes after those of the others, so its deadline is not earlier than theirs.
    pub(crate) fn push(&mut self, mut pending: Pending) {
        pending.deadline = pending.deadline.max(self.pending.back().map_or(Nanos::UNSET, |last| last.deadline));
        self.pending.push_back(pending);
        self.unsent += 1;
    }

    /// Removes the oldest request, whose reply is complete. Also returns whether it was answered before it was written completely:
    /// a backend may refuse a value before it has read it.
    pub(crate) fn pop(&mut self) -> Option<(Pending, bool)> {
        let is_unsent = self.unsent == self.pending.len();
        let head = self.pending.pop_front()?;
        self.unsent -= usize::from(is_unsent);
        Some((head, is_unsent))
    }

    /// Stamps the requests among the first `written` bytes of the output as sent.
    pub(crate) fn mark_sent(&mut self, written: u64, jobs: &mut Jobs, now: Nanos) {
        while self.unsent > 0 {
            let pending = &self.pending[self.pending.len() - self.unsent];
            if pending.end > written {
                return;
            }
            if let Some(LegRef { job, leg }) = pending.leg {
                jobs.get(job).leg_sent(leg, now);
            }
            self.unsent -= 1;
        }
    }

    /// Removes all requests, because the connection is lost.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Pending> {
        self.unsent = 0;
        self.pending.drain(..)
    }
}
