//! Jobs made by hand: what follows from which answers, who is told what, and who owes a deletion.

mod reads;

use super::*;
use crate::config::{Config, FailoverPool, MultiGet, PartFailure, PoolConfig, WarmUp, Writes};
use crate::observe::counters::{Counter, LoopCounters, PoolCounters};
use crate::path::job::{Invalidation, JobId};
use crate::path::job::{Job, LegCommand, NextStep};
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

/// What a leg is answered, how it ends, and whether it was sent.
type Answer = (&'static str, Outcome, bool);

const STORED: Answer = ("STORED\r\n", Outcome::Answered, true);
const NOT_STORED: Answer = ("NOT_STORED\r\n", Outcome::Answered, true);
const DELETED: Answer = ("DELETED\r\n", Outcome::Answered, true);
const NOT_FOUND: Answer = ("NOT_FOUND\r\n", Outcome::Answered, true);
const FIVE: Answer = ("5\r\n", Outcome::Answered, true);
const HIT: Answer = ("VALUE k 0 1\r\nx\r\n", Outcome::Answered, true);
const MISS: Answer = ("END\r\n", Outcome::Answered, true);
const SAID: Answer = ("SERVER_ERROR said\r\n", Outcome::ServerError, true);
const WRONG: Answer = ("CLIENT_ERROR wrong\r\n", Outcome::ClientError, true);
const LATE: Answer = ("SERVER_ERROR late\r\n", Outcome::Timeout, true);
const LATE_UNSENT: Answer = ("SERVER_ERROR late\r\n", Outcome::Timeout, false);
const LOST: Answer = ("SERVER_ERROR lost\r\n", Outcome::BackendLost, true);
const LOST_UNSENT: Answer = ("SERVER_ERROR lost\r\n", Outcome::BackendLost, false);
const DOWN: Answer = ("SERVER_ERROR down\r\n", Outcome::BackendDown, false);
const FULL: Answer = ("SERVER_ERROR full\r\n", Outcome::Overloaded, false);

const SET: &[u8] = b"set k 0 0 1\r\nx\r\n";
const INCR: &[u8] = b"incr k 1\r\n";

/// One job on its way through a fork whose first pool has three copies; a second pool has two, a third one.
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
        play.cut(request);
        play
    }

    /// Begins a job.
    fn cut(&mut self, request: &[u8]) {
        let ParsedRequest::Request { request, .. } = parse_request(request, &Limits::default()) else { panic!() };
        self.id = self.jobs.begin();
        let job = self.jobs.get(self.id);
        job.verb = request.verb();
        self.assigner.assign(job, &request, &self.replicas, &Outstanding::default());
    }

    fn job(&mut self) -> &mut Job {
        self.jobs.get(self.id)
    }

    /// Answers a leg and looks what follows; a value once for each key that the leg was asked for.
    fn answer(&mut self, leg: usize, (reply, outcome, is_sent): Answer) -> NextStep {
        let job = self.jobs.get(self.id);
        if is_sent {
            job.leg_sent(leg as u8, Nanos(1));
        }
        let keys = job.wanted.iter().filter(|wanted| usize::from(wanted.leg) == leg).count().max(1);
        let last_line = if (reply, outcome, is_sent) == HIT { MISS.0 } else { reply };
        if last_line != reply {
            (0..keys).for_each(|_| _ = job.leg_brought(leg as u8, reply.as_bytes()));
        }
        match job.leg_answered(leg as u8, last_line.as_bytes(), outcome, Nanos(1)) {
            true => self.replicas.after_leg_answered(job, &Limits::default(), Nanos(1)),
            false => NextStep::Wait,
        }
    }

    /// What the client is told.
    fn told(&mut self) -> String {
        let job = self.jobs.get(self.id);
        join(job, PartFailure::Error, &Limits::default());
        String::from_utf8(job.reply.clone()).unwrap()
    }

    /// A backend as the tests call it: how many steps from the primary, or a number of another pool.
    fn name(&self, backend: u16) -> u16 {
        let primary = self.replicas.router.primary(b"k");
        if backend < 3 { (backend + 3 - primary) % 3 } else { backend }
    }

    /// Who owes the key's deletion.
    fn owing(&self) -> Vec<u16> {
        let owing = (0..6).filter(|&backend| self.replicas.is_pending(backend, b"k"));
        let mut names: Vec<u16> = owing.map(|backend| self.name(backend)).collect();
        names.sort_unstable();
        names
    }

    fn asked(&mut self) -> Vec<u16> {
        let backends: Vec<u16> = self.job().legs().iter().map(|leg| leg.backend).collect();
        backends.into_iter().map(|backend| self.name(backend)).collect()
    }

    fn count(&self, field: impl Fn(&PoolCounters) -> &Counter) -> u64 {
        field(&self.replicas.counters.pools[0]).get()
    }
}

fn with_stand_in(pool: &mut PoolConfig) {
    pool.failover_pool = Some(FailoverPool { pool: "failover".into(), expiry: Duration::from_secs(60) });
}

fn with_warm_up(pool: &mut PoolConfig) {
    pool.warm_up = Some(WarmUp { from: "source".into(), expiry: Duration::from_secs(60) });
}

#[test]
fn a_write_is_answered_when_enough_have_taken_it_and_those_that_failed_owe() {
    use Writes::{All, First, Majority};
    /// How many must take it, the answers, how many of them are needed, what the client is told, and who owes.
    type Case = (Writes, [Answer; 3], usize, Answer, &'static [u16]);
    let cases: [Case; 13] = [
        (All, [STORED, STORED, STORED], 3, STORED, &[]),
        (Majority, [STORED, STORED, STORED], 2, STORED, &[]),
        (First, [STORED, STORED, STORED], 1, STORED, &[]),
        (First, [LATE, STORED, STORED], 2, STORED, &[0]),
        (Majority, [STORED, DOWN, STORED], 3, STORED, &[1]),
        (First, [LATE, DOWN, STORED], 3, STORED, &[0, 1]),
        (All, [STORED, DOWN, STORED], 3, DOWN, &[1]),
        (All, [STORED, LATE, DOWN], 3, LATE, &[1, 2]),
        (Majority, [STORED, SAID, SAID], 3, SAID, &[1, 2]),
        // Nobody can have carried it out.
        (First, [DOWN, FULL, DOWN], 3, DOWN, &[]),
        // One may have.
        (First, [LATE, DOWN, DOWN], 3, LATE, &[0, 1, 2]),
        // A server that refuses a value has removed the one before it.
        (All, [SAID, SAID, SAID], 3, SAID, &[]),
        (All, [SAID, SAID, LATE], 3, SAID, &[0, 1, 2]),
    ];
    for (case, (writes, answers, needed, told, owing)) in cases.into_iter().enumerate() {
        let mut play = Play::new(|pool| pool.writes = writes, SET);
        for (leg, answer) in answers.into_iter().enumerate().take(needed) {
            let expected = if leg + 1 == needed { NextStep::Reply } else { NextStep::Wait };
            assert_eq!(play.answer(leg, answer), expected, "case {case}, leg {leg}");
        }
        assert_eq!((play.told().as_str(), play.owing().as_slice()), (told.0, owing), "case {case}");
        let is_degraded = told == STORED && !owing.is_empty();
        assert_eq!(play.count(|pool| &pool.writes_degraded), u64::from(is_degraded), "case {case}");
    }
}

#[test]
fn a_copy_that_fails_after_the_answer_owes_and_the_write_counts_once() {
    let mut play = Play::new(|pool| pool.writes = Writes::First, SET);
    assert_eq!(play.answer(1, STORED), NextStep::Reply);
    assert_eq!((play.told().as_str(), play.count(|pool| &pool.writes_degraded)), (STORED.0, 0));
    assert_eq!((play.answer(0, LATE), play.owing()), (NextStep::Wait, vec![0]));
    assert_eq!((play.answer(2, SAID), play.owing()), (NextStep::Wait, vec![0, 2]));
    assert_eq!(play.count(|pool| &pool.writes_degraded), 1);
}

#[test]
fn only_what_was_sent_and_lost_may_linger() {
    for (answer, lingers) in
        [(LATE, true), (LOST, true), (LATE_UNSENT, false), (LOST_UNSENT, false), (DOWN, false), (SAID, false)]
    {
        let mut play = Play::new(|pool| pool.writes = Writes::First, SET);
        play.answer(1, answer);
        assert_eq!(play.answer(0, STORED), NextStep::Reply);
        assert_eq!(play.owing(), [1]);
        let backend = usize::from(play.job().legs()[1].backend);
        let pending = &play.replicas.pending[backend];
        assert_eq!(pending.take_due(9, Nanos(2)), [Invalidation::Key(b"k".as_slice().into())]);
        pending.record_result(&Invalidation::Key(b"k".as_slice().into()), true, Nanos(3));
        assert_eq!(!pending.is_empty(), lingers, "{answer:?}");
    }
}

/// Where others may still be late with the write before, what was refused for want of room says nothing about that one.
#[test]
fn what_a_late_copy_owes_is_deleted_again_when_the_write_before_must_have_come() {
    let pays_twice = |play: &Play, backend: u16| {
        let pending = &play.replicas.pending[usize::from(backend)];
        let key = Invalidation::Key(b"k".as_slice().into());
        assert_eq!(pending.take_due(9, Nanos(2)), std::slice::from_ref(&key));
        pending.record_result(&key, true, Nanos(3));
        let write_timeout = play.replicas.policies[0].write_timeout;
        assert_eq!(pending.take_due(9, Nanos(3) + (write_timeout - Duration::from_nanos(1))), [], "it is too early");
        pending.take_due(9, Nanos(3) + write_timeout) == [key]
    };
    for (writes, expected) in [(Writes::First, true), (Writes::Majority, true), (Writes::All, false)] {
        let change = |pool: &mut PoolConfig| {
            (pool.writes, pool.timeouts.write) = (writes, Duration::from_secs(7));
            with_stand_in(pool);
        };
        let mut play = Play::new(change, SET);
        (0..3).for_each(|leg| _ = play.answer(leg, [FULL, STORED, STORED][leg]));
        let full = play.job().legs()[0].backend;
        assert_eq!(pays_twice(&play, full), expected, "{writes:?}");
        // Done elsewhere, as the primary may not be asked: what its client has set before may be on its way to all copies.
        let mut play = Play::new(change, INCR);
        assert_eq!(play.answer(0, DOWN), NextStep::SendLegs);
        let primary = play.job().legs()[0].backend;
        for step in 0..3 {
            let copy = play.replicas.router.pool(0).replica(primary, step);
            assert!(pays_twice(&play, copy), "{writes:?}");
        }
    }
}

#[test]
fn what_was_deleted_anywhere_has_been_deleted_if_enough_have_answered() {
    let found: Answer = ("HD\r\n", Outcome::Answered, true);
    let missing: Answer = ("NF\r\n", Outcome::Answered, true);
    let cases: [(&[u8], Writes, [Answer; 3], &str); 7] = [
        (b"delete k\r\n", Writes::All, [NOT_FOUND, NOT_FOUND, DELETED], DELETED.0),
        (b"delete k\r\n", Writes::All, [DELETED, NOT_FOUND, NOT_FOUND], DELETED.0),
        (b"delete k\r\n", Writes::All, [NOT_FOUND, NOT_FOUND, NOT_FOUND], NOT_FOUND.0),
        (b"delete k\r\n", Writes::Majority, [NOT_FOUND, DOWN, DELETED], DELETED.0),
        (b"delete k\r\n", Writes::Majority, [DELETED, DOWN, LATE], DOWN.0),
        (b"md k\r\n", Writes::All, [missing, missing, found], found.0),
        (b"touch k 1\r\n", Writes::All, [NOT_FOUND, ("TOUCHED\r\n", Outcome::Answered, true), NOT_FOUND], NOT_FOUND.0),
    ];
    for (request, writes, answers, told) in cases {
        let mut play = Play::new(|pool| pool.writes = writes, request);
        let steps: Vec<NextStep> = (0..3).map(|leg| play.answer(leg, answers[leg])).collect();
        assert_eq!((steps[2], play.told().as_str()), (NextStep::Reply, told), "{answers:?}");
    }
}

#[test]
fn copies_are_deleted_after_the_primary_has_changed_the_value_and_only_then() {
    let changed: [(&[u8], Answer); 2] = [(INCR, FIVE), (b"append k 0 0 1\r\nx\r\n", STORED)];
    for (request, answer) in changed {
        let mut play = Play::new(|_| {}, request);
        assert_eq!((play.asked(), play.answer(0, answer)), (vec![0], NextStep::SendLegs));
        assert_eq!(play.asked(), [0, 1, 2]);
        assert!(play.job().legs()[1..].iter().all(|leg| leg.command == LegCommand::Delete));
        play.answer(1, NOT_FOUND);
        assert_eq!((play.answer(2, DELETED), play.told().as_str()), (NextStep::Reply, answer.0));
        assert!(play.owing().is_empty());
    }
    let unchanged: [(Answer, &[u16]); 6] =
        [(NOT_FOUND, &[]), (NOT_STORED, &[]), (WRONG, &[]), (DOWN, &[]), (LATE, &[0]), (LOST, &[0])];
    for (answer, owing) in unchanged {
        let mut play = Play::new(|_| {}, INCR);
        assert_eq!((play.answer(0, answer), play.asked()), (NextStep::Reply, vec![0]), "{answer:?}");
        assert_eq!((play.told().as_str(), play.owing().as_slice()), (answer.0, owing));
    }
    let mut play = Play::new(|pool| pool.writes = Writes::Majority, INCR);
    play.answer(0, FIVE);
    play.answer(1, DELETED);
    assert_eq!((play.told().as_str(), play.answer(2, DOWN), play.owing()), (FIVE.0, NextStep::Wait, vec![2]));
}

#[test]
fn another_pool_stands_in_when_all_have_failed_and_none_has_refused_in_words() {
    let sets: [([Answer; 3], bool); 5] = [
        ([DOWN, DOWN, DOWN], true),
        ([LATE, DOWN, LOST], true),
        ([SAID, DOWN, SAID], true),
        ([SAID, SAID, SAID], false),
        ([DOWN, DOWN, STORED], false),
    ];
    for (answers, stands_in) in sets {
        let mut play = Play::new(with_stand_in, SET);
        let last = (0..3).map(|leg| play.answer(leg, answers[leg])).last().unwrap();
        assert_eq!(last == NextStep::SendLegs, stands_in, "{answers:?}");
        assert_eq!(
            (play.asked().len() == 5, play.count(|pool| &pool.failover_pool_requests)),
            (stands_in, stands_in.into())
        );
        if stands_in {
            assert_eq!(play.owing(), [0, 1, 2], "what they hold is not what was acknowledged");
            assert!(play.job().legs()[3..].iter().all(|leg| leg.command == LegCommand::CapExpiry { seconds: 60 }));
            play.answer(3, STORED);
            assert_eq!((play.answer(4, STORED), play.told().as_str()), (NextStep::Reply, STORED.0));
        }
    }
}

#[test]
fn what_may_have_been_carried_out_and_cannot_be_done_twice_is_not_done_elsewhere() {
    for (answer, stands_in) in [
        (DOWN, true),
        (FULL, true),
        (LOST_UNSENT, true),
        (LOST, false),
        (LATE, false),
        (LATE_UNSENT, false),
        (SAID, false),
        (NOT_FOUND, false),
    ] {
        let with_others = |pool: &mut PoolConfig| {
            with_stand_in(pool);
            with_warm_up(pool);
        };
        let mut play = Play::new(with_others, INCR);
        let step = play.answer(0, answer);
        let expected = if stands_in { (NextStep::SendLegs, 2) } else { (NextStep::Reply, 1) };
        assert_eq!((step, play.asked().len()), expected, "{answer:?}");
        if stands_in {
            assert_eq!(play.owing(), [0, 1, 2, 5], "nobody who holds the value before has heard of it");
            assert_eq!((play.answer(1, FIVE), play.told().as_str()), (NextStep::Reply, FIVE.0));
        }
    }
}

#[test]
fn a_stand_in_that_a_write_did_not_reach_owes_as_others_do() {
    let play = |first, second| {
        let mut play = Play::new(with_stand_in, SET);
        (0..3).for_each(|leg| _ = play.answer(leg, DOWN));
        play.answer(3, first);
        assert_eq!(play.answer(4, second), NextStep::Reply);
        let failed: Vec<u16> = play.job().legs()[3..].iter().map(|leg| leg.backend).collect();
        (play.told(), failed, play.owing())
    };
    let (told, failover_pool_requests, owing) = play(LATE, STORED);
    assert_eq!((told.as_str(), owing), (STORED.0, vec![0, 1, 2, failover_pool_requests[0]]));
    let (told, _, owing) = play(SAID, SAID);
    assert_eq!((told.as_str(), owing), (SAID.0, vec![0, 1, 2]), "they have removed it themselves");
}

#[test]
fn a_deletion_aside_is_waited_for_and_owed_but_does_not_decide() {
    let mut play = Play::new(with_warm_up, b"delete k\r\n");
    assert_eq!(play.asked(), [0, 1, 2, 5]);
    (0..2).for_each(|leg| assert_eq!(play.answer(leg, DELETED), NextStep::Wait));
    assert_eq!(play.answer(2, DELETED), NextStep::Wait);
    assert_eq!((play.answer(3, LATE), play.told().as_str()), (NextStep::Reply, DELETED.0));
    assert_eq!((play.owing(), play.count(|pool| &pool.writes_degraded)), (vec![5], 0));
}
