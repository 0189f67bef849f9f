//! Step 5. The discipline `shared`: one queue for all requests, which slots serve. A slot owns one connection to every backend,
//! and is busy until the whole request, with all its replicas and parts, is answered.
//!
//! ```text
//!    all requests ─▶ queue ─▶ slot ─▶ connection to each backend ─▶ answered as a whole, slot free again
//!                          └▶ slot ─▶ connection to each backend
//!    background jobs ────────────────▶ one further connection to each backend, any number in flight
//! ```
//! A background job takes no slot, because a slow shadow pool would otherwise hold the slots of all clients.
//! Two requests of one client in two slots may overtake each other. The session allows that for reads only (`path/order`).

use crate::observe::counters::LoopCounters;
use crate::path::backend::connections::Connections;
use crate::path::dispatch::pipelined::{buffer_leg, send_at_once, send_buffered, send_leg};
use crate::path::dispatch::queue::{Queue, Slot, Slots};
use crate::path::dispatch::write_hold::WriteHold;
use crate::path::job::{Job, JobId, LegRef};
use crate::path::jobs::{AnsweredJobs, Time};
use crate::path::leg_request::is_read;
use clock::{Nanos, Stage};
use records::Outcome;
use std::sync::Arc;
use std::time::Duration;
use wire::Request;

/// The queue and the slots of one loop.
#[derive(Debug)]
pub(crate) struct Shared {
    servers: usize,
    queue: Queue<JobId>,
    slots: Slots,
    /// Whether each connection accepts requests, and for each backend the number of connections that do.
    is_up: Vec<bool>,
    up: Vec<usize>,
    /// Whether a request is in flight on each connection, and for each slot the number of connections on which one is.
    is_waiting: Vec<bool>,
    waiting: Vec<usize>,
    /// The slots that a published fault keeps busy.
    write_hold: Option<WriteHold>,
    counters: Arc<LoopCounters>,
}

impl Shared {
    /// `workers` slots, each with one connection to each backend. The connections of background jobs follow theirs.
    pub(crate) fn new(
        workers: usize,
        fault_write_hold: Option<Duration>,
        queue: Queue<JobId>,
        counters: Arc<LoopCounters>,
    ) -> Shared {
        let servers = counters.backends.len();
        let mut slots = Slots::new(workers);
        (0..workers).rev().for_each(|slot| slots.set(slot, Slot::Free));
        let write_hold = fault_write_hold.map(|time| WriteHold::new(time, workers));
        let (is_up, up) = (vec![false; workers * servers], vec![0; servers]);
        let (is_waiting, waiting) = (vec![false; workers * servers], vec![0; workers]);
        Shared { servers, queue, slots, is_up, up, is_waiting, waiting, write_hold, counters }
    }

    /// Gives a job a free slot or a place in the queue, or refuses it.
    pub(crate) fn admit(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        connections: &mut Connections,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        if answered.jobs.get(id).background.is_some() {
            let connection = |backend, _: &Connections| self.connection(self.slots.len(), usize::from(backend));
            return send_at_once(id, request, connection, connections, answered, time);
        }
        let mut is_dispatched = false;
        if self.refuse_legs_to_down_backends(id, connections, answered, time.turn) {
            let free = if self.queue.is_empty() { self.pick(answered.jobs.get(id)) } else { None };
            if let Some(slot) = free {
                is_dispatched = true;
                each_waiting_leg(id, answered, |leg, backend, answered| {
                    send_leg(leg, request, self.connection(slot, backend), connections, answered, time.turn);
                });
                self.note_sent(slot, answered.jobs.get(id), connections, time.turn);
            } else {
                self.enqueue(id, request, answered, time.turn);
            }
        }
        let job = answered.jobs.get(id);
        let now = time.now(job.is_timed);
        job.stamp(Stage::Enqueued, now);
        if is_dispatched {
            job.stamp(Stage::Dispatched, now);
        }
        if !job.is_waiting() {
            job.stamp(Stage::Answered, now);
        }
    }

    /// Fails the legs to backends that no slot has an open connection to. Returns whether other legs are left.
    fn refuse_legs_to_down_backends(
        &mut self,
        id: JobId,
        connections: &Connections,
        answered: &mut AnsweredJobs<'_>,
        now: Nanos,
    ) -> bool {
        let queue_length = (self.queue.len() + self.slots.busy()) as u32;
        each_waiting_leg(id, answered, |leg, backend, answered| {
            answered.jobs.get(id).leg(leg.leg).queue_length = queue_length;
            if self.up[backend] == 0 {
                connections.refuse(self.connection(0, backend), leg, Outcome::BackendDown, answered, now);
            }
        });
        answered.jobs.get(id).is_waiting()
    }

    fn enqueue(&mut self, id: JobId, request: &Request<'_>, answered: &mut AnsweredJobs<'_>, now: Nanos) {
        let is_full = self.queue.is_full();
        self.counters.queues[0].full.add(u64::from(is_full));
        let mut bytes = 0;
        each_waiting_leg(id, answered, |leg, _, answered| {
            if is_full {
                answered.queue_full(leg, now);
            } else {
                bytes += buffer_leg(leg, request, answered.jobs);
            }
        });
        if !is_full {
            self.queue.push(id, bytes);
        }
    }

    /// The slot for a job, or none if the job must wait. A slot without a connection that the job needs is not used as long as
    /// another slot has them all: its requests would fail at once, so it would be free more often than the others and fail more.
    fn pick(&self, job: &Job) -> Option<usize> {
        let serves = |slot: usize| {
            let mut missing = job
                .legs()
                .iter()
                .filter(|leg| !leg.is_placed && !leg.answered.is_set())
                .map(|leg| usize::from(leg.backend));
            missing.all(|backend| self.is_up[self.connection(slot, backend)] || self.up[backend] == 0)
        };
        let last = self.slots.free().last().copied()?;
        if serves(last) {
            return Some(last);
        }
        let free = self.slots.free().iter().rev().copied().find(|&slot| serves(slot));
        free.or_else(|| (0..self.slots.len()).all(|slot| !serves(slot)).then_some(last))
    }

    /// Updates the slot of a connection that had an event, if a slot owns it.
    pub(crate) fn update(&mut self, connection: usize, connections: &Connections) {
        if connection >= self.is_up.len() {
            return;
        }
        let is_up = connections.get(connection).admits() != Err(Outcome::BackendDown);
        let backend = connection % self.servers;
        match (std::mem::replace(&mut self.is_up[connection], is_up), is_up) {
            (false, true) => self.up[backend] += 1,
            (true, false) => self.up[backend] -= 1,
            _ => {}
        }
        self.count_waiting(connection, connections);
    }

    /// Updates a slot that has sent a job. If the configuration has this fault, a write keeps it busy.
    fn note_sent(&mut self, slot: usize, job: &Job, connections: &Connections, now: Nanos) {
        if let Some(hold) = self.write_hold.as_mut().filter(|_| !is_read(job.verb)) {
            hold.hold(slot, now);
            self.update_slot(slot);
        }
        for leg in job.legs() {
            self.count_waiting(self.connection(slot, usize::from(leg.backend)), connections);
        }
    }

    /// Updates the slot of a connection if the connection has got its first request or answered its last one. The others are not looked
    /// at, because there may be hundreds.
    fn count_waiting(&mut self, connection: usize, connections: &Connections) {
        let slot = connection / self.servers;
        let is_waiting = connections.get(connection).waiting() > 0;
        match (std::mem::replace(&mut self.is_waiting[connection], is_waiting), is_waiting) {
            (false, true) => self.waiting[slot] += 1,
            (true, false) => self.waiting[slot] -= 1,
            _ => return,
        }
        self.update_slot(slot);
    }

    /// Updates a slot: it is busy as long as a request is in flight on any of its connections.
    fn update_slot(&mut self, slot: usize) {
        let is_held = self.write_hold.as_ref().is_some_and(|hold| hold.is_held(slot));
        let is_busy = is_held || self.waiting[slot] > 0;
        self.slots.set(slot, if is_busy { Slot::Busy } else { Slot::Free });
    }

    /// Gives free slots to queued jobs, in their order.
    pub(crate) fn fill_slots(
        &mut self,
        connections: &mut Connections,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        while let Some(slot) = self.write_hold.as_mut().and_then(|hold| hold.release(time.turn)) {
            self.update_slot(slot);
        }
        let mut read = None;
        while let Some(&id) = self.queue.head() {
            let Some(slot) = self.pick(answered.jobs.get(id)) else { return };
            self.queue.pop();
            let now = *read.get_or_insert_with(|| time.clock.now());
            each_waiting_leg(id, answered, |leg, backend, answered| {
                send_buffered(leg, self.connection(slot, backend), connections, answered, now);
            });
            self.note_sent(slot, answered.jobs.get(id), connections, now);
        }
    }

    /// The next time at which `fill_slots` has something to do although nothing has arrived.
    pub(crate) fn deadline(&self) -> Nanos {
        self.write_hold.as_ref().map_or(Nanos::NEVER, WriteHold::deadline)
    }

    /// Fails all queued jobs.
    pub(crate) fn close(&mut self, connections: &Connections, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        while let Some(id) = self.queue.pop() {
            each_waiting_leg(id, answered, |leg, backend, answered| {
                let connection = self.connection(0, backend);
                connections.refuse(connection, leg, Outcome::BackendDown, answered, time.clock.now());
            });
        }
    }

    /// Publishes the gauges.
    pub(crate) fn publish(&self) {
        self.counters.queues[0].length.set(self.queue.len() as u64);
        self.counters.queues[0].slots_busy.set(self.slots.busy() as u64);
    }

    /// The connection of a slot to a backend or, after the slots, that of background jobs.
    fn connection(&self, slot: usize, backend: usize) -> usize {
        slot * self.servers + backend
    }
}

/// Calls `act` for every leg of a job that is not sent or answered yet, with the leg's backend.
fn each_waiting_leg(
    id: JobId,
    answered: &mut AnsweredJobs<'_>,
    mut act: impl FnMut(LegRef, usize, &mut AnsweredJobs<'_>),
) {
    for leg in 0..answered.jobs.get(id).legs().len() as u16 {
        let slot = answered.jobs.get(id).leg(leg);
        if !slot.is_placed && !slot.answered.is_set() {
            let backend = usize::from(slot.backend);
            act(LegRef { job: id, leg }, backend, answered);
        }
    }
}
