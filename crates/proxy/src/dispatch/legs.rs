//! What the backend of each leg is asked, put onto its connection at once or kept while the leg waits.

use crate::backends::Backends;
use crate::finished::Finished;
use crate::job::{Job, Join};
use crate::jobs::Jobs;
use crate::leg::{Ask, LegRef};
use crate::meta;
use crate::policy::own_limits;
use crate::verdict::Expect;
use clock::Nanos;
use wire::{Limits, Meta, MetaFlags, ParsedRequest, Request, Verb, encode_get, parse_request};

/// Puts what one leg's backend is asked onto a connection.
pub(crate) fn put(
    leg: LegRef,
    request: &Request<'_>,
    connection: usize,
    backends: &mut Backends,
    finished: &mut Finished<'_>,
    now: Nanos,
) {
    let job = finished.jobs.get(leg.job);
    let asked = asked(request, job.leg(leg.leg).ask);
    let expect = expected(asked.verb());
    job.leg(leg.leg).is_placed = true;
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
    let job = jobs.get(leg.job);
    let asked = asked(request, job.leg(leg.leg).ask);
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
    slot.is_placed = true;
    let expect = expected(slot.asked);
    let mut bytes = std::mem::take(&mut slot.request);
    backends.send(connection, leg, expect, finished, now, |out| {
        // Nothing else waits to be written on a slot's connection, so the bytes need not be copied.
        if out.is_empty() { std::mem::swap(out, &mut bytes) } else { out.extend_from_slice(&bytes) }
    });
    bytes.clear();
    finished.jobs.get(leg.job).leg(leg.leg).request = bytes;
}

/// What a leg's backend is asked: a part of a multi-get apart, what the client said, with a reply in any case; or what keeps
/// a copy from telling something else than the backend that has done what the client said.
fn asked<'r>(request: &Request<'r>, ask: Ask) -> Request<'r> {
    match (request, ask) {
        (Request::Meta(meta), _) => meta::asked_of(meta, ask),
        (_, Ask::Delete) => Request::Delete { key: request.key().unwrap_or_default(), noreply: false },
        (Request::Get { exptime, .. }, Ask::Touch) => {
            Request::Touch { key: request.key().unwrap_or_default(), exptime: *exptime, noreply: false }
        }
        (&Request::Store { verb, key, flags, exptime, value, cas, .. }, Ask::Capped { seconds }) => {
            let exptime = capped(exptime, seconds);
            Request::Store { verb, key, flags, exptime, value, cas, noreply: false }
        }
        (&Request::Touch { key, exptime, .. }, Ask::Capped { seconds }) => {
            Request::Touch { key, exptime: capped(exptime, seconds), noreply: false }
        }
        _ => request.without_noreply(),
    }
}

/// Rewrites a meta command, as its bytes are kept, so that what it stores lives at most so many seconds. Of the text commands
/// the expiry time is a field of its own, and capped when they are sent.
pub(crate) fn cap_meta(kept: &mut Vec<u8>, seconds: u32) {
    let ParsedRequest::Request { request: Request::Meta(meta), .. } =
        parse_request(kept, &own_limits(&Limits::default()))
    else {
        return;
    };
    let flags = meta::capped_flags(&meta, |exptime| capped(exptime, seconds));
    let mut bytes = Vec::with_capacity(kept.len() + flags.len());
    Request::Meta(Meta { flags: MetaFlags::new(&flags), ..meta }).encode(&mut bytes);
    *kept = bytes;
}

/// An expiry time that is at most so many seconds away. One that is over stays so; a Unix time cannot be compared without a
/// clock that the server shares, so it counts as far away.
fn capped(exptime: i64, seconds: u32) -> i64 {
    const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;
    match exptime {
        0 => i64::from(seconds).min(RELATIVE_MAX),
        ..=RELATIVE_MAX => exptime.min(seconds.into()),
        _ => i64::from(seconds).min(RELATIVE_MAX),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_lives_no_longer_than_it_may() {
        for (exptime, expected) in [(0, 60), (30, 30), (61, 60), (-1, -1), (2_000_000_000, 60)] {
            assert_eq!(capped(exptime, 60), expected);
        }
        assert_eq!(capped(0, u32::MAX), 2_592_000);
        let mut kept = b"ms a2V5 2 b O1\r\nhi\r\n".to_vec();
        cap_meta(&mut kept, 60);
        assert_eq!(String::from_utf8(kept).unwrap(), "ms a2V5 2 b O1 T60\r\nhi\r\n");
        let mut kept = b"touch k 0\r\n".to_vec();
        cap_meta(&mut kept, 60);
        let ParsedRequest::Request { request, .. } = parse_request(&kept, &Limits::default()) else { panic!() };
        assert!(matches!(asked(&request, Ask::Capped { seconds: 60 }), Request::Touch { exptime: 60, .. }));
    }
}
