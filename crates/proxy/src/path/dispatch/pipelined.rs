//! Step 5. The discipline `pipelined`: no request waits. Every leg is written to the one connection of its backend at once, so
//! it is enqueued and dispatched at the same time. Reads with large replies use a second connection, so that they delay no other
//! reply. The other disciplines use the same functions once a leg may be sent.

use crate::path::backend::connections::Connections;
use crate::path::backend::match_reply::Expect;
use crate::path::job::{JobId, Join, LegCommand, LegRef};
use crate::path::jobs::{AnsweredJobs, Jobs, Time};
use crate::path::leg_request::leg_request;
use clock::{Nanos, Stage};
use wire::{Request, encode_get};

/// Sends every leg of a job whose reply is expected to be large on its backend's bulk connection or, while that one is not open, on
/// the ordinary connection. The bulk connections follow those of the `backends`.
pub(crate) fn send_bulk(
    id: JobId,
    request: &Request<'_>,
    backends: usize,
    connections: &mut Connections,
    answered: &mut AnsweredJobs<'_>,
    time: Time<'_>,
) {
    for leg in answered.jobs.get(id).legs().iter().filter(|leg| !leg.is_placed && !leg.answered.is_set()) {
        connections.wake(backends + usize::from(leg.backend), time.turn);
    }
    let connection = |backend: u16, connections: &Connections| {
        let bulk = backends + usize::from(backend);
        if connections.get(bulk).is_open() { bulk } else { usize::from(backend) }
    };
    send_at_once(id, request, connection, connections, answered, time);
}

/// Sends every leg of a job on the connection that `connection` returns for its backend.
pub(crate) fn send_at_once(
    id: JobId,
    request: &Request<'_>,
    connection: impl Fn(u16, &Connections) -> usize,
    connections: &mut Connections,
    answered: &mut AnsweredJobs<'_>,
    time: Time<'_>,
) {
    let legs = answered.jobs.get(id).legs().len();
    for leg in 0..legs as u16 {
        let slot = answered.jobs.get(id).leg(leg);
        if slot.is_placed || slot.answered.is_set() {
            continue;
        }
        let connection = connection(slot.backend, connections);
        slot.queue_length = connections.get(connection).waiting() as u32;
        send_leg(LegRef { job: id, leg }, request, connection, connections, answered, time.turn);
    }
    let job = answered.jobs.get(id);
    let now = time.now(job.is_timed);
    job.stamp(Stage::Enqueued, now);
    job.stamp(Stage::Dispatched, now);
    if !job.is_waiting() {
        // Every backend has refused its leg at once. That reply has the time of the last clock reading, not an earlier one.
        job.stamp(Stage::Answered, now);
    }
}

/// Encodes a leg's request onto a connection.
pub(crate) fn send_leg(
    leg: LegRef,
    request: &Request<'_>,
    connection: usize,
    connections: &mut Connections,
    answered: &mut AnsweredJobs<'_>,
    now: Nanos,
) {
    let job = answered.jobs.get(leg.job);
    let command = job.leg(leg.leg).command;
    job.leg(leg.leg).is_placed = true;
    match request {
        Request::Get { verb, exptime, .. } if job.join == Join::KeyOrder => {
            // The keys are moved out of the job meanwhile, since the connection cannot borrow from the job.
            let rare = std::mem::take(&mut job.rare);
            let (keys, expect) = (rare.get().keys_of_leg(leg.leg), Expect::of(*verb));
            connections.send(connection, leg, expect, answered, now, |out| encode_get(*verb, *exptime, keys, out));
            answered.jobs.get(leg.job).rare = rare;
        }
        Request::Get { verb, .. } if command == LegCommand::AsReceived && !job.kept.is_empty() => {
            // It was encoded already, so that its reply can be compared with it.
            let kept = std::mem::take(&mut job.kept);
            let expect = Expect::of(*verb);
            connections.send(connection, leg, expect, answered, now, |out| out.extend_from_slice(&kept));
            answered.jobs.get(leg.job).kept = kept;
        }
        _ => {
            let to_send = leg_request(request, command);
            let expect = Expect::of(to_send.verb());
            connections.send(connection, leg, expect, answered, now, |out| to_send.encode(out));
        }
    }
}

/// Encodes a leg's request into the leg, which waits in a queue; returns its length.
pub(crate) fn buffer_leg(leg: LegRef, request: &Request<'_>, jobs: &mut Jobs) -> usize {
    let job = jobs.get(leg.job);
    let to_send = leg_request(request, job.leg(leg.leg).command);
    let mut bytes = std::mem::take(&mut job.leg(leg.leg).request);
    match request {
        Request::Get { verb, exptime, .. } if job.join == Join::KeyOrder => {
            encode_get(*verb, *exptime, job.rare.get().keys_of_leg(leg.leg), &mut bytes);
        }
        _ => to_send.encode(&mut bytes),
    }
    let length = bytes.len();
    let slot = job.leg(leg.leg);
    (slot.request, slot.sent_verb) = (bytes, to_send.verb());
    length
}

/// Sends the buffered request of a leg that has left its queue.
pub(crate) fn send_buffered(
    leg: LegRef,
    connection: usize,
    connections: &mut Connections,
    answered: &mut AnsweredJobs<'_>,
    now: Nanos,
) {
    let job = answered.jobs.get(leg.job);
    job.leg_dispatched(leg.leg, now);
    let slot = job.leg(leg.leg);
    slot.is_placed = true;
    let expect = Expect::of(slot.sent_verb);
    let mut bytes = std::mem::take(&mut slot.request);
    connections.send(connection, leg, expect, answered, now, |out| {
        // A slot's connection has nothing else to write, so the buffer is handed over instead of copied.
        if out.is_empty() { std::mem::swap(out, &mut bytes) } else { out.extend_from_slice(&bytes) }
    });
    bytes.clear();
    answered.jobs.get(leg.job).leg(leg.leg).request = bytes;
}
