//! Steps 3 and 8. Makes a job of a parsed request and sends it on its way; when its legs have answered, joins their replies.
//! The sessions of one event loop share it.

use crate::config::{Config, PartFailure, Stamps};
use crate::observe::stats::{Stats, VERSION_LINE};
use crate::path::dispatch::dispatcher::Dispatcher;
use crate::path::job::{FollowUp, JobId, NextStep, SessionRef};
use crate::path::jobs::{AnsweredJobs, Jobs, Time};
use crate::path::join::join;
use crate::path::journal::Journal;
use crate::path::meta::{finish_reply, prepare};
use crate::path::order::Overlap;
use crate::replication::keeps_order;
use clock::{Clock, Nanos, Stage, StageClock};
use records::{Outcome, is_sampled};
use std::time::Duration;
use wire::{Limits, MetaCode, Reply, Request, Verb};

/// The part of the configuration that sessions need.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    pub(crate) stamps: Stamps,
    pub(crate) part_failure: PartFailure,
    pub(crate) overlap: Overlap,
    pub(crate) handshake_timeout: Duration,
    pub(crate) client_window: usize,
    /// Whether clients move to the loops of a new configuration: sessions take no more requests.
    pub(crate) is_moving: bool,
    pub(crate) client_buffer_bytes: u64,
    pub(crate) wire: Limits,
}

/// Everything behind the sessions of one event loop.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: SessionSettings,
    pub(crate) clock: Clock,
    /// When this turn of the event loop began: precise enough for deadlines.
    pub(crate) turn: Nanos,
    pub(crate) jobs: Jobs,
    pub(crate) answered: Vec<JobId>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) journal: Journal,
    pub(crate) stats: Stats,
}

/// A parsed request, before it becomes a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) session: SessionRef,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) received: Nanos,
    pub(crate) verb: Verb,
    pub(crate) is_quiet: bool,
    /// Whether it is a read whose reply is expected to be large.
    pub(crate) is_bulk: bool,
    pub(crate) request_bytes: usize,
}

impl SessionSettings {
    /// Takes what sessions need from the configuration.
    pub(crate) fn new(config: &Config) -> SessionSettings {
        SessionSettings {
            stamps: config.stamps,
            part_failure: config.part_failure,
            overlap: Overlap::of(config.discipline, keeps_order(config)),
            handshake_timeout: config.transport.tls.handshake_timeout,
            client_window: config.client_window,
            is_moving: false,
            client_buffer_bytes: config.client_buffer_bytes,
            wire: Limits { value_bytes: config.value_bytes, ..Limits::default() },
        }
    }
}

impl Core {
    /// Makes a job of a request and sends it to its backends, or answers it here.
    pub(crate) fn submit(&mut self, arrival: Arrival, request: &Request<'_>) -> JobId {
        let id = self.begin(arrival);
        if let Request::Meta(meta) = request {
            prepare(self.jobs.get(id), meta);
        }
        match request {
            Request::Version | Request::Verbosity { .. } | Request::Stats { .. } | Request::Noop | Request::Quit => {
                self.answer_locally(id, request);
            }
            _ => self.dispatch(id, request),
        }
        id
    }

    /// Begins a job and starts its clock.
    pub(crate) fn begin(&mut self, arrival: Arrival) -> JobId {
        let is_sampled = is_sampled(arrival.port, arrival.sequence, self.journal.sample());
        let id = self.jobs.begin_for(arrival.session);
        let job = self.jobs.get(id);
        job.port = arrival.port;
        job.sequence = arrival.sequence;
        job.verb = arrival.verb;
        job.is_quiet = arrival.is_quiet;
        job.is_bulk = arrival.is_bulk;
        job.request_bytes = arrival.request_bytes as u32;
        job.is_sampled = is_sampled;
        job.is_timed = match self.settings.stamps {
            Stamps::Off => false,
            Stamps::Sampled => is_sampled,
            Stamps::All => true,
        };
        if job.is_timed {
            job.clock = StageClock::started(arrival.received);
            job.stamp(Stage::Parsed, self.clock.now());
        }
        id
    }

    /// Sends a job to its backends.
    pub(crate) fn dispatch(&mut self, id: JobId, request: &Request<'_>) {
        let (dispatcher, mut answered, time) = self.parts();
        dispatcher.dispatch(id, request, &mut answered, time);
        self.journal.note_keys(request, self.jobs.get(id).keys);
    }

    /// The dispatcher, with the jobs that it answers and the time.
    pub(crate) fn parts(&mut self) -> (&mut Dispatcher, AnsweredJobs<'_>, Time<'_>) {
        let Core { dispatcher, jobs, answered, clock, turn, .. } = self;
        (dispatcher, AnsweredJobs { jobs, list: answered }, Time { clock, turn: *turn })
    }

    /// Answers a command that names no key.
    fn answer_locally(&mut self, id: JobId, request: &Request<'_>) {
        let job = self.jobs.get(id);
        match request {
            Request::Version => Reply::Version(VERSION_LINE.as_bytes()).encode(&mut job.reply),
            Request::Verbosity { .. } => Reply::Ok.encode(&mut job.reply),
            Request::Stats { argument } => self.stats.answer(argument, &mut job.reply),
            // `mn`: the reply follows those of all earlier requests.
            Request::Noop => Reply::Meta { code: MetaCode::Noop, flags: b"" }.encode(&mut job.reply),
            _ => {}
        }
        job.is_done = true;
    }

    /// Goes on with a job some of whose legs have answered. When its reply is complete, returns the session that waits for it.
    pub(crate) fn complete(&mut self, id: JobId) -> Option<SessionRef> {
        let Core { dispatcher, jobs, answered, clock, turn, settings, .. } = self;
        jobs.get(id).is_listed = false;
        let mut answered = AnsweredJobs { jobs, list: answered };
        let time = Time { clock, turn: *turn };
        let step = dispatcher.after_leg_answered(id, &settings.wire, &mut answered, time);
        let job = jobs.get(id);
        if job.is_late_write && !job.is_waiting() {
            // Only now: if the replica has failed, its invalidation is pending.
            job.is_late_write = false;
            let session = job.session;
            jobs.clients.late_write_ended(session);
        }
        if step == NextStep::Wait && jobs.get(id).is_over {
            jobs.release(id);
        }
        if step != NextStep::Reply {
            return None;
        }
        let job = jobs.get(id);
        if job.is_waiting() {
            // Some legs were not needed, so no leg's reply has stamped the job as answered.
            job.stamp(Stage::Answered, clock.now());
        }
        if job.background.is_some() {
            dispatcher.finish_background(job, *turn);
            job.is_done = true;
            jobs.end(id);
            return None;
        }
        join(job, settings.part_failure, &settings.wire);
        finish_reply(job);
        if let Some(line) = job.reply_override {
            job.outcome = Outcome::ClientError;
            job.reply.clear();
            job.reply.extend_from_slice(line);
        }
        let session = job.session;
        if job.is_waiting() && matches!(job.follow_up, FollowUp::ReplicatedWrite { .. }) {
            job.is_late_write = true;
            jobs.clients.late_write_begun(session);
        }
        Some(session)
    }
}

/// An emptied list, for its memory, with the entries that were added to its replacement meanwhile.
pub(crate) fn reuse<T>(mut emptied: Vec<T>, filled: &mut Vec<T>) -> Vec<T> {
    emptied.append(filled);
    emptied
}
