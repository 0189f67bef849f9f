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
use std::collections::{BinaryHeap, HashMap, HashSet};
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
    /// Who else receives what is added with this handle: those of this backend, and those of all backends of its configuration.
    heirs: Arc<Heirs>,
    heirs_of_all: Arc<Heirs>,
}

/// Handles of the configuration that replaces this one.
#[derive(Debug, Default)]
pub(crate) struct Heirs {
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
    /// An empty list for a backend of the configuration with these heirs.
    pub(crate) fn new(heirs_of_all: Arc<Heirs>) -> PendingInvalidations {
        PendingInvalidations { heirs_of_all, ..PendingInvalidations::default() }
    }

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
        self.each_list(|list| list.add(key, PendingInvalidation::new(now, linger), now, |known| known.renew(linger)));
    }

    /// Adds a key that a late request may still change. Its delete is sent when the fate of that request is known.
    pub(crate) fn add_late(&self, key: &[u8], late: &LateRequest, now: Nanos) {
        let mut pending = PendingInvalidation::new(now, None);
        pending.follow(late);
        self.each_list(|list| {
            list.add(key, pending.clone(), now, |known| {
                known.renew(None);
                known.follow(late);
            });
        });
    }

    /// Adds an invalidation of all keys, which is sent as `flush_all`.
    pub(crate) fn add_everything(&self, linger: Option<Duration>, now: Nanos) {
        self.each_list(|list| {
            list.add_everything(PendingInvalidation::new(now, linger), |known| known.renew(linger));
        });
    }

    /// Records that the backend may store values of a pool that has failed over to it, until they expire.
    pub(crate) fn hold_failover_values(&self, until: Nanos) {
        self.each_list(|list| _ = list.failover_until.fetch_max(until.0, Ordering::AcqRel));
    }

    /// Whether the backend may still store a value of a pool that has failed over to it.
    pub(crate) fn may_hold_failover_values(&self, now: Nanos) -> bool {
        self.list.failover_until.load(Ordering::Acquire) > now.0
    }

    /// A handle to the same list for the configuration that replaces this one, which has these heirs. What is added with it
    /// does not reach the heirs of this handle, because its backends are among those that the new configuration knows.
    pub(crate) fn successor(&self, heirs_of_all: Arc<Heirs>) -> PendingInvalidations {
        PendingInvalidations { list: self.list.clone(), heirs: Arc::default(), heirs_of_all }
    }

    /// Acts on this list, and on those of all heirs and of their heirs. Each of them is reached once, however many ways lead
    /// to it after several reloads.
    fn each_list(&self, mut act: impl FnMut(&List)) {
        act(&self.list);
        if !self.heirs.are_there() && !self.heirs_of_all.are_there() {
            return;
        }
        let mut groups = vec![self.heirs.clone(), self.heirs_of_all.clone()];
        let mut known_groups: HashSet<_> = groups.iter().map(Arc::as_ptr).collect();
        let mut known_lists = HashSet::from([Arc::as_ptr(&self.list)]);
        while let Some(group) = groups.pop() {
            for heir in lock(&group.handles).iter() {
                if known_lists.insert(Arc::as_ptr(&heir.list)) {
                    act(&heir.list);
                }
                for next in [&heir.heirs, &heir.heirs_of_all] {
                    if known_groups.insert(Arc::as_ptr(next)) {
                        groups.push(next.clone());
                    }
                }
            }
        }
    }

    /// Adds everything that is pending here to a list of the configuration that replaces this one, and from now on everything
    /// that is added with this handle: the event loops of this configuration finish their requests, and a write of theirs can
    /// still fail. If the heir inherits from all backends, `is_of_all`, it is kept once for all of them.
    pub(crate) fn pass_on_to(&self, heir: &PendingInvalidations, is_of_all: bool, now: Nanos) {
        // What is added from now on reaches the heir by itself. What was added before is passed on below.
        let heirs = if is_of_all { &self.heirs_of_all } else { &self.heirs };
        heirs.push(heir);
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
                heir.list.add(key, passed_on.clone(), now, |known| known.merge(&passed_on, now));
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
    fn push(&self, heir: &PendingInvalidations) {
        let mut handles = lock(&self.handles);
        if !handles.iter().any(|known| known.is(heir)) {
            handles.push(heir.clone());
        }
        self.are_there.store(true, Ordering::SeqCst);
    }

    fn are_there(&self) -> bool {
        self.are_there.load(Ordering::SeqCst)
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
    fn add(&self, key: &[u8], pending: PendingInvalidation, now: Nanos, change: impl FnOnce(&mut PendingInvalidation)) {
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
            return self.replace_all(&pending, now);
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
    fn replace_all(&self, last: &PendingInvalidation, now: Nanos) {
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
        // If the list was full meanwhile, the key may have been added again, and this is not the result of its delete.
        let Some(pending) = shard.keys.get_mut(key).filter(|pending| !pending.is_queued()) else { return };
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
mod tests;
