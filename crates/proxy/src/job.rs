//! A job: one request inside the proxy, with its clock, its legs and its reply slot.
//! It names the session that waits for it only by number: whoever answers a leg need not know that sessions exist.

use clock::{Nanos, Stage, StageClock};
use records::Outcome;
use wire::Verb;

/// Number of a job in its loop's table.
pub(crate) type JobId = u32;

/// A buffer larger than this is freed when its job ends, instead of being kept for the next.
const KEPT_BYTES: usize = 16 * 1024;

/// Which client waits: the slot of its session, and the connection's number, since slots are used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionRef {
    pub(crate) slot: u32,
    pub(crate) connection: u32,
}

/// One leg of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegRef {
    pub(crate) job: JobId,
    pub(crate) leg: u8,
}

/// How the replies of the legs become one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Join {
    /// There is one leg, and its reply is the answer as it is; or none, and the proxy answers.
    #[default]
    Forward,
    /// Every leg must answer; the first error is the answer, otherwise the primary's reply, but something deleted anywhere
    /// has been deleted.
    All,
    /// The same for a meta command that runs on the primary while its copies are deleted: what they say to that, errors
    /// excepted, is no answer.
    Primary,
    /// Each leg brings some of the values; they are put in the order of the keys.
    KeyOrder,
}

/// What one backend does for a job.
#[derive(Debug, Default)]
pub(crate) struct Leg {
    pub(crate) backend: u16,
    pub(crate) backend_port: u16,
    pub(crate) backend_sequence: u32,
    pub(crate) queue_length: u32,
    pub(crate) request_bytes: u32,
    pub(crate) hits: u16,
    pub(crate) reply_bytes: usize,
    pub(crate) outcome: Outcome,
    /// When it left its queue; unset if it was in none.
    pub(crate) dispatched: Nanos,
    pub(crate) sent: Nanos,
    pub(crate) answered: Nanos,
    /// What the backend is asked, while the leg waits in a queue.
    pub(crate) request: Vec<u8>,
    /// The command in it, which on a copy may be another than the client's.
    pub(crate) asked: Verb,
    pub(crate) reply: Vec<u8>,
}

/// A key of a multi-get: where it stands in the key list and which leg fetches it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedKey {
    pub(crate) start: u32,
    pub(crate) length: u16,
    pub(crate) leg: u8,
}

/// Where the key, which stands in `key_bytes` as it is told, belongs in the reply to an `mg`: behind so many flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldKey {
    pub(crate) behind_when_found: u8,
    pub(crate) behind_when_missing: u8,
}

/// One request on its way.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) clock: StageClock,
    /// Whether the clock is read for this job.
    pub(crate) is_timed: bool,
    /// Whether its record is kept.
    pub(crate) is_sampled: bool,
    /// Whether the client wants no reply.
    pub(crate) is_quiet: bool,
    /// Whether it wants none if all goes as expected: a meta command with `q`.
    pub(crate) is_quiet_meta: bool,
    /// The key that the proxy puts into the reply to a meta command itself.
    pub(crate) told_key: Option<ToldKey>,
    /// Whether the reply slot holds the answer.
    pub(crate) is_done: bool,
    pub(crate) session: SessionRef,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) verb: Verb,
    pub(crate) keys: u16,
    pub(crate) hits: u16,
    pub(crate) request_bytes: u32,
    pub(crate) reply_bytes: u32,
    pub(crate) outcome: Outcome,
    pub(crate) join: Join,
    pub(crate) reply: Vec<u8>,
    scratch: Vec<u8>,
    pub(crate) key_bytes: Vec<u8>,
    pub(crate) wanted: Vec<WantedKey>,
    /// The leg whose error came first.
    pub(crate) first_error: Option<u8>,
    legs: Vec<Leg>,
    legs_used: usize,
    unanswered: usize,
    is_live: bool,
}

/// All jobs of one loop. Ended jobs are kept and used again with their buffers, so that a request allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    table: Vec<Job>,
    free: Vec<JobId>,
}

impl Job {
    /// The legs, in the order in which they were added.
    pub(crate) fn legs(&self) -> &[Leg] {
        &self.legs[..self.legs_used]
    }

    /// Adds a leg to a backend.
    pub(crate) fn add_leg(&mut self, backend: u16) -> u8 {
        if self.legs_used == self.legs.len() {
            self.legs.push(Leg::default());
        }
        let leg = &mut self.legs[self.legs_used];
        let (mut request, mut reply) = (std::mem::take(&mut leg.request), std::mem::take(&mut leg.reply));
        request.clear();
        reply.clear();
        *leg = Leg { backend, request, reply, ..Leg::default() };
        self.legs_used += 1;
        self.unanswered += 1;
        (self.legs_used - 1) as u8
    }

    /// The leg with this number.
    pub(crate) fn leg(&mut self, leg: u8) -> &mut Leg {
        &mut self.legs[..self.legs_used][leg as usize]
    }

    /// Notes that a stage was reached, if this job is timed.
    pub(crate) fn stamp(&mut self, stage: Stage, now: Nanos) {
        if self.is_timed {
            self.clock.stamp(stage, now);
        }
    }

    /// Notes that a leg has left its queue.
    pub(crate) fn leg_dispatched(&mut self, leg: u8, now: Nanos) {
        self.leg(leg).dispatched = now;
        self.stamp(Stage::Dispatched, now);
    }

    /// Notes that the kernel has taken the last byte of a leg.
    pub(crate) fn leg_sent(&mut self, leg: u8, now: Nanos) {
        self.leg(leg).sent = now;
        self.stamp(Stage::Sent, now);
    }

    /// Adds a whole value to the reply of a leg, of which more is to come; returns the bytes of the reply so far.
    pub(crate) fn leg_brought(&mut self, leg: u8, value: &[u8]) -> usize {
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        slot.hits = slot.hits.saturating_add(1);
        slot.reply_bytes += value.len();
        let reply = if self.join == Join::Forward { &mut self.reply } else { &mut slot.reply };
        reply.extend_from_slice(value);
        slot.reply_bytes
    }

    /// Forgets what a leg has brought: it has become too much, or its answer is an error.
    pub(crate) fn leg_forgets(&mut self, leg: u8) {
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        slot.hits = 0;
        let reply = if self.join == Join::Forward { &mut self.reply } else { &mut slot.reply };
        *reply = Vec::new();
    }

    /// Completes the reply of a leg with its last line; true when no leg is missing any more.
    pub(crate) fn leg_answered(&mut self, leg: u8, last_line: &[u8], outcome: Outcome, now: Nanos) -> bool {
        if outcome != Outcome::Answered && self.first_error.is_none() {
            self.first_error = Some(leg);
        }
        if outcome != Outcome::Answered && self.join == Join::KeyOrder {
            // An error in place of END spoils its whole part: the values before it are not joined.
            self.leg_forgets(leg);
        }
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        slot.answered = now;
        slot.outcome = outcome;
        slot.reply_bytes += last_line.len();
        let sent = slot.sent.max(slot.dispatched);
        let reply = if self.join == Join::Forward { &mut self.reply } else { &mut slot.reply };
        reply.extend_from_slice(last_line);
        // A leg that left its queue last may never have been sent: then its sending counts as done when it left.
        self.stamp(Stage::Sent, sent);
        self.stamp(Stage::Answered, now);
        self.unanswered -= 1;
        self.unanswered == 0
    }

    /// A buffer to encode one part in; to be given back.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    /// Gives the buffer back for the next part.
    pub(crate) fn return_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        self.scratch = scratch;
    }

    /// Whether legs are still missing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unanswered > 0
    }

    /// Empties an ended job, keeping its buffers for the next one unless they have become large.
    fn clear(&mut self) {
        let keep = |mut buffer: Vec<u8>| {
            buffer.clear();
            if buffer.capacity() > KEPT_BYTES { Vec::new() } else { buffer }
        };
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.shrink_to(KEPT_BYTES / size_of::<WantedKey>());
        let mut legs = std::mem::take(&mut self.legs);
        for leg in &mut legs[..self.legs_used] {
            leg.request = keep(std::mem::take(&mut leg.request));
            leg.reply = keep(std::mem::take(&mut leg.reply));
        }
        *self = Job {
            reply: keep(std::mem::take(&mut self.reply)),
            key_bytes: keep(std::mem::take(&mut self.key_bytes)),
            scratch: keep(std::mem::take(&mut self.scratch)),
            wanted,
            legs,
            ..Job::default()
        };
    }
}

impl Jobs {
    /// Begins a job.
    pub(crate) fn begin(&mut self) -> JobId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.table.push(Job::default());
            (self.table.len() - 1) as JobId
        });
        let job = &mut self.table[id as usize];
        assert!(!job.is_live, "a job that has not ended cannot begin again");
        job.is_live = true;
        id
    }

    /// Ends a job: its number may be used again.
    ///
    /// # Panics
    /// When the job has ended already: every job ends exactly once.
    pub(crate) fn end(&mut self, id: JobId) {
        let job = &mut self.table[id as usize];
        assert!(job.is_live, "a job ends exactly once");
        assert!(!job.is_waiting(), "a job does not end before its legs");
        job.clear();
        self.free.push(id);
    }

    /// The job with this number.
    pub(crate) fn get(&mut self, id: JobId) -> &mut Job {
        let job = &mut self.table[id as usize];
        assert!(job.is_live, "an ended job is not touched");
        job
    }

    /// Jobs that have begun and not ended. When a loop ends, these are lost.
    pub(crate) fn live(&self) -> usize {
        self.table.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
