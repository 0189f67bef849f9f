//! Follow-ups of reads: the next candidate, the reply to the client, and hedges.

use super::*;

/// A pool's policy, the answers of the legs in order, the backends that the read is sent to, and the reply to the client.
type Reading = (fn(&mut PoolConfig), &'static [Answer], &'static [u16], &'static str);

const READINGS: [Reading; 14] = [
    (|_| {}, &[DOWN], &[0], DOWN.0),
    (|pool| pool.failover = Failover::OnError, &[MISS], &[0], MISS.0),
    (|pool| pool.failover = Failover::OnError, &[TIMED_OUT, HIT], &[0, 1], HIT.0),
    (|pool| pool.failover = Failover::OnError, &[DOWN, MISS], &[0, 1], MISS.0),
    (|pool| pool.failover = Failover::OnError, &[REFUSED, DOWN, TIMED_OUT], &[0, 1, 2], "SERVER_ERROR"),
    (|pool| pool.failover = Failover::OnMiss, &[MISS, HIT], &[0, 1], HIT.0),
    // The client gets a miss rather than an error, also if the error came later.
    (|pool| pool.failover = Failover::OnMiss, &[MISS, DOWN, TIMED_OUT], &[0, 1, 2], MISS.0),
    (|pool| pool.failover = Failover::OnMiss, &[DOWN, MISS, TIMED_OUT], &[0, 1, 2], MISS.0),
    (with_failover_pool, &[MISS], &[0], MISS.0),
    (with_failover_pool, &[TIMED_OUT, HIT], &[0, 9], HIT.0),
    (
        |pool| {
            with_failover_pool(pool);
            pool.failover = Failover::OnError;
        },
        &[DOWN, TIMED_OUT, REFUSED, HIT],
        &[0, 1, 2, 9],
        HIT.0,
    ),
    (with_warm_up, &[REFUSED], &[0], REFUSED.0),
    (with_warm_up, &[MISS, DOWN], &[0, 5], MISS.0),
    (
        |pool| {
            with_failover_pool(pool);
            with_warm_up(pool);
            pool.failover = Failover::OnMiss;
        },
        // After a miss, the read does not go to the failover pool.
        &[MISS, DOWN, DOWN, HIT],
        &[0, 1, 2, 5],
        HIT.0,
    ),
];

#[test]
fn a_read_and_each_key_of_a_multi_get_go_to_one_candidate_after_another() {
    for (case, (change, answers, sent_to, reply)) in READINGS.into_iter().enumerate() {
        for (request, keys) in [(b"get k\r\n".as_slice(), 1), (b"get k k\r\n", 2)] {
            let mut play = Play::new(change, request);
            for (leg, answer) in answers.iter().enumerate() {
                let expected = if leg + 1 == answers.len() { NextStep::Reply } else { NextStep::SendLegs };
                assert_eq!(play.answer(leg, *answer), expected, "case {case}, {keys} keys, leg {leg}");
            }
            let names = play.sent_to().into_iter().map(|name| if (3..5).contains(&name) { 9 } else { name });
            assert_eq!(names.collect::<Vec<_>>(), sent_to, "case {case}, {keys} keys");
            let expected = if reply == HIT.0 { HIT.0.repeat(keys) + MISS.0 } else { reply.to_string() };
            let reply = play.reply();
            assert!(reply.starts_with(&expected), "case {case}, {keys} keys: {reply}");
            let replicas = sent_to[1..].iter().filter(|&&name| name < 3).count() as u64;
            let failover_pool_requests = sent_to.iter().filter(|&&name| name == 9).count() as u64;
            assert_eq!(
                (play.count(|pool| &pool.failovers), play.count(|pool| &pool.failover_pool_requests)),
                (replicas, failover_pool_requests)
            );
            assert_eq!((play.count(|pool| &pool.reads), play.invalidated()), (1, vec![]));
        }
    }
}

#[test]
fn a_replica_that_is_skipped_counts_as_a_failover() {
    for request in [b"get k\r\n".as_slice(), b"get k k\r\n", b"mg k v\r\n", b"gets k\r\n"] {
        let mut play = Play::new(|pool| pool.failover = Failover::OnError, b"get k\r\n");
        let backend = usize::from(play.job().legs()[0].backend);
        play.replicas.counters.backends[backend].is_up.set(0);
        play.assign(request);
        let is_elsewhere = request != b"gets k\r\n";
        assert_eq!(
            (play.sent_to(), play.count(|pool| &pool.failovers)),
            (vec![is_elsewhere.into()], is_elsewhere.into())
        );
    }
}

#[test]
fn a_hedge_is_won_by_the_second_replica_if_it_answers_first() {
    use Failover::{OnError, OnMiss};
    /// The legs' answers in the order of arrival, and how often the hedge has won.
    type Case = (Failover, &'static [(usize, Answer)], u64);
    let cases: [Case; 6] = [
        (OnError, &[(1, HIT)], 1),
        (OnError, &[(1, MISS)], 1),
        (OnError, &[(0, HIT)], 0),
        (OnError, &[(1, REFUSED), (0, HIT)], 0),
        (OnError, &[(0, TIMED_OUT), (1, HIT)], 1),
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
