//! All jobs of one event loop, by number, and what travels with them: the list of jobs with answered legs, and the time.
//! Ended jobs are reused with their buffers, so that an ordinary request (one key, a small value, no error) allocates nothing.

use crate::config::Config;
use crate::path::clients::{ALWAYS_BYTES, Clients, Room};
use crate::path::job::{FollowUp, Job, JobId, LegRef, NearUse, SessionRef, WarmUpStep};
use crate::path::key_versions::KeyVersions;
use crate::path::leg_request::{first_key, is_read, own_limits};
use crate::path::meta::{only_reads, wins};
use crate::path::order::Access;
use clock::{Clock, Nanos, Stage};
use records::Outcome;
use std::borrow::Cow;
use wire::{ParsedRequest, Request, Verb, parse_request};

/// Ended jobs beyond this number do not keep their buffers.
const SPARE_JOBS: usize = 4096;

/// All jobs of one loop.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    table: Vec<Job>,
    free: Vec<JobId>,
    /// The number of the last use of a job.
    begun: u32,
    pub(crate) outstanding: Outstanding,
    pub(crate) clients: Clients,
    /// Counts the writes of these jobs.
    versions: KeyVersions,
}

/// The number of legs that wait for a reply.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    by_backend: Vec<u32>,
    /// The number of these legs that belong to clients' requests. The others belong to background jobs.
    of_clients: u32,
}

/// The time, as precisely as each use needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time<'c> {
    pub(crate) clock: &'c Clock,
    /// When the event loop's turn began: precise enough for deadlines.
    pub(crate) turn: Nanos,
}

impl Time<'_> {
    /// The time to stamp on a job. The clock is read only for jobs that are timed.
    pub(crate) fn now(&self, is_timed: bool) -> Nanos {
        if is_timed { self.clock.now() } else { self.turn }
    }
}

impl Outstanding {
    /// Counts a leg that waits for this backend.
    pub(crate) fn add(&mut self, backend: u16, is_background: bool) {
        let backend = usize::from(backend);
        if backend >= self.by_backend.len() {
            self.by_backend.resize(backend + 1, 0);
        }
        self.by_backend[backend] += 1;
        self.of_clients += u32::from(!is_background);
    }

    /// Counts a leg of this backend as answered.
    pub(crate) fn remove(&mut self, backend: u16, is_background: bool) {
        self.by_backend[usize::from(backend)] -= 1;
        self.of_clients -= u32::from(!is_background);
    }

    /// Whether a client's request waits for any backend.
    pub(crate) fn has_clients(&self) -> bool {
        self.of_clients > 0
    }

    /// The number of legs that wait for this backend.
    pub(crate) fn of(&self, backend: u16) -> u32 {
        self.by_backend.get(usize::from(backend)).copied().unwrap_or(0)
    }
}

impl Jobs {
    /// No jobs, with the limits of this configuration. Their writes are counted in `versions`.
    pub(crate) fn new(config: &Config, versions: KeyVersions) -> Jobs {
        let clients = Clients::new(config.client_buffer_bytes as usize, config.memory_bytes as usize);
        Jobs { clients, versions, ..Jobs::default() }
    }

    /// Begins a job of a client.
    pub(crate) fn begin_for(&mut self, session: SessionRef) -> JobId {
        let id = self.begin();
        self.table[id as usize].session = session;
        self.clients.job_begun(session);
        id
    }

    /// Begins a job that no client waits for.
    pub(crate) fn begin(&mut self) -> JobId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.table.push(Job::default());
            (self.table.len() - 1) as JobId
        });
        let job = &mut self.table[id as usize];
        assert!(!job.is_live, "a job that has not ended cannot begin again");
        self.begun = self.begun.wrapping_add(1);
        (job.is_live, job.begun) = (true, self.begun);
        id
    }

    /// Ends a job. Its number is reused as soon as none of its legs is in flight.
    ///
    /// # Panics
    /// When the job has ended already: every job ends exactly once.
    pub(crate) fn end(&mut self, id: JobId) {
        let job = &mut self.table[id as usize];
        assert!(job.is_live && !job.is_over, "a job ends exactly once");
        job.is_over = true;
        self.release(id);
    }

    /// Frees the number of a job that has ended, unless one of its legs is in flight or it is still listed as answered.
    pub(crate) fn release(&mut self, id: JobId) {
        let job = &mut self.table[id as usize];
        assert!(job.is_live && job.is_over, "only an ended job is released");
        if !job.is_waiting() && !job.is_listed {
            self.clients.reply_bytes_changed(job.session, job.counted_bytes, 0);
            self.clients.job_released(job.session);
            if job.dropped_value.is_some() {
                self.clients.dropped_changed(job.session, false);
            }
            self.end_write(id);
            let job = &mut self.table[id as usize];
            if self.free.len() < SPARE_JOBS {
                job.clear()
            } else {
                *job = Job::default()
            }
            self.free.push(id);
        }
    }

    /// The job with this number, if it is live.
    pub(crate) fn find(&mut self, id: JobId) -> Option<&mut Job> {
        self.table.get_mut(id as usize).filter(|job| job.is_live)
    }

    /// The job with this number.
    pub(crate) fn get(&mut self, id: JobId) -> &mut Job {
        let job = &mut self.table[id as usize];
        assert!(job.is_live, "an ended job is not used");
        job
    }

    /// Counts a job as a write before its request is sent, until none of its legs is in flight, so that no near-cache returns an
    /// earlier value. Background jobs and later steps are counted, too.
    #[inline]
    pub(crate) fn note_write(&mut self, id: JobId, request: &Request<'_>) {
        if self.versions.counts_writes() {
            self.count_write(id, request);
        }
    }

    #[inline(never)]
    fn count_write(&mut self, id: JobId, request: &Request<'_>) {
        let job = &mut self.table[id as usize];
        if matches!(job.near, NearUse::Writes(_)) || Access::of(request) != Access::Write {
            return;
        }
        let mut decoded = None;
        let has_several_keys = matches!(request, Request::Get { keys, .. } if keys.are_more_than(1)) || job.keys > 1;
        let key = if has_several_keys { None } else { first_key(request, &mut decoded) };
        job.near = self.versions.begin_write(key).map_or(NearUse::Nothing, NearUse::Writes);
    }

    /// No server will answer the write of a job any more.
    pub(crate) fn end_write(&mut self, id: JobId) {
        let job = &mut self.table[id as usize];
        if let NearUse::Writes(written) = job.near {
            job.near = NearUse::Nothing;
            self.versions.end_write(written);
        }
    }

    /// Answers a job with this reply to a `get` of one key that was found. Returns false if the reply cannot be held.
    pub(crate) fn answer(&mut self, id: JobId, reply: &[u8], now: Nanos) -> bool {
        let job = &mut self.table[id as usize];
        if self.clients.room_for(job.session, reply.len()) != Room::Enough {
            return false;
        }
        job.stamp(Stage::Routed, now);
        job.reply.extend_from_slice(reply);
        job.held_bytes += reply.len();
        (job.keys, job.hits, job.is_done) = (1, 1, true);
        self.count_bytes(id);
        true
    }

    /// Adds a value to the incomplete reply of a leg; returns the size of that reply so far. If the value cannot be held, the
    /// reply of the whole job is dropped.
    pub(crate) fn add_leg_value(&mut self, leg: LegRef, value: Cow<'_, [u8]>) -> usize {
        if !self.has_room(leg.job, value.len()) {
            return 0;
        }
        let bytes = self.get(leg.job).add_leg_value(leg.leg, value);
        self.count_bytes(leg.job);
        bytes
    }

    /// Discards the reply of a leg, because it is too large.
    pub(crate) fn discard_leg_reply(&mut self, leg: LegRef) {
        self.get(leg.job).discard_leg_reply(leg.leg);
        self.count_bytes(leg.job);
    }

    /// Whether a value of the reply to this job can be held. If not, the reply is dropped.
    fn has_room(&mut self, id: JobId, bytes: usize) -> bool {
        let job = &mut self.table[id as usize];
        // A leg that is answered after the reply was complete was not needed.
        if job.dropped_value.is_some() || job.is_done {
            return false;
        }
        let must_drop = match self.clients.room_for(job.session, bytes) {
            Room::Enough => false,
            // A client that moves to another loop takes its replies with it.
            Room::ClientIsFull => !job.may_exceed && !self.clients.notes_idle && is_repeatable(job),
            Room::ProxyIsFull => may_be_dropped(job),
            // It was requested by a client that has disconnected, or by the proxy itself.
            Room::NoClient => return job.session == SessionRef::NONE && !self.clients.is_full(bytes),
        };
        if must_drop {
            job.drop_reply(bytes);
            self.clients.dropped_changed(job.session, true);
            self.count_bytes(id);
        }
        !must_drop
    }

    /// Forgets the dropped reply of a job, and returns the job, which can be answered in another way.
    pub(crate) fn take_dropped(&mut self, id: JobId) -> &mut Job {
        let job = &mut self.table[id as usize];
        self.clients.dropped_changed(job.session, false);
        job.dropped_value = None;
        self.begun = self.begun.wrapping_add(1);
        job.begun = self.begun;
        job
    }

    /// The reply of a job was joined from those of its legs, which are no longer needed.
    pub(crate) fn joined(&mut self, id: JobId) {
        if self.get(id).held_bytes > ALWAYS_BYTES {
            self.get(id).free_leg_replies();
            self.count_bytes(id);
        }
    }

    /// Counts the keys of a job whose client has unknown value sizes, until the job's legs are answered.
    pub(crate) fn count_first_keys(&mut self, id: JobId, keys: u16) {
        let job = &mut self.table[id as usize];
        let after = if job.is_waiting() { keys.max(job.first_keys) } else { 0 };
        let before = std::mem::replace(&mut job.first_keys, after);
        self.clients.first_keys_changed(before, after);
    }

    /// Counts the bytes of a job's replies for its client.
    fn count_bytes(&mut self, id: JobId) {
        let job = &mut self.table[id as usize];
        let before = std::mem::replace(&mut job.counted_bytes, job.held_bytes);
        self.clients.reply_bytes_changed(job.session, before, job.held_bytes);
    }

    /// The reply of a job has been moved out of it.
    pub(crate) fn reply_moved(&mut self, id: JobId) {
        self.get(id).held_bytes = 0;
        self.count_bytes(id);
    }

    /// Whether a later write of the same client to the same key has failed over, or its reply is complete. `latest_first` are the
    /// client's jobs whose replies were not delivered, the last one first.
    pub(crate) fn is_overtaken(&self, id: JobId, latest_first: impl Iterator<Item = JobId>) -> bool {
        let job = &self.table[id as usize];
        let jobs = latest_first.map(|other| &self.table[other as usize]);
        let mut later = jobs.take_while(|other| (other.sequence.wrapping_sub(job.sequence) as i32) > 0);
        later.any(|other| {
            let is_further = other.is_done || matches!(other.follow_up, FollowUp::FailoverWrite { .. });
            is_further && other.key() == job.key() && other.pool == job.pool
        })
    }

    /// The number of jobs that were not released. Those left when a loop ends are lost.
    pub(crate) fn live(&self) -> usize {
        self.table.len() - self.free.len()
    }
}

/// Whether a read changes nothing if it is sent twice. An `mg` that creates or touches, or that returns when the value was last
/// read, is not.
pub(crate) fn is_repeatable(job: &Job) -> bool {
    if let FollowUp::PrimaryWrite { .. } = job.follow_up {
        return false;
    }
    match job.verb {
        Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => true,
        Verb::Mg => match parse_request(&job.kept, &own_limits()) {
            ParsedRequest::Request { request: Request::Meta(meta), .. } => only_reads(&meta),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the reply to this job can be dropped. What follows a write depends on its reply, which is small.
fn may_be_dropped(job: &Job) -> bool {
    is_read(job.verb) || job.warm_up == WarmUpStep::Fetching
}

/// Where backends' replies are recorded: the jobs, and the list of those that `Core::complete` must look at.
#[derive(Debug)]
pub(crate) struct AnsweredJobs<'l> {
    pub(crate) jobs: &'l mut Jobs,
    /// Jobs with answered legs, which `Core::complete` has not looked at yet.
    pub(crate) list: &'l mut Vec<JobId>,
}

impl AnsweredJobs<'_> {
    /// Completes the reply of a leg with its last line, and lists its job if `Core::complete` must look at it.
    pub(crate) fn leg_answered(&mut self, leg: LegRef, last_line: &[u8], outcome: Outcome, now: Nanos) {
        let job = self.jobs.get(leg.job);
        let (backend, is_background) = (job.leg(leg.leg).backend, job.background.is_some());
        // The value of a meta command is part of the last line.
        let is_large = last_line.len() > ALWAYS_BYTES && job.verb == Verb::Mg;
        if is_large && wins(last_line) {
            self.jobs.get(leg.job).may_exceed = true;
        }
        let last_line = if is_large && !self.jobs.has_room(leg.job, last_line.len()) { b"" } else { last_line };
        let job = self.jobs.get(leg.job);
        if job.leg_answered(leg.leg, last_line, outcome, now) && !job.is_listed {
            job.is_listed = true;
            self.list.push(leg.job);
        }
        self.jobs.count_bytes(leg.job);
        self.jobs.outstanding.remove(backend, is_background);
        self.jobs.count_first_keys(leg.job, 0);
    }

    /// Fails a leg with an error line that names the backend. Allocates that line.
    pub(crate) fn leg_failed(&mut self, leg: LegRef, backend: &str, outcome: Outcome, now: Nanos) {
        let what = match outcome {
            Outcome::Timeout => "timed out",
            Outcome::BackendDown => "is down",
            Outcome::Overloaded => "has too much waiting",
            _ => "lost the connection",
        };
        let line = format!("SERVER_ERROR backend {backend} {what}\r\n");
        self.leg_answered(leg, line.as_bytes(), outcome, now);
    }

    /// Fails a leg because the queue of the discipline `shared` is full.
    pub(crate) fn queue_full(&mut self, leg: LegRef, now: Nanos) {
        self.leg_answered(leg, b"SERVER_ERROR the proxy has too much waiting\r\n", Outcome::Overloaded, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::job::Join;
    use clock::StageClock;

    #[test]
    fn a_used_job_begins_clean() {
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        job.reply.extend_from_slice(b"old");
        let leg = job.add_leg(3);
        assert!(job.leg_answered(leg, b"END\r\n", Outcome::Timeout, Nanos(1)));
        jobs.end(id);
        assert_eq!(jobs.live(), 0);
        assert_eq!(jobs.begin(), id);
        let job = jobs.get(id);
        assert!(job.reply.is_empty() && job.legs().is_empty() && job.first_error.is_none());
        assert_eq!(jobs.live(), 1);
    }

    #[test]
    #[should_panic(expected = "exactly once")]
    fn a_job_cannot_end_twice() {
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        jobs.end(id);
        jobs.end(id);
    }

    #[test]
    fn a_leg_that_left_its_queue_last_and_was_never_sent_breaks_no_order() {
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        job.is_timed = true;
        job.clock = StageClock::started(Nanos(1));
        job.join = Join::KeyOrder;
        let legs = [job.add_leg(0), job.add_leg(1)];
        job.stamp(Stage::Enqueued, Nanos(2));
        job.leg_dispatched(legs[0], Nanos(2));
        job.leg_sent(legs[0], Nanos(3));
        assert!(!job.leg_answered(legs[0], b"END\r\n", Outcome::Answered, Nanos(4)));
        job.leg_dispatched(legs[1], Nanos(10));
        assert!(job.leg_answered(legs[1], b"SERVER_ERROR\r\n", Outcome::BackendLost, Nanos(20)));
        job.clock.finish();
        assert_eq!(job.clock.stamps()[Stage::Enqueued as usize..=Stage::Answered as usize], [2, 10, 10, 20]);
    }

    #[test]
    fn the_parent_is_sent_and_answered_with_its_last_leg() {
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        job.is_timed = true;
        job.clock = StageClock::started(Nanos(1));
        job.join = Join::All;
        let legs = [job.add_leg(0), job.add_leg(1)];
        job.leg_sent(legs[1], Nanos(9));
        job.leg_sent(legs[0], Nanos(5));
        assert!(!job.leg_answered(legs[1], b"STORED\r\n", Outcome::Answered, Nanos(20)));
        assert!(job.leg_answered(legs[0], b"STORED\r\n", Outcome::Answered, Nanos(30)));
        assert_eq!(job.clock.at(Stage::Sent), Nanos(9));
        assert_eq!(job.clock.at(Stage::Answered), Nanos(30));
    }
}
