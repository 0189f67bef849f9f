//! Step 8, with policies: decides what follows when a leg has answered. Either the reply can be joined, or more legs must be
//! sent, or the proxy waits for other legs. Adds legs to the job and keys to the pending invalidations; sends nothing.

use crate::config::Failover;
use crate::path::job::{Candidate, FollowUp, Job, Join, Leg, LegCommand, NextStep};
use crate::path::leg_request::{cap_meta, deletes, own_limits};
use crate::replication::cas_token::{returns_cas_token, void_cas_token};
use crate::replication::pending_invalidations::LINGER;
use crate::replication::replicas::{Replicas, add_candidate, is_answered, linger, may_linger, part_leg};
use crate::replication::warm_up::has_touched;
use clock::Nanos;
use records::Outcome;
use wire::{Limits, ParsedReply, ParsedRequest, Reply, Request, Verb, parse_reply, parse_request};

/// A job with this many legs gets no more. Its first legs are at most two for each of 250 backends, so that each key can still be
/// read from several other candidates.
const LEGS_MAX: usize = 10_000;

impl Replicas {
    /// Decides what follows now that legs of this job have answered.
    pub(crate) fn after_leg_answered(&self, job: &mut Job, limits: &Limits, now: Nanos) -> NextStep {
        if job.is_done {
            self.after_late_leg(job, now);
            return NextStep::Wait;
        }
        let step = match job.follow_up {
            FollowUp::None => NextStep::Reply,
            FollowUp::Read { pool } => self.after_read(job, pool.into()),
            FollowUp::Parts => self.after_parts(job, limits),
            FollowUp::ReplicatedWrite { pool, quorum } => self.after_replicated_write(job, pool.into(), quorum, now),
            FollowUp::PrimaryWrite { pool, quorum } => self.after_primary_write(job, pool, quorum, limits, now),
            FollowUp::FailoverWrite { pool, seconds } => {
                // A backend of the failover pool may fail, too.
                self.invalidate_failed(job, now, true);
                self.hold_failover_values(pool.into(), seconds, now);
                self.invalidate_again(job, now);
                choose_write(job, 1)
            }
            FollowUp::Touch => {
                self.invalidate_failed(job, now, true);
                NextStep::Reply
            }
            FollowUp::Flush => {
                self.invalidate_unflushed(job, now);
                NextStep::Reply
            }
        };
        if step == NextStep::Reply {
            void_cas_token(job);
        }
        job.has_added_legs |= step == NextStep::SendLegs;
        step
    }

    /// A replica has answered a write after the client got its reply. Only a failure has consequences.
    fn after_late_leg(&self, job: &mut Job, now: Nanos) {
        if let FollowUp::ReplicatedWrite { pool, .. } = job.follow_up {
            let was_degraded = has_invalidated(job);
            self.invalidate_failed(job, now, true);
            self.count_degraded(job, pool.into(), was_degraded);
        }
    }

    /// The first hit is the reply. Without a hit the read goes to the next candidate. If there is none, the client gets a miss
    /// rather than an error.
    fn after_read(&self, job: &mut Job, pool: usize) -> NextStep {
        let verb = job.verb;
        let find = |job: &Job, fits: &dyn Fn(&Leg) -> bool| job.legs().iter().position(fits);
        if let Some(hit) = find(job, &|leg| is_answered(leg) && !is_miss(verb, leg)) {
            self.choose_read(job, pool, hit);
            return NextStep::Reply;
        }
        let miss = find(job, &|leg| is_answered(leg) && is_miss(verb, leg));
        let policy = &self.policies[pool];
        let reads_on_after_miss = policy.failover == Failover::OnMiss || policy.warm_up.is_some();
        if job.is_waiting() && (miss.is_none() || reads_on_after_miss) {
            return NextStep::Wait;
        }
        let last = job.legs().last().map_or(Candidate::Primary, |leg| leg.candidate);
        let next = match job.is_waiting() || job.legs().len() > LEGS_MAX {
            true => None,
            false => self.next_read(pool, job.key(), last, miss.is_some()),
        };
        match next {
            Some(choice) => {
                self.count_candidate(pool, choice.candidate);
                add_candidate(job, &choice);
                NextStep::SendLegs
            }
            None => {
                self.choose_read(job, pool, miss.unwrap_or(job.first_error.unwrap_or(0).into()));
                NextStep::Reply
            }
        }
    }

    fn choose_read(&self, job: &mut Job, pool: usize, chosen: usize) {
        let leg = &job.legs()[chosen];
        self.counters.pools[pool].hedges_won.add(u64::from(leg.is_hedge && is_answered(leg)));
        job.join = Join::Chosen(chosen as u16);
    }

    /// Counts a leg that was added to a read.
    fn count_candidate(&self, pool: usize, candidate: Candidate) {
        let pool = &self.counters.pools[pool];
        match candidate {
            Candidate::Primary | Candidate::Replica { .. } => pool.failovers.add(1),
            Candidate::FailoverPool => pool.failover_pool_requests.add(1),
            // Counted as a warm-up hit if the key is there.
            Candidate::WarmUp => {}
        }
    }

    /// A key of a multi-get that got no value is read from its next candidate.
    fn after_parts(&self, job: &mut Job, limits: &Limits) -> NextStep {
        let mut wanted = std::mem::take(&mut job.rare.change().wanted);
        let mut read = vec![0; job.legs().len()];
        let mut has_more = false;
        for key in &mut wanted {
            let name = job.rare.get().key_of(key);
            let leg = &job.legs()[usize::from(key.leg)];
            let at = &mut read[usize::from(key.leg)];
            let parsed = parse_reply(&leg.reply[*at..], limits);
            if let ParsedReply::Reply { reply: Reply::Value(value), consumed } = parsed
                && value.key == name
            {
                *at += consumed;
                continue;
            }
            key.missed = key.missed.or(is_answered(leg).then_some(key.leg));
            let pool = usize::from(key.pool);
            let next = match job.legs().len() < LEGS_MAX {
                true => self.next_read(pool, name, key.candidate, key.missed.is_some()),
                false => None,
            };
            if let Some(choice) = next {
                let legs = job.legs().len();
                key.leg = part_leg(job, &choice);
                if job.legs().len() > legs {
                    self.count_candidate(pool, choice.candidate);
                }
                key.candidate = choice.candidate;
                has_more = true;
            } else if let Some(leg) = key.missed {
                // The client gets a miss rather than an error.
                key.leg = leg;
            }
        }
        // A leg whose keys are all read elsewhere no longer counts as an error.
        let failed = wanted.iter().map(|key| key.leg).find(|&leg| {
            let leg = &job.legs()[usize::from(leg)];
            leg.answered.is_set() && leg.outcome != Outcome::Answered
        });
        job.first_error = failed;
        job.rare.change().wanted = wanted;
        if has_more { NextStep::SendLegs } else { NextStep::Reply }
    }

    /// The client gets its reply when `quorum` replicas have applied the write, or when all have answered.
    fn after_replicated_write(&self, job: &mut Job, pool: usize, quorum: u8, now: Nanos) -> NextStep {
        let applied = counted(job).filter(|(_, leg)| is_answered(leg)).count();
        // Another pool that a delete reaches may be warmed up from this one, and must not store what a slow replica still has.
        let waits_for_all = deletes(job.verb) && !self.policies[pool].delete_pools.is_empty();
        let is_needed = |leg: &Leg| leg.is_secondary || waits_for_all;
        let waits_for_needed = job.legs().iter().any(|leg| is_needed(leg) && !leg.answered.is_set());
        let waits_for_primary =
            || !job.legs()[usize::from(job.first_counted)].answered.is_set() && returns_cas_token(job);
        if job.is_waiting() && (applied < quorum.into() || waits_for_needed || waits_for_primary()) {
            self.invalidate_failed(job, now, false);
            return NextStep::Wait;
        }
        let may_fail_over = applied == 0 && !is_refused_by_all(job) && !job.is_overtaken;
        let failover = self.policies[pool].failover_pool.filter(|_| may_fail_over);
        match failover {
            Some(failover) => self.fail_over_write(job, pool, failover, u8::MAX, now),
            None if self.add_failover_deletions(job, pool, now) => NextStep::SendLegs,
            None => {
                self.invalidate_failed(job, now, true);
                let step = choose_write(job, quorum);
                self.count_degraded(job, pool, false);
                step
            }
        }
    }

    /// Counts, once, a write that was acknowledged although a replica has failed.
    fn count_degraded(&self, job: &Job, pool: usize, was_degraded: bool) {
        let Join::Chosen(chosen) = job.join else { return };
        let is_degraded = !was_degraded && has_invalidated(job) && is_answered(&job.legs()[usize::from(chosen)]);
        self.counters.pools[pool].writes_degraded.add(u64::from(is_degraded));
    }

    /// Sends a write to the failover pool, which from now on may store a newer value than the pool itself: the key is invalidated
    /// on every backend whose leg has failed.
    fn fail_over_write(
        &self,
        job: &mut Job,
        own: usize,
        (pool, seconds): (usize, u32),
        most: u8,
        now: Nanos,
    ) -> NextStep {
        self.counters.pools[own].failover_pool_requests.add(1);
        for index in 0..job.legs().len() as u16 {
            let leg = job.leg(index);
            if leg.outcome != Outcome::Answered {
                leg.is_invalidated = true;
                self.invalidate(&job.legs()[usize::from(index)], job.key(), true, now);
            }
        }
        cap_meta(&mut job.kept, seconds);
        job.first_error = None;
        job.first_counted = job.legs().len() as u16;
        job.follow_up = FollowUp::FailoverWrite { pool: pool as u8, seconds };
        self.hold_failover_values(pool, seconds, now);
        let (servers, depends_on_content) = (self.router.pool(pool), most == 1);
        for step in 0..self.policies[pool].replicas.min(most) {
            let backend = servers.replica(servers.primary(job.key()), step.into());
            let is_withheld = depends_on_content && self.is_pending(backend, job.key());
            let leg = job.add_leg(backend);
            (job.leg(leg).command, job.leg(leg).is_withheld) = (LegCommand::CapExpiry { seconds }, is_withheld);
        }
        NextStep::SendLegs
    }

    /// The failover pool has answered a write: the key is deleted once more on each backend that missed it. Another client's write
    /// may have reached that backend after the first deletion and the failover pool before this write.
    fn invalidate_again(&self, job: &Job, now: Nanos) {
        let missed = job.legs()[..usize::from(job.first_counted)].iter().filter(|leg| leg.outcome != Outcome::Answered);
        missed.for_each(|leg| self.pending[usize::from(leg.backend)].add(job.key(), None, now));
    }

    /// If the primary has changed the value, the key is deleted on the other replicas, because they still store the old value.
    fn after_primary_write(&self, job: &mut Job, pool: u8, quorum: u8, limits: &Limits, now: Nanos) -> NextStep {
        let index = usize::from(pool);
        if let Some(step) = self.after_warm_up(job, index, limits, now) {
            return step;
        }
        job.join = Join::Chosen(job.first_counted);
        let leg = &job.legs()[usize::from(job.first_counted)];
        if matches!(job.verb, Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg) {
            let has_touched = is_answered(leg) && has_touched(job, leg.hits, &leg.reply);
            return if has_touched { self.after_touch(job, index) } else { NextStep::Reply };
        }
        // A cas token is valid on the primary only.
        let may_fail_over = is_refused_unsent(leg) && !has_cas_token(job);
        if let Some(failover_pool) = self.policies[index].failover_pool.filter(|_| may_fail_over) {
            self.invalidate_unreached(index, leg.backend, job.key(), now);
            return self.fail_over_write(job, index, failover_pool, 1, now);
        }
        if !is_answered(leg) || !has_changed(&leg.reply) {
            if may_linger(leg) {
                self.invalidate_failover_pool(index, job.key(), now);
            }
            self.invalidate_failed(job, now, true);
            // A key that this pool does not have can be in those that deletes reach, too.
            let is_missing = is_answered(&job.legs()[usize::from(job.first_counted)]) && is_not_found(job);
            if is_missing && self.add_deletions(job, index) {
                job.follow_up = FollowUp::ReplicatedWrite { pool, quorum: 1 };
                return NextStep::SendLegs;
            }
            return NextStep::Reply;
        }
        let (backend, legs) = (leg.backend, job.legs().len());
        // A command that keeps the value runs on the other replicas, too.
        let keeps_value = leg.reply == b"TOUCHED\r\n" || (job.verb == Verb::Md && !has_cas_token(job));
        let command = if keeps_value { LegCommand::AsReceived } else { LegCommand::Delete };
        self.add_replicas(job, index, backend, 1, command);
        self.add_warm_up_deletions(job, index);
        if deletes(job.verb) {
            self.add_deletions(job, index);
        }
        self.add_failover_deletions(job, index, now);
        job.follow_up = FollowUp::ReplicatedWrite { pool, quorum };
        if job.legs().len() > legs { NextStep::SendLegs } else { NextStep::Reply }
    }

    /// The primary has set the expiry time of a value that it has read: the other replicas are touched. The value in the warm-up
    /// pool is deleted, because it would come back when that on the primary has expired.
    fn after_touch(&self, job: &mut Job, pool: usize) -> NextStep {
        let (first, legs) = (job.first_counted, job.legs().len());
        if job.verb != Verb::Mg {
            let backend = job.legs()[usize::from(first)].backend;
            self.add_replicas(job, pool, backend, 1, LegCommand::Touch);
        }
        self.add_warm_up_deletions(job, pool);
        job.follow_up = FollowUp::Touch;
        if job.legs().len() > legs { NextStep::SendLegs } else { NextStep::Reply }
    }

    /// Invalidates the key on each backend whose leg has failed, so that no replica returns the value from before this write.
    /// While `is_final` is false, other legs may still answer.
    fn invalidate_failed(&self, job: &mut Job, now: Nanos, is_final: bool) {
        // If no leg was sent, no server can have applied the write, and all replicas still agree.
        if !job.legs().iter().any(|leg| leg.sent.is_set() || is_answered(leg)) {
            return;
        }
        let is_refused_by_all = is_refused_by_all(job);
        let only_touches_replicas = matches!(job.verb, Verb::Gat | Verb::Gats);
        let is_done_elsewhere = matches!(job.follow_up, FollowUp::FailoverWrite { .. });
        for index in 0..job.legs().len() as u16 {
            let leg = job.leg(index);
            // Of a gat, the leg with the command as received is the primary's, and the client itself gets its reply.
            let may_change = leg.command != LegCommand::AsReceived || !only_touches_replicas;
            let has_failed = leg.answered.is_set() && leg.outcome != Outcome::Answered && may_change;
            let is_refused = matches!(leg.outcome, Outcome::ServerError | Outcome::ClientError);
            // Whether all replicas refuse the write is known only when all have answered.
            if !has_failed || (is_refused && !is_final) || std::mem::replace(&mut leg.is_invalidated, true) {
                continue;
            }
            // A server that refuses a value deletes the old one itself.
            if is_refused && is_refused_by_all && !job.legs()[usize::from(index)].is_secondary {
                continue;
            }
            self.invalidate(&job.legs()[usize::from(index)], job.key(), is_done_elsewhere, now);
        }
    }

    /// Invalidates everything on each backend that failed to answer `flush_all`.
    fn invalidate_unflushed(&self, job: &Job, now: Nanos) {
        if !job.legs().iter().any(|leg| leg.sent.is_set()) {
            return;
        }
        for leg in job.legs().iter().filter(|leg| leg.outcome != Outcome::Answered) {
            let pool = self.router.pool_of_backend(leg.backend);
            if self.policies[pool].has_replicas() {
                let linger = linger(leg, &self.policies[pool]);
                self.pending[usize::from(leg.backend)].add_everything(linger, now);
            }
        }
    }

    /// Invalidates the key on the other replicas and on the warm-up pool, which a write that runs on the failover pool does not
    /// reach. Acknowledged writes of the client may still be in flight to the replicas.
    fn invalidate_unreached(&self, pool: usize, primary: u16, key: &[u8], now: Nanos) {
        let (servers, policy) = (self.router.pool(pool), &self.policies[pool]);
        let linger = Some(if policy.has_late_replicas() { policy.reply_timeout.max(LINGER) } else { LINGER });
        let others = (1..policy.replicas).map(|step| servers.replica(primary, step.into()));
        let source = policy.warm_up.map(|(other, _)| (self.router.pool(other), &self.policies[other]));
        let sources = source.into_iter().flat_map(|(servers, policy)| {
            (0..policy.replicas).map(move |step| servers.replica(servers.primary(key), step.into()))
        });
        others.chain(sources).for_each(|backend| self.pending[usize::from(backend)].add(key, linger, now));
    }

    fn invalidate(&self, leg: &Leg, key: &[u8], is_done_elsewhere: bool, now: Nanos) {
        let policy = &self.policies[self.router.pool_of_backend(leg.backend)];
        // The delete may use another connection than the refused write, and so overtake earlier writes of the same client that
        // are already acknowledged. The last delete must come after the reply timeout, when these have arrived or failed.
        let may_overtake = match leg.outcome {
            Outcome::Overloaded => is_done_elsewhere || policy.has_late_replicas(),
            _ => is_done_elsewhere && policy.has_late_replicas(),
        };
        if may_overtake {
            let linger = Some(policy.reply_timeout.max(LINGER));
            self.pending[usize::from(leg.backend)].add(key, linger, now);
        }
        self.invalidate_failed_leg(leg, key, now);
    }
}

/// Chooses the reply to a write: the first success if `quorum` legs have succeeded, otherwise the first error. If any replica
/// replies `DELETED`, the client receives `DELETED`, also if only a failover or warm-up pool had the key.
fn choose_write(job: &mut Job, quorum: u8) -> NextStep {
    let applied: Vec<usize> = counted(job).filter(|(_, leg)| is_answered(leg)).map(|(index, _)| index).collect();
    let is_deleted = |index: usize| {
        let (verb, reply) = (job.verb, &job.legs()[index].reply);
        (verb == Verb::Delete && reply == b"DELETED\r\n") || (verb == Verb::Md && reply.starts_with(b"HD"))
    };
    let is_found_elsewhere = |index: usize| {
        let leg = &job.legs()[index];
        leg.is_secondary && is_answered(leg) && (is_deleted(index) || leg.reply == b"TOUCHED\r\n")
    };
    let chosen = match applied.first() {
        Some(&first) if applied.len() >= quorum.into() => {
            let deleted = applied.iter().copied().find(|&index| is_deleted(index));
            deleted.or_else(|| (0..job.legs().len()).find(|&index| is_found_elsewhere(index))).unwrap_or(first) as u16
        }
        first => job.first_error.unwrap_or(first.map_or(job.first_counted, |&first| first as u16)),
    };
    job.join = Join::Chosen(chosen);
    NextStep::Reply
}

/// The legs that count for the reply to a write.
fn counted(job: &Job) -> impl Iterator<Item = (usize, &Leg)> {
    job.legs().iter().enumerate().skip(job.first_counted.into()).filter(|(_, leg)| !leg.is_secondary)
}

/// Whether a replica has failed and its key was invalidated.
fn has_invalidated(job: &Job) -> bool {
    counted(job).any(|(_, leg)| leg.is_invalidated)
}

/// Whether a backend has answered that it does not have the key.
fn is_miss(verb: Verb, leg: &Leg) -> bool {
    match verb {
        Verb::Mg => leg.reply.starts_with(b"EN"),
        _ => leg.hits == 0,
    }
}

/// Whether every leg that counts was answered with an error line by its server, and none was lost.
fn is_refused_by_all(job: &Job) -> bool {
    counted(job).all(|(_, leg)| matches!(leg.outcome, Outcome::ServerError | Outcome::ClientError))
}

/// Whether a request failed before it was sent, so that no server can have applied it.
fn is_refused_unsent(leg: &Leg) -> bool {
    !leg.sent.is_set() && matches!(leg.outcome, Outcome::BackendDown | Outcome::BackendLost | Outcome::Overloaded)
}

/// Whether this is a deletion of a key that the primary does not have.
fn is_not_found(job: &Job) -> bool {
    deletes(job.verb) && job.legs()[usize::from(job.first_counted)].reply.starts_with(b"NF")
}

/// Whether a write applies only to the value with a certain cas token.
fn has_cas_token(job: &Job) -> bool {
    match parse_request(&job.kept, &own_limits()) {
        ParsedRequest::Request { request: Request::Meta(meta), .. } => meta.flags.has(b'C'),
        _ => job.verb == Verb::Cas,
    }
}

/// Whether a reply means that the server has changed the value or its expiry time: STORED, TOUCHED, a number, HD or VA.
fn has_changed(reply: &[u8]) -> bool {
    matches!(reply, b"STORED\r\n" | b"TOUCHED\r\n")
        || reply.first().is_some_and(u8::is_ascii_digit)
        || reply.starts_with(b"HD")
        || reply.starts_with(b"VA")
}

#[cfg(test)]
mod tests;
