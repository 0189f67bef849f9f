//! Step 4. Maps a key to its pool by prefix, and to its backends: the primary by hashing, the other replicas from the servers
//! that follow the primary in the pool's list.

use crate::config::{Config, FirstSame, PoolConfig, ServerConfig};
use key_distribution::KeyDistribution;

/// Maps keys to pools and backends.
#[derive(Clone, Debug)]
pub struct Router {
    pools: Vec<Pool>,
    /// Those with the longest prefixes first.
    routes: Vec<Route>,
    servers: FirstSame,
}

/// A route by prefix.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    prefix: Box<[u8]>,
    /// The index of its pool.
    pub(crate) pool: usize,
    /// What the servers receive in the place of the prefix, if the route changes keys.
    pub(crate) replacement: Option<Box<[u8]>>,
}

/// The backends of a key, and how they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// The index of its pool in the configuration.
    pub pool: usize,
    /// The prefix of the route that matched. Without one, the key belongs to the first pool.
    pub prefix: Option<&'a [u8]>,
    /// The key that the servers receive: the route may strip or replace the prefix.
    pub sent: Vec<u8>,
    /// The part of that key which is hashed.
    pub hashed: Vec<u8>,
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
        let mut routes: Vec<Route> = routes
            .map(|route| Route {
                prefix: route.prefix.as_bytes().into(),
                pool: place(&route.pool),
                replacement: route.replacement().map(|replacement| replacement.as_bytes().into()),
            })
            .collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        Router { pools, routes, servers: config.same_as_written() }
    }

    /// The same router, but `servers` also recognises a server whose address is written in different ways.
    pub(crate) fn with_servers(self, servers: FirstSame) -> Router {
        Router { servers, ..self }
    }

    /// The route of a key. None if no route matches: then it belongs to the first pool.
    pub(crate) fn route_of(&self, key: &[u8]) -> Option<&Route> {
        self.routes.iter().find(|route| key.starts_with(&route.prefix))
    }

    /// The index of the pool that a key belongs to.
    pub(crate) fn pool_of(&self, key: &[u8]) -> usize {
        self.route_of(key).map_or(0, |route| route.pool)
    }

    /// Whether keys can belong to other pools than the first.
    pub(crate) fn has_routes(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Whether a route changes keys.
    pub(crate) fn has_rewrites(&self) -> bool {
        self.routes.iter().any(|route| route.replacement.is_some())
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
        match self.route_of(key) {
            Some(Route { replacement: Some(_), .. }) => self.explain(key).backends[0],
            _ => self.pool(self.pool_of(key)).primary(key),
        }
    }

    /// The replicas of this key: the primary first, then the servers that follow it.
    pub fn replicas(&self, key: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
        let (pool, primary) = (self.pool(self.pool_of(key)), self.primary(key));
        (0..pool.replicas).map(move |step| pool.replica(primary, step))
    }

    /// The backends of a key, and how they were found. For people; never on the path of a request.
    pub fn explain(&self, key: &[u8]) -> Explanation<'_> {
        let Some(route) = self.route_of(key) else { return self.explain_in(0, key) };
        let mut sent = Vec::new();
        route.rewrite(key, &mut sent);
        Explanation { prefix: Some(&route.prefix), ..self.explain_in(route.pool, &sent) }
    }

    /// The same for a key that this pool receives, whatever the routes say.
    pub fn explain_in(&self, pool: usize, key: &[u8]) -> Explanation<'_> {
        let own = self.pool(pool);
        let primary = own.primary(key);
        let backends = (0..own.replicas).map(|step| own.replica(primary, step)).collect();
        Explanation { pool, prefix: None, sent: key.to_vec(), hashed: own.hashed_part(key).to_vec(), backends }
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

impl Route {
    /// Appends the key that the servers receive for a key of this route.
    pub(crate) fn rewrite(&self, key: &[u8], out: &mut Vec<u8>) {
        match &self.replacement {
            None => out.extend_from_slice(key),
            Some(replacement) => {
                out.extend_from_slice(replacement);
                out.extend_from_slice(&key[self.prefix.len()..]);
            }
        }
    }
}

impl Route {
    /// Whether `rewrite` makes this of a key of the route.
    pub(crate) fn changes_to(&self, key: &[u8], changed: &[u8]) -> bool {
        let Some(replacement) = &self.replacement else { return key == changed };
        changed.strip_prefix(&**replacement).is_some_and(|rest| rest == &key[self.prefix.len()..])
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

    /// Calls `found` with each key and its primary, in the order of the keys.
    pub(crate) fn primaries<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, mut found: impl FnMut(&'k [u8], u16)) {
        self.key_distribution.owners(keys, |key, owner| found(key, self.first + owner as u16));
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
        let route = |prefix: &str, pool: &str| RouteConfig::new(prefix, pool);
        config.routes = vec![route("x", "b"), route("xy", "default")];
        config.routes.push(RouteConfig { strip_prefix: true, ..route("s:", "default") });
        config.routes.push(RouteConfig { replace_prefix: Some("{r}".into()), ..route("r:", "b") });
        let router = Router::new(&config);
        for (key, pool, prefix, hashed, replicas) in [
            ("a{b}", 0, None, "a{b}", 1),
            ("x{b}", 1, Some("x"), "b", 2),
            ("xyz", 0, Some("xy"), "xyz", 1),
            ("s:x", 0, Some("s:"), "x", 1),
            ("r:17", 1, Some("r:"), "r", 2),
        ] {
            let explanation = router.explain(key.as_bytes());
            assert_eq!((explanation.pool, explanation.prefix), (pool, prefix.map(str::as_bytes)), "{key}");
            assert_eq!((&*explanation.hashed, explanation.backends.len()), (hashed.as_bytes(), replicas), "{key}");
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
