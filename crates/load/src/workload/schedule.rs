//! What a client does next: the operation, the key and the think time before it.
//! Each thread draws from one random sequence, derived from the seed of the run. The sequence does not depend on
//! timing; which request meets which reply does.

use crate::config::Config;
use crate::workload::think_time::ThinkTime;
use crate::workload::versions::Versions;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use variates::KeySampler;

/// Keys tried for a set before it becomes a get. This matters only if there are about as many requests in flight as
/// keys.
const LOCK_TRIES: usize = 8;

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Set this key, which is now locked, to this version.
    Set {
        /// The number of the key.
        key: u64,
        /// The version to write.
        version: u64,
    },
    /// Get keys, which [`Schedule::key`] draws.
    Get,
}

/// The random sequence of one thread.
#[derive(Debug)]
pub(crate) struct Schedule {
    random: Xoshiro256PlusPlus,
    ratio_set: u32,
    ratio_total: u32,
    key_minimum: u64,
    keys: KeySampler,
    think_time: ThinkTime,
}

impl Schedule {
    /// The schedule of thread number `thread`.
    pub(crate) fn new(config: &Config, thread: usize) -> Schedule {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(config.seed);
        for _ in 0..thread {
            random.jump();
        }
        Schedule {
            random,
            ratio_set: config.ratio_set,
            ratio_total: config.ratio_set.saturating_add(config.ratio_get),
            key_minimum: config.key_minimum,
            keys: config.key_pattern.sampler(config.keys(), thread, config.threads),
            think_time: config.think_time.clone(),
        }
    }

    /// Draws the next request. Each operation is drawn independently, so the share of sets is exact on average and has
    /// no repeating pattern.
    pub(crate) fn choose(&mut self, versions: &Versions) -> Choice {
        if self.random.random_range(0..self.ratio_total) >= self.ratio_set {
            return Choice::Get;
        }
        for _ in 0..LOCK_TRIES {
            let key = self.key();
            if let Some(version) = versions.lock(key) {
                return Choice::Set { key, version };
            }
        }
        Choice::Get
    }

    /// Draws a key.
    pub(crate) fn key(&mut self) -> u64 {
        self.key_minimum + self.keys.draw(&mut self.random)
    }

    /// Draws a think time in nanoseconds.
    pub(crate) fn think_ns(&mut self) -> u64 {
        self.think_time.draw_ns(&mut self.random)
    }

    /// Draws the think time before a client's first request, in nanoseconds.
    pub(crate) fn first_think_ns(&mut self) -> u64 {
        self.think_time.draw_first_ns(&mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn schedule(change: impl FnOnce(&mut Config)) -> Schedule {
        let mut config = Config { key_maximum: 99, ..Config::default() };
        change(&mut config);
        Schedule::new(&config, 0)
    }

    #[test]
    fn the_ratio_is_set_to_get() {
        let mut schedule = schedule(|config| (config.ratio_set, config.ratio_get) = (1, 3));
        let versions = Versions::new(0, 100, true);
        let mut sets = 0;
        for _ in 0..100_000 {
            if let Choice::Set { key, .. } = schedule.choose(&versions) {
                versions.acknowledge(key);
                sets += 1;
            }
        }
        assert!((24_300..25_700).contains(&sets), "{sets} sets of 100000 at 1:3");
    }

    #[test]
    fn only_sets_and_only_gets_are_exact() {
        let versions = Versions::new(0, 100, true);
        let mut gets = schedule(|config| (config.ratio_set, config.ratio_get) = (0, 1));
        assert!((0..1000).all(|_| gets.choose(&versions) == Choice::Get));
        let mut sets = schedule(|config| (config.ratio_set, config.ratio_get) = (1, 0));
        for _ in 0..1000 {
            let Choice::Set { key, .. } = sets.choose(&versions) else { panic!("the ratio has only sets") };
            versions.acknowledge(key);
        }
    }

    #[test]
    fn a_set_becomes_a_get_if_every_key_is_locked() {
        let mut schedule = schedule(|config| (config.ratio_set, config.ratio_get, config.key_maximum) = (1, 0, 0));
        let versions = Versions::new(0, 1, true);
        assert_eq!(schedule.choose(&versions), Choice::Set { key: 0, version: 2 });
        assert_eq!(schedule.choose(&versions), Choice::Get);
    }

    #[test]
    fn keys_are_uniform_and_both_ends_are_drawn() {
        let mut schedule = schedule(|config| (config.key_minimum, config.key_maximum) = (5, 14));
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[(schedule.key() - 5) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn think_times_have_their_mean() {
        let mut exponential = schedule(|config| config.think_time = ThinkTime::exponential(Duration::from_millis(1)));
        let mean = (0..100_000).map(|_| exponential.think_ns() as f64).sum::<f64>() / 1e5;
        assert!((980_000.0..1_020_000.0).contains(&mean), "{mean}");
        let mut fixed = schedule(|config| config.think_time = ThinkTime::fixed(Duration::from_millis(1)));
        assert_eq!(fixed.think_ns(), 1_000_000);
        assert!((0..100).all(|_| fixed.first_think_ns() <= 1_000_000));
        assert_eq!(schedule(|_| ()).think_ns(), 0);
    }

    #[test]
    fn a_seed_gives_the_same_draws_and_threads_differ() {
        let config = Config { threads: 2, ..Config::default() };
        let draws = |thread| {
            let mut schedule = Schedule::new(&config, thread);
            (0..50).map(|_| schedule.key()).collect::<Vec<_>>()
        };
        assert_eq!(draws(0), draws(0));
        assert_ne!(draws(0), draws(1));
    }
}
