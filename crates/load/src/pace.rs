//! What makes the next request of a thread due: a client that is done thinking, an arrival of the open loop, or a row of a trace.
//! Knows no sockets.

use crate::arrivals::ArrivalClock;
use crate::plan::Plan;
use crate::replay::Replay;
use clock::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// One thread's pace.
#[derive(Debug)]
pub(crate) enum Pace {
    Closed(Closed),
    Open(Open),
    Replay(Replay),
}

/// The closed loop: clients that think, and when they are done, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    thinkers: BinaryHeap<Reverse<(Nanos, usize)>>,
}

/// The open loop.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) clock: ArrivalClock,
    /// Clients that may take an arrival, as often as they may take one, and since when; the one that has been free longest
    /// first.
    pub(crate) free: VecDeque<(usize, Nanos)>,
}

/// An arrival that a client takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) client: usize,
    pub(crate) due: Nanos,
    pub(crate) free_since: Nanos,
}

impl Pace {
    /// Whether requests are counted in the second in which they were intended, and followed to their end.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Pace::Closed(_) => false,
            Pace::Open(_) => true,
            Pace::Replay(replay) => replay.is_paced(),
        }
    }

    /// Whether there is something that was to be sent before the end of the window and is not. A number of requests has no
    /// such end.
    pub(crate) fn is_behind(&self, plan: &Plan) -> bool {
        matches!(self, Pace::Open(open) if plan.measure_to() != Nanos::NEVER && open.clock.next() < plan.measure_to())
    }

    /// Whether nothing will be due any more, whatever the time.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Pace::Replay(replay) if replay.is_over())
    }
}

impl Closed {
    /// Lets a client think until `due`.
    pub(crate) fn think_until(&mut self, due: Nanos, client: usize) {
        self.thinkers.push(Reverse((due, client)));
    }

    /// A client that is done thinking, and since when.
    pub(crate) fn next_awake(&mut self, now: Nanos) -> Option<(Nanos, usize)> {
        let Reverse((due, client)) = *self.thinkers.peek()?;
        if due > now {
            return None;
        }
        self.thinkers.pop();
        Some((due, client))
    }

    /// When the next client is done thinking.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.thinkers.peek().map(|Reverse((due, _))| *due)
    }
}

impl Open {
    /// An arrival that is due, and the client that takes it; none while no client that is free can issue it.
    pub(crate) fn next_arrival(
        &mut self,
        now: Nanos,
        end: Nanos,
        can_issue: impl Fn(usize) -> bool,
    ) -> Option<Arrival> {
        let due = self.clock.next();
        if due > now || due >= end {
            return None;
        }
        let at = self.free.iter().position(|&(client, _)| can_issue(client))?;
        let (client, free_since) = self.free.remove(at)?;
        self.clock.advance();
        Some(Arrival { client, due, free_since })
    }

    /// When the next request is due. Those that no client is free for are overdue, and wait for a reply.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        (!self.free.is_empty()).then(|| self.clock.next())
    }
}
