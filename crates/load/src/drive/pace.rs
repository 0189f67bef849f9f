//! What makes the next request of a thread due: a client that is done thinking, an arrival of the open loop, or a row of a trace.
//! Knows no sockets.

use crate::drive::plan::Plan;
use crate::workload::arrivals::ArrivalClock;
use crate::workload::replay::Replay;
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

    /// A client has a connection again: until now it was not free, whatever it waits for.
    pub(crate) fn is_back(&mut self, client: usize, now: Nanos) {
        self.free.iter_mut().filter(|(free, _)| *free == client).for_each(|(_, since)| *since = now);
    }

    /// When the next request is due. Those that no client is free for are overdue, and wait for a reply.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        (!self.free.is_empty()).then(|| self.clock.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Arrivals, Config};

    #[test]
    fn a_client_is_free_from_its_reply_or_from_when_it_is_back() {
        let config = Config { arrivals: Arrivals::Constant { per_s: 1e9 }, ..Config::default() };
        let clock = ArrivalClock::new(&config, 0, Nanos(100)).unwrap();
        let mut open = Open { clock, free: [(0, Nanos(40)), (1, Nanos(50)), (0, Nanos(60))].into() };
        let first = open.next_arrival(Nanos(1_000), Nanos::NEVER, |client| client == 1).unwrap();
        assert_eq!((first.client, first.due, first.free_since), (1, Nanos(100), Nanos(50)));
        open.is_back(0, Nanos(900));
        let later = [Nanos(101), Nanos(102)].map(|_| open.next_arrival(Nanos(1_000), Nanos::NEVER, |_| true).unwrap());
        assert_eq!(later.map(|arrival| (arrival.client, arrival.free_since)), [(0, Nanos(900)); 2]);
        assert_eq!(open.next_due(), None);
    }
}
