//! Step 8: one client, with one connection or one to each server, and what follows a request that has ended.
//!
//! ```text
//! ready (done thinking, or due) -> issue -> lane (window) -> reply -> join -> think, or free for the next arrival
//! ```
//!
//! Knows no sockets.

use crate::drive::connection::ConnectionId;
use crate::drive::pending::PendingRequest;
use crate::drive::worker::Worker;
use crate::workload::replay::BufferedRow;
use clock::Nanos;
use records::Outcome;
use slab::Slab;
use std::collections::VecDeque;
use std::ops::Range;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number within its thread.
    pub(super) number: usize,
    /// The range of its connections among those of its thread: one, or one to each server.
    pub(crate) lanes: Range<usize>,
    /// The intended time of each request that it may issue now.
    pub(crate) ready: VecDeque<Nanos>,
    /// The rows of a trace that it is to send, in the order of `ready`.
    pub(super) rows: VecDeque<BufferedRow>,
    /// Rows of a trace that are in flight.
    pub(super) in_flight: usize,
    /// Requests that were split over several servers, with the replies received so far.
    pub(super) joins: Slab<Join>,
}

/// A request that was split over several servers.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) whole: PendingRequest,
    pub(super) id: ConnectionId,
    pub(super) parts_left: usize,
    pub(super) outcome: Outcome,
}

impl Client {
    /// Creates client number `number` with these connections.
    pub(crate) fn new(number: usize, lanes: Range<usize>) -> Client {
        Client { number, lanes, ready: VecDeque::new(), rows: VecDeque::new(), in_flight: 0, joins: Slab::new() }
    }

    /// Adds a request that is due, with its row of a trace, if it has one.
    pub(crate) fn take(&mut self, intended: Nanos, row: Option<BufferedRow>) {
        self.ready.push_back(intended);
        self.rows.extend(row);
    }

    /// Step 8: finishes a request or a part of one. When all parts have ended, the client thinks or becomes free for
    /// the next arrival.
    pub(crate) fn finish(
        &mut self,
        worker: &mut Worker<'_>,
        pending: &PendingRequest,
        id: ConnectionId,
        completed: Nanos,
        outcome: Outcome,
    ) {
        self.in_flight -= usize::from(pending.is_row);
        let Some(number) = pending.join else {
            worker.record_result(pending, id, completed, outcome);
            return worker.after_reply(self.number, &mut self.ready, completed, outcome);
        };
        let join = &mut self.joins[number];
        join.whole.absorb(pending);
        join.parts_left -= 1;
        if outcome != Outcome::Answered && join.outcome == Outcome::Answered {
            join.outcome = outcome;
        }
        if join.parts_left == 0 {
            let Join { whole, id, outcome, .. } = self.joins.remove(number);
            worker.record_result(&whole, id, completed, outcome);
            worker.after_reply(self.number, &mut self.ready, completed, outcome);
        }
    }
}
