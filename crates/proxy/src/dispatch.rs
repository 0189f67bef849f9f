//! Stations 4 to 6. Routes a request, cuts it into legs and hands it to the discipline, which sends it at once or lets it wait.
//!
//! ```text
//!             ┌ pipelined    ──────────────────▶ the one connection of each leg's backend
//!   fork ─────┼ per-backend  reads ─▶ queue ───▶ a reader of the backend; writes ─▶ a writer of the backend
//!   (legs)    └ shared       ─────▶ queue ─────▶ a slot: its connections to the backends
//! ```

mod fork;
mod legs;
mod pipelined;

mod queue;

mod per_backend;
mod shared;

use crate::backends::Backends;
use crate::config::{Config, Discipline, MultiGet, share};
use crate::counters::LoopCounters;
use crate::finished::Finished;
use crate::job::JobId;
use crate::route::Router;
use clock::{Clock, Nanos, Stage};
use fork::Fork;
use per_backend::PerBackend;
use pipelined::send_at_once;
use queue::Queue;
use shared::Shared;
use std::sync::Arc;
use wire::Request;

/// Everything behind the sessions that a request meets on its way out.
#[derive(Debug)]
pub(crate) struct Dispatch {
    fork: Fork,
    line: Line,
    pub(crate) backends: Backends,
}

/// Where requests stand until they are sent: one loop's share of the configured discipline.
#[derive(Debug)]
pub(crate) enum Line {
    Pipelined,
    PerBackend(PerBackend),
    Shared(Shared),
}

/// What time it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time<'c> {
    pub(crate) clock: &'c Clock,
    /// When the turn began: good enough for deadlines.
    pub(crate) turn: Nanos,
}

impl Time<'_> {
    /// The time for a job: the clock is read only for those that are timed.
    fn now(&self, is_timed: bool) -> Nanos {
        if is_timed { self.clock.now() } else { self.turn }
    }
}

impl Line {
    /// The line of the loop with this index.
    pub(crate) fn new(config: &Config, index: usize, counters: &Arc<LoopCounters>) -> Line {
        let own = |slots| share(slots, config.loops, index);
        match config.discipline {
            Discipline::Pipelined => Line::Pipelined,
            Discipline::PerBackend { readers, writers } => {
                let queue = || Queue::new(config.queue, config.backend_buffer_bytes);
                Line::PerBackend(PerBackend::new(own(readers), own(writers), queue, counters.clone()))
            }
            Discipline::Shared { workers, .. } => {
                let queue = Queue::new(config.queue, config.backend_buffer_bytes);
                Line::Shared(Shared::new(own(workers), queue, counters.clone()))
            }
        }
    }

    /// The backends of the connections that the loop with this index needs, in the order of the connections' numbers.
    pub(crate) fn layout(config: &Config, index: usize) -> Vec<usize> {
        let own = |slots| share(slots, config.loops, index);
        let servers = 0..config.backends().count();
        match config.discipline {
            Discipline::Pipelined => servers.collect(),
            Discipline::PerBackend { readers, writers } => {
                servers.flat_map(|backend| std::iter::repeat_n(backend, own(readers) + own(writers))).collect()
            }
            Discipline::Shared { workers, .. } => (0..own(workers)).flat_map(|_| servers.clone()).collect(),
        }
    }

    /// The names of a loop's queues.
    pub(crate) fn queues(config: &Config) -> Vec<String> {
        match config.discipline {
            Discipline::Pipelined => Vec::new(),
            Discipline::PerBackend { .. } => config.backend_names(),
            Discipline::Shared { .. } => vec!["shared".into()],
        }
    }
}

impl Dispatch {
    /// A dispatcher of a loop with this line and these connections.
    pub(crate) fn new(config: &Config, line: Line, backends: Backends) -> Dispatch {
        let multi_get = match config.discipline {
            Discipline::Shared { multi_get, .. } => multi_get,
            _ => MultiGet::ByKey,
        };
        let router = Router::new(config);
        Dispatch { fork: Fork::new(router, multi_get), line, backends }
    }

    /// Sends a request on its way. The job has been begun and parsed; its legs will be answered, or are already.
    pub(crate) fn dispatch(&mut self, id: JobId, request: &Request<'_>, finished: &mut Finished<'_>, time: Time<'_>) {
        let job = finished.jobs.get(id);
        self.fork.cut(job, request);
        job.stamp(Stage::Routed, time.now(job.is_timed));
        let backends = &mut self.backends;
        match &mut self.line {
            Line::Pipelined => send_at_once(id, request, usize::from, backends, finished, time),
            Line::PerBackend(line) => line.admit(id, request, backends, finished, time),
            Line::Shared(line) => line.admit(id, request, backends, finished, time),
        }
    }

    /// Lets those who wait take the places that have become free since the last look.
    pub(crate) fn pump(&mut self, finished: &mut Finished<'_>, time: Time<'_>) {
        let backends = &mut self.backends;
        match &mut self.line {
            Line::Pipelined => {}
            Line::PerBackend(line) => {
                backends.active().iter().for_each(|&connection| line.settle(connection, backends));
                line.pump(backends, finished, time);
            }
            Line::Shared(line) => {
                backends.active().iter().for_each(|&connection| line.settle(connection, backends));
                line.pump(backends, finished, time);
            }
        }
    }

    /// Writes what has gathered for the backends.
    pub(crate) fn flush(&mut self, finished: &mut Finished<'_>, time: Time<'_>) {
        self.pump(finished, time);
        // A connection that is lost by writing may leave its place to others.
        while self.backends.flush(finished, time.clock) {
            self.pump(finished, time);
        }
    }

    /// Publishes the gauges; the turn is over.
    pub(crate) fn end_turn(&mut self) {
        self.backends.end_turn();
        match &self.line {
            Line::Pipelined => {}
            Line::PerBackend(line) => line.publish(),
            Line::Shared(line) => line.publish(),
        }
    }

    /// Ends every connection, and fails all who wait.
    pub(crate) fn close(&mut self, finished: &mut Finished<'_>, time: Time<'_>) {
        match &mut self.line {
            Line::Pipelined => {}
            Line::PerBackend(line) => line.close(&self.backends, finished, time),
            Line::Shared(line) => line.close(&self.backends, finished, time),
        }
        self.backends.close(finished, time.clock.now());
    }
}
