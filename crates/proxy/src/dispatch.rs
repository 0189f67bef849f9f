//! Stations 4 to 6. Routes a request, cuts it into legs and hands it to the discipline, which sends it at once or lets it wait.
//!
//! ```text
//!             ┌ pipelined    ──────────────────▶ the one connection of each leg's backend
//!   fork ─────┼ per-backend  reads ─▶ queue ───▶ a reader of the backend; writes ─▶ a writer of the backend
//!   (legs)    └ shared       ─────▶ queue ─────▶ a slot: its connections to the backends
//! ```

mod copies;
mod fork;
mod legs;
mod pipelined;

mod queue;

mod per_backend;
mod shared;

mod errands;
mod hedges;
mod onward;

use crate::backends::Backends;
use crate::config::{Config, Discipline, MultiGet, share};
use crate::counters::LoopCounters;
use crate::debts::Debts;
use crate::finished::Finished;
use crate::job::Course;
use crate::jobs::JobId;
use crate::leg::{Candidate, LegRef};
use crate::policy::{Policy, own_limits};
use crate::route::Router;
use clock::{Clock, Nanos, Stage};
use copies::Copies;
use fork::Fork;
use hedges::Hedges;
pub(crate) use onward::Step;
use onward::add_candidate;
use per_backend::PerBackend;
use pipelined::send_at_once;
use queue::Queue;
use records::Outcome;
use shared::Shared;
use std::sync::Arc;
use wire::{Keys, Limits, ParsedRequest, Request, Verb, parse_request};

/// Everything behind the sessions that a request meets on its way out.
#[derive(Debug)]
pub(crate) struct Dispatch {
    fork: Fork,
    line: Line,
    pub(crate) backends: Backends,
    /// By backend.
    names: Vec<String>,
    /// By pool.
    hedges: Vec<Option<Hedges>>,
    has_shadows: bool,
    has_warm_up: bool,
    /// Limits for requests that the proxy has written itself.
    own_limits: Limits,
    /// Owed deletions are not looked at before.
    next_payment: Nanos,
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
            Discipline::PerBackend { .. } => config.backend_names_apart(),
            Discipline::Shared { .. } => vec!["shared".into()],
        }
    }
}

impl Dispatch {
    /// A dispatcher of a loop with this line, these connections and what each backend owes.
    pub(crate) fn new(
        config: &Config,
        line: Line,
        backends: Backends,
        debts: &[Arc<Debts>],
        counters: &Arc<LoopCounters>,
    ) -> Dispatch {
        let multi_get = match config.discipline {
            Discipline::Shared { multi_get, .. } => multi_get,
            _ => MultiGet::ByKey,
        };
        let policies = Policy::all(config);
        let hedges = |policy: &Policy| policy.hedge.map(|hedge| Hedges::new(hedge.delay, hedge.budget));
        Dispatch {
            hedges: policies.iter().map(hedges).collect(),
            has_shadows: policies.iter().any(|policy| policy.shadow.is_some()),
            has_warm_up: policies.iter().any(|policy| policy.warm_up.is_some()),
            fork: Fork::new(Copies::new(Router::new(config), policies, debts.to_vec(), counters.clone()), multi_get),
            line,
            backends,
            names: config.backend_names(),
            own_limits: own_limits(&Limits::default()),
            next_payment: Nanos::UNSET,
        }
    }

    /// Sends a request on its way. The job has been begun and parsed; its legs will be answered, or are already.
    pub(crate) fn dispatch(&mut self, id: JobId, request: &Request<'_>, finished: &mut Finished<'_>, time: Time<'_>) {
        self.cut_and_place(id, request, finished, time);
        if self.has_shadows {
            self.shadow(request, finished, time);
        }
        let job = finished.jobs.get(id);
        if let Course::Read { pool } = job.course
            && let Some(hedges) = &mut self.hedges[usize::from(pool)]
            && job.is_waiting()
        {
            hedges.watch(id, job, time.turn);
        }
    }

    fn cut_and_place(&mut self, id: JobId, request: &Request<'_>, finished: &mut Finished<'_>, time: Time<'_>) {
        let outstanding = std::mem::take(&mut finished.jobs.outstanding);
        let job = finished.jobs.get(id);
        self.fork.cut(job, request, &outstanding);
        job.stamp(Stage::Routed, time.now(job.is_timed));
        if job.legs().is_empty() {
            // Only flush_all concerns nobody, where no pool may be flushed.
            job.reply.extend_from_slice(b"SERVER_ERROR flush_all is switched off\r\n");
            (job.outcome, job.is_done) = (Outcome::ServerError, true);
        }
        finished.jobs.outstanding = outstanding;
        self.place(id, request, finished, time);
    }

    /// Sends the legs that are not on their way yet.
    fn place(&mut self, id: JobId, request: &Request<'_>, finished: &mut Finished<'_>, time: Time<'_>) {
        for leg in 0..finished.jobs.get(id).legs().len() as u8 {
            let slot = finished.jobs.get(id).leg(leg);
            if std::mem::replace(&mut slot.is_counted, true) {
                continue;
            }
            let (backend, is_fenced) = (slot.backend, slot.is_fenced);
            finished.jobs.outstanding.add(backend);
            if is_fenced {
                self.count_fenced(finished.jobs.get(id).verb, backend);
                let name = &self.names[usize::from(backend)];
                finished.leg_failed(LegRef { job: id, leg }, name, Outcome::BackendDown, time.turn);
            }
        }
        let backends = &mut self.backends;
        match &mut self.line {
            Line::Pipelined => send_at_once(id, request, usize::from, backends, finished, time),
            Line::PerBackend(line) => line.admit(id, request, backends, finished, time),
            Line::Shared(line) => line.admit(id, request, backends, finished, time),
        }
    }

    fn count_fenced(&self, verb: Verb, backend: u16) {
        let is_read = matches!(verb, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg | Verb::Me);
        let pool = self.fork.copies.router.pool_of_backend(backend);
        self.fork.copies.counters.pools[pool].fenced_reads.add(u64::from(is_read));
    }

    /// Decides what follows for a job some of whose legs have answered, and sends what is to be sent.
    pub(crate) fn onward(&mut self, id: JobId, limits: &Limits, finished: &mut Finished<'_>, time: Time<'_>) -> Step {
        let step = self.fork.onward(finished.jobs.get(id), limits, time.turn);
        match step {
            Step::Again => self.again(id, finished, time),
            Step::Done if self.has_warm_up => self.fill(id, limits, finished, time),
            _ => {}
        }
        step
    }

    /// Sends the legs that have been added to a job.
    fn again(&mut self, id: JobId, finished: &mut Finished<'_>, time: Time<'_>) {
        let job = finished.jobs.get(id);
        if job.course == Course::Parts {
            let request = Request::Get { verb: job.verb, exptime: 0, keys: Keys::new(b"") };
            return self.place(id, &request, finished, time);
        }
        let kept = std::mem::take(&mut job.kept);
        match parse_request(&kept, &self.own_limits) {
            ParsedRequest::Request { request, .. } => self.place(id, &request, finished, time),
            // The proxy understands what it has written itself. If not, what was to be sent fails, and nobody waits for ever.
            other => {
                debug_assert!(false, "{other:?}");
                let legs = finished.jobs.get(id).legs().len() as u8;
                (0..legs).for_each(|leg| finished.jobs.get(id).leg(leg).is_fenced = true);
                self.place(id, &Request::Noop, finished, time);
            }
        }
        finished.jobs.get(id).kept = kept;
    }

    /// Asks another copy for reads whose first one is slow, and deletes what is owed.
    pub(crate) fn tick(&mut self, finished: &mut Finished<'_>, time: Time<'_>) {
        for pool in 0..self.hedges.len() {
            while let Some(hedges) = &mut self.hedges[pool]
                && let Some(id) = hedges.next_due(finished.jobs, time.turn)
            {
                let job = finished.jobs.get(id);
                let (step, after) = match job.legs()[0].candidate {
                    Candidate::Primary => (0, 0),
                    Candidate::Copy { step, after } => (step, after),
                    Candidate::StandIn | Candidate::WarmUp => continue,
                };
                let other = self.fork.copies.copy_after(pool, &job.key_bytes, step, after);
                if let Some(choice) = other.filter(|_| hedges.spend()) {
                    let leg = add_candidate(job, &choice);
                    job.leg(leg).is_hedge = true;
                    job.is_again = true;
                    self.fork.copies.counters.pools[pool].hedges.add(1);
                    self.again(id, finished, time);
                }
            }
        }
        self.pay_debts(finished, time);
    }

    /// When something must be done although nothing becomes ready; or earlier, never later.
    pub(crate) fn deadline(&self) -> Nanos {
        let hedges = self.hedges.iter().flatten().map(Hedges::deadline).min().unwrap_or(Nanos::NEVER);
        self.backends.deadline().min(hedges).min(self.next_payment())
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
