//! Before step 4. The rate limits of pools: a client's request is refused at once if its pool has received too many keys.
//!
//! A limit is a token bucket that all event loops share, so that one client, which has one loop, can use all of it. The bucket is one
//! number, which a request changes with one atomic instruction and no lock. Requests that another pool's policy sends, such as
//! failovers and shadow requests, do not count.

use crate::config::{Config, PoolConfig, RateLimit};
use crate::observe::counters::LoopCounters;
use crate::path::leg_request::first_key;
use crate::path::route::Router;
use clock::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::{Keys, Request};

/// The parts of a nanosecond in which time is counted here, so that the interval between two of millions per second is exact enough.
const TICKS_PER_NS: u64 = 16;
const TICKS_PER_S: u64 = TICKS_PER_NS * 1_000_000_000;

/// The bucket of each pool, if it has a limit.
pub(crate) type Buckets = Vec<Option<Arc<Bucket>>>;

/// A token bucket as the generic cell rate algorithm has it: the time at which the bucket will be full. Alone in its line of the
/// processor's cache.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    /// In ticks of the monotonic clock.
    full_at: AtomicU64,
    /// The ticks for one token, and those for all but one.
    interval: u64,
    ahead_max: u64,
    limit: RateLimit,
}

/// The limits of all pools, for one event loop.
#[derive(Debug)]
pub(crate) struct RateLimits {
    router: Arc<Router>,
    /// By pool.
    pools: Vec<PoolLimit>,
    /// The keys of the current request, by pool.
    keys: Vec<u64>,
    counters: Arc<LoopCounters>,
}

#[derive(Debug)]
struct PoolLimit {
    bucket: Option<Arc<Bucket>>,
    /// Whether `flush_all` is sent to the pool.
    flush: bool,
    /// The reply to a refused request.
    refusal: Arc<[u8]>,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(limit: RateLimit) -> Bucket {
        let interval = (TICKS_PER_S + u64::from(limit.per_second) / 2) / u64::from(limit.per_second);
        let ahead_max = interval * (u64::from(limit.burst()) - 1);
        Bucket { full_at: AtomicU64::new(0), interval, ahead_max, limit }
    }

    /// Takes the tokens for a request, if there is at least one. A request for more keys than tokens are left takes the others from the
    /// time to come: otherwise one for more keys than the bucket can hold would always be refused.
    pub(crate) fn take(&self, keys: u64, now: Nanos) -> bool {
        let now = now.0.saturating_mul(TICKS_PER_NS);
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let has_token = full_at.saturating_sub(now) <= self.ahead_max;
            has_token.then(|| full_at.max(now).saturating_add(keys * self.interval))
        });
        taken.is_ok()
    }

    /// Puts tokens back that were taken.
    fn give_back(&self, keys: u64) {
        self.full_at.fetch_sub(keys * self.interval, Ordering::Relaxed);
    }

    /// The bucket of the same pool with another limit: as many tokens are missing as before, but at most all.
    fn with_limit(&self, limit: RateLimit, now: Nanos) -> Bucket {
        let now = now.0.saturating_mul(TICKS_PER_NS);
        let missing = self.full_at.load(Ordering::Relaxed).saturating_sub(now) / self.interval;
        let other = Bucket::new(limit);
        let missing = missing.min(limit.burst().into());
        other.full_at.store(now.saturating_add(missing * other.interval), Ordering::Relaxed);
        other
    }
}

/// The buckets of a configuration. Those of pools that the configuration before has, too, are as empty as they were.
pub(crate) fn buckets(config: &Config, before: Option<(&Config, &Buckets)>, now: Nanos) -> Buckets {
    let former = |pool: &PoolConfig| {
        let (config, buckets) = before?;
        buckets[config.pool(&pool.name)?].clone()
    };
    let bucket = |pool: &PoolConfig| {
        let limit = pool.rate_limit?;
        Some(match former(pool) {
            Some(bucket) if bucket.limit == limit => bucket,
            Some(bucket) => Arc::new(bucket.with_limit(limit, now)),
            None => Arc::new(Bucket::new(limit)),
        })
    };
    config.pools.iter().map(bucket).collect()
}

impl RateLimits {
    /// The limits for one loop. None if no pool has one.
    pub(crate) fn new(
        config: &Config,
        buckets: &Buckets,
        router: &Arc<Router>,
        counters: &Arc<LoopCounters>,
    ) -> Option<RateLimits> {
        let limit = |(pool, bucket): (&PoolConfig, &Option<Arc<Bucket>>)| PoolLimit {
            bucket: bucket.clone(),
            flush: pool.flush,
            refusal: format!("SERVER_ERROR pool {} has reached its rate limit\r\n", pool.name).into_bytes().into(),
        };
        let pools = config.pools.iter().zip(buckets).map(limit).collect();
        let (router, counters) = (router.clone(), counters.clone());
        let keys = vec![0; buckets.len()];
        buckets.iter().any(Option::is_some).then_some(RateLimits { router, pools, keys, counters })
    }

    /// The reply to a request that a pool refuses; none if it can be sent. `only_pool` is the pool of the client's listener.
    pub(crate) fn refusal(&mut self, request: &Request<'_>, only_pool: Option<u8>, now: Nanos) -> Option<Arc<[u8]>> {
        let only_pool = only_pool.map(usize::from);
        let pool_of = |key: &[u8]| only_pool.unwrap_or_else(|| self.router.pool_of(key));
        let refusing = match request {
            Request::Get { keys, .. } if keys.are_more_than(1) => self.take_for_keys(*keys, only_pool, now),
            Request::FlushAll { .. } => self.take_for_flush(only_pool, now),
            _ => self.take_for_key(pool_of(first_key(request, &mut None)?), now),
        }?;
        self.counters.pools[refusing].rate_limited.add(1);
        Some(self.pools[refusing].refusal.clone())
    }

    /// Takes the token for one key. Returns the pool if it has none.
    fn take_for_key(&self, pool: usize, now: Nanos) -> Option<usize> {
        let bucket = self.pools[pool].bucket.as_ref()?;
        (!bucket.take(1, now)).then_some(pool)
    }

    /// Takes the tokens for several keys, all or none. Returns a pool that has none.
    fn take_for_keys(&mut self, keys: Keys<'_>, only_pool: Option<usize>, now: Nanos) -> Option<usize> {
        self.keys.fill(0);
        match only_pool {
            Some(pool) => self.keys[pool] = keys.count() as u64,
            None => keys.iter().for_each(|key| self.keys[self.router.pool_of(key)] += 1),
        }
        self.take_all(now)
    }

    /// Takes one token of each pool that a `flush_all` can reach, all or none. Returns a pool that has none.
    fn take_for_flush(&mut self, only_pool: Option<usize>, now: Nanos) -> Option<usize> {
        for (index, pool) in self.pools.iter().enumerate() {
            self.keys[index] = u64::from(pool.flush && only_pool.is_none_or(|only| only == index));
        }
        self.take_all(now)
    }

    fn take_all(&self, now: Nanos) -> Option<usize> {
        let wanted = || self.pools.iter().zip(&self.keys).filter(|(_, keys)| **keys > 0);
        let place = wanted().position(|(pool, keys)| pool.bucket.as_ref().is_some_and(|own| !own.take(*keys, now)))?;
        // The others have given theirs for nothing.
        for (pool, keys) in wanted().take(place) {
            pool.bucket.iter().for_each(|own| own.give_back(*keys));
        }
        (0..self.pools.len()).filter(|&pool| self.keys[pool] > 0).nth(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RouteConfig;
    use proptest::prelude::*;
    use std::time::Duration;
    use wire::{Limits, ParsedRequest, parse_request};

    fn limit(per_second: u32, burst: u32) -> RateLimit {
        RateLimit { per_second, burst: Some(burst) }
    }

    fn at_ms(ms: u64) -> Nanos {
        Nanos(1_000_000_000_000 + ms * 1_000_000)
    }

    /// How many of many requests for one key the bucket admits at this time.
    fn admitted(bucket: &Bucket, ms: u64) -> usize {
        (0..10_000).take_while(|_| bucket.take(1, at_ms(ms))).count()
    }

    #[test]
    fn a_bucket_holds_its_burst_and_is_filled_at_its_rate() {
        let bucket = Bucket::new(limit(100, 10));
        assert_eq!([0, 0, 10, 15, 20, 1000, 100_000].map(|ms| admitted(&bucket, ms)), [10, 0, 1, 0, 1, 10, 10]);
        let one = Bucket::new(limit(1, 1));
        assert_eq!([0, 999, 1000, 1001].map(|ms| admitted(&one, ms)), [1, 0, 1, 0]);
        assert_eq!(RateLimit { per_second: 7, burst: None }.burst(), 7);
    }

    #[test]
    fn a_request_for_many_keys_is_admitted_and_the_next_ones_wait_for_it() {
        let bucket = Bucket::new(limit(100, 10));
        assert!(bucket.take(60, at_ms(0)));
        assert_eq!([0, 500, 509, 510, 520].map(|ms| admitted(&bucket, ms)), [0, 0, 0, 1, 1]);
        bucket.give_back(1);
        assert_eq!(admitted(&bucket, 520), 1);
    }

    /// A client that asks again and again gets the rate, whatever the number is.
    #[test]
    fn the_rate_is_exact() {
        for per_second in [1, 3, 7, 999, 123_457, 3_333_333, 10_000_000] {
            let bucket = Bucket::new(limit(per_second, 10));
            // As many as in this time, asked in pieces, after the burst.
            let time = Duration::from_nanos(1_000_000_000 / u64::from(per_second) * 1000);
            bucket.take(10, at_ms(0));
            let steps = 5000;
            let admitted: u64 = (1..=steps)
                .map(|step| (0..3).take_while(|_| bucket.take(1, at_ms(0) + time * step / steps)).count() as u64)
                .sum();
            assert!((995..=1002).contains(&admitted), "{per_second}: {admitted}");
        }
    }

    #[test]
    fn threads_share_a_bucket() {
        let bucket = Bucket::new(limit(1, 10_000));
        let admitted: usize = std::thread::scope(|scope| {
            let count = || (0..9000).filter(|_| bucket.take(1, at_ms(0))).count();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 10_000);
    }

    #[test]
    fn a_reload_leaves_the_bucket_as_empty_as_it_was() {
        let config = |name: &str, rate_limit| {
            let mut config = Config::new("", &["a:1".into()]);
            (config.pools[0].name, config.pools[0].rate_limit) = (name.into(), rate_limit);
            config
        };
        let old = config("p", Some(limit(100, 10)));
        let before = buckets(&old, None, at_ms(0));
        assert_eq!(admitted(before[0].as_ref().unwrap(), 0), 10);
        let after = |new: &Config, ms| buckets(new, Some((&old, &before)), at_ms(ms));
        let first = |new: &Config, ms| admitted(after(new, ms)[0].as_ref().unwrap(), ms);
        assert!(Arc::ptr_eq(after(&old, 0)[0].as_ref().unwrap(), before[0].as_ref().unwrap()));
        // Ten tokens are missing, then five.
        assert_eq!(first(&config("p", Some(limit(100, 25))), 0), 15);
        assert_eq!(first(&config("p", Some(limit(1, 25))), 50), 20);
        assert_eq!(first(&config("p", Some(limit(1000, 5))), 0), 0);
        assert_eq!(admitted(&before[0].as_ref().unwrap().with_limit(limit(1000, 5), at_ms(0)), 5), 5);
        assert_eq!(first(&config("q", Some(limit(100, 10))), 0), 10);
        assert!(after(&config("p", None), 0)[0].is_none());
    }

    /// Limits of two pools, `a` with this burst and `b`, which has the keys that begin with b, with none or this burst.
    fn limits(burst: u32, of_other: Option<u32>) -> RateLimits {
        let mut config = Config::new("", &["a:1".into()]);
        config.pools[0].name = "a".into();
        config.pools.push(PoolConfig::new("b", &["b:1".into()]));
        config.routes = vec![RouteConfig::new("b", "b")];
        config.pools[0].rate_limit = Some(limit(1, burst));
        config.pools[1].rate_limit = of_other.map(|burst| limit(1, burst));
        let buckets = buckets(&config, None, at_ms(0));
        let counters = Arc::new(LoopCounters::new(2, 2, 0));
        RateLimits::new(&config, &buckets, &Arc::new(Router::new(&config)), &counters).unwrap()
    }

    fn refused(limits: &mut RateLimits, text: &str, only_pool: Option<u8>) -> Option<String> {
        let bytes = format!("{text}\r\nx\r\n");
        let ParsedRequest::Request { request, .. } = parse_request(bytes.as_bytes(), &Limits::default()) else {
            panic!("{text}");
        };
        let line = limits.refusal(&request, only_pool, at_ms(0))?;
        Some(String::from_utf8(line.to_vec()).unwrap())
    }

    #[test]
    fn each_key_counts_in_its_pool() {
        let line = |pool: &str| Some(format!("SERVER_ERROR pool {pool} has reached its rate limit\r\n"));
        let mut one = limits(3, None);
        for (text, pool, expected) in [
            ("get a1", None, None),
            ("get b1 b2 b3 b4 b5", None, None),
            ("mg YjE= b v", None, None),
            ("gat 5 a1 b1 a2", None, None),
            ("get a1", None, line("a")),
            ("get b1 a1", None, line("a")),
            ("set b1 0 0 1", Some(0), line("a")),
            ("get a1 a2", Some(1), None),
            ("flush_all", None, line("a")),
            ("flush_all", Some(1), None),
            ("ms YTE= 1 b", None, line("a")),
            ("delete a1 noreply", None, line("a")),
        ] {
            assert_eq!(refused(&mut one, text, pool), expected, "{text}");
        }
        assert_eq!(one.counters.pools[0].rate_limited.get(), 6);
        assert_eq!(one.counters.pools[1].rate_limited.get(), 0);
    }

    #[test]
    fn a_request_that_one_pool_refuses_takes_nothing_of_the_others() {
        let mut both = limits(3, Some(1));
        assert_eq!(refused(&mut both, "get a1 b1", None), None);
        for _ in 0..5 {
            assert!(refused(&mut both, "get a1 a2 b1", None).unwrap().contains("pool b"));
            assert!(refused(&mut both, "flush_all", None).unwrap().contains("pool b"));
        }
        assert_eq!(refused(&mut both, "get a1 a2", None), None);
        assert!(refused(&mut both, "get a1", None).unwrap().contains("pool a"));
    }

    proptest! {
        /// In no time does a bucket admit more than its burst, what it was filled with, and what one request may take in advance.
        #[test]
        fn no_more_is_admitted_than_the_rate_allows(
            per_second in 1u32..5000, burst in 1u32..500, asked in proptest::collection::vec((1u64..150, 0u64..40), 1..200),
        ) {
            let bucket = Bucket::new(limit(per_second, burst));
            let (mut ms, mut admitted) = (0, 0);
            for (keys, passes_ms) in asked {
                ms += passes_ms;
                admitted += if bucket.take(keys, at_ms(ms)) { keys } else { 0 };
                let filled = ms as f64 / 1000.0 * f64::from(per_second);
                prop_assert!(admitted as f64 <= f64::from(burst) + filled * 1.001 + 150.0);
            }
        }
    }
}
