//! The hash functions of keys. Each one matches its specification bit for bit and must never change: a proxy with another
//! hash would find none of the cached values. Knows no servers.

use crate::Hash;
use md5::{Digest, Md5};
use xxhash_rust::xxh3::xxh3_64;

const FNV1A_64_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV1A_64_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The factor and the shift of MurmurHash64A, and the seed that mcrouter uses.
const MURMUR_FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const MURMUR_SHIFT: u32 = 47;
const MURMUR_SEED: u64 = 4_193_360_111;

/// The hash of a key. Only `xxh3-64` and `murmur_64a` fill 64 bits; `crc32` fills 15, the others 32.
pub(crate) fn hash(function: Hash, key: &[u8]) -> u64 {
    match function {
        Hash::Md5 => u64::from(md5_word(key)),
        Hash::Fnv1a64 => u64::from(fnv1a_64(key)),
        Hash::Crc32 => u64::from(crc32(key)),
        Hash::Xxh3 => xxh3_64(key),
        Hash::Murmur64a => murmur_64a(key),
    }
}

/// The first word of the digest, low byte first (R. Rivest, RFC 1321), as libmemcached uses it.
pub(crate) fn md5_word(bytes: &[u8]) -> u32 {
    let digest: [u8; 16] = Md5::digest(bytes).into();
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// FNV-1a by Fowler, Noll and Vo as twemproxy and libmemcached implement it under this name: the low half of the 64 bits,
/// with bytes above 127 as negative numbers, as a C compiler for x86 treats them.
fn fnv1a_64(key: &[u8]) -> u32 {
    key.iter().fold(FNV1A_64_START as u32, |hash, &byte| {
        (hash ^ i32::from(byte.cast_signed()).cast_unsigned()).wrapping_mul(FNV1A_64_PRIME as u32)
    })
}

/// MurmurHash64A by A. Appleby, with the seed of mcrouter.
pub(crate) fn murmur_64a(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = MURMUR_SEED ^ (key.len() as u64).wrapping_mul(MURMUR_FACTOR);
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(MURMUR_FACTOR);
        let mixed = (word ^ (word >> MURMUR_SHIFT)).wrapping_mul(MURMUR_FACTOR);
        hash = (hash ^ mixed).wrapping_mul(MURMUR_FACTOR);
    }
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ word).wrapping_mul(MURMUR_FACTOR);
    }
    hash = (hash ^ (hash >> MURMUR_SHIFT)).wrapping_mul(MURMUR_FACTOR);
    hash ^ (hash >> MURMUR_SHIFT)
}

/// The checksum of IEEE 802.3, of which twemproxy and libmemcached use 15 bits.
fn crc32(key: &[u8]) -> u32 {
    (crc32fast::hash(key) >> 16) & 0x7fff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1321, appendix A.5.
    #[test]
    fn md5_equals_the_published_hash() {
        assert_eq!(md5_word(b""), 0xd98c_1dd4);
        assert_eq!(md5_word(b"abc"), 0x9850_0190);
    }

    /// The 64-bit vectors of the IETF draft on FNV, of which the low half is used.
    #[test]
    fn fnv1a_64_is_the_low_half_of_the_published_hash() {
        for (key, published) in
            [("", 0xcbf2_9ce4_8422_2325_u64), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv1a_64(key.as_bytes()), published as u32, "{key}");
        }
    }

    /// The check value of CRC-32/ISO-HDLC is cbf43926.
    #[test]
    fn crc32_is_the_upper_part_of_the_published_hash() {
        assert_eq!(crc32(b"123456789"), 0xcbf4 & 0x7fff);
    }

    /// `XSUM_XXH3_testdata` of xxHash 0.8: lengths of its pseudo-random text, seed 0.
    #[test]
    fn xxh3_64_equals_the_published_hash() {
        let mut state = 2_654_435_761_u64;
        let text: Vec<u8> = std::iter::repeat_with(|| {
            let byte = (state >> 56) as u8;
            state = state.wrapping_mul(0x9e37_79b1_85eb_ca8d);
            byte
        })
        .take(241)
        .collect();
        for (length, published) in [
            (0, 0x2d06_8005_38d3_94c2),
            (1, 0xc44b_dff4_074e_ecdb),
            (6, 0x27b5_6a84_cd2d_7325),
            (12, 0xa713_daf0_dfbb_77e7),
            (24, 0xa3fe_70bf_9d35_10eb),
            (48, 0x397d_a259_ecba_1f11),
            (129, 0x98f1_b0a6_79a2_ca29),
            (240, 0x81c3_c2b6_7f56_8ccf),
        ] {
            assert_eq!(hash(Hash::Xxh3, &text[..length]), published, "{length}");
        }
    }
}
