//! One client: what it is to send next, on one connection or on one to each server, and what becomes of it.
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
    /// Its connections, among those of its thread: one, or one to each server.
    pub(crate) lanes: Range<usize>,
    /// When each request that it may issue now was intended.
    pub(crate) ready: VecDeque<Nanos>,
    /// Rows of a trace that it is to send, each behind its entry in `ready`.
    pub(super) rows: VecDeque<BufferedRow>,
    /// Rows of a trace that are in flight.
    pub(super) in_flight: usize,
    /// Requests that went to several servers, and what has come back so far.
    pub(super) joins: Slab<Join>,
}

/// A request that went to several servers.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) whole: PendingRequest,
    pub(super) line: ConnectionId,
    pub(super) parts_left: usize,
    pub(super) outcome: Outcome,
}

impl Client {
    /// Client number `number` with these connections.
    pub(crate) fn new(number: usize, lanes: Range<usize>) -> Client {
        Client { number, lanes, ready: VecDeque::new(), rows: VecDeque::new(), in_flight: 0, joins: Slab::new() }
    }

    /// Takes a request that is due, or the row of a trace that it is, until it can be sent.
    pub(crate) fn take(&mut self, intended: Nanos, row: Option<BufferedRow>) {
        self.ready.push_back(intended);
        self.rows.extend(row);
    }

    /// A request, or a part of one, has ended. When all of it has, the client thinks, or is free for the next arrival.
    pub(crate) fn end(
        &mut self,
        worker: &mut Worker<'_>,
        pending: PendingRequest,
        line: ConnectionId,
        completed: Nanos,
        outcome: Outcome,
    ) {
        self.in_flight -= usize::from(pending.is_row);
        let Some(number) = pending.join else {
            worker.end(&pending, line, completed, outcome);
            return worker.next(self.number, &mut self.ready, completed, outcome);
        };
        let join = &mut self.joins[number];
        join.whole.absorb(&pending);
        join.parts_left -= 1;
        if outcome != Outcome::Answered && join.outcome == Outcome::Answered {
            join.outcome = outcome;
        }
        if join.parts_left == 0 {
            let Join { whole, line, outcome, .. } = self.joins.remove(number);
            worker.end(&whole, line, completed, outcome);
            worker.next(self.number, &mut self.ready, completed, outcome);
        }
    }
}
