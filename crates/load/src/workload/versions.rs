//! Which version of each key the server has acknowledged. All threads share it.
//! At most one set of a key is in flight, so that "older than the last acknowledged" is well defined. Knows no values
//! and no connections.

use crate::workload::value::SeenVersion;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A set of this key is in flight.
const LOCKED: u64 = 1 << 63;
/// The last set of this key that ended has failed, so the version that the server has is not known. The next
/// acknowledged set makes it known again.
const UNCERTAIN: u64 = 1 << 62;
/// The key may have a value from before the run, until its first set is acknowledged.
const UNKNOWN: u64 = 1 << 61;
/// The remaining bits are the version.
const VERSION: u64 = UNKNOWN - 1;

/// The version that the prefill writes.
pub(crate) const PREFILL_VERSION: u64 = 1;

/// The most ranges of failed versions that are stored for a key. Beyond this number, the two oldest ranges are merged.
const FAILED_RANGES_MAX: usize = 8;

/// For each key, the highest version that was acknowledged or has failed, and the flags above.
#[derive(Debug)]
pub(crate) struct Versions {
    words: Vec<AtomicU64>,
    key_minimum: u64,
    /// The failed versions of each key that has some, as ranges with their first and last version. The server may
    /// still apply such a set at any later time, so a value with such a version does not show that a later set was
    /// lost.
    failed: Mutex<HashMap<u64, Vec<(u64, u64)>>>,
}

/// What a value shows about the writes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// This run wrote the value, and it is not older than the version that was acknowledged when the get was issued.
    /// Also if the state of the key was unknown then.
    Fresh,
    /// The value is older, or this run did not write it.
    Stale,
    /// A set of the key failed, and the value may come from that set.
    Unjudged,
}

/// What was known of a key when a get of it was issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownVersion(u64);

impl KnownVersion {
    /// Nothing is known, so every version is fresh.
    pub(crate) const NOTHING: KnownVersion = KnownVersion(UNKNOWN);
}

impl Versions {
    /// `keys` keys from `key_minimum` on, which are prefilled or may have older values.
    pub(crate) fn new(key_minimum: u64, keys: u64, prefilled: bool) -> Versions {
        let word = if prefilled { PREFILL_VERSION } else { UNKNOWN };
        let words = (0..keys).map(|_| AtomicU64::new(word)).collect();
        Versions { words, key_minimum, failed: Mutex::default() }
    }

    fn word(&self, key: u64) -> &AtomicU64 {
        &self.words[(key - self.key_minimum) as usize]
    }

    /// Starts a set of `key` and returns the version to write; none if another set of it is in flight.
    pub(crate) fn lock(&self, key: u64) -> Option<u64> {
        let word = self.word(key);
        let before = word.load(Ordering::Relaxed);
        if before & LOCKED != 0 {
            return None;
        }
        word.compare_exchange(before, before | LOCKED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some((before & VERSION) + 1)
    }

    /// The set of `key` in flight was acknowledged.
    pub(crate) fn acknowledge(&self, key: u64) {
        self.unlock(key, |_| 0);
    }

    /// The set of `key` in flight was never sent.
    pub(crate) fn release(&self, key: u64) {
        self.word(key).fetch_and(!LOCKED, Ordering::Release);
    }

    /// The set of `key` in flight failed. It may or may not have been applied, and may still be applied later.
    pub(crate) fn fail(&self, key: u64) {
        let version = (self.word(key).load(Ordering::Relaxed) & VERSION) + 1;
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges = failed.entry(key).or_default();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == version => *last = version,
            _ => ranges.push((version, version)),
        }
        if ranges.len() > FAILED_RANGES_MAX {
            ranges[1].0 = ranges[0].0;
            ranges.remove(0);
        }
        drop(failed);
        self.leave_unknown(key);
    }

    /// The set of `key` in flight gets no reply. The key remains uncertain, because no set is ever acknowledged.
    pub(crate) fn leave_unknown(&self, key: u64) {
        self.unlock(key, |word| word & UNKNOWN | UNCERTAIN);
    }

    /// Only the thread that locked the key calls this, so no other thread changes the word.
    fn unlock(&self, key: u64, flags: impl Fn(u64) -> u64) {
        let word = self.word(key);
        let before = word.load(Ordering::Relaxed);
        debug_assert!(before & LOCKED != 0, "only a locked key can be unlocked");
        word.store(((before & VERSION) + 1) | flags(before), Ordering::Release);
    }

    /// What is known of `key`. Read it before sending a get of the key.
    pub(crate) fn known(&self, key: u64) -> KnownVersion {
        KnownVersion(self.word(key).load(Ordering::Acquire))
    }

    /// Judges a value of `key` that was read, given the state of the key when its get was issued.
    pub(crate) fn freshness(&self, key: u64, known: KnownVersion, seen: SeenVersion) -> Freshness {
        if known.0 & UNKNOWN != 0 {
            return Freshness::Fresh;
        }
        if known.0 & UNCERTAIN != 0 {
            return Freshness::Unjudged;
        }
        let now = self.word(key).load(Ordering::Acquire);
        let highest = (now & VERSION) + u64::from(now & LOCKED != 0);
        if seen.newest_up_to(highest).is_some_and(|version| version >= known.0 & VERSION) {
            return Freshness::Fresh;
        }
        if self.may_have_failed(key, seen) { Freshness::Unjudged } else { Freshness::Stale }
    }

    /// Whether the set that wrote a value may be one that failed.
    fn may_have_failed(&self, key: u64, seen: SeenVersion) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in = |&(first, last): &(u64, u64)| seen.newest_up_to(last).is_some_and(|version| version >= first);
        failed.get(&key).is_some_and(|ranges| ranges.iter().any(is_in))
    }

    /// The number of keys whose last set failed.
    pub(crate) fn uncertain(&self) -> u64 {
        self.words.iter().filter(|word| word.load(Ordering::Relaxed) & UNCERTAIN != 0).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::value::{Content, inspect, make};

    fn seen(key: u64, version: u64) -> SeenVersion {
        let mut bytes = Vec::new();
        make(key, version, 32, &mut bytes);
        match inspect(&bytes, key, 32) {
            Content::Whole(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    fn is_fresh(versions: &Versions, key: u64, known: KnownVersion, seen: SeenVersion) -> bool {
        versions.freshness(key, known, seen) == Freshness::Fresh
    }

    #[test]
    fn one_set_of_a_key_at_a_time() {
        let versions = Versions::new(10, 2, true);
        assert_eq!(versions.lock(10), Some(2));
        assert_eq!(versions.lock(10), None);
        assert_eq!(versions.lock(11), Some(2));
        versions.acknowledge(10);
        assert_eq!(versions.lock(10), Some(3));
    }

    #[test]
    fn fresh_is_between_acknowledged_and_issued() {
        let versions = Versions::new(0, 1, true);
        versions.lock(0);
        versions.acknowledge(0);
        let known = versions.known(0);
        assert!(!is_fresh(&versions, 0, known, seen(0, 1)));
        assert!(is_fresh(&versions, 0, known, seen(0, 2)));
        assert!(!is_fresh(&versions, 0, known, seen(0, 3)), "version 3 was never written");
        versions.lock(0);
        assert!(is_fresh(&versions, 0, known, seen(0, 3)), "the set in flight may have taken effect");
        versions.acknowledge(0);
        assert!(
            is_fresh(&versions, 0, known, seen(0, 2)),
            "what was acknowledged after the get was issued does not bind it"
        );
        assert!(!is_fresh(&versions, 0, versions.known(0), seen(0, 2)));
    }

    #[test]
    fn a_key_is_uncertain_from_a_failed_set_to_the_next_acknowledged_one() {
        let versions = Versions::new(0, 2, true);
        versions.lock(0);
        versions.fail(0);
        assert_eq!(versions.freshness(0, versions.known(0), seen(0, 1)), Freshness::Unjudged);
        assert_eq!(versions.uncertain(), 1);
        assert_eq!(versions.lock(0), Some(3), "a version is never used twice");
        versions.acknowledge(0);
        assert_eq!(versions.uncertain(), 0);
        let judged = [1, 2, 3].map(|version| versions.freshness(0, versions.known(0), seen(0, version)));
        // The failed set may have been applied late, but the version before it is gone.
        assert_eq!(judged, [Freshness::Stale, Freshness::Unjudged, Freshness::Fresh]);
    }

    #[test]
    fn many_failures_of_a_key_are_kept_in_few_ranges() {
        let versions = Versions::new(0, 1, true);
        for round in 0..30 {
            versions.lock(0);
            if round % 3 == 2 { versions.acknowledge(0) } else { versions.fail(0) }
        }
        assert!(versions.failed.lock().unwrap()[&0].len() <= FAILED_RANGES_MAX);
        // The last versions are 29 and 30 (failed) and 31 (acknowledged).
        let judged = [28, 29, 30, 31].map(|version| versions.freshness(0, versions.known(0), seen(0, version)));
        assert_eq!(judged, [Freshness::Stale, Freshness::Unjudged, Freshness::Unjudged, Freshness::Fresh]);
    }

    #[test]
    fn a_key_without_prefill_is_known_from_its_first_set() {
        let versions = Versions::new(0, 1, false);
        let before = versions.known(0);
        assert!(is_fresh(&versions, 0, before, seen(0, 99)));
        assert_eq!(versions.lock(0), Some(1));
        versions.acknowledge(0);
        assert!(is_fresh(&versions, 0, before, seen(0, 99)), "the get was issued before the set");
        assert!(!is_fresh(&versions, 0, versions.known(0), seen(0, 99)));
        assert!(is_fresh(&versions, 0, versions.known(0), seen(0, 1)));
        assert_eq!(versions.uncertain(), 0);
    }

    #[test]
    fn threads_never_lock_the_same_key() {
        let versions = Versions::new(0, 3, true);
        let acknowledged: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..20_000u64)
                            .filter(|round| {
                                versions.lock(round % 3).inspect(|_| versions.acknowledge(round % 3)).is_some()
                            })
                            .count() as u64
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let total: u64 = (0..3).map(|key| versions.lock(key).unwrap() - 2).sum();
        assert_eq!(total, acknowledged);
    }
}
