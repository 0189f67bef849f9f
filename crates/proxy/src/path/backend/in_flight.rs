//! The requests on one connection to a backend that wait for their replies, first in, first out.

use crate::path::backend::match_reply::Expect;
use crate::path::job::LegRef;
use crate::path::jobs::Jobs;
use clock::Nanos;
use std::collections::VecDeque;

/// A request that waits for its reply.
#[derive(Debug)]
pub(crate) struct Pending {
    /// None for a probe.
    pub(crate) leg: Option<LegRef>,
    pub(crate) expect: Expect,
    /// Offsets in the stream of requests between which this one stands.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) deadline: Nanos,
}

/// Those that wait, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pending: VecDeque<Pending>,
    /// How many at the end the kernel has not taken whole.
    unsent: usize,
}

impl InFlight {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The one whose reply is next.
    pub(crate) fn head(&self) -> Option<&Pending> {
        self.pending.front()
    }

    /// Gives the one whose reply is next more time; returns the leg that it is for.
    pub(crate) fn extend_head(&mut self, deadline: Nanos) -> Option<LegRef> {
        let head = self.pending.front_mut()?;
        head.deadline = deadline;
        head.leg
    }

    /// Adds one whose bytes are still to be written. Its reply cannot come before the others', so it has as much time as they.
    pub(crate) fn push(&mut self, mut pending: Pending) {
        pending.deadline = pending.deadline.max(self.pending.back().map_or(Nanos::UNSET, |last| last.deadline));
        self.pending.push_back(pending);
        self.unsent += 1;
    }

    /// Takes the one whose reply is complete; and whether it was answered before the kernel had all of it, as a backend
    /// may refuse a value before it has read it.
    pub(crate) fn pop(&mut self) -> Option<(Pending, bool)> {
        let is_unsent = self.unsent == self.pending.len();
        let head = self.pending.pop_front()?;
        self.unsent -= usize::from(is_unsent);
        Some((head, is_unsent))
    }

    /// Notes that the kernel has taken so many bytes of the stream.
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

    /// Takes all of them: the connection is lost.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Pending> {
        self.unsent = 0;
        self.pending.drain(..)
    }
}
