//! Lists of pending invalidations: what is due when, results, heirs and full lists.

use super::*;
use crate::path::late::LateEntry;

fn key(text: &str) -> Invalidation {
    Invalidation::Key(text.as_bytes().into())
}

#[test]
fn a_key_is_pending_until_its_delete_is_answered() {
    let pending = PendingInvalidations::default();
    assert!(pending.is_empty() && !pending.is_pending(b"a"));
    pending.add(b"a", None, Nanos(5));
    assert!(pending.is_pending(b"a") && !pending.is_pending(b"b"));
    assert_eq!(pending.take_due(10, Nanos(5)), [key("a")]);
    assert_eq!(pending.take_due(10, Nanos(6)), [], "the delete is in flight");
    pending.record_result(&key("a"), false, Nanos(7));
    assert!(pending.is_pending(b"a"));
    assert_eq!(pending.take_due(10, Nanos(8)), [], "a delete that failed waits");
    let later = pending.next_due();
    assert_eq!(pending.take_due(10, later), [key("a")]);
    pending.record_result(&key("a"), true, later);
    assert!(pending.is_empty() && pending.next_due() == Nanos::NEVER);
}

#[test]
fn a_key_that_is_added_many_times_is_queued_once() {
    let pending = PendingInvalidations::default();
    (0..1000).for_each(|now| pending.add(b"a", None, Nanos(now)));
    let queued: usize = pending.list.shards.iter().map(|shard| lock(shard).queue.len()).sum();
    assert_eq!((queued, pending.count().load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn no_more_than_the_given_number_is_taken_and_the_rest_stays_due() {
    let pending = PendingInvalidations::default();
    for number in 0..100_u32 {
        pending.add(&number.to_be_bytes(), None, Nanos(u64::from(number)));
    }
    let mut taken: Vec<Invalidation> = Vec::new();
    while pending.next_due() <= Nanos(60) {
        let some = pending.take_due(7, Nanos(60));
        assert!((1..=7).contains(&some.len()));
        taken.extend(some);
    }
    assert_eq!((taken.len(), pending.next_due()), (61, Nanos(61)));
    taken.iter().for_each(|key| pending.record_result(key, true, Nanos(60)));
    assert_eq!(pending.count().load(Ordering::Relaxed), 39);
    assert!(!pending.is_pending(&60_u32.to_be_bytes()) && pending.is_pending(&61_u32.to_be_bytes()));
}

#[test]
fn a_backend_that_fails_deletes_receives_few_until_it_answers_one() {
    let pending = PendingInvalidations::default();
    (0..10_000_u32).for_each(|number| pending.add(&number.to_be_bytes(), None, Nanos(0)));
    let (mut sent, mut now) = (0, Nanos(1));
    while now < Nanos(1) + Duration::from_secs(60) {
        let taken = pending.take_due(256, now);
        sent += taken.len();
        taken.iter().for_each(|key| pending.record_result(key, false, now));
        now = now + Duration::from_millis(10);
    }
    assert!((1000..2000).contains(&sent), "{sent} deletes in a minute");
    let now = pending.next_due();
    let taken = pending.take_due(256, now);
    assert_eq!(taken.len(), RETRIED);
    taken.iter().for_each(|key| pending.record_result(key, true, now));
    assert_eq!(pending.take_due(256, now).len(), 256);
}

#[test]
fn a_key_added_while_its_delete_is_in_flight_is_deleted_again() {
    let pending = PendingInvalidations::default();
    pending.add(b"a", None, Nanos(0));
    pending.take_due(1, Nanos(0));
    pending.add(b"a", None, Nanos(1));
    pending.record_result(&key("a"), true, Nanos(2));
    assert!(pending.is_pending(b"a"));
    assert_eq!(pending.take_due(1, Nanos(3)), [key("a")]);
    pending.record_result(&key("a"), true, Nanos(4));
    assert!(pending.is_empty());
}

#[test]
fn a_key_that_lingers_is_deleted_twice() {
    let pending = PendingInvalidations::default();
    pending.add(b"a", Some(LINGER), Nanos(0));
    pending.take_due(1, Nanos(0));
    pending.record_result(&key("a"), true, Nanos(10));
    assert!(pending.is_pending(b"a"));
    assert_eq!(pending.take_due(1, Nanos(11)), []);
    let later = Nanos(10) + LINGER;
    assert_eq!(pending.take_due(1, later), [key("a")]);
    pending.record_result(&key("a"), true, later);
    assert!(pending.is_empty());
}

#[test]
fn an_heir_gets_what_is_pending_and_what_is_added_later() {
    let [old, other, heir, second] = [(); 4].map(|()| PendingInvalidations::default());
    old.add(b"in flight", None, Nanos(0));
    old.take_due(1, Nanos(0));
    old.add(b"both", None, Nanos(0));
    other.add(b"both", None, Nanos(12));
    old.pass_on_to(&heir, false, Nanos(7));
    other.pass_on_to(&heir, true, Nanos(7));
    assert!(old.is(&old.clone()) && !old.is(&heir));
    assert!(heir.is_pending(b"in flight") && heir.is_pending(b"both"));
    let first = heir.take_due(10, Nanos(7));
    assert!(first.len() == 2 && first.contains(&key("both")), "{first:?}");
    first.iter().for_each(|key| heir.record_result(key, true, Nanos(7)));
    assert_eq!(heir.take_due(10, Nanos(11)), [], "the other list's delete comes 5 ns after the first");
    assert_eq!(heir.take_due(10, Nanos(12)), [key("both")]);
    // The result of the old delete changes nothing here.
    old.record_result(&key("in flight"), true, Nanos(12));
    heir.record_result(&key("both"), true, Nanos(12));
    assert!(heir.is_empty() && !old.is_empty());
    heir.pass_on_to(&second, false, Nanos(13));
    old.add(b"late", None, Nanos(14));
    assert!(heir.is_pending(b"late") && second.is_pending(b"late") && !second.is_pending(b"any"));
    other.add_everything(None, Nanos(15));
    assert!(second.is_pending(b"any") && !old.is_pending(b"any"));
}

#[test]
fn a_successor_shares_the_list_and_adds_nothing_to_the_heirs_of_the_old_handle() {
    let (old, unknown) = (PendingInvalidations::default(), PendingInvalidations::default());
    let new = old.successor(Arc::default());
    [&new, &unknown].iter().for_each(|heir| old.pass_on_to(heir, false, Nanos(0)));
    new.add(b"new", None, Nanos(1));
    assert!(old.is(&new) && old.is_pending(b"new") && !unknown.is_pending(b"new"));
    old.add(b"old", None, Nanos(2));
    assert!(new.is_pending(b"old") && unknown.is_pending(b"old"));
    // The next reload: what the oldest configuration still adds reaches its heirs, too.
    let (newest, unknown) = (new.successor(Arc::default()), PendingInvalidations::default());
    [&newest, &unknown].iter().for_each(|heir| new.pass_on_to(heir, false, Nanos(3)));
    old.add(b"oldest", None, Nanos(4));
    newest.add(b"newest", None, Nanos(4));
    assert!(unknown.is_pending(b"new") && unknown.is_pending(b"oldest") && !unknown.is_pending(b"newest"));
}

#[test]
fn a_full_list_is_not_withheld_for_as_long_as_its_keys_were_pending() {
    let (pending, outage) = (PendingInvalidations::default(), Duration::from_secs(600));
    let step = outage / KEYS_MAX as u32;
    let filled = (0..=2 * KEYS_MAX as u32 + 1).fold(Nanos(1), |now, number| {
        pending.add(&number.to_be_bytes(), None, now);
        now + step
    });
    for now in [filled, filled + LINGER] {
        assert_eq!(pending.take_due(10, now), [Invalidation::Everything]);
        assert!(pending.is_pending(b"any"));
        pending.record_result(&Invalidation::Everything, true, now);
    }
    assert!(!pending.is_pending(b"any"));
}

#[test]
fn a_full_list_invalidates_everything() {
    let pending = PendingInvalidations::default();
    for number in 0..=KEYS_MAX {
        pending.add(&number.to_be_bytes(), None, Nanos(0));
    }
    assert_eq!(pending.count().load(Ordering::Relaxed), 1);
    assert!(pending.is_pending(b"any"));
    assert_eq!(pending.take_due(10, Nanos(0)), [Invalidation::Everything]);
    pending.record_result(&Invalidation::Everything, true, Nanos(1));
    assert!(pending.is_pending(b"any"), "a request in flight may still be applied");
    let later = Nanos(1) + LINGER;
    assert_eq!(pending.take_due(10, later), [Invalidation::Everything]);
    pending.add(b"new", None, later);
    pending.record_result(&Invalidation::Everything, true, later);
    assert!(!pending.is_pending(b"any") && pending.is_pending(b"new"));
    assert_eq!(pending.take_due(10, later), [key("new")]);
}

#[test]
fn a_full_list_waits_for_the_late_requests_of_its_keys_also_in_another_configuration() {
    let [pending, heir] = [(); 2].map(|()| PendingInvalidations::default());
    let late = LateEntry::new();
    pending.add_late(b"late", &late.request(), Nanos(0));
    pending.add(b"long", Some(LINGER * 5), Nanos(0));
    (0..KEYS_MAX - 1).for_each(|number| pending.add(&number.to_be_bytes(), None, Nanos(0)));
    pending.pass_on_to(&heir, false, Nanos(0));
    for list in [&pending, &heir] {
        assert_eq!(list.take_due(10, Nanos(0)), [], "the server may still apply a write");
    }
    late.answered();
    for list in [&pending, &heir] {
        let now = list.next_due();
        assert_eq!(list.take_due(10, now), [Invalidation::Everything]);
        list.record_result(&Invalidation::Everything, true, now);
        assert!(list.next_due() >= now + LINGER * 5 && list.is_pending(b"late"));
    }
    let newest = PendingInvalidations::default();
    pending.pass_on_to(&newest, false, Nanos(1));
    assert_eq!(newest.next_due(), pending.next_due(), "a reload does not bring the second one forward");
}

#[test]
fn lists_that_overflow_together_are_not_withheld_for_as_long_as_their_keys_were_pending() {
    let outage = Duration::from_secs(600);
    let now = Nanos(1) + outage;
    let fill = |list: &PendingInvalidations, name: u8, due: Nanos| {
        (0..KEYS_MAX as u32 * 3 / 5)
            .for_each(|number| list.add(&[&[name][..], &number.to_be_bytes()].concat(), None, due));
    };
    let [first, second, heir] = [(); 3].map(|()| PendingInvalidations::default());
    // Keys of the end of the outage come first, so that an old one is too much.
    fill(&first, 1, now);
    fill(&second, 2, Nanos(1));
    [first, second].iter().for_each(|list| list.pass_on_to(&heir, false, now));
    for now in [now, now + LINGER] {
        assert_eq!(heir.take_due(10, now), [Invalidation::Everything]);
        assert!(heir.is_pending(b"any"));
        heir.record_result(&Invalidation::Everything, true, now);
    }
    assert!(!heir.is_pending(b"any"));
}

#[test]
fn the_result_of_a_delete_that_the_full_list_has_replaced_is_not_that_of_a_later_one() {
    let pending = PendingInvalidations::default();
    pending.add(b"a", None, Nanos(0));
    assert_eq!(pending.take_due(1, Nanos(0)), [key("a")]);
    (0..KEYS_MAX).for_each(|number| pending.add(&number.to_be_bytes(), None, Nanos(1)));
    pending.add(b"a", None, Nanos(2));
    for now in [Nanos(2), Nanos(2) + LINGER] {
        assert_eq!(pending.take_due(1, now), [Invalidation::Everything]);
        pending.record_result(&Invalidation::Everything, true, now);
    }
    let now = Nanos(2) + LINGER;
    pending.record_result(&key("a"), true, now);
    assert!(pending.is_pending(b"a"), "its own delete has not been sent");
    assert_eq!(pending.take_due(1, now), [key("a")]);
    pending.record_result(&key("a"), true, now);
    assert!(pending.is_empty());
}
