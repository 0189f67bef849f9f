//! What all sessions of one loop work with: the jobs, the way to the backends, the journal.

use crate::config::{Config, PartFailure, Stamps};
use crate::dispatch::{Dispatch, Step, Time};
use crate::finished::Finished;
use crate::job::{Job, SessionRef};
use crate::jobs::{JobId, Jobs};
use crate::join::join;
use crate::journal::Journal;
use crate::local::Local;
use crate::meta::conclude;
use crate::overlap::Overlap;
use crate::policy::Policy;
use clock::{Clock, Nanos, Stage, StageClock};
use records::{Outcome, is_sampled};
use std::time::Duration;
use wire::{Limits, Request, Verb};

/// The settings that sessions need.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) stamps: Stamps,
    pub(crate) part_failure: PartFailure,
    pub(crate) overlap: Overlap,
    pub(crate) handshake_timeout: Duration,
    pub(crate) client_window: usize,
    /// Clients go to other loops as soon as nothing of theirs is under way: no more requests are taken.
    pub(crate) is_moving: bool,
    pub(crate) client_buffer_bytes: u64,
    pub(crate) wire: Limits,
}

/// One loop's stations behind the session.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// The time at which this turn began: good enough for deadlines.
    pub(crate) turn: Nanos,
    pub(crate) jobs: Jobs,
    pub(crate) finished: Vec<JobId>,
    pub(crate) dispatch: Dispatch,
    pub(crate) journal: Journal,
    pub(crate) local: Local,
}

/// What is known of a request when it has been parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) session: SessionRef,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) received: Nanos,
    pub(crate) verb: Verb,
    pub(crate) is_quiet: bool,
    pub(crate) request_bytes: usize,
}

impl Settings {
    /// The part of the configuration that sessions need.
    pub(crate) fn new(config: &Config) -> Settings {
        Settings {
            stamps: config.stamps,
            part_failure: config.part_failure,
            overlap: Overlap::of(config.discipline, Policy::all(config).iter().all(Policy::keeps_order)),
            handshake_timeout: config.transport.tls.handshake_timeout,
            client_window: config.client_window,
            is_moving: false,
            client_buffer_bytes: config.client_buffer_bytes,
            wire: Limits { value_bytes: config.value_bytes, ..Limits::default() },
        }
    }
}

impl Core {
    /// Wraps a request in a job and starts its clock.
    pub(crate) fn begin(&mut self, arrival: Arrival) -> JobId {
        let is_sampled = is_sampled(arrival.port, arrival.sequence, self.journal.sample());
        let id = self.jobs.begin();
        let job = self.jobs.get(id);
        job.session = arrival.session;
        job.port = arrival.port;
        job.sequence = arrival.sequence;
        job.verb = arrival.verb;
        job.is_quiet = arrival.is_quiet;
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
        let (dispatch, mut finished, time) = self.outward();
        dispatch.dispatch(id, request, &mut finished, time);
        self.journal.note_keys(request, self.jobs.get(id).keys);
    }

    /// The dispatcher, with what it needs to answer jobs and to know the time.
    pub(crate) fn outward(&mut self) -> (&mut Dispatch, Finished<'_>, Time<'_>) {
        let Core { dispatch, jobs, finished, clock, turn, .. } = self;
        (dispatch, Finished { jobs, list: finished }, Time { clock, turn: *turn })
    }

    /// Answers a job without any backend.
    pub(crate) fn answer_locally(&mut self, id: JobId, write: impl FnOnce(&Local, &mut Job)) {
        let job = self.jobs.get(id);
        write(&self.local, job);
        job.is_done = true;
    }

    /// Goes on with a job that something has happened to. When its answer is there, says which session waits for it.
    pub(crate) fn complete(&mut self, id: JobId) -> Option<SessionRef> {
        let Core { dispatch, jobs, finished, clock, turn, settings, .. } = self;
        jobs.get(id).is_listed = false;
        let mut finished = Finished { jobs, list: finished };
        let step = dispatch.onward(id, &settings.wire, &mut finished, Time { clock, turn: *turn });
        if step == Step::Wait && jobs.get(id).is_over {
            jobs.release(id);
        }
        if step != Step::Done {
            return None;
        }
        let job = jobs.get(id);
        if job.is_waiting() {
            // Not all legs were needed. The answer is there now, and was not before any that has been sent.
            job.stamp(Stage::Answered, clock.now());
        }
        if job.errand.is_some() {
            dispatch.settle(job, *turn);
            job.is_done = true;
            jobs.end(id);
            return None;
        }
        join(job, settings.part_failure, &settings.wire);
        conclude(job);
        if let Some(line) = job.said_instead {
            job.outcome = Outcome::ClientError;
            job.reply.clear();
            job.reply.extend_from_slice(line);
        }
        Some(job.session)
    }
}

/// A list that has been worked off, with its memory, and with what was added to its successor meanwhile.
pub(crate) fn give_back<T>(mut emptied: Vec<T>, filled: &mut Vec<T>) -> Vec<T> {
    emptied.append(filled);
    emptied
}
