//! The hash ring of libmemcached and twemproxy, so that this proxy can replace them without emptying the caches.
//!
//! Source: R. Jones, "libketama: a consistent hashing algorithm for memcache clients", 2007; weights as libmemcached's
//! KETAMA_WEIGHTED. Checked against the servers that twemproxy chose (tests/twemproxy.rs).

use md5::{Digest, Md5};

/// Points on the ring of a server with average weight; one digest yields four points.
const POINTS_PER_SERVER: f32 = 160.0;
const POINTS_PER_DIGEST: usize = 4;

/// The ring: points in ascending order, each with the server that owns the keys before it.
#[derive(Clone, Debug)]
pub(crate) struct Ketama {
    points: Vec<(u32, u16)>,
    /// For each value of the upper bits of a hash, the index of the first point that may be at or after it. There are more values than
    /// points, so the search from there ends after a few points.
    starts: Vec<u32>,
    /// How far a hash is shifted to get these bits.
    shift: u32,
}

impl Ketama {
    /// The ring of these servers, given as name and weight.
    ///
    /// # Panics
    /// If there is no server or a weight is 0; the configuration has been checked before.
    pub(crate) fn new(servers: &[(&str, u32)]) -> Ketama {
        let weights: Vec<u32> = servers.iter().map(|&(_, weight)| weight).collect();
        let mut points = Vec::new();
        for (index, (&(name, _), digests)) in servers.iter().zip(digests(&weights)).enumerate() {
            for digest in 0..digests {
                let bytes: [u8; 16] = Md5::digest(format!("{name}-{digest}")).into();
                points.extend(bytes.as_chunks::<4>().0.iter().map(|word| (u32::from_le_bytes(*word), index as u16)));
            }
        }
        assert!(!points.is_empty(), "a circle needs a server with a weight");
        points.sort_unstable();
        let bits = (points.len() + 1).next_power_of_two().ilog2();
        let shift = u32::BITS - bits;
        let start = |upper: u32| points.partition_point(|&(point, _)| point >> shift < upper) as u32;
        Ketama { starts: (0..1 << bits).map(start).collect(), shift, points }
    }

    /// The server of a key: the owner of the first point at or after its hash.
    pub(crate) fn server(&self, hash: u32) -> u16 {
        let start = self.starts[(hash >> self.shift) as usize] as usize;
        self.points[start..].iter().find(|&&(point, _)| point >= hash).unwrap_or(&self.points[0]).1
    }
}

/// The number of digests for each weight. A server far below the average weight gets none, and so no keys.
pub(crate) fn digests(weights: &[u32]) -> impl Iterator<Item = usize> + use<'_> {
    let total: u32 = weights.iter().fold(0, |total, &weight| total.saturating_add(weight));
    weights.iter().map(move |&weight| {
        // With 32 bits, as in twemproxy and libmemcached: of 25 equal servers, each gets 39 digests and not 40.
        let share = weight as f32 / total as f32;
        let digests = share * POINTS_PER_SERVER / POINTS_PER_DIGEST as f32 * weights.len() as f32;
        // They add this constant so that a product just below a whole number is rounded up.
        (f64::from(digests) + 1e-10) as f32 as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_first_point_at_or_after_a_hash() {
        for servers in [2, 3, 25, 200] {
            let names: Vec<String> = (0..servers).map(|server| format!("host{server}")).collect();
            let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
            let ring = Ketama::new(&servers);
            let at_points =
                ring.points.iter().flat_map(|&(point, _)| [point.wrapping_sub(1), point, point.wrapping_add(1)]);
            for hash in at_points.chain([0, u32::MAX]).chain((0..1000).map(|step| step * 4_294_967)) {
                let first = ring.points.partition_point(|&(point, _)| point < hash) % ring.points.len();
                assert_eq!(ring.server(hash), ring.points[first].1, "{hash}");
            }
        }
    }

    #[test]
    fn the_number_of_points_is_rounded_as_in_twemproxy() {
        assert_eq!(digests(&[1; 24]).collect::<Vec<_>>(), [40; 24]);
        assert_eq!(digests(&[1; 25]).collect::<Vec<_>>(), [39; 25]);
        assert_eq!(digests(&[1, 2, 5]).collect::<Vec<_>>(), [15, 30, 75]);
    }
}
