//! Least recently used, by bytes: the items that were used last, as many as fit. An expired item needs its memory until
//! it is read or evicted.

use crate::cache::{Cache, Evictions, Item};
use crate::lists::Lists;

/// A cache with one list.
#[derive(Debug)]
pub struct ByteLru {
    lists: Lists,
    rate: f64,
    bytes_max: f64,
    item_bytes_max: u64,
    evictions: Evictions,
}

impl ByteLru {
    /// A cache of `memory` bytes of which the simulation sees the share `rate` of the keys.
    pub fn new(memory: u64, rate: f64) -> ByteLru {
        ByteLru {
            lists: Lists::new(1),
            rate,
            bytes_max: memory as f64 * rate,
            item_bytes_max: memory,
            evictions: Evictions::default(),
        }
    }

    /// The keys below this number are popular: they stand for no other keys.
    pub fn with_popular(mut self, keys: u32) -> ByteLru {
        self.lists.weigh(keys, self.rate);
        self
    }
}

impl Cache for ByteLru {
    fn find(&mut self, key: u32, now_s: u32) -> Option<Item> {
        let item = self.lists.item(key)?;
        if item.is_expired(now_s) {
            self.lists.remove(key);
            return None;
        }
        Some(item)
    }

    fn hit(&mut self, key: u32, _now_s: u32) {
        self.lists.move_to(key, 0);
    }

    fn store(&mut self, key: u32, item: Item, now_s: u32) -> bool {
        if u64::from(item.bytes) > self.item_bytes_max {
            return false;
        }
        self.lists.remove(key);
        self.lists.add(key, item, 0, now_s);
        while self.lists.bytes(0) as f64 > self.bytes_max {
            // With a sample, one item may be larger than the share of the memory.
            match self.lists.tail(0).filter(|tail| *tail != key) {
                Some(tail) => {
                    self.lists.remove(tail);
                    self.evictions.add(self.lists.is_popular(tail));
                }
                None => break,
            }
        }
        true
    }

    fn remove(&mut self, key: u32) {
        self.lists.remove(key);
    }

    fn evictions(&self) -> u64 {
        self.evictions.weighed(self.rate)
    }

    fn stored_bytes(&self) -> u64 {
        self.lists.bytes(0)
    }

    fn taken_bytes(&self) -> u64 {
        (self.lists.bytes(0) as f64 / self.rate) as u64
    }
}
