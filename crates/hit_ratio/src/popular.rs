//! The keys with the most gets, found in one pass with a bounded number of counters: the algorithm of J. Misra and
//! D. Gries, "Finding repeated elements", Science of Computer Programming 2, 1982.

use std::collections::HashMap;

/// Counters. A key with a larger share of the gets than 1 / (this + 1) always keeps its counter.
const COUNTERS: usize = 4096;
/// A key is popular if its counter has at least this share of the gets. With the error of the counters, each key with one
/// get of 2000 is popular.
const SHARE_MIN: f64 = 1.0 / 4000.0;
/// The most popular keys that are chosen.
const KEYS_MAX: usize = 64;

/// Gets by the hashes of their keys.
#[derive(Debug, Default)]
pub(crate) struct PopularKeys {
    /// Each count is at most the gets of its key.
    counts: HashMap<u64, u64>,
    gets: u64,
    has_repeats: bool,
}

impl PopularKeys {
    /// Counts a get.
    pub(crate) fn add(&mut self, hash: u64) {
        self.gets += 1;
        if let Some(count) = self.counts.get_mut(&hash) {
            *count += 1;
            self.has_repeats = true;
        } else if self.counts.len() < COUNTERS {
            self.counts.insert(hash, 1);
        } else {
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }

    /// Whether a key surely had two gets. A false may be wrong.
    pub(crate) fn has_repeats(&self) -> bool {
        self.has_repeats
    }

    /// The hashes of the most popular keys, in increasing order.
    pub(crate) fn hashes(&self) -> Vec<u64> {
        let count_min = self.gets as f64 * SHARE_MIN;
        let mut found: Vec<(u64, u64)> = self
            .counts
            .iter()
            .filter(|(_, count)| **count as f64 >= count_min)
            .map(|(hash, count)| (*count, *hash))
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(KEYS_MAX);
        let mut hashes: Vec<u64> = found.into_iter().map(|(_, hash)| hash).collect();
        hashes.sort_unstable();
        hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_with_one_get_of_2000_is_found() {
        let mut keys = PopularKeys::default();
        // 60 popular keys among keys that are read once.
        let popular = |turn: u64| {
            turn.is_multiple_of(100).then_some(turn / 100 % 20).or((turn % 50 == 7).then_some(20 + turn / 50 % 40))
        };
        let mut counts = vec![0u64; 60];
        let gets = 400_000;
        for turn in 0..gets {
            match popular(turn) {
                Some(key) => {
                    counts[key as usize] += 1;
                    keys.add(key);
                }
                None => keys.add(1_000_000 + turn),
            }
        }
        assert!(counts.iter().all(|count| count * 2000 >= gets), "{counts:?}");
        assert_eq!(keys.hashes(), (0..60).collect::<Vec<u64>>());
        assert!(keys.has_repeats());
    }

    #[test]
    fn the_counters_are_bounded_and_the_most_popular_keys_win() {
        let mut keys = PopularKeys::default();
        (0..100_000).for_each(|key| keys.add(key));
        assert!(keys.counts.len() <= COUNTERS && keys.hashes().is_empty() && !keys.has_repeats());
        let mut keys = PopularKeys::default();
        for key in 0..100 {
            (0..=key).for_each(|_| keys.add(key));
        }
        assert_eq!(keys.hashes(), (36..100).collect::<Vec<u64>>());
    }
}
