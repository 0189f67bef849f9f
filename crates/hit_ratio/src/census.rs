//! The first pass: counts requests, and chooses the keys that the second pass simulates. Keeps a bounded number of keys,
//! those with the smallest hashes.

use crate::HitRatioError;
use crate::popular::PopularKeys;
use crate::request::{Operation, Request};
use crate::slabs::SlabSettings;
use std::collections::{BinaryHeap, HashMap};
use xxhash_rust::xxh3::xxh3_64;

/// Counts of the requests so far.
#[derive(Debug)]
pub struct Census {
    settings: SlabSettings,
    value_bytes: Option<u32>,
    keys_max: usize,
    hashes: BinaryHeap<u64>,
    keys: HashMap<u64, Seen>,
    /// Keys with smaller hashes are in the sample.
    below: Option<u64>,
    counts: Sample,
    popular: PopularKeys,
    first_key: Option<u64>,
    has_other_keys: bool,
    has_sizes: bool,
}

/// What was seen of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    item_bytes: u32,
    gets: u64,
    /// Whether the first request was a get.
    begins_with_get: bool,
}

/// The chosen keys, and the counts of all requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The share of the hashes that are chosen; 1 if all keys are.
    pub rate: f64,
    /// The chosen keys.
    pub sampled_keys: u64,
    /// All requests.
    pub requests: u64,
    /// Gets among them.
    pub gets: u64,
    /// Requests whose item is larger than memcached stores.
    pub too_large: u64,
    /// Writes of an empty value.
    pub empty_writes: u64,
    /// The time of the last request, in seconds after the first.
    pub span_s: u32,
    /// Requests that name a time to live.
    pub with_ttl: u64,
    /// Different keys, estimated unless `rate` is 1.
    pub keys: f64,
    /// Bytes of all items, if none is ever evicted; estimated in the same way.
    pub item_bytes: f64,
    /// Gets that are the first request of their key, estimated in the same way. They miss with any memory.
    pub first_gets: f64,
    /// Keys with smaller hashes are chosen; none if all are.
    pub below: Option<u64>,
    /// The hashes of the most popular keys, in increasing order. They are simulated also if they are not chosen, and their
    /// gets stand for no others. None if all keys are chosen.
    pub popular: Vec<u64>,
}

impl Census {
    /// Begins a census that chooses at most `keys_max` keys. `value_bytes` replaces the sizes of all values.
    pub fn new(settings: SlabSettings, value_bytes: Option<u32>, keys_max: usize) -> Census {
        Census {
            settings,
            value_bytes,
            keys_max: keys_max.max(1),
            hashes: BinaryHeap::new(),
            keys: HashMap::new(),
            below: None,
            counts: Sample::default(),
            popular: PopularKeys::default(),
            first_key: None,
            has_other_keys: false,
            has_sizes: false,
        }
    }

    /// Counts a request.
    pub fn add(&mut self, request: &Request<'_>) {
        let value_bytes = self.value_bytes.unwrap_or(request.value_bytes);
        let item_bytes = self.settings.item_bytes(request.key.len(), value_bytes);
        let counts = &mut self.counts;
        let is_get = request.operation == Operation::Get;
        counts.requests += 1;
        counts.gets += u64::from(is_get);
        counts.span_s = request.at_s;
        counts.too_large +=
            u64::from(request.operation.has_whole_value() && u64::from(item_bytes) > self.settings.item_bytes_max);
        counts.empty_writes += u64::from(request.operation.writes() && value_bytes == 0);
        counts.with_ttl += u64::from(request.ttl_s > 0);
        let hash = xxh3_64(request.key);
        self.has_other_keys |= *self.first_key.get_or_insert(hash) != hash;
        let has_size = request.operation.has_whole_value() && value_bytes > 0;
        self.has_sizes |= has_size;
        if is_get {
            self.popular.add(hash);
        }
        if self.below.is_some_and(|below| hash >= below) {
            return;
        }
        let hashes = &mut self.hashes;
        let seen = self.keys.entry(hash).or_insert_with(|| {
            hashes.push(hash);
            Seen { begins_with_get: is_get, ..Seen::default() }
        });
        if has_size {
            seen.item_bytes = item_bytes;
        }
        seen.gets += u64::from(is_get);
        if self.hashes.len() > self.keys_max
            && let Some(largest) = self.hashes.pop()
        {
            self.keys.remove(&largest);
            self.below = Some(largest);
        }
    }

    /// Ends the census.
    ///
    /// # Errors
    /// There is no hit ratio, or it does not depend on the memory.
    pub fn finish(self) -> Result<Sample, HitRatioError> {
        let mut sample = self.counts;
        if sample.gets == 0 {
            return Err(HitRatioError::NoReads(sample.requests));
        }
        if !self.has_sizes {
            return Err(HitRatioError::NoSizes);
        }
        if !self.has_other_keys {
            return Err(HitRatioError::OneKey(sample.requests));
        }
        let first_gets = self.keys.values().filter(|seen| seen.begins_with_get).count() as u64;
        let gets: u64 = self.keys.values().map(|seen| seen.gets).sum();
        sample.sampled_keys = self.keys.len() as u64;
        // The counts of all rows decide. A sample without repeated gets or sizes is no proof that the trace has none.
        if gets == first_gets && !self.popular.has_repeats() {
            let is_all = self.below.is_none();
            return Err(if is_all { HitRatioError::AllNew } else { HitRatioError::SampleAllNew(sample.sampled_keys) });
        }
        if self.keys.values().all(|seen| seen.item_bytes == 0) {
            return Err(HitRatioError::SampleWithoutSizes(sample.sampled_keys));
        }
        sample.rate = self.below.map_or(1.0, |below| below as f64 / 2f64.powi(64));
        sample.below = self.below;
        sample.popular = self.below.map_or(Vec::new(), |_| self.popular.hashes());
        sample.keys = sample.sampled_keys as f64 / sample.rate;
        let item_bytes: u64 = self.keys.values().map(|seen| u64::from(seen.item_bytes)).sum();
        sample.item_bytes = item_bytes as f64 / sample.rate;
        sample.first_gets = (first_gets as f64 / sample.rate).min(sample.gets as f64);
        Ok(sample)
    }
}

impl Sample {
    /// The hash of a key, if the key is chosen or popular.
    pub(crate) fn chosen(&self, key: &[u8]) -> Option<u64> {
        Some(xxh3_64(key))
            .filter(|hash| self.below.is_none_or(|below| *hash < below) || self.popular.binary_search(hash).is_ok())
    }
}
