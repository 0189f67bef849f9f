//! A job: one request inside the proxy, with its clock, its legs and its reply slot.
//! It names the session that waits for it only by number: whoever answers a leg need not know that sessions exist.

use clock::{Nanos, Stage, StageClock};
use records::Outcome;
use wire::Verb;

/// A buffer larger than this is freed when its job ends, instead of being kept for the next.
const KEPT_BYTES: usize = 16 * 1024;

/// Number of a job in its loop's table.
pub(crate) type JobId = u32;

/// Which client waits: the slot of its session, and the connection's number, since slots are used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionRef {
    pub(crate) slot: u32,
    pub(crate) connection: u32,
}

/// What follows when a leg has answered. `replication` sets and reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// Nothing: the reply is joined when all legs have answered.
    #[default]
    None,
    /// A read of one key: the first hit is the reply, and after a failure or a miss the next candidate is read.
    Read { pool: u8 },
    /// A read of several keys: keys without a value are read from their next candidates.
    Parts,
    /// A write that `quorum` replicas must apply.
    ReplicatedWrite { pool: u8, quorum: u8 },
    /// A write whose effect depends on the stored value: it runs on the primary, and its reply decides about the other replicas.
    PrimaryWrite { pool: u8, quorum: u8 },
    /// A write that was sent to the failover pool.
    FailoverWrite,
    /// A read that sets the expiry time on all replicas: those that fail are invalidated.
    Touch,
    /// A `flush_all`: backends that fail are invalidated as a whole.
    Flush,
}

/// What to do with a job after a leg has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Wait for other legs.
    Wait,
    /// Legs were added, and must be sent.
    SendLegs,
    /// Join the replies, and reply to the client.
    Reply,
}

/// Why a job exists although no client waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundJob {
    /// It deletes a key whose invalidation is pending.
    Invalidation(Invalidation),
    /// It sends a client's request to a shadow pool, too.
    Shadow { pool: usize },
    /// It stores a value that was found in the warm-up pool.
    Fill,
}

/// What an invalidation deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    Key(Box<[u8]>),
    Everything,
}

/// How the replies of the legs become one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Join {
    /// There is one leg, and its reply is the answer as it is; or none, and the proxy answers.
    #[default]
    Forward,
    /// Every leg must answer; the first error is the answer, otherwise the first leg's reply.
    All,
    /// Each leg brings some of the values; they are put in the order of the keys.
    KeyOrder,
    /// The reply of this leg is the answer.
    Chosen(u8),
}

/// A key of a multi-get: where it stands in the key list, which leg fetches it, where that stands among those which could,
/// and which leg has said that it does not have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedKey {
    pub(crate) start: u32,
    pub(crate) length: u16,
    pub(crate) leg: u8,
    pub(crate) candidate: Candidate,
    pub(crate) missed: Option<u8>,
}

/// Where the key, which stands in `key_bytes` as it is told, belongs in the reply to an `mg`: behind so many flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnedKey {
    pub(crate) behind_when_found: u8,
    pub(crate) behind_when_missing: u8,
}

/// One leg of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegRef {
    pub(crate) job: JobId,
    pub(crate) leg: u8,
}

/// Which command a leg's backend receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LegCommand {
    /// The client's command, or its part of the keys.
    #[default]
    AsReceived,
    /// A delete of the key, because its value has changed elsewhere.
    Delete,
    /// A touch of the key with the client's new expiry time.
    Touch,
    /// The client's command with a time to live of at most this many seconds.
    CapExpiry { seconds: u32 },
}

/// Which of the backends that may serve a read a leg goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Candidate {
    #[default]
    Primary,
    /// The replica `step` servers behind the primary, chosen after `tried` other replicas.
    Replica { step: u8, tried: u8 },
    /// A backend of the failover pool.
    FailoverPool,
    /// A backend of the warm-up pool.
    WarmUp,
}

impl Candidate {
    /// Its distance from the primary, and the number of replicas tried before it; none for a backend of another pool.
    pub(crate) fn place(self) -> Option<(u8, u8)> {
        match self {
            Candidate::Primary => Some((0, 0)),
            Candidate::Replica { step, tried } => Some((step, tried)),
            Candidate::FailoverPool | Candidate::WarmUp => None,
        }
    }
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
    pub(crate) command: LegCommand,
    pub(crate) candidate: Candidate,
    /// Its backend's outstanding legs have been counted with it.
    pub(crate) is_counted: bool,
    /// It is on a connection, or in the queue of a backend.
    pub(crate) is_placed: bool,
    /// It asks a second copy because the first was slow.
    pub(crate) is_hedge: bool,
    /// It must not be sent: its backend owes the key's deletion.
    pub(crate) is_withheld: bool,
    /// It does not count for the answer; it must only have come to its end.
    pub(crate) is_secondary: bool,
    /// What its failure leaves behind has been seen to.
    pub(crate) is_invalidated: bool,
    /// What the backend is asked, while the leg waits in a queue.
    pub(crate) request: Vec<u8>,
    /// The command in it, which on a copy may be another than the client's.
    pub(crate) sent_verb: Verb,
    pub(crate) reply: Vec<u8>,
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
    pub(crate) returned_key: Option<ReturnedKey>,
    /// What the client is told whatever the backends say.
    pub(crate) reply_override: Option<&'static [u8]>,
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
    /// The first leg that counts for the answer: those before it have been given up.
    pub(crate) lead: u8,
    pub(crate) follow_up: FollowUp,
    /// Whether legs have been added since it was first sent on. Their way counts as the time of the backends.
    pub(crate) is_again: bool,
    /// The request, if it may have to be sent again.
    pub(crate) kept: Vec<u8>,
    pub(crate) background: Option<BackgroundJob>,
    legs: Vec<Leg>,
    legs_used: usize,
    unanswered: usize,
    /// It waits to be looked at.
    pub(crate) is_listed: bool,
    /// Its reply has been given; only legs are still to come to their end.
    pub(crate) is_over: bool,
    pub(crate) is_live: bool,
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
        // Once the answer is chosen only its delivery counts, and whatever is sent after the first legs is their backends' time.
        let counts_from = match () {
            () if self.is_over || !self.is_timed => return,
            () if self.is_done => Stage::Replied,
            () if self.is_again => Stage::Answered,
            () => Stage::Received,
        };
        if stage >= counts_from {
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

    /// Completes the reply of a leg with its last line; true when the job is to be looked at.
    pub(crate) fn leg_answered(&mut self, leg: u8, last_line: &[u8], outcome: Outcome, now: Nanos) -> bool {
        if outcome != Outcome::Answered && self.first_error.is_none() && !self.leg(leg).is_secondary {
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
        self.unanswered == 0 || matches!(self.follow_up, FollowUp::Read { .. } | FollowUp::ReplicatedWrite { .. })
    }

    /// Takes the whole reply of a leg as the job's.
    pub(crate) fn take_reply(&mut self, leg: u8) {
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        self.reply.clear();
        std::mem::swap(&mut self.reply, &mut slot.reply);
        (self.outcome, self.hits) = (slot.outcome, slot.hits);
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
    pub(crate) fn clear(&mut self) {
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
            kept: keep(std::mem::take(&mut self.kept)),
            wanted,
            legs,
            ..Job::default()
        };
    }
}
