//! Station 8, first half. What follows when legs have answered: the answer is there, others must be asked, or it is too early
//! to say. Decides, and adds legs; does not send.

use crate::config::Failover;
use crate::debts::LINGER;
use crate::dispatch::copies::Choice;
use crate::dispatch::fork::{Fork, part_for};
use crate::dispatch::legs::cap_meta;
use crate::job::{Course, Job, Join};
use crate::leg::{Ask, Candidate, Leg};
use clock::Nanos;
use records::Outcome;
use wire::{Limits, ParsedReply, Reply, Verb, parse_reply};

/// What is to be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// Legs have been added: send them.
    Again,
    /// The answer is there.
    Done,
}

/// Legs beyond which a job asks nobody else: they are numbered in a byte.
const LEGS_MAX: usize = 200;

impl Fork {
    /// Looks at a job some of whose legs have answered.
    pub(crate) fn onward(&mut self, job: &mut Job, limits: &Limits, now: Nanos) -> Step {
        if job.is_done {
            // The answer has been chosen; what comes now is only seen to.
            if let Course::Copies { pool, .. } = job.course {
                let was_degraded = has_settled(job);
                self.settle(job, now, true);
                self.count_degraded(job, pool.into(), was_degraded);
            }
            return Step::Wait;
        }
        let step = match job.course {
            Course::Straight => Step::Done,
            Course::Read { pool } => self.after_read(job, pool.into()),
            Course::Parts => self.after_parts(job, limits),
            Course::Copies { pool, quorum } => self.after_copies(job, pool.into(), quorum, now),
            Course::Primary { pool, quorum } => self.after_primary(job, pool, quorum, now),
            Course::StoodIn => {
                // Its own backends may fail like any others.
                self.settle(job, now, true);
                choose_write(job, 1)
            }
        };
        if step == Step::Done && job.join == Join::Chosen(0) && job.legs().iter().any(|leg| leg.ask == Ask::Touch) {
            self.settle(job, now, true);
        }
        if step == Step::Done && job.verb == Verb::FlushAll {
            self.settle_flush(job, now);
        }
        job.is_again |= step == Step::Again;
        step
    }

    /// The first hit is the answer. Without one the next candidate is asked; when there is none, a miss is better than an error.
    fn after_read(&self, job: &mut Job, pool: usize) -> Step {
        let verb = job.verb;
        let find = |job: &Job, fits: &dyn Fn(&Leg) -> bool| job.legs().iter().position(fits);
        if let Some(hit) = find(job, &|leg| is_answered(leg) && !is_miss(verb, leg)) {
            self.choose_read(job, pool, hit);
            return Step::Done;
        }
        let miss = find(job, &|leg| is_answered(leg) && is_miss(verb, leg));
        let policy = &self.copies.policies[pool];
        let asks_after_miss = policy.failover == Failover::OnMiss || policy.warm_up.is_some();
        if job.is_waiting() && (miss.is_none() || asks_after_miss) {
            return Step::Wait;
        }
        let last = job.legs().last().map_or(Candidate::Primary, |leg| leg.candidate);
        let next = match job.is_waiting() || job.legs().len() > LEGS_MAX {
            true => None,
            false => self.copies.next(pool, &job.key_bytes, last, miss.is_some()),
        };
        match next {
            Some(choice) => {
                self.count_candidate(pool, choice.candidate);
                add_candidate(job, &choice);
                Step::Again
            }
            None => {
                self.choose_read(job, pool, miss.unwrap_or(job.first_error.unwrap_or(0).into()));
                Step::Done
            }
        }
    }

    fn choose_read(&self, job: &mut Job, pool: usize, chosen: usize) {
        let leg = &job.legs()[chosen];
        self.copies.counters.pools[pool].hedges_won.add(u64::from(leg.is_hedge && is_answered(leg)));
        job.join = Join::Chosen(chosen as u8);
    }

    /// Counts a leg that is added to a read.
    fn count_candidate(&self, pool: usize, candidate: Candidate) {
        let pool = &self.copies.counters.pools[pool];
        match candidate {
            Candidate::Primary | Candidate::Copy { .. } => pool.failovers.add(1),
            Candidate::StandIn => pool.stand_ins.add(1),
            // What is found there is counted.
            Candidate::WarmUp => {}
        }
    }

    /// For every key without a value, its next candidate is asked.
    fn after_parts(&self, job: &mut Job, limits: &Limits) -> Step {
        let mut wanted = std::mem::take(&mut job.wanted);
        let mut read = vec![0; job.legs().len()];
        let mut is_again = false;
        for key in &mut wanted {
            let name = &job.key_bytes[key.start as usize..][..key.length as usize];
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
            let pool = self.pool_of(name);
            let next = match job.legs().len() < LEGS_MAX {
                true => self.copies.next(pool, name, key.candidate, key.missed.is_some()),
                false => None,
            };
            if let Some(choice) = next {
                let legs = job.legs().len();
                key.leg = part_for(job, &choice);
                if job.legs().len() > legs {
                    self.count_candidate(pool, choice.candidate);
                }
                key.candidate = choice.candidate;
                is_again = true;
            } else if let Some(leg) = key.missed {
                // A miss is better than an error.
                key.leg = leg;
            }
        }
        // What was asked of another after it had failed has not failed any more.
        let failed = wanted.iter().map(|key| key.leg).find(|&leg| {
            let leg = &job.legs()[usize::from(leg)];
            leg.answered.is_set() && leg.outcome != Outcome::Answered
        });
        job.first_error = failed;
        job.wanted = wanted;
        if is_again { Step::Again } else { Step::Done }
    }

    /// Done when enough copies have taken it, or when all have answered.
    fn after_copies(&self, job: &mut Job, pool: usize, quorum: u8, now: Nanos) -> Step {
        let taken = counted(job).filter(|(_, leg)| is_answered(leg)).count();
        let waits_aside = job.legs().iter().any(|leg| leg.is_aside && !leg.answered.is_set());
        if job.is_waiting() && (taken < quorum.into() || waits_aside) {
            self.settle(job, now, false);
            return Step::Wait;
        }
        let stand_in = self.copies.policies[pool].stand_in.filter(|_| taken == 0 && !is_said_by_server(job));
        match stand_in {
            Some(stand_in) => self.stand_in(job, pool, stand_in, u8::MAX, now),
            None => {
                self.settle(job, now, true);
                let step = choose_write(job, quorum);
                self.count_degraded(job, pool, false);
                step
            }
        }
    }

    /// Counts a write, once, that was acknowledged and of which a copy has failed.
    fn count_degraded(&self, job: &Job, pool: usize, was_degraded: bool) {
        let Join::Chosen(chosen) = job.join else { return };
        let is_degraded = !was_degraded && has_settled(job) && is_answered(&job.legs()[usize::from(chosen)]);
        self.copies.counters.pools[pool].writes_degraded.add(u64::from(is_degraded));
    }

    /// Asks the pool that stands in. From now on it may hold what the others do not.
    fn stand_in(&self, job: &mut Job, own: usize, (pool, seconds): (usize, u32), most: u8, now: Nanos) -> Step {
        self.copies.counters.pools[own].stand_ins.add(1);
        for index in 0..job.legs().len() as u8 {
            let leg = job.leg(index);
            if leg.outcome != Outcome::Answered {
                leg.is_settled = true;
                self.owe(&job.legs()[usize::from(index)], &job.key_bytes, true, now);
            }
        }
        cap_meta(&mut job.kept, seconds);
        job.first_error = None;
        job.lead = job.legs().len() as u8;
        job.course = Course::StoodIn;
        let place = self.copies.router.pool(pool);
        for step in 0..self.copies.policies[pool].replicas.min(most) {
            let leg = job.add_leg(place.copy(place.primary(&job.key_bytes), step.into()));
            job.leg(leg).ask = Ask::Capped { seconds };
        }
        Step::Again
    }

    /// If the primary has changed the value, its copies are deleted; what they hold is not what was acknowledged.
    fn after_primary(&self, job: &mut Job, pool: u8, quorum: u8, now: Nanos) -> Step {
        let leg = &job.legs()[0];
        let stand_in = self.copies.policies[usize::from(pool)].stand_in;
        if let Some(stand_in) = stand_in.filter(|_| is_refused_unsent(leg)) {
            self.owe_unheard(pool.into(), leg.backend, &job.key_bytes, now);
            return self.stand_in(job, pool.into(), stand_in, 1, now);
        }
        if !is_answered(leg) || !has_changed(&leg.reply) {
            self.settle(job, now, true);
            job.join = Join::Chosen(0);
            return Step::Done;
        }
        let (place, backend) = (usize::from(pool), leg.backend);
        self.add_copies(job, place, backend, 1, Ask::Delete);
        let key = std::mem::take(&mut job.key_bytes);
        self.add_deletions_aside(job, place, &key);
        job.key_bytes = key;
        job.course = Course::Copies { pool, quorum };
        if job.is_waiting() { Step::Again } else { Step::Done }
    }

    /// Sees to it that no backend which a write did not reach tells what was there before.
    fn settle(&self, job: &mut Job, now: Nanos, is_decided: bool) {
        // What nobody can have carried out leaves nothing behind.
        if !job.legs().iter().any(|leg| leg.sent.is_set() || is_answered(leg)) {
            return;
        }
        let is_refused_by_all = is_said_by_server(job);
        let only_touches_copies = matches!(job.verb, Verb::Gat | Verb::Gats);
        let is_done_elsewhere = job.course == Course::StoodIn;
        for index in 0..job.legs().len() as u8 {
            let leg = job.leg(index);
            // What a gat asks of the primary is for its client to know.
            let may_change = leg.ask != Ask::Client || !only_touches_copies;
            let has_failed = leg.answered.is_set() && leg.outcome != Outcome::Answered && may_change;
            let is_refused = matches!(leg.outcome, Outcome::ServerError | Outcome::ClientError);
            // Whether all refuse it is known only at the end.
            if !has_failed || (is_refused && !is_decided) || std::mem::replace(&mut leg.is_settled, true) {
                continue;
            }
            // A server that refuses a value removes the one before it by itself.
            if is_refused && is_refused_by_all {
                continue;
            }
            self.owe(&job.legs()[usize::from(index)], &job.key_bytes, is_done_elsewhere, now);
        }
    }

    /// The same for `flush_all`, of which some backends have not heard.
    fn settle_flush(&self, job: &Job, now: Nanos) {
        if !job.legs().iter().any(|leg| leg.sent.is_set()) {
            return;
        }
        for leg in job.legs().iter().filter(|leg| leg.outcome != Outcome::Answered) {
            let pool = self.copies.router.pool_of_backend(leg.backend);
            if self.copies.policies[pool].has_copies() {
                self.copies.debts[usize::from(leg.backend)].owe_everything(may_linger(leg).then_some(LINGER), now);
            }
        }
    }

    /// What ran elsewhere than on the primary has been heard of neither by the copies nor by the pool that missing values come
    /// from.
    fn owe_unheard(&self, pool: usize, primary: u16, key: &[u8], now: Nanos) {
        let (place, policy) = (self.copies.router.pool(pool), &self.copies.policies[pool]);
        let linger = Some(policy.write_timeout.max(LINGER));
        let copies = (1..policy.replicas).map(|step| place.copy(primary, step.into()));
        let source = policy.warm_up.map(|(other, _)| (self.copies.router.pool(other), &self.copies.policies[other]));
        let sources = source.into_iter().flat_map(|(place, policy)| {
            (0..policy.replicas).map(move |step| place.copy(place.primary(key), step.into()))
        });
        copies.chain(sources).for_each(|backend| self.copies.debts[usize::from(backend)].owe(key, linger, now));
    }

    fn owe(&self, leg: &Leg, key: &[u8], is_done_elsewhere: bool, now: Nanos) {
        let policy = &self.copies.policies[self.copies.router.pool_of_backend(leg.backend)];
        // The deletion may take another connection than the write that was refused. What its client has sent before, and may
        // have been told to be done, must have arrived when it is paid for the last time.
        let overtakes = is_done_elsewhere || (leg.outcome == Outcome::Overloaded && policy.has_late_copies());
        let linger = match () {
            () if overtakes => Some(policy.write_timeout.max(LINGER)),
            () if may_linger(leg) => Some(LINGER),
            () => None,
        };
        self.copies.debts[usize::from(leg.backend)].owe(key, linger, now);
    }
}

/// Adds a leg that asks this candidate for the same.
pub(crate) fn add_candidate(job: &mut Job, choice: &Choice) -> u8 {
    let leg = job.add_leg(choice.backend);
    job.leg(leg).candidate = choice.candidate;
    leg
}

/// Chooses the answer to a write: the first success if enough have taken it, otherwise the first error. What was deleted
/// anywhere has been deleted.
fn choose_write(job: &mut Job, quorum: u8) -> Step {
    let taken: Vec<usize> = counted(job).filter(|(_, leg)| is_answered(leg)).map(|(index, _)| index).collect();
    let is_deleted = |&index: &usize| {
        let reply = &job.legs()[index].reply;
        (job.verb == Verb::Delete && reply == b"DELETED\r\n") || (job.verb == Verb::Md && reply.starts_with(b"HD"))
    };
    let chosen = match taken.first() {
        Some(&first) if taken.len() >= quorum.into() => taken.iter().copied().find(is_deleted).unwrap_or(first) as u8,
        first => job.first_error.unwrap_or(first.map_or(job.lead, |&first| first as u8)),
    };
    job.join = Join::Chosen(chosen);
    Step::Done
}

/// The legs that count for the answer to a write.
fn counted(job: &Job) -> impl Iterator<Item = (usize, &Leg)> {
    job.legs().iter().enumerate().skip(job.lead.into()).filter(|(_, leg)| !leg.is_aside)
}

/// Whether a copy has failed and this has been seen to.
fn has_settled(job: &Job) -> bool {
    counted(job).any(|(_, leg)| leg.is_settled)
}

fn is_answered(leg: &Leg) -> bool {
    leg.answered.is_set() && leg.outcome == Outcome::Answered
}

/// Whether a backend has said that it does not have the key.
fn is_miss(verb: Verb, leg: &Leg) -> bool {
    match verb {
        Verb::Mg => leg.reply.starts_with(b"EN"),
        _ => leg.hits == 0,
    }
}

/// Whether every failed leg that counts was refused by its server in words, and none was lost.
fn is_said_by_server(job: &Job) -> bool {
    counted(job).all(|(_, leg)| matches!(leg.outcome, Outcome::ServerError | Outcome::ClientError))
}

/// Whether the request may still lie in the server's buffers, and be carried out after its connection was given up.
pub(crate) fn may_linger(leg: &Leg) -> bool {
    leg.sent.is_set() && matches!(leg.outcome, Outcome::Timeout | Outcome::BackendLost)
}

/// Whether a request was never given to its backend, so that nobody can have carried it out.
fn is_refused_unsent(leg: &Leg) -> bool {
    !leg.sent.is_set() && matches!(leg.outcome, Outcome::BackendDown | Outcome::BackendLost | Outcome::Overloaded)
}

/// Whether a server says that it has changed the value: STORED, a number, HD or VA.
fn has_changed(reply: &[u8]) -> bool {
    reply == b"STORED\r\n"
        || reply.first().is_some_and(u8::is_ascii_digit)
        || reply.starts_with(b"HD")
        || reply.starts_with(b"VA")
}

#[cfg(test)]
mod tests;
