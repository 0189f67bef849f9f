//! What the ledger finds in the orders of requests and replies.

use super::*;
use clock::Nanos;
use std::time::Duration;

const NOW: RequestTimes = RequestTimes { issued: Nanos(1), completed: Nanos(2) };
const RUN: u64 = 77;
const ANY: ReadRequest = ReadRequest { receiver: 0, queue: None, sender: None };

fn ledger() -> Ledger {
    let rules = LeaseRules {
        lease: Duration::from_secs(5),
        redelivery: Duration::from_secs(10),
        attempts: None,
        reply_timeout: Duration::from_secs(5),
    };
    Ledger::new(RUN, 4, 6, rules, false)
}

fn body(sender: u32, queue: u32, receiver: u32, number: u32) -> Vec<u8> {
    let mut out = Vec::new();
    body::make(&body::Label { run: RUN, sender, queue, receiver, number }, 64, &mut out);
    out
}

fn send(ledger: &Ledger, sender: u32, receiver: u32) -> Vec<u8> {
    let number = ledger.issue(sender, 0, receiver);
    ledger.acknowledge(sender, 0, number);
    body(sender, 0, receiver, number)
}

fn counted(ledger: &Ledger) -> [u64; 5] {
    let counts = &ledger.counts;
    [&counts.doubled, &counts.out_of_order, &counts.torn, &counts.unknown, &counts.misdelivered].map(LedgerCounts::of)
}

#[test]
fn a_healthy_run_leaves_no_queues() {
    let ledger = ledger();
    for _ in 0..200 {
        let body = send(&ledger, 1, ANYONE);
        ledger.receive(&ANY, &body, NOW);
    }
    assert_eq!((counted(&ledger), ledger.remainder(true)), ([0; 5], Remainder::default()));
    assert_eq!((ledger.outstanding(), LedgerCounts::of(&ledger.counts.received)), (0, 200));
}

#[test]
fn every_fault_is_found() {
    let ledger = ledger();
    let bodies: Vec<_> = (0..4).map(|_| send(&ledger, 1, ANYONE)).collect();
    ledger.receive(&ANY, &bodies[1], NOW);
    ledger.receive(&ANY, &bodies[1], NOW);
    assert_eq!(counted(&ledger), [1, 0, 0, 0, 0]);
    ledger.receive(&ANY, &bodies[0], NOW);
    assert_eq!(counted(&ledger), [1, 1, 0, 0, 0], "number 0 after number 1");
    let mut torn = bodies[2].clone();
    torn[40] ^= 1;
    ledger.receive(&ANY, &torn, NOW);
    assert_eq!(counted(&ledger), [1, 1, 1, 0, 0]);
    ledger.receive(&ANY, &body(1, 0, ANYONE, 99), NOW);
    ledger.receive(&ANY, &body(99, 0, ANYONE, 0), NOW);
    assert_eq!(counted(&ledger), [1, 1, 1, 2, 0]);
    let other = send(&ledger, 2, 3);
    ledger.receive(&ANY, &other, NOW);
    ledger.receive(&ReadRequest { queue: Some(5), ..ANY }, &bodies[3], NOW);
    assert_eq!(counted(&ledger), [1, 1, 1, 2, 2]);
    assert_eq!(ledger.remainder(true), Remainder { lost: 1, ..Remainder::default() });
}

#[test]
fn order_is_checked_per_receiver() {
    let ledger = ledger();
    let bodies: Vec<_> = (0..3).map(|_| send(&ledger, 1, ANYONE)).collect();
    ledger.receive(&ReadRequest { receiver: 1, ..ANY }, &bodies[2], NOW);
    ledger.receive(&ReadRequest { receiver: 2, ..ANY }, &bodies[0], NOW);
    ledger.receive(&ReadRequest { receiver: 2, ..ANY }, &bodies[1], NOW);
    assert_eq!(counted(&ledger), [0; 5]);
}

#[test]
fn a_pop_in_doubt_explains_only_messages_that_it_can_have_removed() {
    let ledger = ledger();
    (0..2).for_each(|_| drop(send(&ledger, 1, 3)));
    send(&ledger, 1, ANYONE);
    let remainder = |ledger: &Ledger| (ledger.remainder(true).lost, ledger.remainder(true).taken_in_doubt);
    assert_eq!(remainder(&ledger), (3, 0));
    ledger.record_pop_in_doubt(1, 3);
    assert_eq!(remainder(&ledger), (3, 0), "the pop in doubt was in another queue");
    ledger.record_pop_in_doubt(0, 2);
    assert_eq!(remainder(&ledger), (2, 1), "receiver 2 may have popped a message for anyone");
    ledger.record_pop_in_doubt(0, 3);
    assert_eq!(remainder(&ledger), (1, 2));
    ledger.record_drain_in_doubt(0, 3, 100);
    assert_eq!(remainder(&ledger), (0, 3));
    assert_eq!(ledger.remainder(false).lost, 1, "a drain that was cut short explains nothing");
}

#[test]
fn messages_in_doubt_may_arrive_late_and_are_not_lost() {
    let ledger = ledger();
    let number = ledger.issue(1, 0, ANYONE);
    ledger.record_send_in_doubt(1, 0, number);
    let second = send(&ledger, 1, ANYONE);
    ledger.receive(&ANY, &second, NOW);
    assert_eq!(ledger.remainder(true), Remainder { sends_in_doubt: 1, ..Remainder::default() });
    ledger.receive(&ANY, &body(1, 0, ANYONE, number), NOW);
    assert_eq!((counted(&ledger), ledger.remainder(true)), ([0; 5], Remainder::default()));
    assert_eq!(LedgerCounts::of(&ledger.counts.sends_in_doubt_arrived), 1);
}
