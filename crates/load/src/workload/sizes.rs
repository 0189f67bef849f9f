//! The size of each value and the length of each key. They are derived from the key's number (and the value's version),
//! so that returned values can be verified. Knows no requests.

use rand::SeedableRng;
use rand_xoshiro::SplitMix64;
use variates::Variate;

/// The largest size that is drawn: with its header, such a value still fits memcached's default limit of 1 MiB. A fixed
/// size may be larger.
const DRAWN_BYTES_MAX: usize = (1 << 20) - 1024;
/// Values shorter than this do not contain their whole version.
const VERSION_ENDS_AT: usize = 16;

/// The sizes of values.
#[derive(Clone, Debug)]
pub(crate) struct ValueSizes {
    /// The size, if it is fixed.
    fixed_bytes: Option<usize>,
    variate: Variate,
}

impl ValueSizes {
    /// Sizes of this variate. They do not depend on the seed of a run, so one run can verify the values of another.
    pub(crate) fn new(variate: &Variate) -> ValueSizes {
        let fixed_bytes = variate.fixed_value().map(|bytes| bytes.max(0.0).round() as usize);
        ValueSizes { fixed_bytes, variate: variate.clone() }
    }

    /// The size of the value of `key` at `version`.
    pub(crate) fn of(&self, key: u64, version: u64) -> usize {
        self.fixed_bytes.unwrap_or_else(|| {
            let mut random = SplitMix64::seed_from_u64(key.rotate_left(32) ^ version);
            self.variate.draw_size(&mut random, 0, DRAWN_BYTES_MAX)
        })
    }

    /// Whether a value of `key` may have this length. A value too short to contain its version may have any length that
    /// is as short.
    pub(crate) fn fits(&self, key: u64, data: &[u8]) -> bool {
        match (self.fixed_bytes, data.get(8..VERSION_ENDS_AT)) {
            (Some(bytes), _) => data.len() == bytes,
            (None, Some(version)) => {
                let version = u64::from_le_bytes(version.try_into().unwrap_or_default());
                data.len() == self.of(key, version)
            }
            (None, None) => true,
        }
    }

    /// The largest possible size.
    pub(crate) fn largest(&self) -> usize {
        self.fixed_bytes.unwrap_or(DRAWN_BYTES_MAX)
    }
}

/// The lengths of keys.
#[derive(Clone, Debug)]
pub(crate) struct KeySizes {
    variate: Variate,
    largest: usize,
}

impl KeySizes {
    /// Lengths of this variate, up to `largest`.
    pub(crate) fn new(variate: &Variate, largest: usize) -> KeySizes {
        KeySizes { variate: variate.clone(), largest }
    }

    /// The length of the key with this number, which needs at least `needed` bytes.
    pub(crate) fn of(&self, key: u64, needed: usize) -> usize {
        let mut random = SplitMix64::seed_from_u64(key);
        self.variate.draw_size(&mut random, needed.min(self.largest), self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use variates::Unit;

    #[test]
    fn sizes_follow_from_the_value_and_have_their_distribution() {
        let variate = Variate::parse("uniform:10:1010", Unit::Bytes).unwrap();
        let sizes = ValueSizes::new(&variate);
        let mut sum = 0;
        for key in 0..10_000 {
            let bytes = sizes.of(key, 3);
            sum += bytes;
            let mut value = Vec::new();
            crate::workload::value::make(key, 3, bytes, &mut value);
            assert!((10..=1010).contains(&bytes) && sizes.fits(key, &value));
            if bytes > VERSION_ENDS_AT {
                assert!(!sizes.fits(key, &value[..bytes - 1]), "a byte is missing");
            }
        }
        assert!((sum as f64 / 1e4 - 510.0).abs() < 12.0, "{sum}");
        assert!((0..100).any(|version| sizes.of(1, version) != sizes.of(1, version + 1)));
    }

    #[test]
    fn fixed_sizes_are_unlimited_and_drawn_ones_stay_below_the_default_limit() {
        let sizes = |text| ValueSizes::new(&Variate::parse(text, Unit::Bytes).unwrap());
        assert_eq!((sizes("4m").of(1, 1), sizes("4m").largest()), (4 << 20, 4 << 20));
        assert!((0..1000).all(|key| sizes("exp:4m").of(key, 1) <= DRAWN_BYTES_MAX));
        assert!(!sizes("8").fits(1, b"1234567") && sizes("8").fits(1, b"12345678"));
    }
}
