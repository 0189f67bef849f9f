//! Divides one run among several generators, as evenly as integers allow.
//! If there are sets, each generator has its own keys, because it can verify only values that no other generator
//! writes. docs/load-agents.md has the details. Arithmetic only.

use crate::agents::secret::Secret;
use crate::config::{Arrivals, Config};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::{Deserialize, Serialize};

/// Connections of the client that measures from the controller: few, but enough that its requests do not wait for each
/// other.
const MEASURING_CLIENTS: usize = 8;
/// Seeds stay below 2^53, so that every JSON reader preserves them.
const SEED_SHIFT: u32 = 11;

/// One generator's part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-agents.md describes every key")]
pub struct Share {
    pub clients: usize,
    pub rate_per_s: Option<f64>,
    pub requests: Option<u64>,
    pub seed: u64,
    pub key_minimum: u64,
    pub key_maximum: u64,
    pub prefill: bool,
}

/// The parts of all generators.
#[derive(Clone, Debug)]
pub struct Shares {
    /// One for each agent.
    pub agents: Vec<Share>,
    /// The configuration of the client that measures from the controller.
    pub measuring: Option<Config>,
}

/// One agent's part of a run.
#[derive(Clone, Debug)]
pub struct AgentTask {
    /// HOST:PORT.
    pub agent: String,
    /// Its share, for the summary.
    pub share: Share,
    /// The same as arguments of `waystage load`.
    pub arguments: Vec<String>,
}

/// A run that is distributed over agents.
#[derive(Clone, Debug)]
pub struct DistributedRun {
    /// At least one.
    pub agents: Vec<AgentTask>,
    /// The client that measures from the controller.
    pub measuring: Option<Config>,
    /// The percentiles to show; if empty, those of the agents.
    pub percentiles: Vec<f64>,
    /// The command line, for the summary.
    pub arguments: Vec<String>,
    /// Agents must prove that they have it.
    pub secret: Option<Secret>,
}

/// Divides a run among this many agents and, if `measuring_per_s` is given, a client that measures from the controller.
///
/// # Errors
/// Why the run cannot be divided, in one line that names the flag.
pub fn split(config: &Config, agents: usize, measuring_per_s: Option<f64>) -> Result<Shares, String> {
    config.check()?;
    check(config, agents, measuring_per_s)?;
    let keys = KeyParts { minimum: config.key_minimum, keys: config.keys() };
    let others = usize::from(measuring_per_s.is_some());
    let has_sets = config.ratio_set > 0;
    let mut seeds = SplitMix64::seed_from_u64(config.seed);
    let mut seed = move || seeds.next_u64() >> SEED_SHIFT;
    let share = |number: usize| {
        let parts = agents + others;
        // A generator with its own keys sets them itself. The first generator sets keys that all share.
        let (from, to) = if has_sets { (number, number + 1) } else { (0, agents) };
        let (key_minimum, key_maximum) = keys.of(from, to, parts);
        Share {
            clients: whole(config.clients as u64, number, agents) as usize,
            rate_per_s: config.arrivals.per_s().map(|per_s| rate(per_s, number, agents)),
            requests: config.requests.map(|requests| whole(requests, number, agents)),
            seed: seed(),
            key_minimum,
            key_maximum,
            prefill: config.prefill && (has_sets || number == 0),
        }
    };
    let agent_shares = (0..agents).map(share).collect();
    let mut seeds = SplitMix64::seed_from_u64(!config.seed);
    let measuring = measuring_per_s.map(|per_s| {
        let (key_minimum, key_maximum) = keys.of(agents, agents + 1, agents + 1);
        Config {
            arrivals: Arrivals::Poisson { per_s },
            think_time: Config::default().think_time,
            clients: MEASURING_CLIENTS,
            threads: 1,
            pipeline: 1,
            seed: seeds.next_u64() >> SEED_SHIFT,
            key_minimum,
            key_maximum,
            records: None,
            ..config.clone()
        }
    });
    if let Some(config) = &measuring {
        config.check().map_err(|line| format!("--measure-locally: {line}"))?;
    }
    Ok(Shares { agents: agent_shares, measuring })
}

fn check(config: &Config, agents: usize, measuring_per_s: Option<f64>) -> Result<(), String> {
    let needed = agents * config.threads;
    if config.clients < needed {
        return Err(format!(
            "--clients {} is the total over {agents} agents with {} thread(s) each: at least {needed} are needed",
            config.clients, config.threads
        ));
    }
    if config.requests.is_some_and(|requests| requests < agents as u64) {
        return Err(format!("--requests is the total over {agents} agents; give at least one for each"));
    }
    if measuring_per_s.is_some() && config.requests.is_some() {
        return Err(
            "--measure-locally needs --test-time, because the length of a run with --requests is not known".into()
        );
    }
    let writers = if config.ratio_set > 0 { agents } else { 1 } + usize::from(measuring_per_s.is_some());
    if config.keys() < writers as u64 {
        return Err(format!(
            "{} keys cannot be divided among {writers} generators, each of which needs its own; give more keys",
            config.keys()
        ));
    }
    Ok(())
}

/// The key numbers to divide.
#[derive(Clone, Copy)]
struct KeyParts {
    minimum: u64,
    keys: u64,
}

impl KeyParts {
    /// The first and last key of the parts `from` to `to` (exclusive), out of `parts`.
    fn of(self, from: usize, to: usize, parts: usize) -> (u64, u64) {
        (self.minimum + begin(self.keys, from, parts), self.minimum + begin(self.keys, to, parts) - 1)
    }
}

/// Where part `number` of `parts` starts.
fn begin(total: u64, number: usize, parts: usize) -> u64 {
    (u128::from(total) * number as u128 / parts as u128) as u64
}

/// Part `number` of an integer.
fn whole(total: u64, number: usize, parts: usize) -> u64 {
    begin(total, number + 1, parts) - begin(total, number, parts)
}

/// Part `number` of a rate. An integer rate is divided into integers if it is large enough, so that the parts add up
/// exactly.
fn rate(per_s: f64, number: usize, parts: usize) -> f64 {
    if per_s.fract() == 0.0 && per_s >= parts as f64 {
        whole(per_s as u64, number, parts) as f64
    } else {
        per_s / parts as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn config() -> Config {
        Config { servers: vec!["127.0.0.1:1".into()], clients: 10, ..Config::default() }
    }

    fn refusal(change: impl FnOnce(&mut Config), agents: usize, measuring_per_s: Option<f64>) -> String {
        let mut config = config();
        change(&mut config);
        split(&config, agents, measuring_per_s).unwrap_err()
    }

    #[test]
    fn with_sets_each_generator_sets_its_own_keys() {
        let config = Config { key_minimum: 5, key_maximum: 14, ..config() };
        let shares = split(&config, 2, Some(100.0)).unwrap();
        let keys: Vec<(u64, u64)> = shares.agents.iter().map(|share| (share.key_minimum, share.key_maximum)).collect();
        let measuring = shares.measuring.unwrap();
        assert_eq!((keys, measuring.key_minimum, measuring.key_maximum), (vec![(5, 7), (8, 10)], 11, 14));
        assert!(shares.agents.iter().all(|share| share.prefill) && measuring.prefill);
        let without = Config { prefill: false, ..config };
        assert!(!split(&without, 2, None).unwrap().agents.iter().any(|share| share.prefill));
    }

    #[test]
    fn with_gets_only_all_generators_share_the_keys_and_the_first_sets_them() {
        let config = Config { ratio_set: 0, key_maximum: 99, ..config() };
        let shares = split(&config, 3, None).unwrap().agents;
        assert!(shares.iter().all(|share| (share.key_minimum, share.key_maximum) == (0, 99)));
        assert_eq!(shares.iter().map(|share| share.prefill).collect::<Vec<_>>(), [true, false, false]);
        let measured = split(&config, 3, Some(1.0)).unwrap();
        let measuring = measured.measuring.unwrap();
        assert_eq!((measured.agents[2].key_maximum, measuring.key_minimum, measuring.key_maximum), (74, 75, 99));
    }

    #[test]
    fn the_measuring_client_is_an_open_loop_with_little_load() {
        let config = Config { pipeline: 16, arrivals: Arrivals::Constant { per_s: 9e5 }, ..config() };
        let measuring = split(&config, 2, Some(250.0)).unwrap().measuring.unwrap();
        assert_eq!(measuring.arrivals, Arrivals::Poisson { per_s: 250.0 });
        assert_eq!((measuring.clients, measuring.pipeline, measuring.check()), (MEASURING_CLIENTS, 1, Ok(())));
    }

    #[test]
    fn runs_that_cannot_be_divided_are_one_line() {
        assert!(refusal(|config| config.threads = 4, 3, None).contains("at least 12"));
        assert!(refusal(|config| config.requests = Some(2), 3, None).contains("--requests"));
        assert!(refusal(|config| config.requests = Some(9), 3, Some(1.0)).contains("--measure-locally"));
        assert!(refusal(|config| config.key_maximum = 1, 2, Some(1.0)).contains("2 keys"));
        assert!(refusal(|config| config.servers.clear(), 2, None).contains("--server"));
        assert!(refusal(|_| (), 2, Some(0.0)).contains("--measure-locally"));
    }

    #[test]
    fn seeds_differ_and_follow_from_the_runs() {
        let seeds = |seed| -> Vec<u64> {
            let config = Config { seed, clients: 100, ..config() };
            let shares = split(&config, 100, Some(1.0)).unwrap();
            shares.agents.iter().map(|share| share.seed).chain(shares.measuring.map(|config| config.seed)).collect()
        };
        assert_eq!(seeds(1), seeds(1));
        let all: HashSet<u64> = [seeds(1), seeds(2)].concat().into_iter().collect();
        assert_eq!(all.len(), 202);
        assert!(all.iter().all(|seed| *seed < 1 << 53));
    }

    proptest! {
        #[test]
        fn shares_add_up_and_differ_by_one_at_most(
            clients in 8usize..5000, requests in 8u64..1_000_000_000, per_s in 8u32..1_000_000,
            keys in 8u64..1_000_000, agents in 1usize..8,
        ) {
            let arrivals = Arrivals::Constant { per_s: f64::from(per_s) };
            let config = Config { clients, requests: Some(requests), arrivals, key_minimum: 7, key_maximum: 6 + keys, ..config() };
            let shares = split(&config, agents, None).unwrap().agents;
            prop_assert_eq!(shares.iter().map(|share| share.clients).sum::<usize>(), clients);
            prop_assert_eq!(shares.iter().filter_map(|share| share.requests).sum::<u64>(), requests);
            prop_assert_eq!(shares.iter().filter_map(|share| share.rate_per_s).sum::<f64>(), f64::from(per_s));
            let most = shares.iter().map(|share| share.clients).max().unwrap();
            prop_assert!(shares.iter().all(|share| share.clients + 1 >= most));
            let mut next = 7;
            for share in &shares {
                prop_assert_eq!(share.key_minimum, next);
                prop_assert!(share.key_maximum >= next);
                next = share.key_maximum + 1;
            }
            prop_assert_eq!(next, 7 + keys);
        }

        #[test]
        fn fractional_rates_add_up_too(per_s in 0.1f64..1e6, agents in 1usize..8) {
            let sum: f64 = (0..agents).map(|number| rate(per_s, number, agents)).sum();
            prop_assert!((sum / per_s - 1.0).abs() < 1e-12);
        }
    }
}
