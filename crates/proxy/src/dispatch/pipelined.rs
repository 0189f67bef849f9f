//! The discipline `pipelined`: nobody waits. Every leg goes straight onto the connection of its backend, so a request is
//! enqueued and dispatched at one moment. The other disciplines do the same with what finds its place free.

use crate::backends::Backends;
use crate::dispatch::Time;
use crate::dispatch::legs::put;
use crate::finished::Finished;
use crate::jobs::JobId;
use crate::leg::LegRef;
use clock::Stage;
use wire::Request;

/// Sends every leg of a job on the connection that `connection` names for its backend.
pub(crate) fn send_at_once(
    id: JobId,
    request: &Request<'_>,
    connection: impl Fn(u16) -> usize,
    backends: &mut Backends,
    finished: &mut Finished<'_>,
    time: Time<'_>,
) {
    let legs = finished.jobs.get(id).legs().len();
    for leg in 0..legs as u8 {
        let slot = finished.jobs.get(id).leg(leg);
        if slot.is_placed || slot.answered.is_set() {
            continue;
        }
        let connection = connection(slot.backend);
        slot.queue_length = backends.get(connection).waiting() as u32;
        put(LegRef { job: id, leg }, request, connection, backends, finished, time.turn);
    }
    let job = finished.jobs.get(id);
    let now = time.now(job.is_timed);
    job.stamp(Stage::Enqueued, now);
    job.stamp(Stage::Dispatched, now);
    if !job.is_waiting() {
        // Refused at once by every backend: that answer came with the last look at the clock, not before it.
        job.stamp(Stage::Answered, now);
    }
}
