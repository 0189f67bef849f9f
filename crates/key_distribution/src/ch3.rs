//! mcrouter's hash function for pools, which it calls Ch3: a consistent hash of numbered servers, so that this proxy can replace
//! mcrouter without emptying the caches. Few keys move when servers are added or removed at the end of the list.
//!
//! Source: mcrouter/lib/fbi/hash.c, an algorithm by M. Rabkin. A stream of bits, made from the hash of the key, decides on a path
//! through a binary tree of servers. Checked against the servers that this source chooses (tests/mcrouter.rs).

use crate::hash::murmur_64a;

/// After this many numbers beyond the last server, the key belongs to the first server.
const TRIES: usize = 32;
/// The distance between two bits that are used one after the other.
const STEP: u32 = 23;

/// The bits of a key: those of its hash, then those of the hash of this hash, and so on.
struct Bits {
    first: u64,
    word: u64,
    number: u32,
}

impl Bits {
    fn get(&mut self, at: u32) -> usize {
        let number = at / u64::BITS;
        if number < self.number {
            (self.word, self.number) = (self.first, 0);
        }
        while self.number < number {
            self.word = murmur_64a(&self.word.to_le_bytes());
            self.number += 1;
        }
        (self.word >> (at % u64::BITS) & 1) as usize
    }
}

/// The bucket of a key's 64-bit hash, from 0 to `buckets` - 1.
pub(crate) fn bucket(hash: u64, buckets: usize) -> usize {
    if buckets <= 1 {
        return 0;
    }
    let mut bits = Bits { first: hash, word: hash, number: 0 };
    let mut depth = buckets.next_power_of_two().trailing_zeros();
    let mut at = depth;
    for _ in 0..TRIES {
        // The depth of the tree in which the key is found. Each smaller tree has half the servers.
        while bits.get(at) == 0 {
            depth -= 1;
            if depth == 0 {
                return 0;
            }
            at = depth;
        }
        at += STEP;
        let mut number = 1;
        for _ in 1..depth {
            number = number << 1 | bits.get(at);
            at += STEP;
        }
        if number < buckets {
            return number;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_moves_only_to_the_server_that_is_added() {
        for key in 0..500_u32 {
            let hash = murmur_64a(&key.to_le_bytes());
            for buckets in 1..40 {
                let (before, after) = (bucket(hash, buckets), bucket(hash, buckets + 1));
                assert!(before < buckets && (after == before || after == buckets), "{key}: {before} to {after}");
            }
        }
    }
}
