//! Step 5. Sends the legs of a job as the configured discipline demands: at once, or through a queue when a slot is free.
//!
//! ```text
//!           ┌ pipelined    ──────────────────▶ the one connection to each leg's backend; large replies have a second one
//!   legs ───┼ per-backend  reads ─▶ queue ───▶ a reader of the backend; writes ─▶ a writer of the backend
//!           └ shared       ─────▶ queue ─────▶ a slot: its connections to all backends
//!                            background jobs ──▶ one further connection to each backend
//! ```

use crate::config::{Config, Discipline, share};
use crate::observe::counters::LoopCounters;
use crate::path::backend::connections::Connections;
use crate::path::backend::server::Purpose;
use crate::path::dispatch::per_backend::PerBackend;
use crate::path::dispatch::pipelined::{send_at_once, send_bulk};
use crate::path::dispatch::queue::Queue;
use crate::path::dispatch::shared::Shared;
use crate::path::job::{JobId, LegRef};
use crate::path::jobs::{AnsweredJobs, Time};
use crate::path::leg_request::is_read;
use crate::path::route::Router;
use clock::Nanos;
use records::Outcome;
use std::sync::Arc;
use wire::Request;

/// The connections of one loop, behind the configured discipline.
#[derive(Debug)]
pub(crate) struct LegSender {
    discipline: LoopDiscipline,
    pub(crate) connections: Connections,
    router: Arc<Router>,
    /// By backend.
    names: Vec<String>,
    counters: Arc<LoopCounters>,
}

/// One loop's part of the configured discipline: its queues and slots.
#[derive(Debug)]
enum LoopDiscipline {
    Pipelined,
    PerBackend(PerBackend),
    Shared(Shared),
}

/// The backend and the purpose of each connection that the loop with this index needs, by the connections' numbers.
pub(crate) fn connections_of_loop(config: &Config, index: usize) -> Vec<(usize, Purpose)> {
    let own = |slots| share(slots, config.loops, index);
    let backends = config.backends().count();
    let each = |purpose| (0..backends).map(move |backend| (backend, purpose));
    match config.discipline {
        Discipline::Pipelined => each(Purpose::Requests).chain(each(Purpose::Bulk)).collect(),
        Discipline::PerBackend { readers, writers, .. } => {
            let connections = |connection| std::iter::repeat_n(connection, own(readers) + own(writers));
            each(Purpose::Requests).flat_map(connections).collect()
        }
        Discipline::Shared { workers, .. } => {
            // Also without a policy that has background jobs: a configuration can inherit pending invalidations from one that had.
            (0..own(workers)).flat_map(|_| each(Purpose::Requests)).chain(each(Purpose::Background)).collect()
        }
    }
}

/// The names of a loop's queues.
pub(crate) fn queue_names(config: &Config) -> Vec<String> {
    match config.discipline {
        Discipline::Pipelined => Vec::new(),
        Discipline::PerBackend { .. } => config.unique_backend_names(),
        Discipline::Shared { .. } => vec!["shared".into()],
    }
}

impl LoopDiscipline {
    fn new(config: &Config, index: usize, counters: &Arc<LoopCounters>) -> LoopDiscipline {
        let own = |slots| share(slots, config.loops, index);
        match config.discipline {
            Discipline::Pipelined => LoopDiscipline::Pipelined,
            Discipline::PerBackend { readers, writers, fault_write_poll } => {
                let queue = || Queue::new(config.queue, config.backend_buffer_bytes);
                let own = PerBackend::new(own(readers), own(writers), fault_write_poll, queue, counters.clone());
                LoopDiscipline::PerBackend(own)
            }
            Discipline::Shared { workers, fault_write_hold, .. } => {
                let queue = Queue::new(config.queue, config.backend_buffer_bytes);
                LoopDiscipline::Shared(Shared::new(own(workers), fault_write_hold, queue, counters.clone()))
            }
        }
    }
}

impl LegSender {
    /// The discipline of the loop with this index, with its connections.
    pub(crate) fn new(
        config: &Config,
        index: usize,
        connections: Connections,
        router: Arc<Router>,
        counters: &Arc<LoopCounters>,
    ) -> LegSender {
        let discipline = LoopDiscipline::new(config, index, counters);
        LegSender { discipline, connections, router, names: config.backend_names(), counters: counters.clone() }
    }

    /// Sends the legs of a job that are not sent or queued yet. A withheld leg fails at once.
    pub(crate) fn send_legs(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        answered: &mut AnsweredJobs<'_>,
        time: Time<'_>,
    ) {
        answered.jobs.note_write(id, request);
        for leg in 0..answered.jobs.get(id).legs().len() as u16 {
            let job = answered.jobs.get(id);
            let is_background = job.background.is_some();
            let slot = job.leg(leg);
            if std::mem::replace(&mut slot.is_counted, true) {
                continue;
            }
            let (backend, is_withheld) = (slot.backend, slot.is_withheld);
            answered.jobs.outstanding.add(backend, is_background);
            if is_withheld {
                self.fail_withheld(LegRef { job: id, leg }, backend, answered, time);
            }
        }
        let connections = &mut self.connections;
        match &mut self.discipline {
            LoopDiscipline::Pipelined if answered.jobs.get(id).is_bulk => {
                send_bulk(id, request, self.names.len(), connections, answered, time);
            }
            LoopDiscipline::Pipelined => {
                send_at_once(id, request, |backend, _| usize::from(backend), connections, answered, time);
            }
            LoopDiscipline::PerBackend(own) => own.admit(id, request, connections, answered, time),
            LoopDiscipline::Shared(own) => own.admit(id, request, connections, answered, time),
        }
    }

    fn fail_withheld(&self, leg: LegRef, backend: u16, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        let is_read = is_read(answered.jobs.get(leg.job).verb);
        let pool = self.router.pool_of_backend(backend);
        self.counters.pools[pool].withheld_reads.add(u64::from(is_read));
        answered.leg_failed(leg, &self.names[usize::from(backend)], Outcome::BackendDown, time.turn);
    }

    /// Lets queued requests take the slots that have become free.
    pub(crate) fn fill_slots(&mut self, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        let connections = &mut self.connections;
        match &mut self.discipline {
            LoopDiscipline::Pipelined => {}
            LoopDiscipline::PerBackend(own) => {
                connections.active().iter().for_each(|&connection| own.update(connection, connections));
                own.fill_slots(connections, answered, time);
            }
            LoopDiscipline::Shared(own) => {
                connections.active().iter().for_each(|&connection| own.update(connection, connections));
                own.fill_slots(connections, answered, time);
            }
        }
    }

    /// The next time at which a connection or the discipline has something to do; it may be too early, but never too late.
    pub(crate) fn deadline(&self) -> Nanos {
        let own = match &self.discipline {
            LoopDiscipline::PerBackend(own) => own.deadline(),
            LoopDiscipline::Shared(own) => own.deadline(),
            LoopDiscipline::Pipelined => Nanos::NEVER,
        };
        own.min(self.connections.deadline())
    }

    /// Lets the bulk connections open.
    pub(crate) fn open_bulk(&mut self, now: Nanos) {
        if let LoopDiscipline::Pipelined = self.discipline {
            let backends = self.names.len();
            (backends..2 * backends).for_each(|connection| self.connections.wake(connection, now));
        }
    }

    /// Writes the requests that were added to connections in this turn.
    pub(crate) fn flush(&mut self, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        self.fill_slots(answered, time);
        // If a connection fails while it is written to, its slot may become free.
        while self.connections.flush(answered, time.clock) {
            self.fill_slots(answered, time);
        }
    }

    /// Publishes the gauges at the end of a turn.
    pub(crate) fn end_turn(&mut self) {
        self.connections.end_turn();
        match &self.discipline {
            LoopDiscipline::Pipelined => {}
            LoopDiscipline::PerBackend(own) => own.publish(),
            LoopDiscipline::Shared(own) => own.publish(),
        }
    }

    /// Closes every connection, and fails all requests that are queued or in flight.
    pub(crate) fn close(&mut self, answered: &mut AnsweredJobs<'_>, time: Time<'_>) {
        match &mut self.discipline {
            LoopDiscipline::Pipelined => {}
            LoopDiscipline::PerBackend(own) => own.close(&self.connections, answered, time),
            LoopDiscipline::Shared(own) => own.close(&self.connections, answered, time),
        }
        self.connections.close(answered, time.clock.now());
    }
}
