//! Background jobs: requests that no client waits for. They delete keys whose invalidation is pending, send a share of the
//! requests to a shadow pool, and store values that were found only in the warm-up pool. They pass the same discipline and
//! connections as clients' requests, and end in `Core::complete`.

use crate::path::job::{BackgroundJob, Candidate, FollowUp, Invalidation, Job, JobId, Join, SessionRef, WantedKey};
use crate::path::jobs::{AnsweredJobs, Time};
use crate::path::leg_request::{is_read, own_limits};
use crate::replication::assign::Assigner;
use crate::replication::kept::send_kept;
use crate::replication::replicas::{Replicas, may_linger};
use clock::Nanos;
use records::Outcome;
use wire::{
    KEY_BYTES_MAXIMUM, Limits, Meta, MetaFlags, ParsedReply, ParsedRequest, Reply, Request, Verb, encode_base64,
    encode_get, parse_reply, parse_request,
};

/// The most deletes that one loop sends to one backend in one turn.
const INVALIDATIONS_PER_TURN: usize = 256;

/// Sends the deletes that are due to the backends that accept requests.
pub(crate) fn send_invalidations(
    replicas: &Replicas,
    answered: &mut AnsweredJobs<'_>,
    now: Nanos,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    for (backend, pending) in replicas.pending.iter().enumerate() {
        if pending.next_due() > now || !replicas.is_up(backend as u16) {
            continue;
        }
        for invalidation in pending.take_due(INVALIDATIONS_PER_TURN, now) {
            let id = answered.jobs.begin();
            let job = answered.jobs.get(id);
            job.add_leg(backend as u16);
            encode_invalidation(&invalidation, &mut job.kept);
            job.is_quiet = true;
            job.background = Some(BackgroundJob::Invalidation(invalidation));
            send_kept(id, answered, send);
        }
    }
}

/// The request that deletes a key, or everything.
fn encode_invalidation(invalidation: &Invalidation, out: &mut Vec<u8>) {
    match invalidation {
        Invalidation::Everything => Request::FlushAll { delay: None, noreply: false }.encode(out),
        // A key is sent as text if it can be: in base64 a long key would exceed the limit. A key that cannot be sent as text was
        // received in base64, so it fits. memcached ends a line at its first `\n`, so a `\r` may be anywhere in a key.
        Invalidation::Key(key) if !key.iter().any(|byte| matches!(byte, b' ' | b'\n' | 0)) => {
            Request::Delete { key, noreply: false }.encode(out);
        }
        Invalidation::Key(key) => {
            let mut text = Vec::new();
            encode_base64(key, &mut text);
            let flags = MetaFlags::new(b"b");
            Request::Meta(Meta { verb: Verb::Md, key: &text, flags, left_out: b"", value: b"" }).encode(out);
        }
    }
}

/// Sends a request to the shadow pool of its key's pool, if the key is in the share. `shadow_of` returns that pool for a key and its
/// index, and `replicas` has the policies for shadow requests.
pub(crate) fn send_shadows(
    request: &Request<'_>,
    shadow_of: impl Fn(usize, &[u8], bool) -> Option<usize>,
    assigner: &mut Assigner,
    replicas: &Replicas,
    answered: &mut AnsweredJobs<'_>,
    time: Time<'_>,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    match request {
        // The shadow pool gets it like every pool that may be flushed.
        Request::FlushAll { .. } => {}
        &Request::Get { verb, exptime, keys } => {
            let is_read = matches!(verb, Verb::Get | Verb::Gets);
            for (index, key) in keys.iter().enumerate() {
                if let Some(pool) = shadow_of(index, key, is_read) {
                    let shadow =
                        begin_shadow(pool, answered, |out| encode_get(verb, exptime, std::iter::once(key), out));
                    send_shadow(shadow, assigner, replicas, answered, time, send);
                }
            }
        }
        _ => {
            let mut decoded = [0; KEY_BYTES_MAXIMUM];
            let key = match request {
                Request::Meta(meta) => meta.stored_key(&mut decoded),
                _ => request.key().unwrap_or_default(),
            };
            let is_read = matches!(request.verb(), Verb::Mg | Verb::Me);
            if let Some(pool) = shadow_of(0, key, is_read) {
                let shadow = begin_shadow(pool, answered, |out| request.without_noreply().encode(out));
                send_shadow(shadow, assigner, replicas, answered, time, send);
            }
        }
    }
}

/// The pool that a request for this key is sent to as well, if any; counts it.
pub(crate) fn shadow_of(key: &[u8], is_read: bool, only_pool: Option<usize>, replicas: &Replicas) -> Option<usize> {
    let pool = only_pool.unwrap_or_else(|| replicas.router.pool_of(key));
    let shadow = replicas.policies[pool].shadow?;
    let is_shadowed = shadow.includes(key) && (shadow.reads || !is_read);
    replicas.counters.pools[pool].shadowed.add(u64::from(is_shadowed));
    is_shadowed.then_some(shadow.pool)
}

/// Begins a job for a shadow pool. Returns it with its buffer, into which `encode` has written the request.
fn begin_shadow(pool: usize, answered: &mut AnsweredJobs<'_>, encode: impl FnOnce(&mut Vec<u8>)) -> (JobId, Vec<u8>) {
    let id = answered.jobs.begin();
    let job = answered.jobs.get(id);
    (job.is_quiet, job.background) = (true, Some(BackgroundJob::Shadow { pool }));
    let mut bytes = job.take_scratch();
    encode(&mut bytes);
    (id, bytes)
}

fn send_shadow(
    (id, bytes): (JobId, Vec<u8>),
    assigner: &mut Assigner,
    replicas: &Replicas,
    answered: &mut AnsweredJobs<'_>,
    time: Time<'_>,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    if let ParsedRequest::Request { request, .. } = parse_request(&bytes, &own_limits()) {
        let job = answered.jobs.get(id);
        job.verb = request.verb();
        if is_read(job.verb) {
            job.keep(&request);
        }
        assigner.assign_and_send(id, &request, replicas, answered, time, send);
    }
    answered.jobs.get(id).return_scratch(bytes);
}

/// Stores values that a read has found only in the warm-up pool.
pub(crate) fn send_fills(
    id: JobId,
    limits: &Limits,
    replicas: &Replicas,
    answered: &mut AnsweredJobs<'_>,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    for leg in 0..answered.jobs.get(id).legs().len() {
        let job = answered.jobs.get(id);
        let (is_filled, only_pool) = match job.follow_up {
            FollowUp::Read { pool } => (job.legs()[leg].candidate == Candidate::WarmUp, Some(usize::from(pool))),
            FollowUp::Parts => {
                let is_found_here = |key: &WantedKey| {
                    let is_of_leg = usize::from(key.leg) == leg && key.missed != Some(key.leg);
                    is_of_leg && key.candidate == Candidate::WarmUp
                };
                (job.rare.get().wanted.iter().any(is_found_here), None)
            }
            _ => (false, None),
        };
        if is_filled {
            let session = job.session;
            let (reply, rare) = (std::mem::take(&mut job.leg(leg as u16).reply), std::mem::take(&mut job.rare));
            if let Some(pool) = only_pool {
                let is_found = reply.starts_with(b"VA ") || reply.starts_with(b"HD");
                replicas.counters.pools[pool].warm_up_hits.add(u64::from(is_found));
            }
            // The values come in the order of the keys.
            let mut of_leg = rare.get().wanted.iter().filter(|wanted| usize::from(wanted.leg) == leg);
            let pool_of = |key: &[u8]| {
                let is_it = |wanted: &&WantedKey| rare.get().key_of(wanted) == key;
                only_pool.or_else(|| of_leg.find(is_it).map(|wanted| wanted.pool.into()))
            };
            store_values(&reply, pool_of, session, limits, replicas, answered, send);
            let job = answered.jobs.get(id);
            job.rare = rare;
            job.leg(leg as u16).reply = reply;
        }
    }
}

/// Stores the values of a reply in the pools that serve their keys. The reply to an `mg` need not contain everything that a value is
/// stored with, so its value is not stored.
fn store_values(
    reply: &[u8],
    mut pool_of: impl FnMut(&[u8]) -> Option<usize>,
    session: SessionRef,
    limits: &Limits,
    replicas: &Replicas,
    answered: &mut AnsweredJobs<'_>,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    let mut at = 0;
    while let ParsedReply::Reply { reply: Reply::Value(value), consumed } = parse_reply(&reply[at..], limits) {
        at += consumed;
        let Some(pool) = pool_of(value.key) else { continue };
        let Some((_, seconds)) = replicas.policies[pool].warm_up else { continue };
        replicas.counters.pools[pool].warm_up_hits.add(1);
        let request = Request::Store {
            // A value that a client has stored meanwhile is newer.
            verb: Verb::Add,
            key: value.key,
            flags: value.flags,
            exptime: i64::from(seconds).min(60 * 60 * 24 * 30),
            value: value.data,
            cas: 0,
            noreply: false,
        };
        send_fill(&request, session, pool, replicas, answered, send);
    }
}

/// Stores one value on its key's primary only: a fill must not cause deletions on the warm-up pool. It uses the connection of the
/// client's writes, so that a delete which the client sends next arrives after it.
fn send_fill(
    request: &Request<'_>,
    session: SessionRef,
    pool: usize,
    replicas: &Replicas,
    answered: &mut AnsweredJobs<'_>,
    send: &mut impl FnMut(JobId, &Request<'_>, &mut AnsweredJobs<'_>),
) {
    let key = request.key().unwrap_or_default();
    let choice = replicas.primary(pool, key);
    let id = answered.jobs.begin_for(session);
    let job = answered.jobs.get(id);
    (job.verb, job.is_quiet, job.join) = (request.verb(), true, Join::Forward);
    job.background = Some(BackgroundJob::Fill);
    job.rare.change().key_bytes.extend_from_slice(key);
    let leg = job.add_leg(choice.backend);
    job.leg(leg).is_withheld = choice.is_withheld;
    send(id, request, answered);
}

/// Records the result of a background job that has ended.
pub(crate) fn finish(job: &Job, replicas: &Replicas, now: Nanos) {
    let (Some(background), Some(leg)) = (&job.background, job.legs().first()) else { return };
    let backend = usize::from(leg.backend);
    let is_answered = leg.outcome == Outcome::Answered;
    match background {
        BackgroundJob::Invalidation(invalidation) => {
            let counters = &replicas.counters.backends[backend];
            if is_answered { &counters.invalidations_sent } else { &counters.invalidations_failed }.add(1);
            replicas.pending[backend].record_result(invalidation, is_answered, now);
        }
        BackgroundJob::Fill => {
            // The reply of the only leg is the job's own reply. NOT_STORED means that a client has stored a newer value.
            let pool = replicas.router.pool_of_backend(leg.backend);
            replicas.counters.pools[pool].warm_up_fills.add(u64::from(job.reply == b"STORED\r\n"));
            if may_linger(leg) {
                // The server may apply it after a delete that the client has sent since.
                replicas.invalidate_failed_leg(leg, job.key(), now);
            }
        }
        BackgroundJob::Shadow { .. } => {}
    }
}
