//! What the backend of each leg is asked, put onto its connection at once or kept while the leg waits.

use crate::backends::Backends;
use crate::finished::Finished;
use crate::job::{Job, Jobs, Join, LegRef};
use crate::meta;
use crate::verdict::Expect;
use clock::Nanos;
use wire::{Request, Verb, encode_get};

/// Puts what one leg's backend is asked onto a connection.
pub(crate) fn put(
    leg: LegRef,
    request: &Request<'_>,
    connection: usize,
    backends: &mut Backends,
    finished: &mut Finished<'_>,
    now: Nanos,
) {
    let asked = asked(request, leg.leg);
    let expect = expected(asked.verb());
    let job = finished.jobs.get(leg.job);
    match request {
        Request::Get { verb, exptime, .. } if job.join == Join::KeyOrder => {
            // The job's own buffer, since a leg that is encoded onto a connection cannot borrow from its job.
            let mut part = job.take_scratch();
            encode_part(job, leg.leg, *verb, *exptime, &mut part);
            backends.send(connection, leg, expect, finished, now, |out| out.extend_from_slice(&part));
            finished.jobs.get(leg.job).return_scratch(part);
        }
        _ => backends.send(connection, leg, expect, finished, now, |out| asked.encode(out)),
    }
}

/// Keeps what one leg's backend is asked, and which command that is, until it is its turn; returns its length.
pub(crate) fn keep(leg: LegRef, request: &Request<'_>, jobs: &mut Jobs) -> usize {
    let asked = asked(request, leg.leg);
    let job = jobs.get(leg.job);
    let mut bytes = std::mem::take(&mut job.leg(leg.leg).request);
    match request {
        Request::Get { verb, exptime, .. } if job.join == Join::KeyOrder => {
            encode_part(job, leg.leg, *verb, *exptime, &mut bytes);
        }
        _ => asked.encode(&mut bytes),
    }
    let length = bytes.len();
    let slot = job.leg(leg.leg);
    (slot.request, slot.asked) = (bytes, asked.verb());
    length
}

/// Puts what was kept onto a connection: the leg has left its queue.
pub(crate) fn release(
    leg: LegRef,
    connection: usize,
    backends: &mut Backends,
    finished: &mut Finished<'_>,
    now: Nanos,
) {
    let job = finished.jobs.get(leg.job);
    job.leg_dispatched(leg.leg, now);
    let slot = job.leg(leg.leg);
    let expect = expected(slot.asked);
    let mut bytes = std::mem::take(&mut slot.request);
    backends.send(connection, leg, expect, finished, now, |out| {
        // Nothing else waits to be written on a slot's connection, so the bytes need not be copied.
        if out.is_empty() { std::mem::swap(out, &mut bytes) } else { out.extend_from_slice(&bytes) }
    });
    bytes.clear();
    finished.jobs.get(leg.job).leg(leg.leg).request = bytes;
}

/// What a leg's backend is asked: a part of a multi-get apart, what the client said, with a reply in any case; on a copy,
/// a change that only the primary can make is a delete.
fn asked<'r>(request: &Request<'r>, leg: u8) -> Request<'r> {
    match request {
        Request::Meta(meta) => meta::asked_of(meta, leg > 0),
        _ if leg > 0 && changes_unlike_copies(request.verb()) => {
            Request::Delete { key: request.key().unwrap_or_default(), noreply: false }
        }
        _ => request.without_noreply(),
    }
}

/// What may answer a leg that is asked this, which on a copy may be another command than the client's.
fn expected(asked: Verb) -> Expect {
    match asked {
        Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => Expect::Values,
        verb => Expect::Line(verb),
    }
}

/// The part of a multi-get that one leg fetches.
fn encode_part(job: &Job, leg: u8, verb: Verb, exptime: i64, out: &mut Vec<u8>) {
    let keys = job.wanted.iter().filter(|wanted| wanted.leg == leg);
    let keys = keys.map(|wanted| &job.key_bytes[wanted.start as usize..][..wanted.length as usize]);
    encode_get(verb, exptime, keys, out);
}

/// Commands whose effect depends on what a server holds: they run on the primary, and the copies are deleted instead,
/// because a cas token or a counter of one server means nothing on another (docs/decisions/0006-replicated-writes.md).
fn changes_unlike_copies(verb: Verb) -> bool {
    matches!(verb, Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas | Verb::Incr | Verb::Decr)
}
