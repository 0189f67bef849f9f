//! Consistent hashing as libmemcached and twemproxy do it, so that a cache keeps its content when the proxy is exchanged.
//!
//! Source: R. Jones, "libketama: a consistent hashing algorithm for memcache clients", 2007; weights as libmemcached's
//! KETAMA_WEIGHTED. Checked against placements recorded from twemproxy (tests/twemproxy.rs).

use md5::{Digest, Md5};

/// Points that a server of average weight has on the circle; four come from one digest.
const POINTS_PER_SERVER: f64 = 160.0;
const POINTS_PER_DIGEST: usize = 4;

/// The circle: points in rising order, each with the server that owns what lies before it.
#[derive(Clone, Debug)]
pub(crate) struct Ketama {
    points: Vec<(u32, u16)>,
}

impl Ketama {
    /// A circle of servers, given as name and weight.
    ///
    /// # Panics
    /// When there is no server or no weight: the configuration has been checked before.
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
        Ketama { points }
    }

    /// The server of a key: the owner of the first point at or after its hash.
    pub(crate) fn server(&self, hash: u32) -> u16 {
        let at = self.points.partition_point(|&(point, _)| point < hash);
        self.points[if at == self.points.len() { 0 } else { at }].1
    }
}

/// How many digests each weight is worth. One that is far below the average is worth none, and its server gets no keys.
pub(crate) fn digests(weights: &[u32]) -> impl Iterator<Item = usize> + use<'_> {
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    weights.iter().map(move |&weight| {
        let share = f64::from(weight) / total;
        // The small addend is libmemcached's guard against a product just below a whole number.
        (share * POINTS_PER_SERVER / POINTS_PER_DIGEST as f64 * weights.len() as f64 + 1e-10) as usize
    })
}
