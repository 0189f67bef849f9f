//! A job: one request inside the proxy, with its clock, its legs and its reply buffer.
//! It names its session by number, so that the code that answers legs need not know sessions.

mod candidate;
mod rare;

pub(crate) use crate::path::job::candidate::{Candidate, WantedKey};

use crate::path::job::rare::{KEPT_BYTES, RareJobState, recycle};
use crate::path::key_versions::Written;
use crate::path::late::LateRequest;
use clock::{Nanos, Stage, StageClock};
use records::Outcome;
use std::borrow::Cow;
use std::sync::Arc;
use wire::{Keys, Meta, Request, Verb, encode_get};

/// The number of a job in its loop's table.
pub(crate) type JobId = u32;

/// The client that waits for a job: the slot of its session, and the connection's number, since slots are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionRef {
    pub(crate) slot: u32,
    pub(crate) connection: u32,
}

impl SessionRef {
    /// No client waits for the job.
    pub(crate) const NONE: SessionRef = SessionRef { slot: u32::MAX, connection: u32::MAX };
}

impl Default for SessionRef {
    fn default() -> SessionRef {
        SessionRef::NONE
    }
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
    /// A write that was sent to a failover pool, which stores its value for at most this many seconds.
    FailoverWrite { pool: u8, seconds: u32 },
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

/// How far a command that needs a value has got with fetching it from the warm-up pool. `replication` sets and reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WarmUpStep {
    /// It does not fetch it, or no longer.
    #[default]
    None,
    /// The command was sent, and fetches the value if the key is missing.
    IfMissing,
    /// The value is fetched.
    Fetching,
    /// The value is stored on the primary.
    Filling,
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
    Key(Arc<[u8]>),
    Everything,
}

/// What a job has to do with the near-cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NearUse {
    #[default]
    Nothing,
    /// Its reply can be kept in this place.
    Fills(u8),
    /// It is a write that may still be in flight.
    Writes(Written),
}

/// How the replies of the legs become one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Join {
    /// There is one leg, and its reply is forwarded unchanged. Or there is none, and the proxy replies itself.
    #[default]
    Forward,
    /// Every leg must answer. The client receives the first error, or the first leg's reply if there is none.
    All,
    /// Each leg fetches some of the values, which are joined in the order of the keys.
    KeyOrder,
    /// The client receives the reply of this leg.
    Chosen(u16),
}

/// Where the proxy inserts the key, which `key_bytes` has in its encoded form, into the reply to an `mg`: after this many flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnedKey {
    pub(crate) flags_before_in_hit: u8,
    pub(crate) flags_before_in_miss: u8,
}

/// The number of a leg within its job, and of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegRef {
    pub(crate) job: JobId,
    pub(crate) leg: u16,
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

/// One leg: what one backend does for a job.
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
    /// When it left its queue, or unset if it was never queued.
    pub(crate) dispatched: Nanos,
    pub(crate) sent: Nanos,
    pub(crate) answered: Nanos,
    pub(crate) command: LegCommand,
    pub(crate) candidate: Candidate,
    /// It is included in the count of its backend's outstanding legs.
    pub(crate) is_counted: bool,
    /// It was given to a connection, or to the queue of a backend.
    pub(crate) is_placed: bool,
    /// It is a hedge: a second leg, sent because the first replica was slow.
    pub(crate) is_hedge: bool,
    /// It must not be sent, because an invalidation of the key is pending on its backend.
    pub(crate) is_withheld: bool,
    /// The reply does not depend on its result, but the client's reply waits for it.
    pub(crate) is_secondary: bool,
    /// It has failed, and the key was invalidated on its backend.
    pub(crate) is_invalidated: bool,
    /// Set if it has timed out and its request is still in flight.
    pub(crate) late: Option<LateRequest>,
    /// How far the keys of its reply have been compared with the requested keys: an offset in `kept`, or a number in `wanted`.
    pub(crate) compared: u32,
    /// How many bytes of its reply have been joined.
    pub(crate) joined_bytes: usize,
    /// The encoded request while the leg waits in a queue.
    pub(crate) request: Vec<u8>,
    /// The command of that request, which may differ from the client's.
    pub(crate) sent_verb: Verb,
    pub(crate) reply: Vec<u8>,
}

/// One request inside the proxy.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) clock: StageClock,
    /// Whether the clock is read for this job.
    pub(crate) is_timed: bool,
    /// Whether its record is kept.
    pub(crate) is_sampled: bool,
    /// Whether it has spans.
    pub(crate) is_traced: bool,
    /// Whether the client wants no reply (`noreply`).
    pub(crate) is_quiet: bool,
    /// Whether the client wants only unexpected replies: a meta command with `q`.
    pub(crate) is_quiet_meta: bool,
    /// Whether its reply is expected to be large. It is then read on a connection for large replies, if the discipline has one.
    pub(crate) is_bulk: bool,
    /// Set if the proxy itself inserts the key into the reply to a meta command.
    pub(crate) returned_key: Option<ReturnedKey>,
    /// The reply to the client, whatever the backends reply.
    pub(crate) reply_override: Option<&'static [u8]>,
    /// Whether `reply` is complete.
    pub(crate) is_done: bool,
    pub(crate) session: SessionRef,
    /// The pool of all its keys, whatever the routes say: its client has connected on the listener of this pool, or `Rewriter` has
    /// routed the keys.
    pub(crate) pool: Option<u8>,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    /// The number of this use of the job, which also changes if its request is sent again from the start.
    pub(crate) begun: u32,
    pub(crate) verb: Verb,
    pub(crate) keys: u16,
    /// The number of its keys, while legs are in flight, if the value sizes of its client were unknown; otherwise 0.
    pub(crate) first_keys: u16,
    pub(crate) hits: u16,
    pub(crate) request_bytes: u32,
    pub(crate) reply_bytes: u32,
    pub(crate) outcome: Outcome,
    pub(crate) join: Join,
    pub(crate) reply: Vec<u8>,
    /// Where the reply ends in the client's output, once it is there.
    pub(crate) reply_end: u64,
    /// Bytes of replies in its buffers, and how many of them `Jobs` has counted.
    pub(crate) held_bytes: usize,
    pub(crate) counted_bytes: usize,
    /// A value of the reply could not be held, so the reply was dropped. It has this many bytes.
    pub(crate) dropped_value: Option<u32>,
    /// The reply may exceed what the client may have, since the client gets nothing else before it.
    pub(crate) may_exceed: bool,
    /// It was sent again because its reply was dropped.
    pub(crate) is_repeated: bool,
    /// It reads a part of the keys of a line, and other parts follow.
    pub(crate) is_part: bool,
    /// Other parts of its line precede or follow.
    pub(crate) is_in_line: bool,
    /// Its reply is an error of the proxy, which ends the line and is no failure of a part.
    pub(crate) is_refusal: bool,
    /// What only some requests need, for example those with several keys.
    pub(crate) rare: RareJobState,
    /// The leg that failed first.
    pub(crate) first_error: Option<u16>,
    /// The first leg that counts for the reply. A write that failed over no longer counts the legs before.
    pub(crate) first_counted: u16,
    pub(crate) follow_up: FollowUp,
    /// A later write of the same client to the same key has got further, so this one must not fail over.
    pub(crate) is_overtaken: bool,
    /// Whether this write has legs that keep the failover pool from returning an older value.
    pub(crate) has_failover_deletions: bool,
    /// Whether legs were added after the first ones were sent. The time of these counts as `backend`.
    pub(crate) has_added_legs: bool,
    /// The encoded request without `noreply`: of every read but a multi-get with several legs, and of a write that may have to be sent
    /// again. Of another meta command that requests its key or opaque, the first line. Replies are compared with it.
    pub(crate) kept: Vec<u8>,
    pub(crate) warm_up: WarmUpStep,
    pub(crate) near: NearUse,
    pub(crate) background: Option<BackgroundJob>,
    legs: Vec<Leg>,
    legs_used: usize,
    unanswered: usize,
    /// It is in the list of jobs with answered legs.
    pub(crate) is_listed: bool,
    /// It is a write that was answered before all replicas have answered it.
    pub(crate) is_late_write: bool,
    /// It has ended in the journal; some of its legs may still be in flight.
    pub(crate) is_over: bool,
    pub(crate) is_live: bool,
}

impl Job {
    /// The legs, in the order in which they were added.
    pub(crate) fn legs(&self) -> &[Leg] {
        &self.legs[..self.legs_used]
    }

    /// Adds a leg to a backend.
    ///
    /// # Panics
    /// When the job has 65 536 legs. It never does: its first legs are at most two for each backend, and `replication` limits
    /// those that follow.
    pub(crate) fn add_leg(&mut self, backend: u16) -> u16 {
        assert!(self.legs_used <= usize::from(u16::MAX), "legs are numbered in 16 bits");
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
        (self.legs_used - 1) as u16
    }

    /// The leg with this number.
    pub(crate) fn leg(&mut self, leg: u16) -> &mut Leg {
        &mut self.legs[..self.legs_used][leg as usize]
    }

    /// The key of a request that may have several steps.
    pub(crate) fn key(&self) -> &[u8] {
        &self.rare.get().key_bytes
    }

    /// Keeps the encoded request, unless it is kept already.
    pub(crate) fn keep(&mut self, request: &Request<'_>) {
        if self.kept.is_empty() {
            request.without_noreply().encode(&mut self.kept);
        }
    }

    /// Takes the encoded request out of a read. The keys of a multi-get with several legs are encoded only now. If the keys were changed,
    /// it has those of the client again, and none of them is routed.
    pub(crate) fn take_kept(&mut self) -> Vec<u8> {
        let mut kept = std::mem::take(&mut self.kept);
        let rare = self.rare.get();
        if !rare.client_keys.is_empty() && self.verb.is_retrieval() {
            kept.clear();
            encode_get(self.verb, 0, Keys::new(&rare.client_keys).iter(), &mut kept);
            self.pool = None;
            let rare = self.rare.change();
            rare.key_pools.clear();
            rare.client_keys.clear();
        } else if kept.is_empty() {
            encode_get(self.verb, 0, rare.wanted.iter().map(|wanted| rare.key_of(wanted)), &mut kept);
        }
        kept
    }

    /// Keeps the line of a meta command whose reply has the key or an opaque.
    pub(crate) fn keep_line(&mut self, meta: &Meta<'_>) {
        if meta.flags.has(b'k') || meta.flags.has(b'O') {
            self.keep(&Request::Meta(Meta { value: b"", ..*meta }));
        }
    }

    /// Stamps a stage, if this job is timed.
    pub(crate) fn stamp(&mut self, stage: Stage, now: Nanos) {
        // Once the reply is complete only its delivery is stamped. Legs that were added later count as `backend`.
        let counts_from = match () {
            () if self.is_over || !self.is_timed => return,
            () if self.is_done => Stage::Replied,
            () if self.has_added_legs => Stage::Answered,
            () => Stage::Received,
        };
        if stage >= counts_from {
            self.clock.stamp(stage, now);
        }
    }

    /// Stamps a leg that has left its queue.
    pub(crate) fn leg_dispatched(&mut self, leg: u16, now: Nanos) {
        self.leg(leg).dispatched = now;
        self.stamp(Stage::Dispatched, now);
    }

    /// Stamps a leg whose last byte the kernel has accepted.
    pub(crate) fn leg_sent(&mut self, leg: u16, now: Nanos) {
        self.leg(leg).sent = now;
        self.stamp(Stage::Sent, now);
    }

    /// Adds a value to the incomplete reply of a leg; returns the size of that reply so far.
    pub(crate) fn add_leg_value(&mut self, leg: u16, value: Cow<'_, [u8]>) -> usize {
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        slot.hits = slot.hits.saturating_add(1);
        slot.reply_bytes += value.len();
        self.held_bytes += value.len();
        if self.join == Join::KeyOrder {
            // The key of the value was the last one that was compared.
            self.rare.wanted_mut()[slot.compared as usize - 1].value_bytes = value.len() as u32;
        }
        let reply = if self.join == Join::Forward { &mut self.reply } else { &mut slot.reply };
        match value {
            Cow::Owned(value) if reply.is_empty() => *reply = value,
            value => reply.extend_from_slice(&value),
        }
        slot.reply_bytes
    }

    /// Discards the reply of a leg, because it is too large or ends with an error.
    pub(crate) fn discard_leg_reply(&mut self, leg: u16) {
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        slot.hits = 0;
        let reply = if self.join == Join::Forward { &mut self.reply } else { &mut slot.reply };
        self.held_bytes = self.held_bytes.saturating_sub(reply.len());
        *reply = Vec::new();
        let wanted = self.rare.wanted_mut().iter_mut();
        wanted.filter(|wanted| wanted.leg == leg).for_each(|wanted| wanted.value_bytes = 0);
    }

    /// Completes the reply of a leg with its last line. Returns whether `Core::complete` must look at the job.
    pub(crate) fn leg_answered(&mut self, leg: u16, last_line: &[u8], outcome: Outcome, now: Nanos) -> bool {
        if outcome != Outcome::Answered && self.first_error.is_none() && !self.leg(leg).is_secondary {
            self.first_error = Some(leg);
        }
        if outcome != Outcome::Answered && self.join == Join::KeyOrder {
            // An error in place of END invalidates the whole part: the values before it are not joined.
            self.discard_leg_reply(leg);
        }
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        slot.answered = now;
        slot.outcome = outcome;
        slot.reply_bytes += last_line.len();
        self.held_bytes += last_line.len();
        let sent = slot.sent.max(slot.dispatched);
        let reply = if self.join == Join::Forward { &mut self.reply } else { &mut slot.reply };
        reply.extend_from_slice(last_line);
        // A leg that left its queue last may never have been sent. It then counts as sent when it left the queue.
        self.stamp(Stage::Sent, sent);
        self.stamp(Stage::Answered, now);
        self.unanswered -= 1;
        self.unanswered == 0 || matches!(self.follow_up, FollowUp::Read { .. } | FollowUp::ReplicatedWrite { .. })
    }

    /// Makes the reply of a leg the job's reply.
    pub(crate) fn take_reply(&mut self, leg: u16) {
        let slot = &mut self.legs[..self.legs_used][leg as usize];
        self.reply.clear();
        std::mem::swap(&mut self.reply, &mut slot.reply);
        (self.outcome, self.hits) = (slot.outcome, slot.hits);
    }

    /// An empty buffer for other bytes than those of a reply; to be given back.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rare.change().scratch)
    }

    /// Gives the buffer back for the next use.
    pub(crate) fn return_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        self.rare.change().scratch = scratch;
    }

    /// Frees the replies of the legs, which have been joined. Buffers of ordinary size are kept.
    pub(crate) fn free_leg_replies(&mut self) {
        for leg in &mut self.legs[..self.legs_used] {
            if leg.reply.capacity() > KEPT_BYTES {
                leg.reply = Vec::new();
            }
        }
        self.held_bytes = self.reply.len();
    }

    /// Discards what has arrived of the reply, because it cannot be held.
    pub(crate) fn drop_reply(&mut self, value_bytes: usize) {
        self.dropped_value = Some(u32::try_from(value_bytes).unwrap_or(u32::MAX));
        self.reply = Vec::new();
        self.legs[..self.legs_used].iter_mut().for_each(|leg| leg.reply = Vec::new());
        self.held_bytes = 0;
    }

    /// Forgets the legs and their replies, so that the request can be sent again.
    ///
    /// # Panics
    /// When a leg is in flight.
    pub(crate) fn restart(&mut self) {
        assert!(self.unanswered == 0, "a leg in flight would be answered twice");
        (self.legs_used, self.first_counted, self.hits) = (0, 0, 0);
        (self.first_error, self.dropped_value) = (None, None);
        (self.join, self.follow_up, self.outcome) = (Join::default(), FollowUp::default(), Outcome::default());
        (self.is_done, self.has_added_legs) = (false, true);
        if let NearUse::Fills(_) = self.near {
            // Another key may have got the place.
            self.near = NearUse::Nothing;
        }
        self.reply.clear();
        self.rare.forget_wanted(self.returned_key.is_none());
    }

    /// Whether this write was in flight and may fail over only now. A later write may already have failed over.
    pub(crate) fn may_fail_over_late(&self) -> bool {
        let was_sent = || self.legs().iter().any(|leg| leg.sent.is_set() && leg.outcome != Outcome::Answered);
        matches!(self.follow_up, FollowUp::ReplicatedWrite { .. }) && !self.is_done && !self.is_waiting() && was_sent()
    }

    /// Whether it sends a request to a shadow pool.
    pub(crate) fn is_shadow(&self) -> bool {
        matches!(self.background, Some(BackgroundJob::Shadow { .. }))
    }

    /// Whether some legs are not answered yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unanswered > 0
    }

    /// Clears an ended job for the next request. Buffers are kept unless they have become large.
    pub(crate) fn clear(&mut self) {
        recycle(&mut self.reply);
        recycle(&mut self.kept);
        for leg in &mut self.legs[..self.legs_used] {
            recycle(&mut leg.request);
            recycle(&mut leg.reply);
        }
        self.rare.clear();
        *self = Job {
            reply: std::mem::take(&mut self.reply),
            kept: std::mem::take(&mut self.kept),
            legs: std::mem::take(&mut self.legs),
            rare: std::mem::take(&mut self.rare),
            ..Job::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_is_sent_again_fills_no_place_of_the_near_cache_and_a_write_still_counts() {
        for (near, after) in [
            (NearUse::Fills(3), NearUse::Nothing),
            (NearUse::Writes(Written::Everything), NearUse::Writes(Written::Everything)),
        ] {
            let mut job = Job { near, ..Job::default() };
            job.restart();
            assert_eq!(job.near, after);
        }
    }

    /// There may be thousands.
    #[test]
    fn a_job_is_small() {
        assert!(size_of::<Job>() <= 320, "{} bytes, {} of the clock", size_of::<Job>(), size_of::<StageClock>());
    }
}
