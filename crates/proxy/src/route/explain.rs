//! Why a key goes where it goes: for people who ask, never on the path of a request.

use crate::route::Router;

/// Where a key lives, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// The place of its pool in the configuration.
    pub pool: usize,
    /// What the route begins with that took it; without one, the first pool took it.
    pub prefix: Option<&'a [u8]>,
    /// What of it is hashed.
    pub hashed: &'a [u8],
    /// The numbers of its backends, all pools counted together: the primary, then the replicas in order.
    pub backends: Vec<u16>,
}

impl Router {
    /// Where a key lives, and why.
    pub fn explain<'a>(&'a self, key: &'a [u8]) -> Explanation<'a> {
        let prefix = self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|(prefix, _)| &**prefix);
        self.explain_in(self.pool_of(key), prefix, key)
    }

    /// Where a key lives in the pool at this place, if it is sent there.
    pub fn explain_in<'a>(&'a self, pool: usize, prefix: Option<&'a [u8]>, key: &'a [u8]) -> Explanation<'a> {
        let own = self.pool(pool);
        let primary = own.primary(key);
        let backends = (0..own.replicas).map(|step| own.copy(primary, step)).collect();
        Explanation { pool, prefix, hashed: own.hashed_part(key), backends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PoolConfig, RouteConfig};

    #[test]
    fn an_explanation_says_what_the_router_does() {
        let servers = |pool: &str| (0..3).map(|index| format!("{pool}{index}:1")).collect::<Vec<_>>();
        let mut config = Config::new("127.0.0.1:0", &servers("a"));
        config.pools.push(PoolConfig { replicas: 2, hash_tag: Some(*b"{}"), ..PoolConfig::new("b", &servers("b")) });
        let route = |prefix: &str, pool: &str| RouteConfig { prefix: prefix.into(), pool: pool.into() };
        config.routes = vec![route("x", "b"), route("xy", "default")];
        let router = Router::new(&config);
        for (key, pool, prefix, hashed, copies) in
            [("a{b}", 0, None, "a{b}", 1), ("x{b}", 1, Some("x"), "b", 2), ("xyz", 0, Some("xy"), "xyz", 1)]
        {
            let explanation = router.explain(key.as_bytes());
            assert_eq!((explanation.pool, explanation.prefix), (pool, prefix.map(str::as_bytes)), "{key}");
            assert_eq!((explanation.hashed, explanation.backends.len()), (hashed.as_bytes(), copies), "{key}");
            assert_eq!(explanation.backends, router.replicas(key.as_bytes()).collect::<Vec<_>>(), "{key}");
        }
    }
}
