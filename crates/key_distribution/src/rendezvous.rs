//! Rendezvous hashing: every server gets a score for the key, and the highest score owns it. Removing a server moves only
//! its own keys, wherever it was in the list, and weights can be any number. Each lookup computes a score for every server.
//!
//! Sources: D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
//! Networking 6(1), 1998; weights as scores -w / ln(u): C. Schindelhauer and G. Schomaker, "Weighted distributed hash
//! tables", SPAA 2005, and J. Mosberger's and J. Resch's notes on it.

use xxhash_rust::xxh3::xxh3_64;

/// The servers: the hashes of their names, and their weights.
#[derive(Clone, Debug)]
pub(crate) struct Rendezvous {
    servers: Box<[(u64, f64)]>,
    /// With equal weights the largest number has the highest score, and no logarithm is needed.
    are_equal: bool,
}

impl Rendezvous {
    /// Servers, given as name and weight.
    pub(crate) fn new(servers: &[(&str, u32)]) -> Rendezvous {
        Rendezvous {
            servers: servers.iter().map(|&(name, weight)| (xxh3_64(name.as_bytes()), f64::from(weight))).collect(),
            are_equal: servers.iter().all(|&(_, weight)| weight == servers[0].1),
        }
    }

    /// The server of a key's 64-bit hash; the first one if scores are equal.
    pub(crate) fn server(&self, hash: u64) -> u16 {
        let (mut best, mut best_score) = (0, f64::NEG_INFINITY);
        for (index, &(name, weight)) in self.servers.iter().enumerate() {
            let draw = unit(mix(hash ^ name));
            let score = if self.are_equal { draw } else { -weight / draw.ln() };
            if score > best_score {
                (best, best_score) = (index, score);
            }
        }
        best as u16
    }
}

/// Mixes every bit into all others: the finaliser of splitmix64 (G. Steele, D. Lea and C. Flood, OOPSLA 2014).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A number strictly between 0 and 1: the upper 52 bits plus one half.
fn unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of splitmix64 with seed 0 are its finaliser on multiples of the golden gamma.
    #[test]
    fn mixing_equals_splitmix64() {
        let gamma = 0x9e37_79b9_7f4a_7c15_u64;
        assert_eq!(mix(gamma), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(gamma.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn draws_are_strictly_between_0_and_1() {
        assert!(unit(0) > 0.0 && unit(u64::MAX) < 1.0);
    }

    #[test]
    fn equal_weights_choose_as_without_weights() {
        let names: Vec<String> = (0..7).map(|index| format!("host{index}:11311")).collect();
        let of = |weight| Rendezvous::new(&names.iter().map(|name| (name.as_str(), weight)).collect::<Vec<_>>());
        let by_logarithm = Rendezvous { are_equal: false, ..of(3) };
        for key in 0..1000_u64 {
            let hash = mix(key);
            assert_eq!(of(1).server(hash), by_logarithm.server(hash));
        }
    }
}
