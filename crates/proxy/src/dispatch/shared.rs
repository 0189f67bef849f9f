//! The discipline `shared`: one queue for everything, served by slots. A slot owns one connection to every backend and
//! holds them all until the whole request, with all its replicas and parts, is answered.
//!
//! ```text
//!    all requests ─▶ queue ─▶ slot ─▶ connection to each backend ─▶ answered as a whole, slot free again
//!                          └▶ slot ─▶ connection to each backend
//! ```
//! Two requests of one client in two slots may overtake each other; the session sees to it that they may (`overlap`).

use crate::backends::Backends;
use crate::counters::LoopCounters;
use crate::dispatch::Time;
use crate::dispatch::legs::{keep, put, release};
use crate::dispatch::queue::{Queue, Slot, Slots};
use crate::finished::Finished;
use crate::job::Job;
use crate::jobs::JobId;
use crate::leg::LegRef;
use clock::{Nanos, Stage};
use records::Outcome;
use std::sync::Arc;
use wire::Request;

/// The queue and the slots of one loop.
#[derive(Debug)]
pub(crate) struct Shared {
    servers: usize,
    queue: Queue<JobId>,
    slots: Slots,
    /// Whether each connection accepts requests; and for each backend, how many do.
    is_up: Vec<bool>,
    up: Vec<usize>,
    counters: Arc<LoopCounters>,
}

impl Shared {
    /// So many slots before the backends that the counters know. Of the connections, each slot has one to each backend.
    pub(crate) fn new(workers: usize, queue: Queue<JobId>, counters: Arc<LoopCounters>) -> Shared {
        let servers = counters.backends.len();
        let mut slots = Slots::new(workers);
        (0..workers).rev().for_each(|slot| slots.set(slot, Slot::Free));
        Shared { servers, queue, slots, is_up: vec![false; workers * servers], up: vec![0; servers], counters }
    }

    /// Gives a parsed and routed job a free slot or a place in the queue, or refuses it.
    pub(crate) fn admit(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        backends: &mut Backends,
        finished: &mut Finished<'_>,
        time: Time<'_>,
    ) {
        let mut is_dispatched = false;
        if self.refuse_what_is_down(id, backends, finished, time.turn) {
            let free = if self.queue.is_empty() { self.pick(finished.jobs.get(id)) } else { None };
            if let Some(slot) = free {
                is_dispatched = true;
                each_waiting_leg(id, finished, |leg, backend, finished| {
                    put(leg, request, self.connection(slot, backend), backends, finished, time.turn);
                });
                self.settle_slot(slot, backends);
            } else {
                self.enqueue(id, request, finished, time.turn);
            }
        }
        let job = finished.jobs.get(id);
        let now = time.now(job.is_timed);
        job.stamp(Stage::Enqueued, now);
        if is_dispatched {
            job.stamp(Stage::Dispatched, now);
        }
        if !job.is_waiting() {
            job.stamp(Stage::Answered, now);
        }
    }

    /// Fails the legs whose backend no slot has a connection to; true when others are left.
    fn refuse_what_is_down(&mut self, id: JobId, backends: &Backends, finished: &mut Finished<'_>, now: Nanos) -> bool {
        let queue_length = (self.queue.len() + self.slots.busy()) as u32;
        each_waiting_leg(id, finished, |leg, backend, finished| {
            finished.jobs.get(id).leg(leg.leg).queue_length = queue_length;
            if self.up[backend] == 0 {
                backends.refuse(self.connection(0, backend), leg, Outcome::BackendDown, finished, now);
            }
        });
        finished.jobs.get(id).is_waiting()
    }

    fn enqueue(&mut self, id: JobId, request: &Request<'_>, finished: &mut Finished<'_>, now: Nanos) {
        let is_full = self.queue.is_full();
        self.counters.queues[0].full.add(u64::from(is_full));
        let mut bytes = 0;
        each_waiting_leg(id, finished, |leg, _, finished| {
            if is_full {
                finished.queue_full(leg, now);
            } else {
                bytes += keep(leg, request, finished.jobs);
            }
        });
        if !is_full {
            self.queue.push(id, bytes);
        }
    }

    /// The slot that a job is to take; none when it must wait. One that lacks a connection the job needs is left alone as
    /// long as another slot has them all: it would fail at once what the others could serve, and so draw ever more.
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

    /// Looks at a connection that something has happened to.
    pub(crate) fn settle(&mut self, connection: usize, backends: &Backends) {
        let is_up = backends.get(connection).admits() != Err(Outcome::BackendDown);
        let backend = connection % self.servers;
        match (std::mem::replace(&mut self.is_up[connection], is_up), is_up) {
            (false, true) => self.up[backend] += 1,
            (true, false) => self.up[backend] -= 1,
            _ => {}
        }
        self.settle_slot(connection / self.servers, backends);
    }

    /// A slot is busy as long as an answer is missing on any of its connections.
    fn settle_slot(&mut self, slot: usize, backends: &Backends) {
        let first = self.connection(slot, 0);
        let is_busy = (first..first + self.servers).any(|connection| backends.get(connection).waiting() > 0);
        self.slots.set(slot, if is_busy { Slot::Busy } else { Slot::Free });
    }

    /// Gives free slots to those who wait, in their order.
    pub(crate) fn pump(&mut self, backends: &mut Backends, finished: &mut Finished<'_>, time: Time<'_>) {
        let mut read = None;
        while let Some(&id) = self.queue.head() {
            let Some(slot) = self.pick(finished.jobs.get(id)) else { return };
            self.queue.pop();
            let now = *read.get_or_insert_with(|| time.clock.now());
            each_waiting_leg(id, finished, |leg, backend, finished| {
                release(leg, self.connection(slot, backend), backends, finished, now);
            });
            self.settle_slot(slot, backends);
        }
    }

    /// Fails all who wait.
    pub(crate) fn close(&mut self, backends: &Backends, finished: &mut Finished<'_>, time: Time<'_>) {
        while let Some(id) = self.queue.pop() {
            each_waiting_leg(id, finished, |leg, backend, finished| {
                let connection = self.connection(0, backend);
                backends.refuse(connection, leg, Outcome::BackendDown, finished, time.clock.now());
            });
        }
    }

    /// Publishes the gauges.
    pub(crate) fn publish(&self) {
        self.counters.queues[0].length.set(self.queue.len() as u64);
        self.counters.queues[0].slots_busy.set(self.slots.busy() as u64);
    }

    /// The connection of a slot to a backend.
    fn connection(&self, slot: usize, backend: usize) -> usize {
        slot * self.servers + backend
    }
}

/// Does something to every leg of a job that is not answered yet, and lets it know the leg's backend.
fn each_waiting_leg(id: JobId, finished: &mut Finished<'_>, mut act: impl FnMut(LegRef, usize, &mut Finished<'_>)) {
    for leg in 0..finished.jobs.get(id).legs().len() as u8 {
        let slot = finished.jobs.get(id).leg(leg);
        if !slot.is_placed && !slot.answered.is_set() {
            let backend = usize::from(slot.backend);
            act(LegRef { job: id, leg }, backend, finished);
        }
    }
}
