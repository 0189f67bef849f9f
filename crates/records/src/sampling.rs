//! Chooses the requests that are recorded: the same at both ends of a connection, so that their records can be joined.

/// Whether the request with this client port and sequence number is recorded. One request in `sample` is; none if it is 0.
pub fn is_sampled(port: u16, sequence: u32, sample: u32) -> bool {
    match sample {
        0 => false,
        1 => true,
        _ => splitmix64(u64::from(port) << 32 | u64::from(sequence)).is_multiple_of(u64::from(sample)),
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: the output mix.
fn splitmix64(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_equals_the_published_function() {
        assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn one_in_n_requests_is_sampled_on_every_connection() {
        for port in [1, 40_000, 65_535] {
            let kept = (0..100_000).filter(|&sequence| is_sampled(port, sequence, 100)).count();
            assert!((900..1100).contains(&kept), "{kept} of 100000 on port {port}");
        }
        assert!(is_sampled(1, 1, 1));
        assert!(!is_sampled(1, 1, 0));
    }
}
