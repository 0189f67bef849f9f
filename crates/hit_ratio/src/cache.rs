//! The interface of a simulated cache: what it stores under the number of a key.

/// A stored item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Bytes of memory: header, key and value.
    pub bytes: u32,
    /// The second at which it expires; 0 is never.
    pub expires_s: u32,
}

/// A cache of one size. Keys are small consecutive numbers. Times never decrease.
pub trait Cache: Send {
    /// The item under a key. An expired item is removed.
    fn find(&mut self, key: u32, now_s: u32) -> Option<Item>;
    /// Records a hit on an item that is stored.
    fn hit(&mut self, key: u32, now_s: u32);
    /// Stores an item in place of the one under its key. Returns false if it cannot be stored; the old one stays.
    fn store(&mut self, key: u32, item: Item, now_s: u32) -> bool;
    /// Removes an item, if it is stored.
    fn remove(&mut self, key: u32);
    /// Removes all expired items, as a background job of the cache would. The default does nothing.
    fn reclaim(&mut self, _now_s: u32) {}
    /// Items that were removed to make room. Those of popular keys count with the rate of the sample.
    fn evictions(&self) -> u64;
    /// Bytes of the items that are stored, with the same weights.
    fn stored_bytes(&self) -> u64;
    /// Bytes of memory that the whole cache has taken, without the scale of a sample.
    fn taken_bytes(&self) -> u64;
}

/// Counts of evicted items.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evictions {
    sampled: u64,
    popular: u64,
}

impl Evictions {
    /// Counts one.
    pub(crate) fn add(&mut self, is_popular: bool) {
        *(if is_popular { &mut self.popular } else { &mut self.sampled }) += 1;
    }

    /// All, of which the popular ones count with this weight.
    pub(crate) fn weighed(&self, weight: f64) -> u64 {
        self.sampled + (self.popular as f64 * weight).round() as u64
    }
}

impl Item {
    /// Whether it has expired at this time.
    pub fn is_expired(&self, now_s: u32) -> bool {
        self.expires_s != 0 && self.expires_s <= now_s
    }
}
