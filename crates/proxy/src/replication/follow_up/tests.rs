//! Follow-ups of jobs whose legs are answered by hand: the next step, the reply to the client, and the pending invalidations.

mod reads;

use super::*;
use crate::config::{Config, FailoverPool, MultiGet, PartFailure, PoolConfig, WarmUp, Writes};
use crate::observe::counters::{Counter, LoopCounters, PoolCounters};
use crate::path::job::{Invalidation, JobId};
use crate::path::job::{Job, Join, LegCommand, NextStep};
use crate::path::jobs::{Jobs, Outstanding};
use crate::path::join::join;
use crate::path::route::Router;
use crate::replication::assign::Assigner;
use crate::replication::pending_invalidations::PendingInvalidations;
use crate::replication::policy::Policy;
use crate::replication::replicas::Replicas;
use std::sync::Arc;
use std::time::Duration;
use wire::{ParsedRequest, parse_request};

/// A leg's reply, its outcome, and whether it was sent.
type Answer = (&'static str, Outcome, bool);

const STORED: Answer = ("STORED\r\n", Outcome::Answered, true);
const NOT_STORED: Answer = ("NOT_STORED\r\n", Outcome::Answered, true);
const DELETED: Answer = ("DELETED\r\n", Outcome::Answered, true);
const NOT_FOUND: Answer = ("NOT_FOUND\r\n", Outcome::Answered, true);
const FIVE: Answer = ("5\r\n", Outcome::Answered, true);
const HIT: Answer = ("VALUE k 0 1\r\nx\r\n", Outcome::Answered, true);
const MISS: Answer = ("END\r\n", Outcome::Answered, true);
const REFUSED: Answer = ("SERVER_ERROR refused\r\n", Outcome::ServerError, true);
const WRONG: Answer = ("CLIENT_ERROR wrong\r\n", Outcome::ClientError, true);
const TIMED_OUT: Answer = ("SERVER_ERROR timed out\r\n", Outcome::Timeout, true);
const TIMED_OUT_UNSENT: Answer = ("SERVER_ERROR timed out\r\n", Outcome::Timeout, false);
const LOST: Answer = ("SERVER_ERROR lost\r\n", Outcome::BackendLost, true);
const LOST_UNSENT: Answer = ("SERVER_ERROR lost\r\n", Outcome::BackendLost, false);
const DOWN: Answer = ("SERVER_ERROR down\r\n", Outcome::BackendDown, false);
const FULL: Answer = ("SERVER_ERROR full\r\n", Outcome::Overloaded, false);

const SET: &[u8] = b"set k 0 0 1\r\nx\r\n";
const INCR: &[u8] = b"incr k 1\r\n";

/// One job. The first pool has three replicas, the second pool two, and the third one.
struct Play {
    assigner: Assigner,
    replicas: Replicas,
    jobs: Jobs,
    id: JobId,
}

impl Play {
    fn new(change: impl FnOnce(&mut PoolConfig), request: &[u8]) -> Play {
        let servers = |from: usize, to| (from..to).map(|index| format!("host{index}:11311")).collect::<Vec<_>>();
        let mut config = Config::new("127.0.0.1:0", &servers(0, 3));
        config.pools.push(PoolConfig::new("failover", &servers(3, 5)));
        config.pools.push(PoolConfig::new("source", &servers(5, 6)));
        (config.pools[0].replicas, config.pools[1].replicas) = (3, 2);
        change(&mut config.pools[0]);
        config.check().unwrap();
        let counters = Arc::new(LoopCounters::new(3, 6, 0));
        counters.backends.iter().for_each(|backend| backend.is_up.set(1));
        let pending = (0..6).map(|_| PendingInvalidations::default()).collect();
        let policies = Policy::all(&config);
        let replicas = Replicas { router: Arc::new(Router::new(&config)), policies, pending, counters };
        let assigner = Assigner::new(MultiGet::ByKey);
        let mut play = Play { assigner, replicas, jobs: Jobs::default(), id: 0 };
        play.assign(request);
        play
    }

    /// Begins a job and assigns its legs.
    fn assign(&mut self, request: &[u8]) {
        let ParsedRequest::Request { request, .. } = parse_request(request, &Limits::default()) else { panic!() };
        self.id = self.jobs.begin();
        let job = self.jobs.get(self.id);
        job.verb = request.verb();
        self.assigner.assign(job, &request, &self.replicas, &Outstanding::default());
    }

    fn job(&mut self) -> &mut Job {
        self.jobs.get(self.id)
    }

    /// Answers a leg, with one value for each of its keys, and returns the next step.
    fn answer(&mut self, leg: usize, (reply, outcome, is_sent): Answer) -> NextStep {
        let job = self.jobs.get(self.id);
        if is_sent {
            job.leg_sent(leg as u16, Nanos(1));
        }
        let last_line = if (reply, outcome, is_sent) == HIT { MISS.0 } else { reply };
        if last_line != reply && job.join != Join::KeyOrder {
            job.add_leg_value(leg as u16, reply.as_bytes().into());
        } else if last_line != reply {
            let wanted = &job.rare.get().wanted;
            let is_of_leg = |&number: &usize| usize::from(wanted[number].leg) == leg;
            for number in (0..wanted.len()).filter(is_of_leg).collect::<Vec<_>>() {
                job.leg(leg as u16).compared = number as u32 + 1;
                job.add_leg_value(leg as u16, reply.as_bytes().into());
            }
        }
        match job.leg_answered(leg as u16, last_line.as_bytes(), outcome, Nanos(1)) {
            true => self.replicas.after_leg_answered(job, &Limits::default(), Nanos(1)),
            false => NextStep::Wait,
        }
    }

    /// The reply to the client.
    fn reply(&mut self) -> String {
        let job = self.jobs.get(self.id);
        join(job, PartFailure::Error);
        String::from_utf8(job.reply.clone()).unwrap()
    }

    /// A backend as these tests number it: its distance from the primary, or its number if it is of another pool.
    fn name(&self, backend: u16) -> u16 {
        let primary = self.replicas.router.primary(b"k");
        if backend < 3 { (backend + 3 - primary) % 3 } else { backend }
    }

    /// The backends with a pending invalidation of the key.
    fn invalidated(&self) -> Vec<u16> {
        let invalidated = (0..6).filter(|&backend| self.replicas.is_pending(backend, b"k"));
        let mut names: Vec<u16> = invalidated.map(|backend| self.name(backend)).collect();
        names.sort_unstable();
        names
    }

    fn sent_to(&mut self) -> Vec<u16> {
        let backends: Vec<u16> = self.job().legs().iter().map(|leg| leg.backend).collect();
        backends.into_iter().map(|backend| self.name(backend)).collect()
    }

    fn count(&self, field: impl Fn(&PoolCounters) -> &Counter) -> u64 {
        field(&self.replicas.counters.pools[0]).get()
    }
}

fn with_failover_pool(pool: &mut PoolConfig) {
    pool.failover_pool = Some(FailoverPool { pool: "failover".into(), expiry: Duration::from_secs(60) });
}

fn with_warm_up(pool: &mut PoolConfig) {
    pool.warm_up = Some(WarmUp { from: "source".into(), expiry: Duration::from_secs(60) });
}

#[test]
fn a_write_is_acknowledged_by_its_quorum_and_failed_replicas_are_invalidated() {
    use Writes::{All, First, Majority};
    /// The quorum, the legs' answers, how many of them decide, the reply to the client, and the pending invalidations.
    type Case = (Writes, [Answer; 3], usize, Answer, &'static [u16]);
    let cases: [Case; 13] = [
        (All, [STORED, STORED, STORED], 3, STORED, &[]),
        (Majority, [STORED, STORED, STORED], 2, STORED, &[]),
        (First, [STORED, STORED, STORED], 1, STORED, &[]),
        (First, [TIMED_OUT, STORED, STORED], 2, STORED, &[0]),
        (Majority, [STORED, DOWN, STORED], 3, STORED, &[1]),
        (First, [TIMED_OUT, DOWN, STORED], 3, STORED, &[0, 1]),
        (All, [STORED, DOWN, STORED], 3, DOWN, &[1]),
        (All, [STORED, TIMED_OUT, DOWN], 3, TIMED_OUT, &[1, 2]),
        (Majority, [STORED, REFUSED, REFUSED], 3, REFUSED, &[1, 2]),
        // No server can have applied it.
        (First, [DOWN, FULL, DOWN], 3, DOWN, &[]),
        // One server may have applied it.
        (First, [TIMED_OUT, DOWN, DOWN], 3, TIMED_OUT, &[0, 1, 2]),
        // A server that refuses a value deletes the old one.
        (All, [REFUSED, REFUSED, REFUSED], 3, REFUSED, &[]),
        (All, [REFUSED, REFUSED, TIMED_OUT], 3, REFUSED, &[0, 1, 2]),
    ];
    for (case, (writes, answers, needed, reply, invalidated)) in cases.into_iter().enumerate() {
        let mut play = Play::new(|pool| pool.writes = writes, SET);
        for (leg, answer) in answers.into_iter().enumerate().take(needed) {
            let expected = if leg + 1 == needed { NextStep::Reply } else { NextStep::Wait };
            assert_eq!(play.answer(leg, answer), expected, "case {case}, leg {leg}");
        }
        assert_eq!((play.reply().as_str(), play.invalidated().as_slice()), (reply.0, invalidated), "case {case}");
        let is_degraded = reply == STORED && !invalidated.is_empty();
        assert_eq!(play.count(|pool| &pool.writes_degraded), u64::from(is_degraded), "case {case}");
    }
}

#[test]
fn a_replica_that_fails_after_the_reply_is_invalidated_and_counted_once() {
    let mut play = Play::new(|pool| pool.writes = Writes::First, SET);
    assert_eq!(play.answer(1, STORED), NextStep::Reply);
    assert_eq!((play.reply().as_str(), play.count(|pool| &pool.writes_degraded)), (STORED.0, 0));
    assert_eq!((play.answer(0, TIMED_OUT), play.invalidated()), (NextStep::Wait, vec![0]));
    assert_eq!((play.answer(2, REFUSED), play.invalidated()), (NextStep::Wait, vec![0, 2]));
    assert_eq!(play.count(|pool| &pool.writes_degraded), 1);
}

#[test]
fn only_sent_requests_without_a_reply_linger() {
    for (answer, lingers) in [
        (TIMED_OUT, true),
        (LOST, true),
        (TIMED_OUT_UNSENT, false),
        (LOST_UNSENT, false),
        (DOWN, false),
        (REFUSED, false),
    ] {
        let mut play = Play::new(|pool| pool.writes = Writes::First, SET);
        play.answer(1, answer);
        assert_eq!(play.answer(0, STORED), NextStep::Reply);
        assert_eq!(play.invalidated(), [1]);
        let backend = usize::from(play.job().legs()[1].backend);
        let pending = &play.replicas.pending[backend];
        assert_eq!(pending.take_due(9, Nanos(2)), [Invalidation::Key(b"k".as_slice().into())]);
        pending.record_result(&Invalidation::Key(b"k".as_slice().into()), true, Nanos(3));
        assert_eq!(!pending.is_empty(), lingers, "{answer:?}");
    }
}

/// If acknowledged writes may still be in flight, a refused write must be invalidated again after their timeout.
#[test]
fn a_key_is_deleted_again_after_the_reply_timeout_if_an_earlier_write_may_be_in_flight() {
    let is_deleted_twice = |play: &Play, backend: u16| {
        let pending = &play.replicas.pending[usize::from(backend)];
        let key = Invalidation::Key(b"k".as_slice().into());
        assert_eq!(pending.take_due(9, Nanos(2)), std::slice::from_ref(&key));
        pending.record_result(&key, true, Nanos(3));
        let reply_timeout = play.replicas.policies[0].reply_timeout;
        assert_eq!(pending.take_due(9, Nanos(3) + (reply_timeout - Duration::from_nanos(1))), [], "it is too early");
        pending.take_due(9, Nanos(3) + reply_timeout) == [key]
    };
    for (writes, expected) in [(Writes::First, true), (Writes::Majority, true), (Writes::All, false)] {
        let change = |pool: &mut PoolConfig| {
            (pool.writes, pool.timeouts.reply) = (writes, Duration::from_secs(7));
            with_failover_pool(pool);
        };
        let mut play = Play::new(change, SET);
        (0..3).for_each(|leg| _ = play.answer(leg, [FULL, STORED, STORED][leg]));
        let full = play.job().legs()[0].backend;
        assert_eq!(is_deleted_twice(&play, full), expected, "{writes:?}");
        if writes == Writes::All {
            // A write that depends on the value waits until all replicas have answered the earlier writes of its client.
            continue;
        }
        // The write runs on the failover pool. Earlier writes of its client may still be in flight to all replicas.
        let mut play = Play::new(change, INCR);
        assert_eq!(play.answer(0, DOWN), NextStep::SendLegs);
        let primary = play.job().legs()[0].backend;
        for step in 0..3 {
            let replica = play.replicas.router.pool(0).replica(primary, step);
            assert!(is_deleted_twice(&play, replica), "{writes:?}");
        }
    }
}

#[test]
fn if_any_replica_replies_deleted_the_client_receives_deleted() {
    let found: Answer = ("HD\r\n", Outcome::Answered, true);
    let missing: Answer = ("NF\r\n", Outcome::Answered, true);
    let cases: [(&[u8], Writes, [Answer; 3], &str); 7] = [
        (b"delete k\r\n", Writes::All, [NOT_FOUND, NOT_FOUND, DELETED], DELETED.0),
        (b"delete k\r\n", Writes::All, [DELETED, NOT_FOUND, NOT_FOUND], DELETED.0),
        (b"delete k\r\n", Writes::All, [NOT_FOUND, NOT_FOUND, NOT_FOUND], NOT_FOUND.0),
        (b"delete k\r\n", Writes::Majority, [NOT_FOUND, DOWN, DELETED], DELETED.0),
        (b"delete k\r\n", Writes::Majority, [DELETED, DOWN, TIMED_OUT], DOWN.0),
        (b"md k\r\n", Writes::All, [missing, missing, found], found.0),
        (b"touch k 1\r\n", Writes::All, [NOT_FOUND, ("TOUCHED\r\n", Outcome::Answered, true), NOT_FOUND], NOT_FOUND.0),
    ];
    for (request, writes, answers, reply) in cases {
        let mut play = Play::new(|pool| pool.writes = writes, request);
        let steps: Vec<NextStep> = (0..3).map(|leg| play.answer(leg, answers[leg])).collect();
        assert_eq!((steps[2], play.reply().as_str()), (NextStep::Reply, reply), "{answers:?}");
    }
}

#[test]
fn replicas_are_deleted_only_after_the_primary_has_changed_the_value() {
    let changed: [(&[u8], Answer); 2] = [(INCR, FIVE), (b"append k 0 0 1\r\nx\r\n", STORED)];
    for (request, answer) in changed {
        let mut play = Play::new(|_| {}, request);
        assert_eq!((play.sent_to(), play.answer(0, answer)), (vec![0], NextStep::SendLegs));
        assert_eq!(play.sent_to(), [0, 1, 2]);
        assert!(play.job().legs()[1..].iter().all(|leg| leg.command == LegCommand::Delete));
        play.answer(1, NOT_FOUND);
        assert_eq!((play.answer(2, DELETED), play.reply().as_str()), (NextStep::Reply, answer.0));
        assert!(play.invalidated().is_empty());
    }
    let unchanged: [(Answer, &[u16]); 6] =
        [(NOT_FOUND, &[]), (NOT_STORED, &[]), (WRONG, &[]), (DOWN, &[]), (TIMED_OUT, &[0]), (LOST, &[0])];
    for (answer, invalidated) in unchanged {
        let mut play = Play::new(|_| {}, INCR);
        assert_eq!((play.answer(0, answer), play.sent_to()), (NextStep::Reply, vec![0]), "{answer:?}");
        assert_eq!((play.reply().as_str(), play.invalidated().as_slice()), (answer.0, invalidated));
    }
    let mut play = Play::new(|pool| pool.writes = Writes::Majority, INCR);
    play.answer(0, FIVE);
    play.answer(1, DELETED);
    assert_eq!((play.reply().as_str(), play.answer(2, DOWN), play.invalidated()), (FIVE.0, NextStep::Wait, vec![2]));
}

#[test]
fn a_write_fails_over_if_all_replicas_failed_and_not_all_refused_it() {
    let sets: [([Answer; 3], bool); 5] = [
        ([DOWN, DOWN, DOWN], true),
        ([TIMED_OUT, DOWN, LOST], true),
        ([REFUSED, DOWN, REFUSED], true),
        ([REFUSED, REFUSED, REFUSED], false),
        ([DOWN, DOWN, STORED], false),
    ];
    for (answers, fails_over) in sets {
        let mut play = Play::new(with_failover_pool, SET);
        let last = (0..3).map(|leg| play.answer(leg, answers[leg])).last().unwrap();
        assert_eq!(last == NextStep::SendLegs, fails_over, "{answers:?}");
        assert_eq!(
            (play.sent_to().len() == 5, play.count(|pool| &pool.failover_pool_requests)),
            (fails_over, fails_over.into())
        );
        if fails_over {
            assert_eq!(play.invalidated(), [0, 1, 2], "the replicas do not store the acknowledged value");
            assert!(play.job().legs()[3..].iter().all(|leg| leg.command == LegCommand::CapExpiry { seconds: 60 }));
            play.answer(3, STORED);
            assert_eq!((play.answer(4, STORED), play.reply().as_str()), (NextStep::Reply, STORED.0));
        }
    }
}

#[test]
fn a_write_that_may_have_been_applied_and_is_not_idempotent_does_not_fail_over() {
    for (answer, fails_over) in [
        (DOWN, true),
        (FULL, true),
        (LOST_UNSENT, true),
        (LOST, false),
        (TIMED_OUT, false),
        (TIMED_OUT_UNSENT, false),
        (REFUSED, false),
        (NOT_FOUND, false),
    ] {
        let with_others = |pool: &mut PoolConfig| {
            with_failover_pool(pool);
            with_warm_up(pool);
        };
        let mut play = Play::new(with_others, INCR);
        let mut step = play.answer(0, answer);
        if answer == NOT_FOUND {
            assert_eq!((step, play.sent_to()), (NextStep::SendLegs, vec![0, 5]), "the warm-up pool may have the value");
            step = play.answer(1, MISS);
        }
        let legs = if answer == NOT_FOUND { 2 } else { 1 };
        let expected = if fails_over { (NextStep::SendLegs, 2) } else { (NextStep::Reply, legs) };
        assert_eq!((step, play.sent_to().len()), expected, "{answer:?}");
        if fails_over {
            assert_eq!(play.invalidated(), [0, 1, 2, 5], "these backends may store the old value");
            assert_eq!((play.answer(1, FIVE), play.reply().as_str()), (NextStep::Reply, FIVE.0));
        }
    }
}

#[test]
fn a_backend_of_the_failover_pool_that_fails_is_invalidated() {
    let play = |first, second| {
        let mut play = Play::new(with_failover_pool, SET);
        (0..3).for_each(|leg| _ = play.answer(leg, DOWN));
        play.answer(3, first);
        assert_eq!(play.answer(4, second), NextStep::Reply);
        let failed: Vec<u16> = play.job().legs()[3..].iter().map(|leg| leg.backend).collect();
        (play.reply(), failed, play.invalidated())
    };
    let (reply, failover_backends, invalidated) = play(TIMED_OUT, STORED);
    assert_eq!((reply.as_str(), invalidated), (STORED.0, vec![0, 1, 2, failover_backends[0]]));
    let (reply, _, invalidated) = play(REFUSED, REFUSED);
    assert_eq!(
        (reply.as_str(), invalidated),
        (REFUSED.0, vec![0, 1, 2]),
        "the failover backends deleted the key themselves"
    );
}

#[test]
fn the_reply_waits_for_a_secondary_delete_but_does_not_depend_on_it() {
    let mut play = Play::new(with_warm_up, b"delete k\r\n");
    assert_eq!(play.sent_to(), [0, 1, 2, 5]);
    (0..2).for_each(|leg| assert_eq!(play.answer(leg, DELETED), NextStep::Wait));
    assert_eq!(play.answer(2, DELETED), NextStep::Wait);
    assert_eq!((play.answer(3, TIMED_OUT), play.reply().as_str()), (NextStep::Reply, DELETED.0));
    assert_eq!((play.invalidated(), play.count(|pool| &pool.writes_degraded)), (vec![5], 0));
}
