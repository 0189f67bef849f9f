//! Pending invalidations of one backend: keys that must be deleted there before the proxy reads them there again, because a
//! write that other replicas applied has failed on this backend.
//!
//! All event loops share the list. Its mutex is locked only while the list is not empty.
//!
//! One answered delete is not always enough. The server may still have a request of a closed connection in its receive buffer
//! and apply it later, or an earlier write may still be in flight on another connection. Such a key is deleted a second time,
//! `linger` after the first delete.

use crate::path::job::Invalidation;
use clock::Nanos;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most keys in the list of one backend. One more replaces them all by a `flush_all`.
const KEYS_MAX: usize = 100_000;
/// How long a server may still apply a request after its connection was closed.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// The invalidations pending on one backend. A clone is a handle to the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingInvalidations {
    /// The length of the list. It is almost always zero, and then the list is not locked.
    count: Arc<AtomicUsize>,
    /// Until this time, in nanoseconds, the backend may store values of pools that fail over to it.
    failover_until: Arc<AtomicU64>,
    list: Arc<Mutex<List>>,
}

#[derive(Debug, Default)]
struct List {
    keys: HashMap<Box<[u8]>, Pending>,
    /// Set when every key must be deleted: the list was full, or a `flush_all` has failed.
    everything: Option<Pending>,
    /// Lists of the configuration that replaces this one. They receive every key that is added here.
    heirs: Vec<PendingInvalidations>,
}

/// One pending invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    /// The earliest time to send the delete.
    due: Nanos,
    /// A delete has been sent and is not answered yet.
    is_in_flight: bool,
    /// The key was added again while a delete was in flight.
    is_renewed: bool,
    /// If set, a second delete is sent this long after the first one was answered.
    linger: Option<Duration>,
}

impl Pending {
    fn new(now: Nanos, linger: Option<Duration>) -> Pending {
        Pending { due: now, is_in_flight: false, is_renewed: false, linger }
    }

    /// Adds the same key again.
    fn renew(&mut self, linger: Option<Duration>) {
        self.is_renewed |= self.is_in_flight;
        self.linger = self.linger.max(linger);
    }

    /// Records the result of a delete. Returns true when the invalidation is complete.
    fn record_result(&mut self, is_answered: bool, now: Nanos) -> bool {
        self.is_in_flight = false;
        if !is_answered || self.is_renewed {
            self.is_renewed = false;
            return false;
        }
        let linger = self.linger.take();
        self.due = now + linger.unwrap_or_default();
        linger.is_none()
    }

    /// The same invalidation in the list of another configuration, whose connections send their own delete.
    fn passed_on(&self, now: Nanos) -> Pending {
        let due = if self.is_in_flight { now } else { self.due };
        Pending { due, is_in_flight: false, is_renewed: false, linger: self.linger }
    }

    /// Makes one invalidation of two of the same key. The last delete is sent no earlier than either would have sent it.
    fn merge(&mut self, other: Pending) {
        let (first, last) = (self.due.min(other.due), self.due.max(other.due));
        let between = Some(last.after(first)).filter(|between| !between.is_zero());
        self.linger = self.linger.max(other.linger).max(between);
        self.due = first;
    }

    /// Returns true, and marks the delete as in flight, if it can be sent now.
    fn take_if_due(&mut self, now: Nanos) -> bool {
        let is_due = !self.is_in_flight && self.due <= now;
        self.is_in_flight |= is_due;
        is_due
    }
}

impl PendingInvalidations {
    /// Whether no invalidation is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The number of keys in the list, for metrics. An invalidation of everything counts as one.
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        self.count.clone()
    }

    /// Whether an invalidation of this key is pending, so that its value must not be read.
    pub(crate) fn is_pending(&self, key: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let list = self.lock();
        list.everything.is_some() || list.keys.contains_key(key)
    }

    /// Adds a key. With `linger`, the key is deleted a second time that long after the first delete.
    pub(crate) fn add(&self, key: &[u8], linger: Option<Duration>, now: Nanos) {
        let mut list = self.lock();
        if let Some(pending) = list.keys.get_mut(key) {
            pending.renew(linger);
        } else {
            list.insert(key, Pending::new(now, linger), now);
        }
        list.heirs.iter().for_each(|heir| heir.add(key, linger, now));
        self.publish(&list);
    }

    /// Adds an invalidation of all keys, which is sent as `flush_all`.
    pub(crate) fn add_everything(&self, linger: Option<Duration>, now: Nanos) {
        let mut list = self.lock();
        list.add_everything(linger, now);
        list.heirs.iter().for_each(|heir| heir.add_everything(linger, now));
        self.publish(&list);
    }

    /// Records that the backend may store values of a pool that has failed over to it, until they expire.
    pub(crate) fn hold_failover_values(&self, until: Nanos) {
        self.failover_until.fetch_max(until.0, Ordering::AcqRel);
        self.lock().heirs.iter().for_each(|heir| heir.hold_failover_values(until));
    }

    /// Whether the backend may still store a value of a pool that has failed over to it.
    pub(crate) fn may_hold_failover_values(&self, now: Nanos) -> bool {
        self.failover_until.load(Ordering::Acquire) > now.0
    }

    /// Adds everything that is pending here to a list of the configuration that replaces this one, and from now on everything
    /// that is added here: the event loops of this configuration finish their requests, and a write of theirs can still fail.
    pub(crate) fn pass_on_to(&self, heir: &PendingInvalidations, now: Nanos) {
        let mut list = self.lock();
        let mut inherited = heir.lock();
        if let Some(pending) = &list.everything {
            inherited.add_everything(pending.linger.max(Some(LINGER)), now);
        }
        for (key, pending) in &list.keys {
            let passed_on = pending.passed_on(now);
            match inherited.keys.get_mut(key) {
                Some(pending) => pending.merge(passed_on),
                None => inherited.insert(key, passed_on, now),
            }
        }
        heir.publish(&inherited);
        drop(inherited);
        list.heirs.push(heir.clone());
        heir.hold_failover_values(Nanos(self.failover_until.load(Ordering::Acquire)));
    }

    /// Whether this is a handle to the same list.
    pub(crate) fn is(&self, other: &PendingInvalidations) -> bool {
        Arc::ptr_eq(&self.list, &other.list)
    }

    /// Takes up to `most` invalidations that are due. The caller must pass each of them to `record_result`.
    pub(crate) fn take_due(&self, most: usize, now: Nanos) -> Vec<Invalidation> {
        let mut list = self.lock();
        if let Some(pending) = &mut list.everything {
            return if pending.take_if_due(now) { vec![Invalidation::Everything] } else { Vec::new() };
        }
        let due = list
            .keys
            .iter_mut()
            .filter_map(|(key, pending)| pending.take_if_due(now).then(|| Invalidation::Key(key.clone())));
        due.take(most).collect()
    }

    /// Records whether the backend has answered a delete. One that failed becomes due again at once.
    pub(crate) fn record_result(&self, invalidation: &Invalidation, is_answered: bool, now: Nanos) {
        let mut list = self.lock();
        match invalidation {
            Invalidation::Everything => {
                if list.everything.as_mut().is_some_and(|pending| pending.record_result(is_answered, now)) {
                    list.everything = None;
                }
            }
            Invalidation::Key(key) => {
                if list.keys.get_mut(key).is_some_and(|pending| pending.record_result(is_answered, now)) {
                    list.keys.remove(key);
                }
            }
        }
        self.publish(&list);
    }

    fn publish(&self, list: &List) {
        self.count.store(list.keys.len() + usize::from(list.everything.is_some()), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// Adds a key that is not in the list.
    fn insert(&mut self, key: &[u8], pending: Pending, now: Nanos) {
        if self.keys.len() < KEYS_MAX {
            self.keys.insert(key.into(), pending);
        } else {
            self.keys.clear();
            self.add_everything(Some(LINGER), now);
        }
    }

    fn add_everything(&mut self, linger: Option<Duration>, now: Nanos) {
        match &mut self.everything {
            Some(pending) => pending.renew(linger),
            None => self.everything = Some(Pending::new(now, linger)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(pending.take_due(10, Nanos(8)), [key("a")]);
        pending.record_result(&key("a"), true, Nanos(9));
        assert!(pending.is_empty());
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
        other.add(b"both", None, Nanos(5));
        old.pass_on_to(&heir, Nanos(7));
        other.pass_on_to(&heir, Nanos(7));
        assert!(old.is(&old.clone()) && !old.is(&heir));
        assert!(heir.is_pending(b"in flight") && heir.is_pending(b"both"));
        assert_eq!(heir.take_due(10, Nanos(4)), [key("both")]);
        heir.record_result(&key("both"), true, Nanos(4));
        assert_eq!(
            heir.take_due(10, Nanos(8)),
            [key("in flight")],
            "the other list's delete comes 5 ns after the first"
        );
        assert_eq!(heir.take_due(10, Nanos(9)), [key("both")]);
        // The result of the old delete changes nothing here.
        old.record_result(&key("in flight"), true, Nanos(9));
        assert!(heir.is_pending(b"in flight"));
        heir.pass_on_to(&second, Nanos(10));
        old.add(b"late", None, Nanos(11));
        assert!(heir.is_pending(b"late") && second.is_pending(b"late") && !second.is_pending(b"any"));
        other.add_everything(None, Nanos(12));
        assert!(second.is_pending(b"any") && !old.is_pending(b"any"));
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
    }
}
