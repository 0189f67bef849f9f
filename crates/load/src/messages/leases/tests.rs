//! Scripted orders of requests and replies: those that must be flagged, and those that must not. RequestTimes are in
//! milliseconds; the lease is 1000.

use super::*;

const KEY: MessageKey = (1, 7);
const RULES: LeaseRules = LeaseRules {
    lease: Duration::from_millis(1000),
    redelivery: Duration::from_millis(2000),
    attempts: None,
    reply_timeout: Duration::from_millis(5000),
};

fn ms(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

fn at(issued: u64, completed: u64) -> RequestTimes {
    RequestTimes { issued: ms(issued), completed: ms(completed) }
}

fn message(attempt: u32) -> Delivered {
    Delivered { key: KEY, receiver: ANYONE, id: Some(50), attempt: Some(attempt) }
}

fn receive(leases: &mut QueueLeases, attempt: u32, issued: u64, completed: u64) -> (Option<usize>, Findings) {
    leases.receive(&RULES, &message(attempt), at(issued, completed), false)
}

/// A queue whose message was delivered between 10 and 20, and delivered again.
fn delivered_twice(issued: u64, completed: u64) -> (QueueLeases, Findings) {
    let mut leases = QueueLeases::default();
    assert_eq!(receive(&mut leases, 1, 10, 20), (Some(0), Findings::default()));
    let (number, findings) = receive(&mut leases, 2, issued, completed);
    assert_eq!(number, Some(1));
    (leases, findings)
}

#[test]
fn two_valid_leases_are_found_only_if_no_order_explains_them() {
    // The first lease was valid until 1010 at least.
    for (issued, completed, is_fault) in [
        (500, 600, true),
        (5, 30, true),
        (900, 1009, true),
        (900, 1010, false),
        (1500, 1600, false),
        // The reply of an earlier receive is late: its lease can have ended before the first delivery on record.
        (0, 5000, false),
    ] {
        assert_eq!(delivered_twice(issued, completed).1.while_leased, is_fault, "{issued} {completed}");
    }
    let mut leases = QueueLeases::default();
    receive(&mut leases, 2, 1100, 1200);
    assert!(
        !receive(&mut leases, 1, 50, 900).1.while_leased,
        "it came first, and its lease ended at 1050 at the earliest"
    );
    let mut leases = QueueLeases::default();
    receive(&mut leases, 2, 300, 400);
    assert!(receive(&mut leases, 1, 50, 600).1.while_leased, "350 ms are too short for a lease in between");
}

#[test]
fn an_extension_lengthens_and_a_nack_shortens_a_lease() {
    let mut leases = QueueLeases::default();
    receive(&mut leases, 1, 10, 20);
    assert_eq!(leases.extend(&RULES, KEY, 0, at(800, 810)), Findings::default());
    assert!(receive(&mut leases, 2, 1500, 1600).1.while_leased, "it was valid until 1800");

    let (mut leases, _) = delivered_twice(1300, 1400);
    assert!(leases.extend(&RULES, KEY, 0, at(1500, 1510)).while_leased, "a lease that was lost was extended");

    let mut leases = QueueLeases::default();
    receive(&mut leases, 1, 10, 20);
    leases.nack_begins(KEY, 0, ms(100));
    assert!(!receive(&mut leases, 2, 105, 110).1.while_leased, "the nack may have been applied before its reply");
    assert_eq!(leases.nack(&RULES, KEY, 0, at(100, 200)), Findings::default());
}

#[test]
fn an_acknowledged_message_does_not_come_back() {
    for (issued, completed, is_fault) in [(300, 400, true), (3000, 3100, true), (90, 4000, true)] {
        let mut leases = QueueLeases::default();
        receive(&mut leases, 1, 10, 20);
        assert_eq!(leases.acknowledge(&RULES, KEY, 0, ms(200)), Findings::default());
        let (number, findings) = leases.receive(&RULES, &message(2), at(issued, completed), true);
        assert_eq!((number, findings.doubled), (None, is_fault), "{issued} {completed}");
    }
    // A receive whose lease had ended before the message was delivered to its last holder is merely late.
    let mut leases = QueueLeases::default();
    receive(&mut leases, 2, 1500, 1600);
    leases.acknowledge(&RULES, KEY, 0, ms(1700));
    assert_eq!(leases.receive(&RULES, &message(1), at(10, 1800), true), (None, Findings::default()));
    // Long after, no reply can be late.
    let findings = leases.receive(&RULES, &message(1), at(10, 90_000), true).1;
    assert!(findings.doubled && leases.messages.is_empty());
}

#[test]
fn only_the_last_holder_can_acknowledge() {
    let (mut leases, _) = delivered_twice(1300, 1400);
    assert!(leases.acknowledge(&RULES, KEY, 0, ms(1500)).doubled, "the first holder had lost it");
    let (mut leases, _) = delivered_twice(1300, 1400);
    assert!(!leases.acknowledge(&RULES, KEY, 1, ms(1500)).doubled);
    assert!(leases.acknowledge(&RULES, KEY, 0, ms(1600)).doubled, "both were acknowledged");
    let mut leases = QueueLeases::default();
    receive(&mut leases, 1, 10, 20);
    assert!(!leases.acknowledge(&RULES, KEY, 0, ms(5000)).doubled, "late, but nobody else had it");
    let mut leases = QueueLeases::default();
    receive(&mut leases, 1, 10, 20);
    leases.pop(&RULES, KEY, at(1300, 1400));
    assert!(leases.acknowledge(&RULES, KEY, 0, ms(1500)).doubled, "it was popped");
}

#[test]
fn a_pop_needs_the_end_of_the_lease() {
    for (issued, completed, is_fault) in [(300, 400, true), (900, 1010, false), (1300, 1400, false)] {
        let mut leases = QueueLeases::default();
        receive(&mut leases, 1, 10, 20);
        assert_eq!(leases.pop(&RULES, KEY, at(issued, completed)).while_leased, is_fault);
    }
}

#[test]
fn a_lease_that_is_refused_while_it_is_valid_ended_early() {
    let mut leases = QueueLeases::default();
    receive(&mut leases, 1, 10, 20);
    assert!(leases.lease_lost(KEY, 0, ms(1009)) && !leases.lease_lost(KEY, 0, ms(1010)));
    leases.nack_begins(KEY, 0, ms(500));
    assert!(!leases.lease_lost(KEY, 0, ms(600)));
}

/// The time for which a message is found to be held if a fetch at 5000 missed it, and it was delivered at 6000.
fn held(prepare: impl FnOnce(&mut QueueLeases), id: Option<u64>, returned: u64, attempt: u32) -> u64 {
    let mut leases = QueueLeases::default();
    receive(&mut leases, 1, 10, 20);
    prepare(&mut leases);
    leases.missed(&RULES, 3, id, ms(5000), ms(returned));
    leases.receive(&RULES, &message(attempt), at(6000, 6010), false).1.held.as_millis() as u64
}

#[test]
fn a_message_is_held_while_fetches_miss_it() {
    let nothing = |_: &mut QueueLeases| ();
    // The lease was over at 1020.
    assert_eq!(held(nothing, None, 0, 2), 3980);
    assert_eq!(held(nothing, Some(51), 0, 2), 3980, "a younger message was returned");
    assert_eq!(held(nothing, Some(49), 0, 2), 0, "an older message was returned");
    assert_eq!(held(nothing, None, 4500, 2), 500, "the database has been back since 4500");
    assert_eq!(held(nothing, None, u64::MAX / 1_000_000, 2), 0, "the database is away");
    // A fetch in flight since 2000 may have taken it.
    assert_eq!(held(|leases| leases.fetch_begins(9, ms(2000)), None, 0, 2), 980);
    // A receive in doubt cannot have taken it if the attempts are consecutive; otherwise its lease ended at 4000.
    assert_eq!(held(|leases| leases.receive_in_doubt(9, ms(3000)), None, 0, 2), 3980);
    assert_eq!(held(|leases| leases.receive_in_doubt(9, ms(3000)), None, 0, 3), 1000);
    assert_eq!(held(QueueLeases::pop_in_doubt, None, 0, 3), 0);
    // An extension in doubt may have lengthened the lease, a nack ends it.
    assert_eq!(held(|leases| leases.extension_in_doubt(&RULES, KEY, 0, ms(900)), None, 0, 2), 3100);
    assert_eq!(held(|leases| assert!(!leases.nack(&RULES, KEY, 0, at(90, 100)).doubled), None, 0, 2), 4900);
}

#[test]
fn a_message_for_another_receiver_is_not_missed() {
    let mut leases = QueueLeases::default();
    let message = Delivered { receiver: 4, ..message(1) };
    leases.receive(&RULES, &message, at(10, 20), false);
    leases.missed(&RULES, 3, None, ms(5000), ms(0));
    assert_eq!(leases.messages[&KEY].held, Duration::ZERO);
    leases.missed(&RULES, 4, None, ms(5000), ms(0));
    assert!(leases.messages[&KEY].held > Duration::ZERO);
}

#[test]
fn after_its_last_attempt_a_message_is_not_expected_back() {
    let rules = LeaseRules { attempts: Some(2), ..RULES };
    let mut leases = QueueLeases::default();
    leases.receive(&rules, &message(1), at(10, 20), false);
    assert_eq!(leases.returned_by(&rules), Some(ms(20 + 1000 + 3 * 2000)));
    leases.receive(&rules, &message(2), at(2000, 2010), false);
    assert_eq!(leases.returned_by(&rules), None);
}

#[test]
fn an_acknowledgement_in_doubt_explains_a_message_until_it_is_delivered_again() {
    let (mut leases, _) = delivered_twice(1300, 1400);
    assert!(!leases.may_be_acknowledged(KEY));
    leases.acknowledgement_in_doubt(KEY, 0);
    assert!(!leases.may_be_acknowledged(KEY), "it was delivered again since");
    leases.acknowledgement_in_doubt(KEY, 1);
    assert!(leases.may_be_acknowledged(KEY));
    leases.lease_lost(KEY, 1, ms(9000));
    assert!(!leases.may_be_acknowledged(KEY), "the acknowledgement was refused in the end");
}
