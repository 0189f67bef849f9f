//! The items: a table of keys, their order of use, and the memory they take. Knows no command and reads no clock.
//!
//! The time is that of the last [`Store::advance`]. An expired item is removed when its key is requested, or when it is the
//! least recently used and memory is needed.

use crate::expiry::Epoch;
use crate::recency::Recency;
use clock::Nanos;
use slab::Slab;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes that memcached needs for an item besides its key and value: header, cas token and line ends.
/// Charged here as well, so that the same data fills the same limit and the size limit of a value is the same to the byte.
pub(crate) const ITEM_OVERHEAD_BYTES: usize = 59;
/// Additional bytes of an item whose flags are not 0.
const ITEM_FLAGS_BYTES: usize = 4;
/// The largest item, overhead included.
pub(crate) const ITEM_MAXIMUM_BYTES: usize = 1024 * 1024;

/// The metadata of an item that only meta commands use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Whether its key was given in base64, so that it is returned in base64.
    pub(crate) is_key_base64: bool,
    /// Whether a client has read it.
    pub(crate) is_fetched: bool,
    /// Whether it is stale: the first client that reads it is asked to refresh it.
    pub(crate) is_stale: bool,
    /// Whether a reply has asked a client to refresh it.
    pub(crate) is_won: bool,
    /// When it was last read, or stored.
    pub(crate) used: Nanos,
}

/// A value with its metadata.
#[derive(Debug)]
pub(crate) struct Item {
    key: Arc<[u8]>,
    pub(crate) data: Box<[u8]>,
    pub(crate) flags: u32,
    /// The cas token: it changes with the value and is never reused.
    pub(crate) cas: u64,
    pub(crate) expires: Nanos,
    pub(crate) marks: Marks,
}

/// The reason why an item was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Larger than the size limit of an item.
    TooLarge,
    /// Larger than the memory limit.
    OutOfMemory,
}

/// All items.
#[derive(Debug)]
pub(crate) struct Store {
    items: Slab<Item>,
    slots: HashMap<Arc<[u8]>, usize>,
    recency: Recency,
    limit_bytes: usize,
    bytes: usize,
    epoch: Epoch,
    now: Nanos,
    /// When a delayed flush is due.
    flush_at: Option<Nanos>,
    last_unique: u64,
    /// The number of items evicted.
    pub(crate) evictions: u64,
    /// The number of items ever stored.
    pub(crate) stored_total: u64,
}

impl Item {
    /// The charged size of this item.
    pub(crate) fn charge_bytes(&self) -> usize {
        charge_bytes(self.key.len(), self.data.len(), self.flags)
    }

    /// Records that a client has read it.
    pub(crate) fn note_use(&mut self, now: Nanos) {
        (self.marks.is_fetched, self.marks.used) = (true, now);
    }
}

/// The charged size of an item.
fn charge_bytes(key_bytes: usize, value_bytes: usize, flags: u32) -> usize {
    key_bytes + value_bytes + ITEM_OVERHEAD_BYTES + if flags == 0 { 0 } else { ITEM_FLAGS_BYTES }
}

impl Store {
    /// An empty store.
    pub(crate) fn new(limit_bytes: usize, epoch: Epoch) -> Store {
        Store {
            items: Slab::new(),
            slots: HashMap::new(),
            recency: Recency::default(),
            limit_bytes,
            bytes: 0,
            epoch,
            now: epoch.clock,
            flush_at: None,
            last_unique: 0,
            evictions: 0,
            stored_total: 0,
        }
    }

    /// Sets the time, and executes a flush that is due. Time never goes back.
    pub(crate) fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.clear();
        }
    }

    /// The item of a key, which becomes the most recently used; `None` if it has expired.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&mut Item> {
        let slot = *self.slots.get(key)?;
        if self.items[slot].expires <= self.now {
            self.remove_slot(slot);
            return None;
        }
        self.recency.touch(slot);
        self.items.get_mut(slot)
    }

    /// The item of a key, without an effect on the order of use.
    pub(crate) fn peek(&mut self, key: &[u8]) -> Option<&mut Item> {
        let slot = *self.slots.get(key)?;
        self.items.get_mut(slot).filter(|item| item.expires > self.now)
    }

    /// Gives the item of a key a new cas token, as if its value had changed.
    pub(crate) fn renew(&mut self, key: &[u8]) {
        let cas = self.next_unique();
        if let Some(item) = self.peek(key) {
            item.cas = cas;
        }
    }

    /// The time of the last [`Store::advance`].
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Stores a value, replacing the present one, and evicts others if memory is needed.
    pub(crate) fn put(&mut self, key: &[u8], flags: u32, expires: Nanos, data: Box<[u8]>) -> Result<(), Refused> {
        let charge = self.fits(key, flags, data.len())?;
        self.remove(key);
        while self.bytes + charge > self.limit_bytes
            && let Some(oldest) = self.recency.oldest()
        {
            if self.items[oldest].expires > self.now {
                self.evictions += 1;
            }
            self.remove_slot(oldest);
        }
        let cas = self.next_unique();
        let key: Arc<[u8]> = key.into();
        let marks = Marks { used: self.now, ..Marks::default() };
        let slot = self.items.insert(Item { key: key.clone(), data, flags, cas, expires, marks });
        self.slots.insert(key, slot);
        self.recency.insert(slot);
        self.bytes += charge;
        self.stored_total += 1;
        Ok(())
    }

    /// The charged size of an item, if it can be stored at all.
    pub(crate) fn fits(&self, key: &[u8], flags: u32, value_bytes: usize) -> Result<usize, Refused> {
        match charge_bytes(key.len(), value_bytes, flags) {
            charge if charge > ITEM_MAXIMUM_BYTES => Err(Refused::TooLarge),
            charge if charge > self.limit_bytes => Err(Refused::OutOfMemory),
            charge => Ok(charge),
        }
    }

    /// Removes a key; true if it was present and had not expired.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(&slot) = self.slots.get(key) else { return false };
        let live = self.items[slot].expires > self.now;
        self.remove_slot(slot);
        live
    }

    /// A new cas token.
    fn next_unique(&mut self) -> u64 {
        self.last_unique += 1;
        self.last_unique
    }

    /// The expiry time of an item that is stored now.
    pub(crate) fn expiry(&self, exptime: i64) -> Nanos {
        self.epoch.expiry(exptime, self.now)
    }

    /// Removes everything, now or after the delay. A later call replaces the delay.
    pub(crate) fn flush(&mut self, delay: i64) {
        if delay > 0 {
            self.flush_at = Some(self.expiry(delay));
            self.advance(self.now);
        } else {
            self.clear();
        }
    }

    /// The number of items, including expired ones that have not been removed yet.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The charged size of all items.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory limit.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    fn remove_slot(&mut self, slot: usize) {
        self.recency.remove(slot);
        let item = self.items.remove(slot);
        self.slots.remove(&item.key);
        self.bytes -= item.charge_bytes();
    }

    fn clear(&mut self) {
        self.items.clear();
        self.slots.clear();
        self.recency = Recency::default();
        self.bytes = 0;
        self.flush_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::{Clock, ManualClock};
    use proptest::prelude::*;
    use std::time::Duration;

    const START: Epoch = Epoch { clock: Nanos(1_000), unix_ns: 1_700_000_000_000_000_000 };

    /// A store and the clock hand that moves its time.
    struct Timed {
        store: Store,
        clock: Clock,
        hand: ManualClock,
    }

    impl Timed {
        fn new(limit_bytes: usize) -> Timed {
            let (clock, hand) = Clock::manual(START.clock);
            Timed { store: Store::new(limit_bytes, START), clock, hand }
        }

        fn put(&mut self, key: &str, exptime: i64) {
            let expires = self.store.expiry(exptime);
            self.store.put(key.as_bytes(), 0, expires, b"value".as_slice().into()).unwrap();
        }

        fn has(&mut self, key: &str) -> bool {
            self.store.get(key.as_bytes()).is_some()
        }

        fn pass(&mut self, seconds: u64) {
            self.hand.advance(Duration::from_secs(seconds));
            self.store.advance(self.clock.now());
        }
    }

    #[test]
    fn items_expire_at_their_expiry_time() {
        let mut timed = Timed::new(1 << 20);
        for (key, exptime) in
            [("never", 0), ("ten", 10), ("ended", -1), ("date", 1_700_000_020), ("past", 1_600_000_000)]
        {
            timed.put(key, exptime);
        }
        let keys = ["never", "ten", "ended", "date", "past"];
        let alive = |timed: &mut Timed| keys.map(|key| timed.has(key));
        assert_eq!(alive(&mut timed), [true, true, false, true, false]);
        timed.pass(9);
        assert_eq!(alive(&mut timed), [true, true, false, true, false]);
        timed.pass(1);
        assert_eq!(alive(&mut timed), [true, false, false, true, false]);
        timed.pass(10);
        assert_eq!(alive(&mut timed), [true, false, false, false, false]);
        assert_eq!(timed.store.len(), 1, "an expired item is removed when it is read");
        timed.pass(1_000_000_000);
        assert!(timed.has("never"));
    }

    #[test]
    fn touch_extends_the_expiry_time() {
        let mut timed = Timed::new(1 << 20);
        timed.put("key", 10);
        timed.pass(9);
        let expires = timed.store.expiry(10);
        timed.store.get(b"key").unwrap().expires = expires;
        timed.pass(9);
        assert!(timed.has("key"));
        timed.pass(1);
        assert!(!timed.store.remove(b"key"), "an expired item cannot be deleted");
    }

    #[test]
    fn a_delayed_flush_deletes_items_present_when_it_runs() {
        let mut timed = Timed::new(1 << 20);
        timed.put("before", 0);
        timed.store.flush(10);
        timed.put("between", 0);
        timed.pass(9);
        assert!(timed.has("before") && timed.has("between"));
        timed.pass(1);
        timed.put("after", 0);
        assert!(!timed.has("before") && !timed.has("between") && timed.has("after"));
        timed.store.flush(10);
        timed.store.flush(0);
        timed.put("later", 0);
        timed.pass(20);
        assert!(timed.has("later") && !timed.has("after"), "the last flush applies");
    }

    #[test]
    fn the_least_recently_used_items_are_evicted() {
        let item_bytes = charge_bytes(1, 5, 0);
        let mut timed = Timed::new(3 * item_bytes);
        for key in ["a", "b", "c"] {
            timed.put(key, 0);
        }
        assert!(timed.has("a"));
        timed.put("d", 0);
        assert_eq!(["a", "b", "c", "d"].map(|key| timed.has(key)), [true, false, true, true]);
        assert_eq!((timed.store.evictions, timed.store.bytes(), timed.store.len()), (1, 3 * item_bytes, 3));
        timed.put("d", 0);
        assert_eq!(timed.store.evictions, 1, "replacing a value evicts nothing");
    }

    #[test]
    fn an_item_larger_than_the_store_is_refused() {
        let mut timed = Timed::new(2 * ITEM_MAXIMUM_BYTES);
        let expires = Nanos::NEVER;
        let largest = ITEM_MAXIMUM_BYTES - ITEM_OVERHEAD_BYTES - 1;
        let mut put = |size: usize, flags| timed.store.put(b"k", flags, expires, vec![0; size].into());
        assert_eq!(put(largest, 0), Ok(()));
        assert_eq!(put(largest, 1), Err(Refused::TooLarge));
        assert_eq!(put(largest + 1, 0), Err(Refused::TooLarge));
        assert_eq!(Timed::new(100).store.put(b"k", 0, expires, vec![0; 100].into()), Err(Refused::OutOfMemory));
    }

    proptest! {
        #[test]
        fn the_memory_limit_is_kept_and_items_equal_the_last_value_stored(
            steps in proptest::collection::vec((0u8..40, 0usize..400, 0u8..8), 1..400),
        ) {
            let mut store = Store::new(4_000, START);
            let mut model: HashMap<u8, Vec<u8>> = HashMap::new();
            for (step, (key, size, action)) in steps.into_iter().enumerate() {
                match action {
                    0 => prop_assert!(!store.remove(&[key]) || model.remove(&key).is_some()),
                    1..4 => {
                        let found = store.get(&[key]).map(|item| item.data.to_vec());
                        prop_assert!(found.is_none() || found.as_ref() == model.get(&key));
                    }
                    _ => {
                        let data = vec![step as u8; size];
                        store.put(&[key], 0, Nanos::NEVER, data.clone().into()).unwrap();
                        model.insert(key, data);
                        prop_assert!(store.get(&[key]).is_some());
                    }
                }
                prop_assert!(store.bytes() <= 4_000);
                let sum: usize = store.items.iter().map(|(_, item)| item.charge_bytes()).sum();
                prop_assert_eq!((store.bytes(), store.len()), (sum, store.slots.len()));
            }
        }
    }
}
