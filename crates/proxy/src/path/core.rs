//! Steps 3 and 8. Makes a job of a parsed request and sends it on its way; when its legs have answered, joins their replies.
//! The sessions of one event loop share it.

use crate::config::{ClientLimits, Config, PartFailure, Stamps};
use crate::observe::server_version::version_text;
use crate::observe::stats::Stats;
use crate::path::auth::Users;
use crate::path::dispatch::dispatcher::Dispatcher;
use crate::path::job::{FollowUp, JobId, NearUse, NextStep, SessionRef};
use crate::path::jobs::{AnsweredJobs, Jobs, Time};
use crate::path::join::join;
use crate::path::journal::Journal;
use crate::path::leg_request::own_limits;
use crate::path::meta::{finish_reply, prepare};
use crate::path::near_cache::{Found, NearCaches};
use crate::path::order::Overlap;
use crate::path::rate_limits::RateLimits;
use crate::path::rewrite::Rewriter;
use crate::replication::keeps_order;
use clock::{Clock, Nanos, Stage, StageClock};
use records::{Outcome, is_sampled};
use std::sync::Arc;
use std::time::Duration;
use wire::{Limits, MetaCode, ParsedRequest, Reply, Request, Verb, parse_request};

/// The part of the configuration that sessions need.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    pub(crate) stamps: Stamps,
    pub(crate) part_failure: PartFailure,
    pub(crate) overlap: Overlap,
    /// How many times slower than this machine the loops work, for experiments only.
    pub(crate) slow_down: Option<f64>,
    /// Whether a pool has a warm-up pool, from which values are fetched one by one.
    pub(crate) has_warm_up: bool,
    /// Whether writes can have later steps, in a warm-up or failover pool, which must not change their order.
    pub(crate) has_steps: bool,
    pub(crate) handshake_timeout: Duration,
    pub(crate) header_timeout: Duration,
    pub(crate) client_window: usize,
    /// Whether clients move to the loops of a new configuration: sessions take no more requests.
    pub(crate) is_moving: bool,
    pub(crate) client_buffer_bytes: u64,
    pub(crate) limits: ClientLimits,
    pub(crate) wire: Limits,
    /// The users whose clients are served; none if clients need not authenticate.
    pub(crate) users: Option<Arc<Users>>,
}

/// Everything behind the sessions of one event loop.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: SessionSettings,
    pub(crate) clock: Clock,
    /// When this turn of the event loop began: precise enough for deadlines.
    pub(crate) turn: Nanos,
    /// When a client last read something. While the loop drains, also the time at which a request was last in flight.
    pub(crate) progressed: Nanos,
    pub(crate) jobs: Jobs,
    pub(crate) answered: Vec<JobId>,
    /// The rate limits of pools, if any has one.
    pub(crate) rate_limits: Option<RateLimits>,
    /// Changes keys, if a route does.
    pub(crate) rewriter: Option<Box<Rewriter>>,
    /// The near-caches of pools, if any has one.
    pub(crate) near_caches: Option<Box<NearCaches>>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) journal: Journal,
    pub(crate) stats: Stats,
}

/// How a read is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAgain {
    /// The reply may be larger than what the client may have.
    pub(crate) may_exceed: bool,
    pub(crate) is_bulk: bool,
}

/// A parsed request, before it becomes a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) session: SessionRef,
    /// The pool on whose listener the client has connected.
    pub(crate) pool: Option<u8>,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) received: Nanos,
    pub(crate) verb: Verb,
    pub(crate) is_quiet: bool,
    /// Whether it is a read whose reply is expected to be large.
    pub(crate) is_bulk: bool,
    /// Whether other parts of the same line follow.
    pub(crate) is_part: bool,
    pub(crate) request_bytes: usize,
}

impl SessionSettings {
    /// Takes what sessions need from the configuration, apart from the users, who are in a file.
    pub(crate) fn new(config: &Config) -> SessionSettings {
        SessionSettings {
            stamps: config.stamps,
            part_failure: config.part_failure,
            overlap: Overlap::of(config.discipline, keeps_order(config)),
            slow_down: config.slow_down,
            has_warm_up: config.pools.iter().any(|pool| pool.warm_up.is_some()),
            has_steps: config.pools.iter().any(|pool| pool.warm_up.is_some() || pool.failover_pool.is_some()),
            handshake_timeout: config.transport.tls.handshake_timeout,
            header_timeout: config.transport.proxy_protocol.timeout,
            client_window: config.client_window,
            is_moving: false,
            client_buffer_bytes: config.client_buffer_bytes,
            limits: config.client_limits.clone(),
            wire: Limits { value_bytes: config.value_bytes, ..Limits::default() },
            users: None,
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
            _ => self.send(id, request),
        }
        id
    }

    /// Makes a job of a part of a line and sends it to its backends. Its keys have been admitted.
    pub(crate) fn submit_part(&mut self, arrival: Arrival, request: &Request<'_>) -> JobId {
        let id = self.begin(arrival);
        self.dispatch(id, request);
        id
    }

    /// Takes the tokens of the pools of a request. Returns the reply if a pool refuses it.
    pub(crate) fn refusal(&mut self, request: &Request<'_>, pool: Option<u8>) -> Option<Arc<[u8]>> {
        self.rate_limits.as_mut()?.refusal(request, pool, self.turn)
    }

    /// Begins a job and starts its clock.
    pub(crate) fn begin(&mut self, arrival: Arrival) -> JobId {
        // A line of many keys is recorded once, with its last part.
        let is_sampled = !arrival.is_part && is_sampled(arrival.port, arrival.sequence, self.journal.sample());
        let is_traced = !arrival.is_part && self.journal.takes_trace();
        let id = self.jobs.begin_for(arrival.session);
        let job = self.jobs.get(id);
        job.pool = arrival.pool;
        job.port = arrival.port;
        job.sequence = arrival.sequence;
        job.verb = arrival.verb;
        job.is_quiet = arrival.is_quiet;
        job.is_bulk = arrival.is_bulk;
        job.is_part = arrival.is_part;
        job.request_bytes = arrival.request_bytes as u32;
        job.is_sampled = is_sampled;
        job.is_traced = is_traced;
        job.is_timed = match self.settings.stamps {
            Stamps::Off => false,
            Stamps::Sampled => is_sampled || is_traced,
            Stamps::All => true,
        };
        if job.is_timed {
            job.clock = StageClock::started(arrival.received);
            job.stamp(Stage::Parsed, self.clock.now());
        }
        id
    }

    /// Answers the end of a line of keys, all of which were requested before.
    pub(crate) fn answer_end(&mut self, arrival: Arrival) -> JobId {
        let id = self.begin(arrival);
        let job = self.jobs.get(id);
        Reply::End.encode(&mut job.reply);
        job.is_done = true;
        id
    }

    /// Sends a job to its backends, unless the rate limit of a pool refuses it.
    pub(crate) fn send(&mut self, id: JobId, request: &Request<'_>) {
        let pool = self.jobs.get(id).pool;
        let Some(refusal) = self.refusal(request, pool) else {
            if self.near_caches.is_none() || !self.answer_near(id, request) {
                self.dispatch(id, request);
            }
            return;
        };
        let job = self.jobs.get(id);
        (job.outcome, job.is_done) = (Outcome::Overloaded, true);
        job.reply.extend_from_slice(&refusal);
    }

    /// Answers a `get` of one key from the near-cache, if it has the value. Otherwise the reply to the job may be kept there. Not inline,
    /// so that a proxy without near-caches pays for one branch only; so are the others that near-caches need.
    #[inline(never)]
    fn answer_near(&mut self, id: JobId, request: &Request<'_>) -> bool {
        let Core { near_caches, jobs, journal, clock, .. } = self;
        let (Some(near), &Request::Get { verb: Verb::Get, keys, .. }) = (near_caches, request) else { return false };
        if keys.are_more_than(1) {
            return false;
        }
        let job = jobs.get(id);
        let pool = match near.look_up(keys.first().unwrap_or_default(), job.pool, clock) {
            Found::NotHot => return false,
            Found::Wanted(place) => {
                job.near = NearUse::Fills(place);
                return false;
            }
            Found::Reply { reply, pool, now } => {
                if !jobs.answer(id, reply, now) {
                    return false;
                }
                pool
            }
        };
        let counters = &journal.counters.pools[pool];
        counters.reads.add(1);
        counters.near_cache_hits.add(1);
        journal.note_keys(request, jobs.get(id));
        true
    }

    /// Ends a turn of the event loop: publishes the hot keys, and gives the near-caches those of this loop.
    pub(crate) fn end_turn(&mut self) {
        if self.journal.end_turn(self.turn)
            && let Some(near) = &mut self.near_caches
        {
            near.set_hot(self.journal.hottest());
        }
    }

    /// Sends a job to its backends. A read that is sent again was admitted before.
    fn dispatch(&mut self, id: JobId, request: &Request<'_>) {
        if self.rewriter.is_none() || self.jobs.get(id).pool.is_some() {
            self.dispatch_as_is(id, request);
        } else if !self.dispatch_rewritten(id, request) {
            return;
        }
        self.journal.note_keys(request, self.jobs.get(id));
    }

    fn dispatch_as_is(&mut self, id: JobId, request: &Request<'_>) {
        let job = self.jobs.get(id);
        if let NearUse::Fills(place) = job.near
            && let (Some(near), Request::Get { keys, .. }) = (&mut self.near_caches, request)
        {
            near.begin_fill(place, (id, job.begun), keys.first().unwrap_or_default(), job.pool, self.turn);
        }
        let (dispatcher, mut answered, time) = self.parts();
        dispatcher.dispatch(id, request, &mut answered, time);
    }

    /// Sends a job to its backends with the keys that they receive. Returns false if such a key is impossible, and the job refused.
    fn dispatch_rewritten(&mut self, id: JobId, request: &Request<'_>) -> bool {
        let Some(mut rewriter) = self.rewriter.take() else { return true };
        let rewritten = rewriter.rewrite(request, self.jobs.get(id));
        let is_sent = rewritten.is_ok();
        match rewritten {
            Ok(rewritten) => self.dispatch_as_is(id, &rewritten),
            Err(error) => {
                let job = self.jobs.get(id);
                (job.outcome, job.is_done, job.is_refusal) = (Outcome::ClientError, true, true);
                job.reply.extend_from_slice(error.line());
            }
        }
        self.rewriter = Some(rewriter);
        is_sent
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
            Request::Version => {
                // Those of this loop are enough, because it has a connection to each server.
                let text = version_text([&*self.journal.counters]);
                Reply::Version(text.as_bytes()).encode(&mut job.reply);
            }
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
        let Core { dispatcher, jobs, answered, clock, turn, settings, journal, rewriter, near_caches, .. } = self;
        jobs.get(id).is_listed = false;
        let mut answered = AnsweredJobs { jobs, list: answered };
        let time = Time { clock, turn: *turn };
        let job = answered.jobs.get(id);
        if job.dropped_value.is_some() && !job.is_done {
            if job.is_waiting() {
                return None;
            }
            if job.follow_up == FollowUp::Touch {
                // Replicas that were not touched are invalidated. The value is read again without a touch.
                dispatcher.after_leg_answered(id, &settings.wire, &mut answered, time);
            }
            journal.counters.replies_dropped.add(1);
            let job = answered.jobs.get(id);
            job.is_done = true;
            return Some(job.session);
        }
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
        join(job, settings.part_failure);
        finish_reply(job);
        if !job.rare.get().client_keys.is_empty()
            && let Some(rewriter) = rewriter
        {
            rewriter.restore(job);
        }
        if let Some(line) = job.reply_override {
            job.outcome = Outcome::ClientError;
            job.reply.clear();
            job.reply.extend_from_slice(line);
        }
        if let NearUse::Fills(place) = job.near
            && let Some(near) = near_caches
        {
            near.end_fill(place, id, job);
        }
        let session = job.session;
        if job.is_waiting() && matches!(job.follow_up, FollowUp::ReplicatedWrite { .. }) {
            job.is_late_write = true;
            jobs.clients.late_write_begun(session);
        }
        if !jobs.get(id).is_waiting() {
            jobs.end_write(id);
        }
        jobs.joined(id);
        Some(session)
    }

    /// Sends a read again whose reply was dropped. If it has more than `keys_max` keys, only the first of them: another job
    /// reads these, and is returned.
    pub(crate) fn read_again(&mut self, id: JobId, keys_max: usize, how: ReadAgain) -> JobId {
        self.journal.counters.reads_repeated.add(1);
        let kept = self.jobs.get(id).take_kept();
        let ParsedRequest::Request { request, .. } = parse_request(&kept, &own_limits()) else {
            unreachable!("the proxy can parse every request that it has encoded");
        };
        let Request::Get { verb, keys, exptime } = request else {
            return self.repeat(id, &request, how);
        };
        // The values were touched when they were read first.
        let verb = match verb {
            Verb::Gat => Verb::Get,
            Verb::Gats => Verb::Gets,
            verb => verb,
        };
        let (first, rest) = keys.split(keys_max);
        if rest.first().is_none() {
            return self.repeat(id, &Request::Get { verb, exptime: 0, keys }, how);
        }
        let job = self.jobs.get(id);
        Request::Get { verb, exptime, keys: rest }.encode(&mut job.kept);
        job.keys = job.keys.saturating_sub(keys_max as u16);
        job.is_repeated = false;
        let (session, port, sequence, verb_of_line) = (job.session, job.port, job.sequence, job.verb);
        let arrival = Arrival {
            session,
            pool: job.pool,
            port,
            sequence,
            received: self.turn,
            verb: verb_of_line,
            is_quiet: false,
            is_part: true,
            is_bulk: how.is_bulk,
            request_bytes: 0,
        };
        let part = self.begin(arrival);
        let job = self.jobs.get(part);
        (job.may_exceed, job.is_repeated) = (how.may_exceed, true);
        self.dispatch(part, &Request::Get { verb, exptime: 0, keys: first });
        part
    }

    fn repeat(&mut self, id: JobId, request: &Request<'_>, how: ReadAgain) -> JobId {
        let job = self.jobs.take_dropped(id);
        job.restart();
        (job.may_exceed, job.is_bulk, job.is_repeated) = (how.may_exceed, how.is_bulk, true);
        if let Request::Meta(_) = request {
            // It has the key that the servers receive, and its client's key was counted when it was sent first.
            self.dispatch_as_is(id, request);
        } else {
            self.dispatch(id, request);
        }
        id
    }
}
