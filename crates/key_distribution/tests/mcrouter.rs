//! Every key has the server that mcrouter chooses, so that replacing mcrouter does not empty the caches.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use key_distribution::{Distribution, Hash, KeyDistribution};

/// The servers that `furc_hash` of mcrouter (mcrouter/lib/fbi/hash.c) returns for keys of up to 79 bytes, some beyond ASCII, and up to
/// a million servers. Those of more servers than a pool may have are reached with weights.
#[test]
fn keys_go_to_the_servers_mcrouter_chooses() {
    let mut checked = 0;
    let mut pool: Option<(u32, KeyDistribution)> = None;
    for line in include_str!("ch3-mcrouter.csv").lines().skip(1) {
        let mut fields = line.split(',');
        let (key, servers) = (fields.next().unwrap(), fields.next().unwrap().parse::<u32>().unwrap());
        let server: usize = fields.next().unwrap().parse().unwrap();
        // One server of a large weight counts as many servers.
        let (weight, count) = if servers > 1000 { (servers / 2, 2) } else { (1, servers) };
        if pool.as_ref().is_none_or(|(known, _)| *known != servers) {
            let list: Vec<(&str, u32)> = (0..count).map(|_| ("", weight)).collect();
            pool = Some((servers, KeyDistribution::new(Distribution::Ch3, Hash::Murmur64a, &list)));
        }
        let (_, ours) = pool.as_ref().unwrap();
        assert_eq!(ours.owner(key.as_bytes()), server / weight as usize, "{line}");
        checked += 1;
    }
    assert_eq!(checked, 900);
}
