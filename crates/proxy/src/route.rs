//! Station 4. Maps a key to its backends: the primary by consistent hashing, then the servers that follow it in the list.

use crate::ketama::Ketama;

/// Where keys live.
#[derive(Clone, Debug)]
pub struct Router {
    ketama: Ketama,
    servers: u16,
    replicas: u16,
    hash_tag: Option<[u8; 2]>,
}

impl Router {
    /// A router for servers of equal weight.
    ///
    /// # Panics
    /// When `replicas` is not between one and the number of servers: the configuration has been checked before.
    pub fn new(servers: &[String], replicas: usize, hash_tag: Option<[u8; 2]>) -> Router {
        assert!((1..=servers.len()).contains(&replicas));
        let weighted: Vec<(&str, u32)> = servers.iter().map(|server| (server.as_str(), 1)).collect();
        let ketama = Ketama::new(&weighted);
        Router { ketama, servers: servers.len() as u16, replicas: replicas as u16, hash_tag }
    }

    /// The backend that reads of this key go to.
    pub fn primary(&self, key: &[u8]) -> u16 {
        match self.servers {
            1 => 0,
            _ => self.ketama.server(self.hashed_part(key)),
        }
    }

    /// The backends that writes of this key go to: the primary first, then its successors.
    pub fn replicas(&self, key: &[u8]) -> impl Iterator<Item = u16> + use<> {
        let (primary, servers) = (self.primary(key), self.servers);
        (0..self.replicas).map(move |step| (primary + step) % servers)
    }

    /// How many backends there are.
    pub fn servers(&self) -> u16 {
        self.servers
    }

    /// What is hashed: what stands between the hash tag's two characters when both are there and not neighbours.
    fn hashed_part<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let Some([open, close]) = self.hash_tag else { return key };
        let Some(start) = key.iter().position(|&byte| byte == open).map(|at| at + 1) else { return key };
        match key[start..].iter().position(|&byte| byte == close) {
            Some(length) if length > 0 => &key[start..start + length],
            _ => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Placements that twemproxy 0.5.0 (`hash: md5`, `distribution: ketama`) chose, read back from the servers it had written to.
    #[test]
    fn placements_are_twemproxys() {
        let servers = |ports: &[u16]| ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>();
        let three = Router::new(&servers(&[11411, 11412, 11413]), 1, None);
        let five = Router::new(&servers(&[11411, 11412, 11413, 11414, 11211]), 1, Some(*b"{}"));
        let names = servers(&[11411, 11412, 11413]);
        let weighted = Ketama::new(&[(&names[0], 1), (&names[1], 2), (&names[2], 5)]);
        let mut checked = 0;
        for line in include_str!("../tests/ketama-twemproxy.csv").lines().skip(1) {
            let mut fields = line.split(',');
            let (pool, key) = (fields.next().unwrap(), fields.next().unwrap().as_bytes());
            let server: u16 = fields.next().unwrap().parse().unwrap();
            let ours = match pool {
                "three" => three.primary(key),
                "five" => five.primary(key),
                _ => weighted.server(key),
            };
            assert_eq!(ours, server, "{line}");
            checked += 1;
        }
        assert_eq!(checked, 1227);
    }

    #[test]
    fn hash_tags_keep_keys_together() {
        let servers: Vec<String> = (0..7).map(|index| format!("10.0.0.{index}:11211")).collect();
        let router = Router::new(&servers, 1, Some(*b"{}"));
        assert_eq!(router.primary(b"{user}name"), router.primary(b"age{user}"));
        assert_eq!(router.hashed_part(b"{}x"), b"{}x");
        assert_eq!(router.hashed_part(b"a{b"), b"a{b");
        assert_eq!(router.hashed_part(b"a}{b}"), b"b");
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_and_begin_with_the_primary(key in "[a-z]{1,20}", servers in 1usize..9, replicas in 1usize..9) {
            prop_assume!(replicas <= servers);
            let names: Vec<String> = (0..servers).map(|index| format!("host{index}:11311")).collect();
            let router = Router::new(&names, replicas, None);
            let mut chosen: Vec<u16> = router.replicas(key.as_bytes()).collect();
            prop_assert_eq!(chosen[0], router.primary(key.as_bytes()));
            prop_assert_eq!(chosen.len(), replicas);
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), replicas);
        }

        #[test]
        fn a_server_added_takes_keys_only_for_itself(seed in 0u32..1000) {
            let names: Vec<String> = (0..5).map(|index| format!("host{index}-{seed}:11311")).collect();
            let four = Router::new(&names[..4], 1, None);
            let five = Router::new(&names, 1, None);
            for key in 0..200u32 {
                let key = format!("key{key}");
                let (before, after) = (four.primary(key.as_bytes()), five.primary(key.as_bytes()));
                prop_assert!(after == before || after == 4);
            }
        }
    }
}
