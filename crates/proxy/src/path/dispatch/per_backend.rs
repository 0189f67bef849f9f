//! Step 5. The discipline `per-backend`: each backend has a queue of reads, which slots of one request each serve. Writes are
//! sent at once, on connections of their own.
//!
//! ```text
//!                 ┌─ queue of reads ─▶ reader ─▶ connection, one request in flight
//!    a backend's  │                └─▶ reader ─▶ connection, one request in flight
//!      requests   └─ writes ─────────▶ writer ─▶ connection, as many in flight as come
//! ```
//! All writes of one client use the same writer of each backend, so they never overtake each other. The session keeps reads and
//! writes of one client in order (`path/order`).

use crate::observe::counters::LoopCounters;
use crate::path::backend::connections::Connections;
use crate::path::dispatch::pipelined::{buffer_leg, send_at_once, send_buffered, send_leg};
use crate::path::dispatch::queue::{Queue, Slot, Slots};
use crate::path::dispatch::write_poll::WritePoll;
use crate::path::job::{JobId, LegRef};
use crate::path::jobs::{AnsweredJobs, Time};
use crate::path::order::Access;
use clock::{Nanos, Stage};
use records::Outcome;
use std::sync::Arc;
use std::time::Duration;
use wire::Request;

/// The queues and slots of one loop.
#[derive(Debug)]
pub(crate) struct PerBackend {
    readers: usize,
    writers: usize,
    /// By backend.
    queues: Vec<Queue<LegRef>>,
    slots: Vec<Slots>,
    /// The writers of a published fault, if they take the place of those that send at once.
    write_poll: Option<WritePoll>,
    counters: Arc<LoopCounters>,
}

impl PerBackend {
    /// `readers` slots and `writers` connections for each backend. Of a backend's connections, those of the readers come first.
    pub(crate) fn new(
        readers: usize,
        writers: usize,
        fault_write_poll: Option<Duration>,
        queue: impl Fn() -> Queue<LegRef>,
        counters: Arc<LoopCounters>,
    ) -> PerBackend {
        let backends = 0..counters.backends.len();
        let queues = backends.clone().map(|_| queue()).collect();
        let write_poll = fault_write_poll.map(|interval| WritePoll::new(interval, backends.len(), queue));
        let slots = backends.map(|_| Slots::new(readers)).collect();
        PerBackend { readers, writers, queues, slots, write_poll, counters }
    }

    /// Sends the legs of a job, or queues them.
    pub(crate) fn admit(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        connections: &mut Connections,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        if Access::of(request) != Access::Read {
            if self.write_poll.is_some() {
                return self.admit_polled_write(id, request, connections, answered, time);
            }
            let writer = self.readers + answered.jobs.get(id).session.slot as usize % self.writers;
            let connection = |backend, _: &Connections| self.connection(usize::from(backend), writer);
            return send_at_once(id, request, connection, connections, answered, time);
        }
        let legs = answered.jobs.get(id).legs().len() as u16;
        let mut is_dispatched = false;
        for leg in 0..legs {
            is_dispatched |= self.admit_read(LegRef { job: id, leg }, request, connections, answered, time);
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

    /// Queues the legs of a write until the writer of its first replica has polled.
    fn admit_polled_write(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        connections: &mut Connections,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        let Some(poll) = &mut self.write_poll else { return };
        let legs = answered.jobs.get(id).legs();
        let (count, backend) = (legs.len() as u16, legs.first().map_or(0, |leg| usize::from(leg.backend)));
        for leg in (0..count).map(|leg| LegRef { job: id, leg }) {
            let slot = answered.jobs.get(id).leg(leg.leg);
            if slot.is_placed || slot.answered.is_set() {
                continue;
            }
            slot.queue_length = poll.queue(backend).len() as u32;
            if poll.queue(backend).is_full() {
                let connection = usize::from(slot.backend) * (self.readers + self.writers) + self.readers;
                connections.refuse(connection, leg, Outcome::Overloaded, answered, time.turn);
                continue;
            }
            let bytes = buffer_leg(leg, request, answered.jobs);
            answered.jobs.get(id).leg(leg.leg).is_placed = true;
            poll.push(backend, leg, bytes, time.turn);
        }
        let job = answered.jobs.get(id);
        let now = time.now(job.is_timed);
        job.stamp(Stage::Enqueued, now);
        if !job.is_waiting() {
            job.stamp(Stage::Answered, now);
        }
    }

    /// Sends the next write of each writer whose poll has ended.
    fn send_polled_writes(&mut self, connections: &mut Connections, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        let mut legs = Vec::new();
        for backend in 0..self.queues.len() {
            let Some(poll) = &mut self.write_poll else { return };
            poll.take(backend, answered.jobs, time.turn, &mut legs);
            let now = if legs.is_empty() { time.turn } else { time.clock.now() };
            for leg in legs.drain(..) {
                let job = answered.jobs.get(leg.job);
                let writer = self.readers + job.session.slot as usize % self.writers;
                let connection = self.connection(usize::from(job.leg(leg.leg).backend), writer);
                send_buffered(leg, connection, connections, answered, now);
            }
        }
    }

    /// The next time at which `fill_slots` has something to do although nothing has arrived.
    pub(crate) fn deadline(&self) -> Nanos {
        self.write_poll.as_ref().map_or(Nanos::NEVER, WritePoll::deadline)
    }

    /// Gives a leg a free slot or a place in the queue, or refuses it. Returns whether a slot was free.
    fn admit_read(
        &mut self,
        leg: LegRef,
        request: &Request<'_>,
        connections: &mut Connections,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) -> bool {
        let slot = answered.jobs.get(leg.job).leg(leg.leg);
        if slot.is_placed || slot.answered.is_set() {
            return false;
        }
        let backend = usize::from(slot.backend);
        slot.queue_length = (self.queues[backend].len() + self.slots[backend].busy()) as u32;
        let free = self.slots[backend].free().last().copied();
        if let Some(reader) = free.filter(|_| self.queues[backend].is_empty()) {
            self.slots[backend].set(reader, Slot::Busy);
            send_leg(leg, request, self.connection(backend, reader), connections, answered, time.turn);
            return true;
        }
        if !self.slots[backend].any_up() {
            connections.refuse(self.connection(backend, 0), leg, Outcome::BackendDown, answered, time.turn);
        } else if self.queues[backend].is_full() {
            self.counters.queues[backend].full.add(1);
            connections.refuse(self.connection(backend, 0), leg, Outcome::Overloaded, answered, time.turn);
        } else {
            let bytes = buffer_leg(leg, request, answered.jobs);
            answered.jobs.get(leg.job).leg(leg.leg).is_placed = true;
            self.queues[backend].push(leg, bytes);
        }
        false
    }

    /// Updates the slot of a connection that had an event.
    pub(crate) fn update(&mut self, connection: usize, connections: &Connections) {
        let (backend, slot) = (connection / self.per_backend(), connection % self.per_backend());
        if slot >= self.readers {
            return;
        }
        let state = match connections.get(connection) {
            reader if reader.waiting() > 0 => Slot::Busy,
            reader if reader.admits().is_ok() => Slot::Free,
            _ => Slot::Down,
        };
        self.slots[backend].set(slot, state);
    }

    /// Gives free slots to queued legs. If no slot of a backend is up, its queued legs fail at once.
    pub(crate) fn fill_slots(
        &mut self,
        connections: &mut Connections,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        if self.write_poll.is_some() {
            self.send_polled_writes(connections, answered, time);
        }
        let mut read = None;
        for backend in 0..self.queues.len() {
            let is_up = self.slots[backend].any_up();
            while !self.queues[backend].is_empty() {
                let free = self.slots[backend].free().last().copied();
                if free.is_none() && is_up {
                    break;
                }
                let now = *read.get_or_insert_with(|| time.clock.now());
                let Some(leg) = self.queues[backend].pop() else { break };
                match free {
                    Some(reader) => {
                        self.slots[backend].set(reader, Slot::Busy);
                        send_buffered(leg, self.connection(backend, reader), connections, answered, now);
                    }
                    None => connections.refuse(self.connection(backend, 0), leg, Outcome::BackendDown, answered, now),
                }
            }
        }
    }

    /// Fails all queued legs.
    pub(crate) fn close(&mut self, connections: &Connections, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        while let Some(leg) = self.write_poll.as_mut().and_then(WritePoll::pop) {
            let connection =
                self.connection(usize::from(answered.jobs.get(leg.job).leg(leg.leg).backend), self.readers);
            connections.refuse(connection, leg, Outcome::BackendDown, answered, time.clock.now());
        }
        for backend in 0..self.queues.len() {
            while let Some(leg) = self.queues[backend].pop() {
                let connection = self.connection(backend, 0);
                connections.refuse(connection, leg, Outcome::BackendDown, answered, time.clock.now());
            }
        }
    }

    /// Publishes the gauges.
    pub(crate) fn publish(&self) {
        for (backend, counters) in self.counters.queues.iter().enumerate() {
            counters.length.set(self.queues[backend].len() as u64);
            counters.slots_busy.set(self.slots[backend].busy() as u64);
        }
    }

    fn per_backend(&self) -> usize {
        self.readers + self.writers
    }

    /// The connection of a backend's reader or, after the readers, writer.
    fn connection(&self, backend: usize, slot: usize) -> usize {
        backend * self.per_backend() + slot
    }
}
