//! A counting filter: finds without a lock that a key is not in a set, or that it may be. Source: L. Fan, P. Cao, J. Almeida and
//! A. Z. Broder, "Summary Cache", IEEE/ACM Transactions on Networking 8(3), 2000, here with one hash function.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// With 100 000 keys in the set, 68 % of all other keys have a counter that is zero. The counters take 256 KiB.
const COUNTERS: usize = 1 << 18;
/// A counter that has reached this value stays there, because it no longer knows how many keys it counts.
const FULL: u8 = u8::MAX;

/// The number of keys of the set for each value of a hash.
#[derive(Debug, Default)]
pub(super) struct Filter(OnceLock<Box<[AtomicU8]>>);

impl Filter {
    /// Whether a key with this hash may be in the set.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.0.get().is_some_and(|counters| counter(counters, hash).load(Ordering::Acquire) > 0)
    }

    /// Counts a key that is added to the set. The first one allocates the counters.
    pub(super) fn add(&self, hash: u64) {
        let counters = self.0.get_or_init(|| (0..COUNTERS).map(|_| AtomicU8::new(0)).collect());
        let _ = counter(counters, hash).fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_add(1));
    }

    /// Counts a key that is removed from the set.
    pub(super) fn remove(&self, hash: u64) {
        let Some(counters) = self.0.get() else { return };
        let next = |count| if count == FULL { None } else { u8::checked_sub(count, 1) };
        let _ = counter(counters, hash).fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}

fn counter(counters: &[AtomicU8], hash: u64) -> &AtomicU8 {
    &counters[hash as usize % COUNTERS]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_contained_until_it_is_removed_as_often_as_it_was_added() {
        let filter = Filter::default();
        assert!(!filter.may_contain(7));
        (0..2).for_each(|_| filter.add(7));
        filter.remove(7);
        assert!(filter.may_contain(7) && filter.may_contain(7 + COUNTERS as u64) && !filter.may_contain(8));
        filter.remove(7);
        assert!(!filter.may_contain(7));
    }

    #[test]
    fn a_full_counter_never_claims_that_a_key_is_absent() {
        let filter = Filter::default();
        (0..300).for_each(|_| filter.add(7));
        (0..300).for_each(|_| filter.remove(7));
        assert!(filter.may_contain(7));
    }
}
