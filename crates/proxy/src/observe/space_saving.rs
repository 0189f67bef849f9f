//! The most frequent keys of a stream, in fixed memory: Space-Saving (Metwally, Agrawal and El Abbadi, ICDT 2005), with counts
//! that decay by half-lives, so that recent requests count most (as in Cormode et al., Forward Decay, ICDE 2009).
//! Knows nothing of requests, loops or sampling.

use clock::Nanos;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Counts of some keys: for each, `count - excess <= its true count <= count`, and no key outside has more than `floor`.
///
/// The lists are searched linearly: the CPU compares several of a few hundred adjacent small numbers at once.
#[derive(Debug)]
pub(crate) struct Sketch {
    capacity: usize,
    half_life_s: f64,
    hashes: Vec<u32>,
    counts: Vec<f64>,
    /// The part of each count that may belong to keys that had the place before.
    excesses: Vec<f64>,
    keys: Vec<Vec<u8>>,
    /// A lower bound of all counts. No count before the cursor is as small: counts only rise, so the search for the rarest key
    /// continues where the last one ended.
    least: f64,
    cursor: usize,
    /// The decayed sum of all counts.
    total: f64,
    /// The decayed time in which it was counted: `total / seconds` is the rate.
    seconds: f64,
    /// The time of the last decay.
    faded: Nanos,
}

/// The number of hashes that are compared at once.
const GROUP: usize = 32;

/// One key of a sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted<'s> {
    pub(crate) key: &'s [u8],
    pub(crate) count: f64,
    pub(crate) excess: f64,
}

impl Sketch {
    /// An empty sketch with `capacity` places.
    pub(crate) fn new(capacity: usize, half_life_s: f64, now: Nanos) -> Sketch {
        Sketch {
            capacity: capacity.max(1),
            half_life_s,
            hashes: Vec::new(),
            counts: Vec::new(),
            excesses: Vec::new(),
            keys: Vec::new(),
            least: 0.0,
            cursor: 0,
            total: 0.0,
            seconds: 0.0,
            faded: now,
        }
    }

    /// Counts a key once.
    pub(crate) fn count(&mut self, key: &[u8]) {
        self.total += 1.0;
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish() as u32;
        match self.place_of(hash, key) {
            Some(place) => self.counts[place] += 1.0,
            None if self.keys.len() < self.capacity => {
                self.hashes.push(hash);
                self.counts.push(1.0);
                self.excesses.push(0.0);
                self.keys.push(key.to_vec());
            }
            None => self.take_over(hash, key),
        }
    }

    /// The place of a key. Within a group there is no early exit, so that the compiler can vectorise the comparison.
    fn place_of(&self, hash: u32, key: &[u8]) -> Option<usize> {
        let groups = self.hashes.chunks(GROUP).enumerate();
        let with_hash = groups.filter(|(_, group)| group.iter().fold(false, |found, &other| found | (other == hash)));
        let mut places = with_hash.flat_map(|(index, group)| index * GROUP..index * GROUP + group.len());
        places.find(|&place| self.hashes[place] == hash && self.keys[place] == key)
    }

    /// Replaces the rarest key by a new one, which inherits its count as excess.
    fn take_over(&mut self, hash: u32, key: &[u8]) {
        let (place, least) = self.rarest();
        self.hashes[place] = hash;
        self.counts[place] = least + 1.0;
        self.excesses[place] = least;
        self.keys[place].clear();
        self.keys[place].extend_from_slice(key);
    }

    /// The place with the smallest count, and that count.
    fn rarest(&mut self) -> (usize, f64) {
        let next = self.counts[self.cursor..].iter().position(|&count| count <= self.least);
        if let Some(step) = next {
            self.cursor += step;
        } else {
            self.least = self.floor();
            self.cursor = self.counts.iter().position(|&count| count <= self.least).unwrap_or(0);
        }
        (self.cursor, self.counts[self.cursor])
    }

    /// Decays all numbers until `now`. They decay by the same factor, so the bounds stay valid.
    pub(crate) fn decay(&mut self, now: Nanos) {
        let elapsed_s = now.since(self.faded) as f64 / 1e9;
        let factor = (-elapsed_s / self.half_life_s).exp2();
        self.counts.iter_mut().chain(&mut self.excesses).for_each(|number| *number *= factor);
        self.least *= factor;
        self.total *= factor;
        self.seconds = (self.seconds + elapsed_s) * factor;
        self.faded = self.faded.max(now);
    }

    /// Copies another sketch into the memory of this one.
    pub(crate) fn copy_from(&mut self, other: &Sketch) {
        let Sketch { capacity, half_life_s, total, seconds, faded, least, cursor, .. } = *other;
        (self.capacity, self.half_life_s, self.least, self.cursor) = (capacity, half_life_s, least, cursor);
        (self.total, self.seconds, self.faded) = (total, seconds, faded);
        self.hashes.clone_from(&other.hashes);
        self.counts.clone_from(&other.counts);
        self.excesses.clone_from(&other.excesses);
        self.keys.clone_from(&other.keys);
    }

    /// The keys, in no order.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted<'_>> {
        (0..self.keys.len()).map(|place| Counted {
            key: &self.keys[place],
            count: self.counts[place],
            excess: self.excesses[place],
        })
    }

    /// The largest count that a key outside the sketch may have.
    pub(crate) fn floor(&self) -> f64 {
        let is_full = self.keys.len() == self.capacity;
        if is_full { self.counts.iter().copied().fold(f64::INFINITY, f64::min) } else { 0.0 }
    }

    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// A pseudo-random number from 0 to 1, from a counter.
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The cumulative distribution function of a Zipf variate over `keys` keys.
    fn zipf(keys: usize, exponent: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-exponent)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().scan(0.0, |below, weight| (*below += weight / sum, Some(*below)).1).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn the_most_frequent_of_a_zipf_stream_are_found_and_no_bound_is_broken(
            seed: u64, exponent in 0.9..1.4f64, keys in 200..5000usize, places in 64..256usize, pause_ms in 0..400u64,
        ) {
            let (cumulated, mut state) = (zipf(keys, exponent), seed);
            let mut sketch = Sketch::new(places, 1.0, Nanos(0));
            let mut truth: HashMap<usize, f64> = HashMap::new();
            let mut now = Nanos(0);
            for index in 0..10_000 {
                let drawn = uniform(&mut state);
                let rank = cumulated.partition_point(|&below| below < drawn).min(keys - 1);
                sketch.count(format!("key:{rank}").as_bytes());
                *truth.entry(rank).or_default() += 1.0;
                if index % 2500 == 2499 {
                    now = Nanos(now.0 + pause_ms * 1_000_000);
                    sketch.decay(now);
                    let factor = (-(pause_ms as f64) / 1000.0).exp2();
                    truth.values_mut().for_each(|count| *count *= factor);
                }
            }
            let close = |left: f64, right: f64| left <= right + 1e-6;
            let name = |rank: &usize| format!("key:{rank}").into_bytes();
            let kept: HashMap<&[u8], Counted<'_>> = sketch.counted().map(|one| (one.key, one)).collect();
            prop_assert!(kept.len() <= places);
            for (rank, &count) in &truth {
                match kept.get(name(rank).as_slice()) {
                    Some(one) => prop_assert!(close(one.count - one.excess, count) && close(count, one.count)),
                    None => prop_assert!(close(count, sketch.floor())),
                }
            }
            // The paper's bound: all places together have all counts, so the rarest has at most an equal share.
            prop_assert!(close(sketch.floor(), sketch.total() / places as f64));
            for (rank, &count) in &truth {
                let is_frequent = count > sketch.total() / places as f64 + 1e-6;
                prop_assert!(!is_frequent || kept.contains_key(name(rank).as_slice()), "rank {rank}");
            }
        }
    }

    #[test]
    fn old_counts_decay() {
        let mut sketch = Sketch::new(8, 10.0, Nanos(0));
        (0..1000).for_each(|_| sketch.count(b"old"));
        sketch.decay(Nanos(60_000_000_000));
        (0..100).for_each(|_| sketch.count(b"new"));
        let count = |key: &[u8]| sketch.counted().find(|one| one.key == key).unwrap().count;
        assert_eq!(count(b"new"), 100.0);
        assert!((count(b"old") - 1000.0 / 64.0).abs() < 1e-9);
    }

    #[test]
    fn the_rate_is_right_from_the_first_seconds_on() {
        let mut sketch = Sketch::new(8, 10.0, Nanos(0));
        for second in 1..=40u64 {
            (0..500).for_each(|_| sketch.count(b"k"));
            sketch.decay(Nanos(second * 1_000_000_000));
            assert!((sketch.total() / sketch.seconds() - 500.0).abs() < 1e-6, "second {second}");
        }
    }

    #[test]
    fn a_copy_is_equal_and_keys_with_equal_hashes_are_distinguished() {
        let mut sketch = Sketch::new(2, 10.0, Nanos(0));
        for key in ["a", "b", "c", "c"] {
            sketch.count(key.as_bytes());
        }
        let mut copy = Sketch::new(9, 1.0, Nanos(7));
        copy.copy_from(&sketch);
        assert!(copy.counted().eq(sketch.counted()));
        assert_eq!((copy.floor(), copy.total()), (1.0, 4.0));
        let same = sketch.hashes[1];
        sketch.hashes.fill(same);
        assert_eq!(sketch.place_of(same, &sketch.keys[1]), Some(1));
    }
}
