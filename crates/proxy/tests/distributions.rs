//! Properties of every key distribution: shares by weight, and few keys moved when the servers change.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use proxy::{Config, Distribution, Hash, Router, ServerConfig};
use statrs::distribution::{ChiSquared, ContinuousCDF};

const ALL: [Distribution; 5] =
    [Distribution::Ketama, Distribution::Jump, Distribution::Rendezvous, Distribution::Modulo, Distribution::Ch3];
/// Distributions whose shares are exactly the weights, except for chance.
const EVEN: [Distribution; 4] = [Distribution::Jump, Distribution::Rendezvous, Distribution::Modulo, Distribution::Ch3];
/// A correct distribution exceeds the bound once in this many tests.
const FALSE_ALARM: f64 = 1e-9;
const KEYS: u32 = 6000;

fn router(distribution: Distribution, hash: Option<Hash>, servers: &[(String, u32)]) -> Router {
    let mut config = Config::new("127.0.0.1:0", &[]);
    let server = |(address, weight): &(String, u32)| ServerConfig { weight: *weight, ..ServerConfig::new(address) };
    config.pools[0].servers = servers.iter().map(server).collect();
    config.pools[0].distribution = distribution;
    config.pools[0].hash = hash;
    config.check().unwrap();
    Router::new(&config)
}

fn named(seed: u32, weights: &[u32]) -> Vec<(String, u32)> {
    let address = |index| format!("cache-{seed}-{index}:11311");
    weights.iter().enumerate().map(|(index, &weight)| (address(index), weight)).collect()
}

fn keys(seed: u32) -> impl Iterator<Item = String> {
    (0..KEYS).map(move |number| format!("user:{seed}:{number}"))
}

fn counts(router: &Router, seed: u32) -> Vec<f64> {
    let mut counts = vec![0.0; router.backends().into()];
    for key in keys(seed) {
        counts[usize::from(router.primary(key.as_bytes()))] += 1.0;
    }
    counts
}

/// Pearson's statistic of these counts against shares by weight, and the bound that chance stays below.
fn chi_square(counts: &[f64], weights: &[u32]) -> (f64, f64) {
    let total: u32 = weights.iter().sum();
    let expected = weights.iter().map(|&weight| f64::from(KEYS) * f64::from(weight) / f64::from(total));
    let statistic = counts.iter().zip(expected).map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    (statistic, ChiSquared::new((counts.len() - 1) as f64).unwrap().inverse_cdf(1.0 - FALSE_ALARM))
}

/// Keys whose server has another address in the second router.
fn moved(before: (&Router, &[(String, u32)]), after: (&Router, &[(String, u32)]), seed: u32) -> Vec<(String, String)> {
    let address = |(router, servers): (&Router, &[(String, u32)]), key: &str| {
        servers[usize::from(router.primary(key.as_bytes()))].0.clone()
    };
    keys(seed).map(|key| (address(before, &key), address(after, &key))).filter(|(from, to)| from != to).collect()
}

/// The share of keys that must move when the weights change, if no more than that move.
fn least_share(before: &[u32], after: &[u32]) -> f64 {
    let share = |weights: &[u32], index: usize| {
        weights.get(index).map_or(0.0, |&weight| f64::from(weight) / f64::from(weights.iter().sum::<u32>()))
    };
    (0..before.len().max(after.len())).map(|index| (share(after, index) - share(before, index)).max(0.0)).sum()
}

/// Weights are small, so that no server of ketama is left without a point, and there are at least two servers.
fn weights() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![(2usize..12).prop_map(|servers| vec![1; servers]), proptest::collection::vec(1u32..6, 2..12)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shares_are_the_weights(seed in 0u32..1_000_000, weights in weights()) {
        for distribution in EVEN {
            let counts = counts(&router(distribution, None, &named(seed, &weights)), seed);
            let (statistic, bound) = chi_square(&counts, &weights);
            prop_assert!(statistic < bound, "{:?}: {:?}, {} over {}", distribution, counts, statistic, bound);
        }
    }

    /// The points of ketama lie by chance, some 160 for each server, so that its shares are only near the weights.
    #[test]
    fn ketama_shares_are_near_the_weights(seed in 0u32..1_000_000, weights in weights()) {
        let total = f64::from(weights.iter().sum::<u32>());
        let counts = counts(&router(Distribution::Ketama, None, &named(seed, &weights)), seed);
        for (count, &weight) in counts.iter().zip(&weights) {
            let expected = f64::from(KEYS) * f64::from(weight) / total;
            let points = 160.0 * weights.len() as f64 * f64::from(weight) / total;
            // The share of n points out of many has a relative deviation of about one over the root of n; digests are
            // whole, which takes up to four points.
            let slack = 7.0 / points.sqrt() + 4.0 / points + 7.0 / expected.sqrt();
            prop_assert!((count - expected).abs() < slack * expected, "{:?} for {:?}", counts, weights);
        }
    }

    /// An appended server receives keys from the others, at most its share, and no other keys move.
    #[test]
    fn an_appended_server_takes_keys_only_for_itself(seed in 0u32..1_000_000, servers in 1usize..10, weight in 1u32..4) {
        let mut weights = vec![1; servers];
        let before = named(seed, &weights);
        weights.push(weight);
        let after = named(seed, &weights);
        for distribution in [Distribution::Ketama, Distribution::Jump, Distribution::Rendezvous, Distribution::Ch3] {
            // The hash ring is rebuilt when the average weight changes, so this applies to its equal weights only.
            if distribution == Distribution::Ketama && weight != 1 {
                continue;
            }
            let (old, new) = (router(distribution, None, &before), router(distribution, None, &after));
            let moved = moved((&old, &before), (&new, &after), seed);
            prop_assert!(moved.iter().all(|(_, to)| *to == after[servers].0), "{:?}", distribution);
            if distribution != Distribution::Ketama {
                let expected = f64::from(KEYS) * least_share(&weights[..servers], &weights);
                let slack = 7.0 * expected.sqrt();
                prop_assert!((moved.len() as f64 - expected).abs() < slack, "{:?}: {}", distribution, moved.len());
            }
        }
    }

    /// When a server is removed from any place, only its own keys move.
    #[test]
    fn a_removed_server_loses_only_its_own_keys(seed in 0u32..1_000_000, weights in weights(), at in any::<prop::sample::Index>()) {
        let before = named(seed, &weights);
        let gone = at.index(before.len());
        let mut after = before.clone();
        after.remove(gone);
        let (old, new) =
            (router(Distribution::Rendezvous, None, &before), router(Distribution::Rendezvous, None, &after));
        for (from, _) in moved((&old, &before), (&new, &after), seed) {
            prop_assert_eq!(&from, &before[gone].0);
        }
    }

    /// A weight that grows draws keys to its server, and none move between the others.
    #[test]
    fn a_heavier_server_of_rendezvous_draws_keys_from_all(seed in 0u32..1_000_000, mut weights in weights()) {
        let before = named(seed, &weights);
        weights[0] += 2;
        let after = named(seed, &weights);
        let (old, new) =
            (router(Distribution::Rendezvous, None, &before), router(Distribution::Rendezvous, None, &after));
        for (_, to) in moved((&old, &before), (&new, &after), seed) {
            prop_assert_eq!(&to, &after[0].0);
        }
    }
}

#[test]
fn a_name_keeps_the_keys_when_the_machine_is_replaced() {
    for distribution in ALL {
        let mut config = Config::new("127.0.0.1:0", &["a:1".into(), "b:1".into(), "c:1".into()]);
        config.pools[0].distribution = distribution;
        for (server, name) in config.pools[0].servers.iter_mut().zip(["one", "two", "three"]) {
            server.name = Some(name.into());
        }
        let before = Router::new(&config);
        config.pools[0].servers[1].address = "elsewhere:2".into();
        let after = Router::new(&config);
        assert!(keys(1).all(|key| before.primary(key.as_bytes()) == after.primary(key.as_bytes())), "{distribution:?}");
    }
}

/// Why `fnv1a_64` is not the default hash of `modulo`: the multiplier's low half is 435, which 3 and 5 divide.
#[test]
fn modulo_of_twemproxys_hash_is_uneven() {
    let weights = [1, 1, 1];
    let counts = counts(&router(Distribution::Modulo, Some(Hash::Fnv1a64), &named(0, &weights)), 0);
    let (statistic, bound) = chi_square(&counts, &weights);
    assert!(statistic > bound, "{counts:?} is even");
}

/// The key distribution must never change, because a change empties every cache behind the proxy.
#[test]
fn key_distribution_never_changes() {
    let servers = named(0, &[1, 3, 1, 2]);
    let of = |distribution, hash| {
        let router = router(distribution, hash, &servers);
        (0..24).map(|key| router.primary(format!("key-{key}").as_bytes()).to_string()).collect::<String>()
    };
    let found = [
        of(Distribution::Ketama, None),
        of(Distribution::Ketama, Some(Hash::Xxh3)),
        of(Distribution::Jump, None),
        of(Distribution::Rendezvous, None),
        of(Distribution::Modulo, None),
    ];
    assert_eq!(
        found,
        [
            "311113111113303133102232",
            "211030110112113211111313",
            "112012311311210103321201",
            "010031103101121111230031",
            "312331021113113310133311",
        ]
    );
}
