//! Maps ranks to keys: a bijection that spreads adjacent ranks over all keys.
//! A fixed function of the number of keys, so that all threads and processes agree without a table.

/// Odd multipliers and addends: the first binary digits of the square roots of 2 and 3, and of pi.
const ROUNDS: [(u64, u64); 3] = [
    (0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b),
    (0xbb67_ae85_84ca_a73b, 0x243f_6a88_85a3_08d3),
    (0x243f_6a88_85a3_08d3, 0x6a09_e667_f3bc_c909),
];

/// The bijection for one number of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scatter {
    keys: u64,
    /// The power of two that is at least the number of keys, minus one.
    mask: u64,
    /// Half of its number of bits.
    shift: u32,
}

impl Scatter {
    /// The bijection for at least one key.
    pub(crate) fn new(keys: u64) -> Scatter {
        let mask = keys.next_power_of_two() - 1;
        Scatter { keys, mask, shift: mask.count_ones().div_ceil(2).max(1) }
    }

    /// The key with this rank; both count from 0 and are below the number of keys.
    #[inline]
    pub(crate) fn key(&self, rank: u64) -> u64 {
        let mut key = self.mix(rank);
        // Cycle walking: repeating the bijection of the power of two until the result is a key, below two steps on average.
        while key >= self.keys {
            key = self.mix(key);
        }
        key
    }

    /// A bijection of the power of two: each step is invertible.
    #[inline]
    fn mix(&self, mut value: u64) -> u64 {
        for (factor, term) in ROUNDS {
            value = value.wrapping_mul(factor).wrapping_add(term) & self.mask;
            value ^= value >> self.shift;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_rank() {
        for keys in (1..130).chain([1000, 1024, 4097, 100_000]) {
            let scatter = Scatter::new(keys);
            let mut seen = vec![false; keys as usize];
            (0..keys).for_each(|rank| seen[scatter.key(rank) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{keys}");
        }
    }

    #[test]
    fn popular_keys_are_spread() {
        for keys in [10_000, 65_536, 1 << 27] {
            let scatter = Scatter::new(keys);
            let mut popular: Vec<u64> = (0..100).map(|rank| scatter.key(rank)).collect();
            let halves = popular.iter().filter(|key| **key < keys / 2).count();
            assert!((30..=70).contains(&halves), "{keys}: {halves} of 100 in the lower half");
            let steps = popular.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < keys / 1000).count();
            assert!(steps <= 3, "{keys}: {steps} adjacent ranks are adjacent keys");
            popular.sort_unstable();
            let differences: std::collections::HashSet<u64> =
                popular.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(differences.len() > 50, "{keys}: they lie on a grid of {} steps", differences.len());
        }
    }

    #[test]
    fn the_mapping_never_changes() {
        let keys = |keys| (0..5).map(|rank| Scatter::new(keys).key(rank)).collect::<Vec<_>>();
        assert_eq!(keys(1), [0].repeat(5));
        assert_eq!(keys(10_000), [2225, 1909, 2544, 7910, 3088]);
    }
}
