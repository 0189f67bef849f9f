//! Station 4. Maps a key to its pool and its backends: the primary by hashing, then those that follow it in the pool's list.

use crate::config::{Config, PoolConfig};
use crate::ketama::Ketama;

/// Where keys live: which pool, and which of its backends.
#[derive(Clone, Debug)]
pub struct Router {
    pools: Vec<Pool>,
    /// What keys begin with and the pool that takes them, longest first.
    prefixes: Vec<(Box<[u8]>, usize)>,
    backends: u16,
}

/// The backends of one pool, and how keys are spread over them.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// The number of its first backend; the others follow.
    first: u16,
    servers: u16,
    replicas: u16,
    hash_tag: Option<[u8; 2]>,
    ketama: Ketama,
}

impl Router {
    /// A router for these pools, whose backends are numbered in their order.
    ///
    /// # Panics
    /// When the configuration has not been checked.
    pub fn new(config: &Config) -> Router {
        let mut first = 0;
        let mut pools = Vec::new();
        for pool in &config.pools {
            pools.push(Pool::new(pool, first));
            first += pool.servers.len() as u16;
        }
        let place = |name: &str| config.pool(name).expect("the configuration has been checked");
        let routes = config.routes.iter();
        let mut prefixes: Vec<(Box<[u8]>, usize)> =
            routes.map(|route| (route.prefix.as_bytes().into(), place(&route.pool))).collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Router { pools, prefixes, backends: first }
    }

    /// The place of the pool that a key belongs to.
    pub(crate) fn pool_of(&self, key: &[u8]) -> usize {
        self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix)).map_or(0, |&(_, pool)| pool)
    }

    /// The pool at this place.
    pub(crate) fn pool(&self, place: usize) -> &Pool {
        &self.pools[place]
    }

    /// The backend that reads of this key go to.
    pub fn primary(&self, key: &[u8]) -> u16 {
        self.pool(self.pool_of(key)).primary(key)
    }

    /// The backends that writes of this key go to: the primary first, then its successors.
    pub fn replicas(&self, key: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
        let pool = self.pool(self.pool_of(key));
        let primary = pool.primary(key);
        (0..pool.replicas).map(move |step| pool.copy(primary, step))
    }

    /// How many backends there are, all pools together.
    pub fn backends(&self) -> u16 {
        self.backends
    }
}

impl Pool {
    fn new(config: &PoolConfig, first: u16) -> Pool {
        let weighted: Vec<(&str, u32)> =
            config.servers.iter().map(|server| (server.address.as_str(), server.weight)).collect();
        Pool {
            first,
            servers: config.servers.len() as u16,
            replicas: config.replicas as u16,
            hash_tag: config.hash_tag,
            ketama: Ketama::new(&weighted),
        }
    }

    /// The backend that a key belongs to.
    pub(crate) fn primary(&self, key: &[u8]) -> u16 {
        self.first
            + match self.servers {
                1 => 0,
                _ => self.ketama.server(self.hashed_part(key)),
            }
    }

    /// The backend that is so many steps behind another in the pool's list, which is a ring.
    pub(crate) fn copy(&self, backend: u16, step: u16) -> u16 {
        self.first + (backend - self.first + step) % self.servers
    }

    /// How many backends it has.
    pub(crate) fn servers(&self) -> u16 {
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

    fn router(servers: &[String], replicas: usize, hash_tag: Option<[u8; 2]>) -> Router {
        let mut config = Config::new("127.0.0.1:0", servers);
        (config.pools[0].replicas, config.pools[0].hash_tag) = (replicas, hash_tag);
        Router::new(&config)
    }

    /// Placements that twemproxy 0.5.0 (`hash: md5`, `distribution: ketama`) chose, read back from the servers it had written to.
    #[test]
    fn placements_are_twemproxys() {
        let servers = |ports: &[u16]| ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>();
        let three = router(&servers(&[11411, 11412, 11413]), 1, None);
        let five = router(&servers(&[11411, 11412, 11413, 11414, 11211]), 1, Some(*b"{}"));
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
        let router = router(&servers, 1, Some(*b"{}"));
        assert_eq!(router.primary(b"{user}name"), router.primary(b"age{user}"));
        assert_eq!(router.pool(0).hashed_part(b"{}x"), b"{}x");
        assert_eq!(router.pool(0).hashed_part(b"a{b"), b"a{b");
        assert_eq!(router.pool(0).hashed_part(b"a}{b}"), b"b");
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_and_begin_with_the_primary(key in "[a-z]{1,20}", servers in 1usize..9, replicas in 1usize..9) {
            prop_assume!(replicas <= servers);
            let names: Vec<String> = (0..servers).map(|index| format!("host{index}:11311")).collect();
            let router = router(&names, replicas, None);
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
            let four = router(&names[..4], 1, None);
            let five = router(&names, 1, None);
            for key in 0..200u32 {
                let key = format!("key{key}");
                let (before, after) = (four.primary(key.as_bytes()), five.primary(key.as_bytes()));
                prop_assert!(after == before || after == 4);
            }
        }
    }
}
