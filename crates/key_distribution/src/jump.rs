//! Jump consistent hash: no table, an even distribution, and an added server takes its share equally from all others.
//!
//! Source: J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", arXiv:1406.2294, 2014, figure 1.
//! It numbers servers and knows no names, so removing a server from the middle of the list moves the keys of all servers after it.

/// The multiplier of the paper's linear congruential generator.
const MULTIPLIER: u64 = 2_862_933_555_777_941_757;

/// The bucket of a key's 64-bit hash, from 0 to `buckets` - 1.
pub(crate) fn bucket(mut hash: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0, 0);
    while next < buckets {
        bucket = next;
        hash = hash.wrapping_mul(MULTIPLIER).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1_u64 << 31) as f64 / ((hash >> 33) + 1) as f64)) as usize;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors that common implementations of the paper share.
    #[test]
    fn buckets_equal_the_published_ones() {
        for (hash, buckets, expected) in
            [(1, 1, 0), (42, 57, 43), (0xdead_10cc, 1, 0), (0xdead_10cc, 666, 361), (256, 1024, 520)]
        {
            assert_eq!(bucket(hash, buckets), expected, "{hash} of {buckets}");
        }
    }
}
