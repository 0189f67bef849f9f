//! memcached 1.6 with its defaults, except that a page never moves to another class (`-o no_slab_automove`). Classes take
//! pages as they need them, until none is left. Each class evicts from its own segmented LRU.
//!
//! A new item is HOT. Its second hit makes it active. The oldest HOT items become COLD, or WARM if they are active. A COLD
//! item that becomes active turns WARM. The oldest COLD item is evicted. In memcached, one thread moves the items in the
//! background. Here, they move at once.

use crate::cache::{Cache, Evictions, Item};
use crate::lists::Lists;
use crate::slabs::{PAGE_BYTES, SlabClasses};

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
const SEGMENTS: usize = 3;
/// Shares of the bytes of a class that may be in these segments.
const HOT_PERCENT: u64 = 20;
const WARM_PERCENT: u64 = 40;
/// An item stays in these segments at most this many times the age of the oldest COLD item.
const HOT_AGE: f64 = 0.2;
const WARM_AGE: f64 = 2.0;
/// Marks of an item: it was read since it was stored, and was read again.
const FETCHED: u8 = 1;
const ACTIVE: u8 = 2;
/// Moves after one request, as in one round of memcached's thread.
const MOVES_MAX: usize = 500;
/// Expired items that are removed at a tail before memcached stops looking.
const TRIES: usize = 5;
/// Attempts of memcached to find room for a chunk.
const ATTEMPTS: usize = 10;

/// A memcached server.
#[derive(Debug)]
pub struct SegmentedLru {
    slabs: SlabClasses,
    lists: Lists,
    /// Chunks in use and pages, for each class. Those of popular keys are in `popular_chunks`.
    chunks: Vec<u64>,
    popular_chunks: Vec<u64>,
    pages: Vec<u64>,
    pages_taken: u64,
    pages_max: u64,
    /// The share of the keys that the simulation sees.
    rate: f64,
    evictions: Evictions,
}

/// The end of a look at the tail of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulled {
    Nothing,
    Moved,
}

impl SegmentedLru {
    /// A server with `-m memory` of which the simulation sees the share `rate` of the keys.
    pub fn new(slabs: SlabClasses, memory: u64, rate: f64) -> SegmentedLru {
        let count = slabs.all().len();
        SegmentedLru {
            lists: Lists::new(count * SEGMENTS),
            chunks: vec![0; count],
            popular_chunks: vec![0; count],
            pages: vec![0; count],
            pages_taken: 0,
            pages_max: memory / PAGE_BYTES,
            slabs,
            rate,
            evictions: Evictions::default(),
        }
    }

    /// The keys below this number are popular: they stand for no other keys.
    pub fn with_popular(mut self, keys: u32) -> SegmentedLru {
        self.lists.weigh(keys, self.rate);
        self
    }

    /// Makes room for chunks of a class: takes a page, or else evicts. Returns false if there is nothing to evict.
    fn make_room(&mut self, key: u32, class: usize, wanted: u32, now_s: u32) -> bool {
        let has_room = |cache: &SegmentedLru| cache.has_room(key, class, u64::from(wanted));
        for _ in 0..ATTEMPTS * wanted as usize {
            // In a sample, a chunk may need several pages.
            while !has_room(self) && self.take_page(class) {}
            if has_room(self) {
                return true;
            }
            if !self.evict(class, now_s) {
                self.cool(class);
            }
        }
        false
    }

    /// Whether the pages of a class have chunks for an item. In the simulation, they have the share `rate` of their chunks.
    /// A chunk of a popular key is this share of one. A class with a page has room for one item.
    fn has_room(&self, key: u32, class: usize, wanted: u64) -> bool {
        let chunks = self.pages[class] * u64::from(self.slabs.all()[class].chunks_per_page);
        let seen = (chunks as f64 * self.rate) as u64;
        let (sampled, popular) = if self.lists.is_popular(key) { (0, wanted) } else { (wanted, 0) };
        let (sampled, popular) = (self.chunks[class] + sampled, self.popular_chunks[class] + popular);
        let used = sampled + (popular as f64 * self.rate) as u64;
        chunks > 0 && popular <= chunks && used <= seen.max(1)
    }

    /// The count of chunks that those of a key are in.
    fn chunks_of(&mut self, key: u32, class: usize) -> &mut u64 {
        if self.lists.is_popular(key) { &mut self.popular_chunks[class] } else { &mut self.chunks[class] }
    }

    /// Every class may have its first page, also beyond the memory.
    fn take_page(&mut self, class: usize) -> bool {
        if self.pages_taken >= self.pages_max && self.pages[class] > 0 {
            return false;
        }
        self.pages[class] += 1;
        self.pages_taken += 1;
        true
    }

    /// Removes expired items at the COLD tail, and one item that has not expired.
    fn evict(&mut self, class: usize, now_s: u32) -> bool {
        let mut has_removed = false;
        for _ in 0..TRIES {
            let Some(tail) = self.lists.tail(class * SEGMENTS + COLD) else { break };
            let is_expired = self.is_expired(tail, now_s);
            self.remove(tail);
            has_removed = true;
            if !is_expired {
                self.evictions.add(self.lists.is_popular(tail));
                break;
            }
        }
        has_removed
    }

    /// Makes the oldest HOT item COLD, or WARM if it is active, whatever the shares are.
    fn cool(&mut self, class: usize) {
        if let Some(tail) = self.lists.tail(class * SEGMENTS + HOT) {
            let is_active = self.lists.marks(tail) & ACTIVE != 0;
            self.lists.set_marks(tail, self.lists.marks(tail) & !ACTIVE);
            self.lists.move_to(tail, class * SEGMENTS + if is_active { WARM } else { COLD });
        }
    }

    /// Moves items between the segments of a class until these have their shares.
    fn balance(&mut self, class: usize, now_s: u32) {
        let first = class * SEGMENTS;
        let total: u64 = (0..SEGMENTS).map(|segment| self.lists.bytes(first + segment)).sum();
        let cold_age_s = self.lists.tail(first + COLD).map_or(0, |tail| now_s - self.lists.used_s(tail));
        for _ in 0..MOVES_MAX {
            let hot = self.pull(class, HOT, total * HOT_PERCENT / 100, f64::from(cold_age_s) * HOT_AGE, now_s);
            if hot == Pulled::Moved {
                continue;
            }
            let warm = self.pull(class, WARM, total * WARM_PERCENT / 100, f64::from(cold_age_s) * WARM_AGE, now_s);
            if warm == Pulled::Nothing {
                return;
            }
        }
    }

    /// Looks at the oldest item of HOT or WARM, and moves it if it is active, too old, or over the limit in bytes.
    fn pull(&mut self, class: usize, segment: usize, limit: u64, age_max_s: f64, now_s: u32) -> Pulled {
        let (list, warm, cold) = (class * SEGMENTS + segment, class * SEGMENTS + WARM, class * SEGMENTS + COLD);
        let Some(tail) = self.lists.tail(list) else { return Pulled::Nothing };
        if self.is_expired(tail, now_s) {
            self.remove(tail);
            return Pulled::Moved;
        }
        let marks = self.lists.marks(tail);
        if marks & ACTIVE != 0 {
            self.lists.set_marks(tail, marks & !ACTIVE);
            self.lists.move_to(tail, warm);
            return Pulled::Moved;
        }
        let age_s = now_s - self.lists.used_s(tail);
        // memcached compares whole seconds.
        if self.lists.bytes(list) > limit || age_s > age_max_s as u32 {
            self.lists.move_to(tail, cold);
            return Pulled::Moved;
        }
        Pulled::Nothing
    }

    fn is_expired(&self, key: u32, now_s: u32) -> bool {
        self.lists.item(key).is_some_and(|item| item.is_expired(now_s))
    }
}

impl Cache for SegmentedLru {
    fn find(&mut self, key: u32, now_s: u32) -> Option<Item> {
        let item = self.lists.item(key)?;
        if item.is_expired(now_s) {
            self.remove(key);
            return None;
        }
        Some(item)
    }

    fn hit(&mut self, key: u32, now_s: u32) {
        let (Some(list), marks) = (self.lists.list_of(key), self.lists.marks(key)) else { return };
        if marks & FETCHED == 0 {
            self.lists.set_marks(key, FETCHED);
        } else if marks & ACTIVE == 0 {
            self.lists.use_at(key, now_s);
            if list % SEGMENTS == COLD {
                self.lists.move_to(key, list - COLD + WARM);
                self.balance(list / SEGMENTS, now_s);
            } else {
                self.lists.set_marks(key, marks | ACTIVE);
            }
        }
    }

    fn store(&mut self, key: u32, item: Item, now_s: u32) -> bool {
        let place = self.slabs.place(item.bytes);
        // memcached frees the old item after it has room for the new one.
        let has_room = place.is_some_and(|(class, chunks)| self.make_room(key, class, chunks, now_s));
        let Some((class, chunks)) = place.filter(|_| has_room) else { return false };
        self.remove(key);
        *self.chunks_of(key, class) += u64::from(chunks);
        self.lists.add(key, item, class * SEGMENTS + HOT, now_s);
        self.balance(class, now_s);
        true
    }

    fn remove(&mut self, key: u32) {
        let Some(item) = self.lists.item(key) else { return };
        self.lists.remove(key);
        if let Some((class, chunks)) = self.slabs.place(item.bytes) {
            *self.chunks_of(key, class) -= u64::from(chunks);
        }
    }

    /// memcached's crawler removes expired items about once a minute, or less often where it finds few.
    fn reclaim(&mut self, now_s: u32) {
        for key in self.lists.expired(now_s) {
            self.remove(key);
        }
    }

    fn evictions(&self) -> u64 {
        self.evictions.weighed(self.rate)
    }

    fn stored_bytes(&self) -> u64 {
        self.lists.bytes_of_all()
    }

    fn taken_bytes(&self) -> u64 {
        self.pages_taken * PAGE_BYTES
    }
}
