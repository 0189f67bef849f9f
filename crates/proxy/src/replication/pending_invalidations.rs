//! Pending invalidations of one backend: keys that must be deleted there before the proxy reads them there again, because a
//! write that other replicas applied has failed on this backend.
//!
//! All event loops share the list. Looking up a key takes one hash and one atomic load, unless the key is pending.
//!
//! One answered delete is not always enough. The server may still have a request of a closed connection in its receive buffer
//! and apply it later, or an earlier write may still be in flight on another connection. Such a key is deleted a second time,
//! `linger` after the first delete.

mod filter;
mod pending;

use crate::path::job::Invalidation;
use crate::path::late::LateRequest;
use crate::replication::pending_invalidations::filter::Filter;
pub(crate) use crate::replication::pending_invalidations::pending::LINGER;
use crate::replication::pending_invalidations::pending::{PendingInvalidation, retry_pause};
use clock::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most keys in the list of one backend. One more replaces them all by a `flush_all`.
const KEYS_MAX: usize = 100_000;
/// The most deletes that are sent at once to a backend that has failed the last one.
const RETRIED: usize = 16;
/// The keys are divided among this many maps, each with a lock of its own.
const SHARDS: usize = 16;

/// The invalidations pending on one backend, as one configuration of the proxy knows it. A clone is the same handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingInvalidations {
    /// Handles of several configurations can share one list, if the server is the same.
    list: Arc<List>,
    heirs: Arc<Heirs>,
}

/// The handles of the configuration that replaces this one. They receive every key that is added with this handle.
#[derive(Debug, Default)]
struct Heirs {
    are_there: AtomicBool,
    handles: Mutex<Vec<PendingInvalidations>>,
}

#[derive(Debug)]
struct List {
    /// The number of keys, and one more if everything must be deleted. It is almost always zero.
    count: Arc<AtomicUsize>,
    filter: Filter,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// Whether every key must be deleted.
    is_everything: AtomicBool,
    /// Set when every key must be deleted: the list was full, or a `flush_all` has failed.
    everything: Mutex<Option<PendingInvalidation>>,
    /// No delete is due before this time, in nanoseconds.
    next_due: AtomicU64,
    /// An event loop takes the deletes that are due. The others need not.
    is_taking: AtomicBool,
    /// How often deletes have failed since one was answered, and the time before which no other is sent.
    failures: AtomicU32,
    retry_at: AtomicU64,
    /// Until this time, in nanoseconds, the backend may store values of pools that fail over to it.
    failover_until: AtomicU64,
}

/// Some of the keys.
#[derive(Debug, Default)]
struct Shard {
    keys: HashMap<Arc<[u8]>, PendingInvalidation>,
    /// The keys by the time when their deletes are due. An entry whose time is not that of its key is out of date.
    queue: BinaryHeap<Reverse<(Nanos, Arc<[u8]>)>>,
}

impl Default for List {
    fn default() -> List {
        List {
            count: Arc::default(),
            filter: Filter::default(),
            hasher: RandomState::new(),
            shards: Default::default(),
            is_everything: AtomicBool::new(false),
            everything: Mutex::default(),
            next_due: AtomicU64::new(Nanos::NEVER.0),
            is_taking: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            retry_at: AtomicU64::new(0),
            failover_until: AtomicU64::new(0),
        }
    }
}

impl PendingInvalidations {
    /// Whether no invalidation is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.count.load(Ordering::Acquire) == 0
    }

    /// The number of keys in the list, for metrics. An invalidation of everything counts as one.
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        self.list.count.clone()
    }

    /// Whether an invalidation of this key is pending, so that its value must not be read.
    pub(crate) fn is_pending(&self, key: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let hash = self.list.hash(key);
        let may_be = self.list.filter.may_contain(hash);
        self.list.is_everything.load(Ordering::Acquire) || (may_be && self.list.shard(hash).keys.contains_key(key))
    }

    /// Adds a key. With `linger`, the key is deleted a second time that long after the first delete.
    pub(crate) fn add(&self, key: &[u8], linger: Option<Duration>, now: Nanos) {
        self.list.add(key, PendingInvalidation::new(now, linger), |known| known.renew(linger));
        self.heirs.each(|heir| heir.add(key, linger, now));
    }

    /// Adds a key that a late request may still change. Its delete is sent when the fate of that request is known.
    pub(crate) fn add_late(&self, key: &[u8], late: &LateRequest, now: Nanos) {
        let mut pending = PendingInvalidation::new(now, None);
        pending.follow(late);
        self.list.add(key, pending, |known| {
            known.renew(None);
            known.follow(late);
        });
        self.heirs.each(|heir| heir.add_late(key, late, now));
    }

    /// Adds an invalidation of all keys, which is sent as `flush_all`.
    pub(crate) fn add_everything(&self, linger: Option<Duration>, now: Nanos) {
        self.list.add_everything(PendingInvalidation::new(now, linger), |known| known.renew(linger));
        self.heirs.each(|heir| heir.add_everything(linger, now));
    }

    /// Records that the backend may store values of a pool that has failed over to it, until they expire.
    pub(crate) fn hold_failover_values(&self, until: Nanos) {
        self.list.failover_until.fetch_max(until.0, Ordering::AcqRel);
        self.heirs.each(|heir| heir.hold_failover_values(until));
    }

    /// Whether the backend may still store a value of a pool that has failed over to it.
    pub(crate) fn may_hold_failover_values(&self, now: Nanos) -> bool {
        self.list.failover_until.load(Ordering::Acquire) > now.0
    }

    /// A handle to the same list for the configuration that replaces this one. What is added with it does not reach the heirs
    /// of this handle, because its backends are among those that the new configuration knows.
    pub(crate) fn successor(&self) -> PendingInvalidations {
        PendingInvalidations { list: self.list.clone(), heirs: Arc::default() }
    }

    /// Adds everything that is pending here to a list of the configuration that replaces this one, and from now on everything
    /// that is added with this handle: the event loops of this configuration finish their requests, and a write of theirs can
    /// still fail.
    pub(crate) fn pass_on_to(&self, heir: &PendingInvalidations, now: Nanos) {
        // What is added from now on reaches the heir by itself. What was added before is passed on below.
        self.heirs.push(heir.clone());
        if self.is(heir) {
            return;
        }
        let everything = lock(&self.list.everything).clone();
        if let Some(pending) = everything {
            let passed_on = pending.passed_on(now).lingering();
            heir.list.add_everything(passed_on.clone(), |known| known.merge(&passed_on, now));
        }
        for shard in &self.list.shards {
            let shard = lock(shard);
            for (key, pending) in &shard.keys {
                let passed_on = pending.passed_on(now);
                heir.list.add(key, passed_on.clone(), |known| known.merge(&passed_on, now));
            }
        }
        heir.hold_failover_values(Nanos(self.list.failover_until.load(Ordering::Acquire)));
    }

    /// Whether both are handles to the same list.
    pub(crate) fn is(&self, other: &PendingInvalidations) -> bool {
        Arc::ptr_eq(&self.list, &other.list)
    }

    /// No delete is due before this time.
    pub(crate) fn next_due(&self) -> Nanos {
        Nanos(self.list.next_due.load(Ordering::Acquire).max(self.list.retry_at.load(Ordering::Acquire)))
    }

    /// Takes up to `most` invalidations that are due. The caller must pass each of them to `record_result`. While another event
    /// loop takes some, there are none.
    pub(crate) fn take_due(&self, most: usize, now: Nanos) -> Vec<Invalidation> {
        if self.next_due() > now || self.list.is_taking.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        // Whoever adds an invalidation from here on lowers this time again.
        self.list.next_due.store(Nanos::NEVER.0, Ordering::SeqCst);
        let most = if self.list.failures.load(Ordering::Acquire) > 0 { most.min(RETRIED) } else { most };
        let taken = self.list.take_everything(now).unwrap_or_else(|| self.list.take_keys(most, now));
        self.list.is_taking.store(false, Ordering::Release);
        taken
    }

    /// Records whether the backend has answered a delete. One that failed is sent again later.
    pub(crate) fn record_result(&self, invalidation: &Invalidation, is_answered: bool, now: Nanos) {
        self.list.record_failures(is_answered, now);
        match invalidation {
            Invalidation::Everything => self.list.record_everything(is_answered, now),
            Invalidation::Key(key) => self.list.record_key(key, is_answered, now),
        }
    }
}

impl Heirs {
    fn push(&self, heir: PendingInvalidations) {
        lock(&self.handles).push(heir);
        self.are_there.store(true, Ordering::SeqCst);
    }

    fn each(&self, act: impl FnMut(&PendingInvalidations)) {
        if self.are_there.load(Ordering::SeqCst) {
            lock(&self.handles).iter().for_each(act);
        }
    }
}

impl List {
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The shard of a key with this hash. The filter uses the low bits of the hash, so the shard is chosen by the high ones.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(hash >> 60) as usize % SHARDS])
    }

    /// Adds a key, or updates its pending invalidation.
    fn add(&self, key: &[u8], pending: PendingInvalidation, change: impl FnOnce(&mut PendingInvalidation)) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        if let Some(known) = shard.keys.get_mut(key) {
            let before = known.due;
            change(known);
            let due = Some(known.due).filter(|&due| due != before && known.is_queued());
            return due.into_iter().for_each(|due| self.queue(&mut shard, key.into(), due));
        }
        if self.count.load(Ordering::Acquire) >= KEYS_MAX {
            drop(shard);
            return self.replace_all(&pending);
        }
        let key: Arc<[u8]> = key.into();
        self.queue(&mut shard, key.clone(), pending.due);
        shard.keys.insert(key, pending);
        self.filter.add(hash);
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn queue(&self, shard: &mut Shard, key: Arc<[u8]>, due: Nanos) {
        shard.queue.push(Reverse((due, key)));
        self.next_due.fetch_min(due.0, Ordering::SeqCst);
    }

    /// Adds an invalidation of all keys, or updates the one that is pending.
    fn add_everything(&self, pending: PendingInvalidation, change: impl FnOnce(&mut PendingInvalidation)) {
        let mut everything = lock(&self.everything);
        let due = match &mut *everything {
            Some(known) => {
                change(known);
                known.due
            }
            None => {
                let due = pending.due;
                *everything = Some(pending);
                self.is_everything.store(true, Ordering::Release);
                self.count.fetch_add(1, Ordering::AcqRel);
                due
            }
        };
        self.next_due.fetch_min(due.0, Ordering::SeqCst);
    }

    /// Replaces all keys by an invalidation of everything, which lingers as long as any of them and follows the same late requests.
    fn replace_all(&self, last: &PendingInvalidation) {
        let now = last.due;
        let mut all = last.passed_on(now).lingering();
        self.add_everything(all.clone(), |known| known.renew(Some(LINGER)));
        for shard in &self.shards {
            let mut shard = lock(shard);
            for (key, pending) in &shard.keys {
                self.filter.remove(self.hash(key));
                all.merge(&pending.passed_on(now), now);
            }
            self.count.fetch_sub(shard.keys.len(), Ordering::AcqRel);
            *shard = Shard::default();
        }
        self.add_everything(all.clone(), |known| known.merge(&all, now));
    }

    /// If everything must be deleted: the `flush_all`, if it is due. No keys are taken meanwhile.
    fn take_everything(&self, now: Nanos) -> Option<Vec<Invalidation>> {
        let mut everything = lock(&self.everything);
        let pending = everything.as_mut()?;
        let is_due = pending.due <= now && pending.is_queued() && pending.is_settled(now) && pending.take_if_due(now);
        if pending.is_queued() {
            self.next_due.fetch_min(pending.due.0, Ordering::SeqCst);
        }
        Some(if is_due { vec![Invalidation::Everything] } else { Vec::new() })
    }

    fn take_keys(&self, most: usize, now: Nanos) -> Vec<Invalidation> {
        let (mut taken, mut looked_at) = (Vec::new(), 0);
        for shard in &self.shards {
            let mut shard = lock(shard);
            while let Some(Reverse((due, key))) = shard.queue.peek() {
                if *due > now || looked_at == most {
                    self.next_due.fetch_min(due.0, Ordering::SeqCst);
                    break;
                }
                let (due, key) = (*due, key.clone());
                shard.queue.pop();
                let Some(pending) = shard.keys.get_mut(&key).filter(|pending| pending.due == due) else { continue };
                looked_at += 1;
                if pending.is_queued() && !pending.is_settled(now) {
                    let due = pending.due;
                    self.queue(&mut shard, key, due);
                } else if pending.take_if_due(now) {
                    taken.push(Invalidation::Key(key));
                }
            }
        }
        taken
    }

    /// A backend that fails deletes receives fewer and fewer of them, until it answers one.
    fn record_failures(&self, is_answered: bool, now: Nanos) {
        if is_answered {
            self.failures.store(0, Ordering::Release);
            self.retry_at.store(0, Ordering::Release);
        } else if now.0 >= self.retry_at.load(Ordering::Acquire) {
            // Deletes that fail together count once.
            let failures = self.failures.fetch_add(1, Ordering::AcqRel);
            self.retry_at.fetch_max((now + retry_pause(failures)).0, Ordering::AcqRel);
        }
    }

    fn record_everything(&self, is_answered: bool, now: Nanos) {
        let mut everything = lock(&self.everything);
        let Some(pending) = &mut *everything else { return };
        if pending.record_result(is_answered, now) {
            *everything = None;
            self.is_everything.store(false, Ordering::Release);
            self.count.fetch_sub(1, Ordering::AcqRel);
            // Keys were not taken meanwhile.
            self.next_due.fetch_min(now.0, Ordering::SeqCst);
        } else {
            self.next_due.fetch_min(pending.due.0, Ordering::SeqCst);
        }
    }

    fn record_key(&self, key: &Arc<[u8]>, is_answered: bool, now: Nanos) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let Some(pending) = shard.keys.get_mut(key) else { return };
        if pending.record_result(is_answered, now) {
            shard.keys.remove(key);
            self.filter.remove(hash);
            self.count.fetch_sub(1, Ordering::AcqRel);
        } else {
            let due = pending.due;
            self.queue(&mut shard, key.clone(), due);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
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
        old.pass_on_to(&heir, Nanos(7));
        other.pass_on_to(&heir, Nanos(7));
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
        heir.pass_on_to(&second, Nanos(13));
        old.add(b"late", None, Nanos(14));
        assert!(heir.is_pending(b"late") && second.is_pending(b"late") && !second.is_pending(b"any"));
        other.add_everything(None, Nanos(15));
        assert!(second.is_pending(b"any") && !old.is_pending(b"any"));
    }

    #[test]
    fn a_successor_shares_the_list_and_adds_nothing_to_the_heirs_of_the_old_handle() {
        let (old, unknown) = (PendingInvalidations::default(), PendingInvalidations::default());
        let new = old.successor();
        [&new, &unknown].iter().for_each(|heir| old.pass_on_to(heir, Nanos(0)));
        new.add(b"new", None, Nanos(1));
        assert!(old.is(&new) && old.is_pending(b"new") && !unknown.is_pending(b"new"));
        old.add(b"old", None, Nanos(2));
        assert!(new.is_pending(b"old") && unknown.is_pending(b"old"));
        // The next reload: what the oldest configuration still adds reaches its heirs, too.
        let (newest, unknown) = (new.successor(), PendingInvalidations::default());
        [&newest, &unknown].iter().for_each(|heir| new.pass_on_to(heir, Nanos(3)));
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
        pending.pass_on_to(&heir, Nanos(0));
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
        pending.pass_on_to(&newest, Nanos(1));
        assert_eq!(newest.next_due(), pending.next_due(), "a reload does not bring the second one forward");
    }
}
