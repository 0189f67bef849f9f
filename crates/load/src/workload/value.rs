//! Makes the value of a key at a version, and recognises such values.
//! A value is its key number and its version, eight little-endian bytes each, and then a fill derived from both, cut to
//! the data size. Knows no server, and not which versions are acceptable.

/// Bytes of the key number and the version.
const NAME_BYTES: usize = 16;

/// What a value contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A complete value of this key.
    Whole(SeenVersion),
    /// A value of another key.
    Wrong,
    /// Bytes that were never written as one value: their length is wrong, or they mix several values.
    Torn,
}

/// The part of a version that a value contains: all 64 bits if the value has 16 bytes or more, none if it has 8 or
/// fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenVersion {
    bits: u64,
    mask: u64,
}

/// Appends the value of `key` at `version`.
pub(crate) fn make(key: u64, version: u64, size_bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + size_bytes;
    out.reserve(size_bytes + NAME_BYTES);
    out.extend_from_slice(&key.to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    let mut fill = Fill::new(key, version);
    while out.len() < end {
        out.extend_from_slice(&fill.word());
    }
    out.truncate(end);
}

/// Inspects the bytes returned for `key`. Every changed byte is found: in the key number as `Wrong`, in the fill or the
/// version as `Torn` (each version has another fill), and in values too short for a fill as another version.
pub(crate) fn inspect(bytes: &[u8], key: u64, size_bytes: usize) -> Content {
    if bytes.len() != size_bytes {
        return Content::Torn;
    }
    let (key_bytes, rest) = bytes.split_at(size_bytes.min(8));
    if *key_bytes != key.to_le_bytes()[..key_bytes.len()] {
        return Content::Wrong;
    }
    let (version_bytes, fill_bytes) = rest.split_at(rest.len().min(8));
    let mut version = [0; 8];
    version[..version_bytes.len()].copy_from_slice(version_bytes);
    let seen = SeenVersion { bits: u64::from_le_bytes(version), mask: low_bytes(version_bytes.len()) };
    if is_fill(fill_bytes, key, seen.bits) { Content::Whole(seen) } else { Content::Torn }
}

fn is_fill(bytes: &[u8], key: u64, version: u64) -> bool {
    let mut fill = Fill::new(key, version);
    let mut words = bytes.chunks_exact(8);
    words.all(|word| *word == fill.word()) && {
        let tail = words.remainder();
        tail.is_empty() || *tail == fill.word()[..tail.len()]
    }
}

/// A mask of the lowest `count` bytes.
fn low_bytes(count: usize) -> u64 {
    if count >= 8 { u64::MAX } else { (1 << (8 * count)) - 1 }
}

impl SeenVersion {
    /// The newest version up to `highest` that has these bits, if there is one.
    pub(crate) fn newest_up_to(self, highest: u64) -> Option<u64> {
        let candidate = (highest & !self.mask) | self.bits;
        if candidate <= highest { Some(candidate) } else { candidate.checked_sub(self.mask)?.checked_sub(1) }
    }
}

/// The bytes after the version: Steele, Lea and Flood's splitmix64, seeded by key and version.
pub(crate) struct Fill {
    state: u64,
}

impl Fill {
    pub(crate) fn new(key: u64, version: u64) -> Fill {
        Fill { state: mix(mix(key) ^ version) }
    }

    pub(crate) fn word(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state).to_le_bytes()
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(key: u64, version: u64, size_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        make(key, version, size_bytes, &mut bytes);
        bytes
    }

    /// Whether the bytes are a complete value of exactly this version.
    fn passes(bytes: &[u8], key: u64, version: u64, size_bytes: usize) -> bool {
        matches!(inspect(bytes, key, size_bytes), Content::Whole(seen) if seen.newest_up_to(version) == Some(version))
    }

    #[test]
    fn the_layout_is_key_version_fill() {
        let bytes = made(0x0102, 7, 40);
        assert_eq!(bytes[..16], [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_ne!(bytes[16..24], made(0x0102, 8, 40)[16..24]);
        assert_eq!(made(1, 1, 0), Vec::<u8>::new());
    }

    /// A run without a prefill verifies the values that another version of the program has written.
    #[test]
    fn the_fill_never_changes() {
        let fill = [
            0x76, 0x83, 0x02, 0xaf, 0x48, 0x20, 0xda, 0x3d, 0x8c, 0x5f, 0xdf, 0xf3, 0x4b, 0x1d, 0xcd, 0xaf, 0xce, 0x7b,
            0x3e, 0x27, 0x2d, 0x34, 0xa4, 0xaa, 0x01, 0x0f, 0xc0,
        ];
        assert_eq!(made(5, 7, 43)[16..], fill);
    }

    #[test]
    fn two_halves_of_two_versions_are_torn() {
        let mut bytes = made(5, 1, 128);
        bytes[64..].copy_from_slice(&made(5, 2, 128)[64..]);
        assert_eq!(inspect(&bytes, 5, 128), Content::Torn);
        assert_eq!(inspect(&made(5, 1, 127), 5, 128), Content::Torn);
    }

    #[test]
    fn short_values_are_verified_as_far_as_possible() {
        assert_eq!(inspect(&made(0x0100, 1, 1), 0x0200, 1), inspect(&made(0x0200, 1, 1), 0x0200, 1));
        assert_eq!(inspect(&made(3, 1, 4), 4, 4), Content::Wrong);
        let Content::Whole(seen) = inspect(&made(3, 0x0105, 9), 3, 9) else { panic!("it is whole") };
        assert_eq!(seen.newest_up_to(0x0207), Some(0x0205));
        assert_eq!(seen.newest_up_to(0x0204), Some(0x0105));
        assert_eq!(seen.newest_up_to(4), None);
        let Content::Whole(nothing) = inspect(&made(3, 9, 8), 3, 8) else { panic!("it is whole") };
        assert_eq!(nothing.newest_up_to(55), Some(55));
    }

    proptest! {
        #[test]
        fn made_values_pass(key: u64, version in 0u64..1 << 60, size_bytes in 0usize..300) {
            prop_assert!(passes(&made(key, version, size_bytes), key, version, size_bytes));
        }

        #[test]
        fn any_changed_byte_is_found(key: u64, version in 0u64..1 << 60, size_bytes in 16usize..300, at: prop::sample::Index, change in 1u8..) {
            let mut bytes = made(key, version, size_bytes);
            let at = at.index(size_bytes);
            bytes[at] ^= change;
            prop_assert!(!passes(&bytes, key, version, size_bytes));
            if at < 8 {
                prop_assert_eq!(inspect(&bytes, key, size_bytes), Content::Wrong);
            } else if size_bytes >= 24 {
                prop_assert_eq!(inspect(&bytes, key, size_bytes), Content::Torn);
            }
        }

        #[test]
        fn another_keys_value_is_wrong(key: u64, other: u64, version in 0u64..1 << 60, size_bytes in 8usize..64) {
            prop_assume!(key != other);
            prop_assert_eq!(inspect(&made(other, version, size_bytes), key, size_bytes), Content::Wrong);
        }
    }
}
