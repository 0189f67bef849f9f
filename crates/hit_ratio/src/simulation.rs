//! The second pass: applies the sampled requests to one cache for each amount of memory.

use crate::cache::{Cache, Item};
use crate::census::Sample;
use crate::lru::ByteLru;
use crate::memcached::SegmentedLru;
use crate::request::{Operation, Request};
use crate::slabs::{SlabClasses, SlabSettings};
use std::collections::HashMap;

/// memcached interprets a longer time to live as a date.
const TTL_S_MAX: u32 = 60 * 60 * 24 * 30;
/// Expired items are removed in the background this often, and at most this many times during all requests.
const RECLAIM_EVERY_S: u32 = 60;
const RECLAIMS_MAX: u32 = 1000;

/// Which items a cache removes when it is full.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Those that were used least recently, by bytes and without slab classes.
    Lru,
    /// Those that memcached removes.
    Memcached(SlabClasses),
}

/// Caches of all sizes, while requests are applied.
pub struct Simulation {
    sample: Sample,
    settings: SlabSettings,
    value_bytes: Option<u32>,
    fills: bool,
    caches: Vec<Measured>,
    numbers: HashMap<u64, u32>,
    /// The last size and time to live of each key.
    known: Vec<Known>,
    /// Gets of each key.
    gets: Vec<u32>,
    reclaim_every_s: u32,
    reclaim_at_s: u32,
}

/// The hit ratio as a function of the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The counts of all requests.
    pub sample: Sample,
    /// Gets of all keys but the popular ones.
    pub other_gets: u64,
    /// The same number as the sample has it: far from `other_gets`, the sample is not like the trace.
    pub sampled_gets: f64,
    /// One point for each amount of memory, in increasing order.
    pub points: Vec<Point>,
}

/// The results for one amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Bytes of memory.
    pub memory: u64,
    /// Hits of all gets, from 0 to 1.
    pub hit_ratio: f64,
    /// Evicted items, estimated if keys were sampled.
    pub evictions: f64,
    /// Bytes of items that are stored at the end, estimated in the same way.
    pub stored_bytes: f64,
    /// Bytes of memory that are taken at the end; for memcached, those of the pages.
    pub taken_bytes: u64,
}

struct Measured {
    memory: u64,
    cache: Box<dyn Cache>,
    /// Misses of each key.
    misses: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    value_bytes: Option<u32>,
    ttl_s: u32,
}

/// A request for a key by its number, with what a get stores after a miss.
#[derive(Clone, Copy)]
struct Step {
    key: u32,
    key_bytes: usize,
    operation: Operation,
    value_bytes: u32,
    ttl_s: u32,
    at_s: u32,
    fill: Option<Known>,
}

impl Simulation {
    /// Begins with empty caches of these sizes. With `fills`, a get that misses stores its value.
    pub fn new(
        sample: Sample,
        policy: &Policy,
        sizes: &[u64],
        settings: SlabSettings,
        value_bytes: Option<u32>,
        fills: bool,
    ) -> Simulation {
        // These keys have the first numbers.
        let popular = sample.popular.len();
        let cache = |memory: u64| -> Box<dyn Cache> {
            match policy {
                Policy::Lru => Box::new(ByteLru::new(memory, sample.rate).with_popular(popular as u32)),
                Policy::Memcached(slabs) => {
                    Box::new(SegmentedLru::new(slabs.clone(), memory, sample.rate).with_popular(popular as u32))
                }
            }
        };
        let caches =
            sizes.iter().map(|memory| Measured { memory: *memory, cache: cache(*memory), misses: vec![0; popular] });
        let reclaim_every_s = RECLAIM_EVERY_S.max(sample.span_s / RECLAIMS_MAX);
        Simulation {
            caches: caches.collect(),
            settings,
            value_bytes,
            fills,
            numbers: sample.popular.iter().copied().zip(0..).collect(),
            known: vec![Known::default(); popular],
            gets: vec![0; popular],
            reclaim_every_s,
            reclaim_at_s: if sample.with_ttl > 0 { reclaim_every_s } else { u32::MAX },
            sample,
        }
    }

    /// Applies a request, if its key is in the sample.
    pub fn add(&mut self, request: &Request<'_>) {
        if request.at_s >= self.reclaim_at_s {
            self.caches.iter_mut().for_each(|measured| measured.cache.reclaim(request.at_s));
            self.reclaim_at_s = request.at_s.saturating_add(self.reclaim_every_s);
        }
        let Some(hash) = self.sample.chosen(request.key) else { return };
        let next = self.known.len() as u32;
        let key = *self.numbers.entry(hash).or_insert(next);
        if key == next {
            self.known.push(Known::default());
            self.gets.push(0);
            self.caches.iter_mut().for_each(|measured| measured.misses.push(0));
        }
        let value_bytes = self.value_bytes.unwrap_or(request.value_bytes);
        let known = &mut self.known[key as usize];
        let operation = request.operation;
        self.gets[key as usize] += u32::from(operation == Operation::Get);
        if operation.writes() {
            *known = Known { value_bytes: Some(value_bytes), ttl_s: request.ttl_s };
        } else if operation == Operation::Get && value_bytes > 0 {
            // The size that was returned when the requests were recorded.
            known.value_bytes = Some(value_bytes);
        }
        if operation == Operation::Get && request.ttl_s > 0 {
            known.ttl_s = request.ttl_s;
        }
        let step = Step {
            key,
            key_bytes: request.key.len(),
            operation,
            value_bytes,
            ttl_s: request.ttl_s,
            at_s: request.at_s,
            fill: Some(*known).filter(|known| self.fills && known.value_bytes.is_some()),
        };
        for measured in &mut self.caches {
            measured.apply(&step, &self.settings);
        }
    }

    /// The hit ratio of each cache.
    pub fn finish(self) -> Curve {
        let point = |measured: &Measured| Point {
            memory: measured.memory,
            hit_ratio: (1.0 - self.miss_ratio(&measured.misses)).clamp(0.0, 1.0),
            evictions: measured.cache.evictions() as f64 / self.sample.rate,
            stored_bytes: measured.cache.stored_bytes() as f64 / self.sample.rate,
            taken_bytes: measured.cache.taken_bytes(),
        };
        Curve {
            points: self.caches.iter().map(point).collect(),
            other_gets: self.other_gets(),
            sampled_gets: sum(&self.gets[self.sample.popular.len()..]) / self.sample.rate,
            sample: self.sample,
        }
    }

    /// Gets of all keys but the popular ones.
    fn other_gets(&self) -> u64 {
        let popular: u64 = self.gets[..self.sample.popular.len()].iter().map(|gets| u64::from(*gets)).sum();
        self.sample.gets.saturating_sub(popular)
    }

    /// The share of misses of all gets, from the misses of the popular keys and of the sampled ones.
    ///
    /// The misses of popular keys are counted. Those of the others are estimated: the sample has more or fewer gets than
    /// its share, and the number of all gets is known. SHARDS-adj assumes that the gets in excess hit, which suits keys of
    /// which few are popular. If all keys are equally popular, the gets in excess miss as often as others. The regression
    /// estimator has both as limits (W. G. Cochran, "Sampling techniques", third edition, chapter 7). Its slope minimises
    /// the variance if each key is sampled independently of the others.
    fn miss_ratio(&self, misses: &[u32]) -> f64 {
        let Sample { rate, gets: all_gets, .. } = self.sample;
        let popular = self.sample.popular.len();
        let (counted, misses) = misses.split_at(popular);
        let gets = &self.gets[popular..];
        let products = |values: &[u32]| -> f64 {
            values.iter().zip(gets).map(|(value, gets)| f64::from(*value) * f64::from(*gets)).sum()
        };
        let slope = products(misses) / products(gets).max(1.0);
        let other_gets = self.other_gets() as f64;
        let missing_gets = other_gets - sum(gets) / rate;
        let estimated = (sum(misses) / rate + slope * missing_gets).clamp(0.0, other_gets);
        (sum(counted) + estimated) / all_gets as f64
    }
}

fn sum(values: &[u32]) -> f64 {
    values.iter().map(|value| f64::from(*value)).sum()
}

impl Measured {
    fn apply(&mut self, step: &Step, settings: &SlabSettings) {
        let Step { key, at_s, .. } = *step;
        let item = |value_bytes: u32, ttl_s: u32| Item {
            bytes: settings.item_bytes(step.key_bytes, value_bytes),
            expires_s: if ttl_s == 0 { 0 } else { at_s.saturating_add(ttl_s.min(TTL_S_MAX)) },
        };
        if step.operation == Operation::Delete {
            self.cache.remove(key);
            return;
        }
        let found = self.cache.find(key, at_s);
        let stored = match (step.operation, found) {
            (Operation::Get, Some(_)) => {
                self.cache.hit(key, at_s);
                return;
            }
            (Operation::Get, None) => {
                self.misses[key as usize] += 1;
                step.fill.and_then(|fill| Some(item(fill.value_bytes?, fill.ttl_s)))
            }
            (Operation::Set, _) | (Operation::Add, None) | (Operation::Replace, Some(_)) => {
                Some(item(step.value_bytes, step.ttl_s))
            }
            (Operation::Append, Some(old)) => Some(Item { bytes: old.bytes.saturating_add(step.value_bytes), ..old }),
            _ => None,
        };
        if let Some(item) = stored {
            let is_stored = self.cache.store(key, item, at_s);
            // In memcached, too, only a refused `set` removes the old value. Any other command keeps it.
            if !is_stored && step.operation == Operation::Set {
                self.cache.remove(key);
            }
        }
    }
}
