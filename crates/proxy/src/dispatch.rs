//! Stations 4 to 6. Routes a request, cuts it into legs and puts each on the connection of its backend.
//! This is the discipline `pipelined`: there is no queue, so a request is enqueued and dispatched at once.

use crate::backend::Backend;
use crate::finished::Finished;
use crate::job::{Job, JobId, Jobs, Join, LegRef, WantedKey};
use crate::meta;
use crate::route::Router;
use crate::verdict::Expect;
use clock::{Clock, Nanos, Stage};
use wire::{KEY_BYTES_MAXIMUM, Keys, Meta, Request, Verb, encode_get};

/// Everything behind the sessions that a request meets on its way out.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) router: Router,
    pub(crate) backends: Vec<Backend>,
    /// The backend of each key of a multi-get, used again for the next.
    chosen: Vec<u16>,
}

impl Dispatch {
    /// A dispatcher over these backends, in the order of the configuration.
    pub(crate) fn new(router: Router, backends: Vec<Backend>) -> Dispatch {
        assert_eq!(router.servers() as usize, backends.len());
        Dispatch { router, backends, chosen: Vec::new() }
    }

    /// Sends a request on its way. The job has been begun and parsed; its legs will be answered, or are already.
    pub(crate) fn dispatch(
        &mut self,
        id: JobId,
        request: &Request<'_>,
        finished: &mut Finished<'_>,
        clock: &Clock,
        turn: Nanos,
    ) {
        let is_timed = finished.jobs.get(id).is_timed;
        let now = |turn| if is_timed { clock.now() } else { turn };
        match request {
            Request::Get { keys, .. } => self.route_get(finished.jobs.get(id), *keys),
            Request::FlushAll { .. } => route_everywhere(finished.jobs.get(id), self.router.servers()),
            Request::Meta(meta) => self.route_meta(finished.jobs.get(id), meta),
            _ => self.route_write(finished.jobs.get(id), request.key().unwrap_or_default()),
        }
        let routed = now(turn);
        finished.jobs.get(id).stamp(Stage::Routed, routed);
        let legs = finished.jobs.get(id).legs().len();
        for leg in 0..legs as u8 {
            self.enqueue(LegRef { job: id, leg }, request, finished, turn);
        }
        let enqueued = now(turn);
        let job = finished.jobs.get(id);
        job.stamp(Stage::Enqueued, enqueued);
        job.stamp(Stage::Dispatched, enqueued);
        if !job.is_waiting() {
            // Refused at once by every backend: that answer came with the last look at the clock, not before it.
            job.stamp(Stage::Answered, enqueued);
        }
    }

    /// One leg if all keys live on one backend, otherwise one per backend.
    fn route_get(&mut self, job: &mut Job, keys: Keys<'_>) {
        self.chosen.clear();
        self.chosen.extend(keys.iter().map(|key| self.router.primary(key)));
        job.keys = self.chosen.len().min(u16::MAX.into()) as u16;
        let first = self.chosen[0];
        if self.chosen.iter().all(|&backend| backend == first) {
            job.join = Join::Forward;
            job.add_leg(first);
            return;
        }
        job.join = Join::KeyOrder;
        for (key, &backend) in keys.iter().zip(&self.chosen) {
            let known = job.legs().iter().position(|leg| leg.backend == backend);
            let leg = known.map_or_else(|| job.add_leg(backend), |leg| leg as u8);
            let start = job.key_bytes.len() as u32;
            job.key_bytes.extend_from_slice(key);
            job.wanted.push(WantedKey { start, length: key.len() as u16, leg });
        }
    }

    /// One leg per replica, the primary first.
    fn route_write(&mut self, job: &mut Job, key: &[u8]) {
        job.keys = 1;
        for backend in self.router.replicas(key) {
            job.add_leg(backend);
        }
        job.join = if job.legs().len() == 1 { Join::Forward } else { Join::All };
    }

    /// As a read or as a write, by the key that servers hold (docs/decisions/0012-quiet-meta-commands.md).
    fn route_meta(&mut self, job: &mut Job, meta: &Meta<'_>) {
        let mut decoded = [0; KEY_BYTES_MAXIMUM];
        let key = meta.stored_key(&mut decoded);
        if meta::asks_primary_only(meta.verb) {
            job.keys = 1;
            job.add_leg(self.router.primary(key));
            return;
        }
        self.route_write(job, key);
        if job.join == Join::All && meta::changes_unlike_copies(meta) {
            job.join = Join::Primary;
        }
    }

    /// Encodes what one leg's backend is asked onto its connection.
    fn enqueue(&mut self, leg: LegRef, request: &Request<'_>, finished: &mut Finished<'_>, now: Nanos) {
        let backend = finished.jobs.get(leg.job).leg(leg.leg).backend;
        let backend = &mut self.backends[backend as usize];
        match request {
            Request::Get { verb, exptime, .. } if finished.jobs.get(leg.job).join == Join::KeyOrder => {
                let part = encode_part(finished.jobs, leg, *verb, *exptime);
                backend.enqueue(leg, Expect::Values, finished, now, |out| out.extend_from_slice(&part));
                finished.jobs.get(leg.job).return_scratch(part);
            }
            Request::Get { .. } => backend.enqueue(leg, Expect::Values, finished, now, |out| request.encode(out)),
            Request::Meta(meta) => {
                let asked = meta::asked_of(meta, leg.leg > 0);
                backend.enqueue(leg, Expect::Line(asked.verb()), finished, now, |out| asked.encode(out));
            }
            _ if leg.leg > 0 && changes_unlike_copies(request.verb()) => {
                let delete = Request::Delete { key: request.key().unwrap_or_default(), noreply: false };
                backend.enqueue(leg, Expect::Line(Verb::Delete), finished, now, |out| delete.encode(out));
            }
            _ => {
                let loud = request.without_noreply();
                backend.enqueue(leg, Expect::Line(request.verb()), finished, now, |out| loud.encode(out));
            }
        }
    }
}

/// The part of a multi-get that one leg fetches, in the job's scratch buffer.
fn encode_part(jobs: &mut Jobs, leg: LegRef, verb: Verb, exptime: i64) -> Vec<u8> {
    let job = jobs.get(leg.job);
    let mut part = job.take_scratch();
    let keys = job.wanted.iter().filter(|wanted| wanted.leg == leg.leg);
    let keys = keys.map(|wanted| &job.key_bytes[wanted.start as usize..][..wanted.length as usize]);
    encode_get(verb, exptime, keys, &mut part);
    part
}

/// Every backend, for commands that name no key.
fn route_everywhere(job: &mut Job, servers: u16) {
    for backend in 0..servers {
        job.add_leg(backend);
    }
    job.join = if servers == 1 { Join::Forward } else { Join::All };
}

/// Commands whose effect depends on what a server holds: they run on the primary, and the copies are deleted instead,
/// because a cas token or a counter of one server means nothing on another (docs/decisions/0006-replicated-writes.md).
fn changes_unlike_copies(verb: Verb) -> bool {
    matches!(verb, Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas | Verb::Incr | Verb::Decr)
}
