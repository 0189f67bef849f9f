//! Reads: who is asked next, what is told, and who has won.

use super::*;

/// What a pool does, the answers in the order in which they are asked for, whom this asks, and what the client is told.
type Reading = (fn(&mut PoolConfig), &'static [Answer], &'static [u16], &'static str);

const READINGS: [Reading; 14] = [
    (|_| {}, &[DOWN], &[0], DOWN.0),
    (|pool| pool.failover = Failover::OnError, &[MISS], &[0], MISS.0),
    (|pool| pool.failover = Failover::OnError, &[LATE, HIT], &[0, 1], HIT.0),
    (|pool| pool.failover = Failover::OnError, &[DOWN, MISS], &[0, 1], MISS.0),
    (|pool| pool.failover = Failover::OnError, &[SAID, DOWN, LATE], &[0, 1, 2], "SERVER_ERROR"),
    (|pool| pool.failover = Failover::OnMiss, &[MISS, HIT], &[0, 1], HIT.0),
    // A miss is better than an error, also when the error came later.
    (|pool| pool.failover = Failover::OnMiss, &[MISS, DOWN, LATE], &[0, 1, 2], MISS.0),
    (|pool| pool.failover = Failover::OnMiss, &[DOWN, MISS, LATE], &[0, 1, 2], MISS.0),
    (with_stand_in, &[MISS], &[0], MISS.0),
    (with_stand_in, &[LATE, HIT], &[0, 9], HIT.0),
    (
        |pool| {
            with_stand_in(pool);
            pool.failover = Failover::OnError;
        },
        &[DOWN, LATE, SAID, HIT],
        &[0, 1, 2, 9],
        HIT.0,
    ),
    (with_warm_up, &[SAID], &[0], SAID.0),
    (with_warm_up, &[MISS, DOWN], &[0, 5], MISS.0),
    (
        |pool| {
            with_stand_in(pool);
            with_warm_up(pool);
            pool.failover = Failover::OnMiss;
        },
        // What one copy does not have is no case for the pool that stands in.
        &[MISS, DOWN, DOWN, HIT],
        &[0, 1, 2, 5],
        HIT.0,
    ),
];

#[test]
fn a_read_asks_one_after_the_other_and_so_does_each_key_of_a_multi_get() {
    for (case, (change, answers, asked, told)) in READINGS.into_iter().enumerate() {
        for (request, keys) in [(b"get k\r\n".as_slice(), 1), (b"get k k\r\n", 2)] {
            let mut play = Play::new(change, request);
            for (leg, answer) in answers.iter().enumerate() {
                let expected = if leg + 1 == answers.len() { NextStep::Reply } else { NextStep::SendLegs };
                assert_eq!(play.answer(leg, *answer), expected, "case {case}, {keys} keys, leg {leg}");
            }
            let names = play.asked().into_iter().map(|name| if (3..5).contains(&name) { 9 } else { name });
            assert_eq!(names.collect::<Vec<_>>(), asked, "case {case}, {keys} keys");
            let expected = if told == HIT.0 { HIT.0.repeat(keys) + MISS.0 } else { told.to_string() };
            let reply = play.told();
            assert!(reply.starts_with(&expected), "case {case}, {keys} keys: {reply}");
            let copies = asked[1..].iter().filter(|&&name| name < 3).count() as u64;
            let failover_pool_requests = asked.iter().filter(|&&name| name == 9).count() as u64;
            assert_eq!(
                (play.count(|pool| &pool.failovers), play.count(|pool| &pool.failover_pool_requests)),
                (copies, failover_pool_requests)
            );
            assert_eq!((play.count(|pool| &pool.reads), play.owing()), (1, vec![]));
        }
    }
}

#[test]
fn a_copy_that_is_passed_over_at_once_is_a_failover_too() {
    for request in [b"get k\r\n".as_slice(), b"get k k\r\n", b"mg k v\r\n", b"gets k\r\n"] {
        let mut play = Play::new(|pool| pool.failover = Failover::OnError, b"get k\r\n");
        let backend = usize::from(play.job().legs()[0].backend);
        play.replicas.counters.backends[backend].is_up.set(0);
        play.cut(request);
        let is_elsewhere = request != b"gets k\r\n";
        assert_eq!(
            (play.asked(), play.count(|pool| &pool.failovers)),
            (vec![is_elsewhere.into()], is_elsewhere.into())
        );
    }
}

#[test]
fn a_hedge_is_won_by_the_second_copy_if_it_has_the_first_good_answer() {
    use Failover::{OnError, OnMiss};
    /// Legs and their answers in the order of arrival, and how often the hedge has won.
    type Case = (Failover, &'static [(usize, Answer)], u64);
    let cases: [Case; 6] = [
        (OnError, &[(1, HIT)], 1),
        (OnError, &[(1, MISS)], 1),
        (OnError, &[(0, HIT)], 0),
        (OnError, &[(1, SAID), (0, HIT)], 0),
        (OnError, &[(0, LATE), (1, HIT)], 1),
        (OnMiss, &[(1, MISS), (0, HIT)], 0),
    ];
    for (failover, answers, won) in cases {
        let mut play = Play::new(|pool| pool.failover = failover, b"get k\r\n");
        let choice = play.replicas.next_replica(0, b"k", 0, 0).unwrap();
        let hedge = add_candidate(play.job(), &choice);
        play.job().leg(hedge).is_hedge = true;
        let steps: Vec<NextStep> = answers.iter().map(|&(leg, answer)| play.answer(leg, answer)).collect();
        assert_eq!((steps.last(), play.count(|pool| &pool.hedges_won)), (Some(&NextStep::Reply), won), "{answers:?}");
        assert!(steps[..steps.len() - 1].iter().all(|&step| step == NextStep::Wait), "{answers:?}");
    }
}
