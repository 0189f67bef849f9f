//! Sampling keys changes the curve by little, on a trace with popular keys and mixed sizes.

#![allow(clippy::unwrap_used, reason = "tests")]

use hit_ratio::{Census, Curve, Operation, Policy, Request, Simulation, SlabClasses, SlabSettings};
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;
use rand_xoshiro::Xoshiro256PlusPlus;

const REQUESTS: usize = 200_000;
const KEYS: u64 = 50_000;

/// Gets with the popularity `zipf:exponent`, and values of 1 to 800 bytes.
fn keys(exponent: f64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let zipf = Zipf::new(KEYS as f64, exponent).unwrap();
    (0..REQUESTS).map(|_| random.sample(zipf) as u64).collect()
}

fn curve(keys: &[u64], policy: &Policy, sizes: &[u64], samples: usize) -> Curve {
    let settings = SlabSettings::default();
    let mut census = Census::new(settings, None, samples);
    let each = |take: &mut dyn FnMut(&Request<'_>)| {
        for (number, key) in keys.iter().enumerate() {
            let (text, at_s) = (format!("key-{key}"), (number / 10_000) as u32);
            let value_bytes = 1 + (key.wrapping_mul(2_654_435_761) % 800) as u32;
            take(&Request { key: text.as_bytes(), operation: Operation::Get, value_bytes, ttl_s: 0, at_s });
        }
    };
    each(&mut |request| census.add(request));
    let sample = census.finish().unwrap();
    let mut simulation = Simulation::new(sample, policy, sizes, settings, None, true);
    each(&mut |request| simulation.add(request));
    simulation.finish()
}

fn errors(exact: &Curve, sampled: &Curve) -> Vec<f64> {
    exact.points.iter().zip(&sampled.points).map(|(a, b)| (a.hit_ratio - b.hit_ratio).abs()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn a_tenth_of_the_keys_is_enough() {
    let lru_sizes: Vec<u64> = (1..=6).map(|step| (2 * step) << 20).collect();
    let server_sizes: Vec<u64> = (1..=6).map(|step| (10 + 4 * step) << 20).collect();
    let slabs = Policy::Memcached(SlabClasses::new(SlabSettings::default()).unwrap());
    // The first has nearly equally popular keys.
    for exponent in [0.01, 0.7, 0.99, 1.2] {
        let keys = keys(exponent);
        for (policy, sizes) in [(&Policy::Lru, &lru_sizes), (&slabs, &server_sizes)] {
            let exact = curve(&keys, policy, sizes, usize::MAX);
            assert_eq!(exact.sample.rate, 1.0);
            let samples = exact.sample.sampled_keys / 10;
            let sampled = curve(&keys, policy, sizes, samples as usize);
            assert!(sampled.sample.sampled_keys == samples && (0.09..0.11).contains(&sampled.sample.rate));
            let found = errors(&exact, &sampled);
            println!("zipf {exponent}, {samples} keys: mean error {:.4}, {found:.4?}", mean(&found));
            assert!(mean(&found) < 0.02, "zipf {exponent}: {found:?}");
            let keys_error = sampled.sample.keys / exact.sample.keys - 1.0;
            assert!(keys_error.abs() < 0.05, "{keys_error}");
        }
    }
}
