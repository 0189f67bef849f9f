//! What a backend owes: keys that must be deleted on it before it may be asked for them again, because a write that others
//! have taken did not reach it. Shared by all loops; looked into only while something is owed.
//!
//! A delete that was answered is not always the end of it. A request whose connection was given up may still lie in the
//! server's buffers and be carried out late, and an earlier one may still be on its way on another connection than the delete's;
//! such a key is deleted a second time, a while after the first.

use clock::Nanos;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Keys that one backend may owe; beyond, it owes everything.
const KEYS_MAX: usize = 100_000;
/// How long a request may linger on a connection that was given up.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// What one backend owes.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    /// How many debts there are; zero nearly always, and then nobody looks further.
    count: AtomicUsize,
    owed: Mutex<Owed>,
}

#[derive(Debug, Default)]
struct Owed {
    keys: HashMap<Box<[u8]>, Debt>,
    /// Every key: there were too many, or a `flush_all` is missing.
    everything: Option<Debt>,
}

/// One debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debt {
    /// Not to be paid before.
    due: Nanos,
    /// A delete is on its way.
    is_being_paid: bool,
    /// It has become owed again meanwhile.
    is_owed_again: bool,
    /// So long after this payment a second one is due, if at all.
    linger: Option<Duration>,
}

/// What is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payment {
    Key(Box<[u8]>),
    Everything,
}

impl Debt {
    fn new(now: Nanos, linger: Option<Duration>) -> Debt {
        Debt { due: now, is_being_paid: false, is_owed_again: false, linger }
    }

    /// Owed once more.
    fn renew(&mut self, linger: Option<Duration>) {
        self.is_owed_again |= self.is_being_paid;
        self.linger = self.linger.max(linger);
    }

    /// A payment has come to its end; true when nothing is owed any more.
    fn settle(&mut self, is_paid: bool, now: Nanos) -> bool {
        self.is_being_paid = false;
        if !is_paid || self.is_owed_again {
            self.is_owed_again = false;
            return false;
        }
        let linger = self.linger.take();
        self.due = now + linger.unwrap_or_default();
        linger.is_none()
    }

    fn take(&mut self, now: Nanos) -> bool {
        let is_taken = !self.is_being_paid && self.due <= now;
        self.is_being_paid |= is_taken;
        is_taken
    }
}

impl Debts {
    /// Whether nothing is owed.
    pub(crate) fn are_clear(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// How many keys are owed; everything counts as one.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the value of this key must not be read.
    pub(crate) fn owes(&self, key: &[u8]) -> bool {
        if self.are_clear() {
            return false;
        }
        let owed = self.lock();
        owed.everything.is_some() || owed.keys.contains_key(key)
    }

    /// Owes the deletion of a key from now on; with `linger`, a second time so long after the first one.
    pub(crate) fn owe(&self, key: &[u8], linger: Option<Duration>, now: Nanos) {
        let mut owed = self.lock();
        let is_full = owed.keys.len() >= KEYS_MAX;
        if let Some(debt) = owed.keys.get_mut(key) {
            debt.renew(linger);
        } else if is_full {
            owed.keys.clear();
            owed.owe_everything(Some(LINGER), now);
        } else {
            owed.keys.insert(key.into(), Debt::new(now, linger));
        }
        self.publish(&owed);
    }

    /// Owes the deletion of everything from now on.
    pub(crate) fn owe_everything(&self, linger: Option<Duration>, now: Nanos) {
        let mut owed = self.lock();
        owed.owe_everything(linger, now);
        self.publish(&owed);
    }

    /// Takes up to so many payments that are due; each must be settled.
    pub(crate) fn take(&self, most: usize, now: Nanos) -> Vec<Payment> {
        let mut owed = self.lock();
        if let Some(debt) = &mut owed.everything {
            return if debt.take(now) { vec![Payment::Everything] } else { Vec::new() };
        }
        let due = owed.keys.iter_mut().filter_map(|(key, debt)| debt.take(now).then(|| Payment::Key(key.clone())));
        due.take(most).collect()
    }

    /// Notes what became of a payment.
    pub(crate) fn settle(&self, payment: &Payment, is_paid: bool, now: Nanos) {
        let mut owed = self.lock();
        match payment {
            Payment::Everything => {
                if owed.everything.as_mut().is_some_and(|debt| debt.settle(is_paid, now)) {
                    owed.everything = None;
                }
            }
            Payment::Key(key) => {
                if owed.keys.get_mut(key).is_some_and(|debt| debt.settle(is_paid, now)) {
                    owed.keys.remove(key);
                }
            }
        }
        self.publish(&owed);
    }

    fn publish(&self, owed: &Owed) {
        self.count.store(owed.keys.len() + usize::from(owed.everything.is_some()), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    fn owe_everything(&mut self, linger: Option<Duration>, now: Nanos) {
        match &mut self.everything {
            Some(debt) => debt.renew(linger),
            None => self.everything = Some(Debt::new(now, linger)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Payment {
        Payment::Key(text.as_bytes().into())
    }

    #[test]
    fn a_key_is_owed_until_its_deletion_is_answered() {
        let debts = Debts::default();
        assert!(debts.are_clear() && !debts.owes(b"a"));
        debts.owe(b"a", None, Nanos(5));
        assert!(debts.owes(b"a") && !debts.owes(b"b"));
        assert_eq!(debts.take(10, Nanos(5)), [key("a")]);
        assert_eq!(debts.take(10, Nanos(6)), [], "it is on its way");
        debts.settle(&key("a"), false, Nanos(7));
        assert!(debts.owes(b"a"));
        assert_eq!(debts.take(10, Nanos(8)), [key("a")]);
        debts.settle(&key("a"), true, Nanos(9));
        assert!(debts.are_clear());
    }

    #[test]
    fn what_becomes_owed_while_it_is_paid_is_paid_again() {
        let debts = Debts::default();
        debts.owe(b"a", None, Nanos(0));
        debts.take(1, Nanos(0));
        debts.owe(b"a", None, Nanos(1));
        debts.settle(&key("a"), true, Nanos(2));
        assert!(debts.owes(b"a"));
        assert_eq!(debts.take(1, Nanos(3)), [key("a")]);
        debts.settle(&key("a"), true, Nanos(4));
        assert!(debts.are_clear());
    }

    #[test]
    fn a_request_that_may_still_be_carried_out_is_deleted_after_twice() {
        let debts = Debts::default();
        debts.owe(b"a", Some(LINGER), Nanos(0));
        debts.take(1, Nanos(0));
        debts.settle(&key("a"), true, Nanos(10));
        assert!(debts.owes(b"a"));
        assert_eq!(debts.take(1, Nanos(11)), []);
        let later = Nanos(10) + LINGER;
        assert_eq!(debts.take(1, later), [key("a")]);
        debts.settle(&key("a"), true, later);
        assert!(debts.are_clear());
    }

    #[test]
    fn too_many_keys_are_everything() {
        let debts = Debts::default();
        for number in 0..=KEYS_MAX {
            debts.owe(&number.to_be_bytes(), None, Nanos(0));
        }
        assert_eq!(debts.count(), 1);
        assert!(debts.owes(b"any"));
        assert_eq!(debts.take(10, Nanos(0)), [Payment::Everything]);
        debts.settle(&Payment::Everything, true, Nanos(1));
        assert!(debts.owes(b"any"), "what was in flight may still be carried out");
    }
}
