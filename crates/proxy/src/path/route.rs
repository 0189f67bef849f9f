//! Step 4. Maps a key to its pool by prefix, and to its backends: the primary by hashing, the other replicas from the servers
//! that follow the primary in the pool's list.

use crate::config::{Config, FirstSame, PoolConfig, ServerConfig};
use key_distribution::KeyDistribution;

/// Maps keys to pools and backends.
#[derive(Clone, Debug)]
pub struct Router {
    pools: Vec<Pool>,
    /// Prefixes of keys with the pool they route to, longest first.
    prefixes: Vec<(Box<[u8]>, usize)>,
    servers: FirstSame,
}

/// The backends of a key, and how they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// The index of its pool in the configuration.
    pub pool: usize,
    /// The prefix of the route that matched. Without one, the key belongs to the first pool.
    pub prefix: Option<&'a [u8]>,
    /// The part of the key that is hashed.
    pub hashed: &'a [u8],
    /// The numbers of its backends, counted over all pools: the primary, then the other replicas in order.
    pub backends: Vec<u16>,
}

/// The backends of one pool, and how keys are distributed over them.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// The number of its first backend. The numbers of the others follow it.
    first: u16,
    servers: u16,
    replicas: u16,
    key_distribution: KeyDistribution,
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
        Router { pools, prefixes, servers: config.same_as_written() }
    }

    /// The same router, but `servers` also recognises a server whose address is written in different ways.
    pub(crate) fn with_servers(self, servers: FirstSame) -> Router {
        Router { servers, ..self }
    }

    /// The index of the pool that a key belongs to.
    pub(crate) fn pool_of(&self, key: &[u8]) -> usize {
        self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix)).map_or(0, |&(_, pool)| pool)
    }

    /// The pool with this index.
    pub(crate) fn pool(&self, place: usize) -> &Pool {
        &self.pools[place]
    }

    /// The index of the pool that a backend belongs to.
    pub(crate) fn pool_of_backend(&self, backend: u16) -> usize {
        self.pools.iter().rposition(|pool| pool.first <= backend).unwrap_or(0)
    }

    /// The primary of this key.
    pub fn primary(&self, key: &[u8]) -> u16 {
        self.pool(self.pool_of(key)).primary(key)
    }

    /// The replicas of this key: the primary first, then the servers that follow it.
    pub fn replicas(&self, key: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
        let pool = self.pool(self.pool_of(key));
        let primary = pool.primary(key);
        (0..pool.replicas).map(move |step| pool.replica(primary, step))
    }

    /// The backends of a key, and how they were found. For people; never on the path of a request.
    pub fn explain<'a>(&'a self, key: &'a [u8]) -> Explanation<'a> {
        let prefix = self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|(prefix, _)| &**prefix);
        self.explain_in(self.pool_of(key), prefix, key)
    }

    /// The same if the key belonged to the pool with this index.
    pub fn explain_in<'a>(&'a self, pool: usize, prefix: Option<&'a [u8]>, key: &'a [u8]) -> Explanation<'a> {
        let own = self.pool(pool);
        let primary = own.primary(key);
        let backends = (0..own.replicas).map(|step| own.replica(primary, step)).collect();
        Explanation { pool, prefix, hashed: own.hashed_part(key), backends }
    }

    /// The number of backends in all pools.
    pub fn backends(&self) -> u16 {
        self.servers.len() as u16
    }

    /// Whether two backends, of different pools, are the same server.
    pub(crate) fn is_same_server(&self, backend: u16, other: u16) -> bool {
        self.servers[usize::from(backend)] == self.servers[usize::from(other)]
    }
}

impl Pool {
    fn new(config: &PoolConfig, first: u16) -> Pool {
        let server = |server| (ServerConfig::hashed_name(server, config.distribution), server.weight);
        let servers: Vec<(&str, u32)> = config.servers.iter().map(server).collect();
        Pool {
            first,
            servers: config.servers.len() as u16,
            replicas: config.replicas as u16,
            key_distribution: KeyDistribution::new(config.distribution, config.hash(), &servers)
                .tagged(config.hash_tag),
        }
    }

    /// The primary of a key.
    pub(crate) fn primary(&self, key: &[u8]) -> u16 {
        self.first + self.key_distribution.owner(key) as u16
    }

    /// The backend `step` places behind another in the pool's list, which is a ring.
    pub(crate) fn replica(&self, backend: u16, step: u16) -> u16 {
        self.first + (backend - self.first + step) % self.servers
    }

    /// All its backends.
    pub(crate) fn all(&self) -> impl Iterator<Item = u16> + use<> {
        self.first..self.first + self.servers
    }

    /// The number of its backends.
    pub(crate) fn servers(&self) -> u16 {
        self.servers
    }

    /// The part of a key that is hashed.
    pub(crate) fn hashed_part<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        self.key_distribution.hashed_part(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Distribution, Hash, RouteConfig};
    use proptest::prelude::*;

    fn router(servers: &[String], replicas: usize) -> Router {
        let mut config = Config::new("127.0.0.1:0", servers);
        config.pools[0].replicas = replicas;
        Router::new(&config)
    }

    #[test]
    fn keys_are_distributed_by_the_pools_configuration() {
        let mut config = Config::new("127.0.0.1:0", &["a:11211".into(), "b:11211".into(), "c:1".into()]);
        let pool = &mut config.pools[0];
        (pool.distribution, pool.hash, pool.hash_tag) = (Distribution::Ketama, Some(Hash::Crc32), Some(*b"<>"));
        (pool.servers[1].weight, pool.servers[2].name) = (3, Some("third".into()));
        let router = Router::new(&config);
        let servers = [("a", 1), ("b", 3), ("third", 1)];
        let key_distribution = KeyDistribution::new(Distribution::Ketama, Hash::Crc32, &servers).tagged(Some(*b"<>"));
        for number in 0..500 {
            let key = format!("x{}<{number}>", number % 7);
            assert_eq!(usize::from(router.primary(key.as_bytes())), key_distribution.owner(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn an_explanation_agrees_with_the_router() {
        let servers = |pool: &str| (0..3).map(|index| format!("{pool}{index}:1")).collect::<Vec<_>>();
        let mut config = Config::new("127.0.0.1:0", &servers("a"));
        config.pools.push(PoolConfig { replicas: 2, hash_tag: Some(*b"{}"), ..PoolConfig::new("b", &servers("b")) });
        let route = |prefix: &str, pool: &str| RouteConfig { prefix: prefix.into(), pool: pool.into() };
        config.routes = vec![route("x", "b"), route("xy", "default")];
        let router = Router::new(&config);
        for (key, pool, prefix, hashed, replicas) in
            [("a{b}", 0, None, "a{b}", 1), ("x{b}", 1, Some("x"), "b", 2), ("xyz", 0, Some("xy"), "xyz", 1)]
        {
            let explanation = router.explain(key.as_bytes());
            assert_eq!((explanation.pool, explanation.prefix), (pool, prefix.map(str::as_bytes)), "{key}");
            assert_eq!((explanation.hashed, explanation.backends.len()), (hashed.as_bytes(), replicas), "{key}");
            assert_eq!(explanation.backends, router.replicas(key.as_bytes()).collect::<Vec<_>>(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_and_begin_with_the_primary(key in "[a-z]{1,20}", servers in 1usize..9, replicas in 1usize..9) {
            prop_assume!(replicas <= servers);
            let names: Vec<String> = (0..servers).map(|index| format!("host{index}:11311")).collect();
            let router = router(&names, replicas);
            let mut chosen: Vec<u16> = router.replicas(key.as_bytes()).collect();
            prop_assert_eq!(chosen[0], router.primary(key.as_bytes()));
            prop_assert_eq!(chosen.len(), replicas);
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), replicas);
        }
    }
}
