//! When the next request of a thread is due: after a think time, at an arrival of the open loop, or at the time of a
//! row of a trace. Knows no sockets.

use crate::drive::plan::Plan;
use crate::workload::arrivals::ArrivalClock;
use crate::workload::replay::Replay;
use clock::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The pace of one thread.
#[derive(Debug)]
pub(crate) enum Pace {
    Closed(Closed),
    Open(Open),
    Replay(Replay),
}

/// The closed loop: the clients that think, the one that finishes first on top.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    thinkers: BinaryHeap<Reverse<(Nanos, usize)>>,
}

/// The open loop.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) clock: ArrivalClock,
    /// The free slots of clients and when they became free, the oldest first. A client has one slot for each further
    /// request that it may have in flight.
    pub(crate) free: VecDeque<(usize, Nanos)>,
}

/// An arrival and the client that takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) client: usize,
    pub(crate) due: Nanos,
    pub(crate) free_since: Nanos,
}

impl Pace {
    /// Whether a request is counted in the second in which it was intended.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Pace::Closed(_) => false,
            Pace::Open(_) => true,
            Pace::Replay(replay) => replay.is_paced(),
        }
    }

    /// Whether a request that was due before the end of the window has not been sent. A run limited by a number of
    /// requests has no such end.
    pub(crate) fn is_behind(&self, plan: &Plan) -> bool {
        matches!(self, Pace::Open(open) if plan.measure_to() != Nanos::NEVER && open.clock.next() < plan.measure_to())
    }

    /// Whether no further request will ever be due.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Pace::Replay(replay) if replay.is_over())
    }
}

impl Closed {
    /// Lets a client think until `due`.
    pub(crate) fn think_until(&mut self, due: Nanos, client: usize) {
        self.thinkers.push(Reverse((due, client)));
    }

    /// A client that has finished thinking, and since when.
    pub(crate) fn next_awake(&mut self, now: Nanos) -> Option<(Nanos, usize)> {
        let Reverse((due, client)) = *self.thinkers.peek()?;
        if due > now {
            return None;
        }
        self.thinkers.pop();
        Some((due, client))
    }

    /// When the next client finishes thinking.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.thinkers.peek().map(|Reverse((due, _))| *due)
    }
}

impl Open {
    /// An arrival that is due, and the client that takes it. Returns none if no free client can issue it.
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

    /// Notes that a client is connected again. It has not been free while it was disconnected.
    pub(crate) fn reconnected(&mut self, client: usize, now: Nanos) {
        self.free.iter_mut().filter(|(free, _)| *free == client).for_each(|(_, since)| *since = now);
    }

    /// When the next request is due. Returns none while no client is free: the next reply wakes the loop.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        (!self.free.is_empty()).then(|| self.clock.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Arrivals, Config};

    #[test]
    fn a_client_is_free_from_its_reply_or_reconnection() {
        let config = Config { arrivals: Arrivals::Constant { per_s: 1e9 }, ..Config::default() };
        let clock = ArrivalClock::new(&config, 0, Nanos(100)).unwrap();
        let mut open = Open { clock, free: [(0, Nanos(40)), (1, Nanos(50)), (0, Nanos(60))].into() };
        let first = open.next_arrival(Nanos(1_000), Nanos::NEVER, |client| client == 1).unwrap();
        assert_eq!((first.client, first.due, first.free_since), (1, Nanos(100), Nanos(50)));
        open.reconnected(0, Nanos(900));
        let later = [Nanos(101), Nanos(102)].map(|_| open.next_arrival(Nanos(1_000), Nanos::NEVER, |_| true).unwrap());
        assert_eq!(later.map(|arrival| (arrival.client, arrival.free_since)), [(0, Nanos(900)); 2]);
        assert_eq!(open.next_due(), None);
    }
}
