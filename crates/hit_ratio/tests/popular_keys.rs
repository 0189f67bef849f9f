//! A popular key counts exactly, also if its hash is not in the sample.

#![allow(clippy::unwrap_used, reason = "tests")]

use hit_ratio::{
    Census, Curve, HitRatioError, Operation, Policy, Request, Sample, Simulation, SlabClasses, SlabSettings,
};

const MIB: u64 = 1 << 20;

/// A key and the size of its value.
type Get = (String, u32);

fn each(gets: &[Get], take: &mut dyn FnMut(&Request<'_>)) {
    for (number, (key, value_bytes)) in gets.iter().enumerate() {
        let at_s = (number / 5000) as u32;
        take(&Request { key: key.as_bytes(), operation: Operation::Get, value_bytes: *value_bytes, ttl_s: 0, at_s });
    }
}

fn sample(gets: &[Get], samples: usize) -> Result<Sample, HitRatioError> {
    let mut census = Census::new(SlabSettings::default(), None, samples);
    each(gets, &mut |request| census.add(request));
    census.finish()
}

fn curve(gets: &[Get], policy: &Policy, sizes: &[u64], samples: usize) -> Curve {
    let sample = sample(gets, samples).unwrap();
    let mut simulation = Simulation::new(sample, policy, sizes, SlabSettings::default(), None, true);
    each(gets, &mut |request| simulation.add(request));
    simulation.finish()
}

fn policies() -> [Policy; 2] {
    [Policy::Lru, Policy::Memcached(SlabClasses::new(SlabSettings::default()).unwrap())]
}

fn assert_near(gets: &[Get], sizes: &[u64], samples: usize, error_max: f64) {
    for policy in &policies() {
        let exact = curve(gets, policy, sizes, usize::MAX);
        let sampled = curve(gets, policy, sizes, samples);
        assert!(exact.sample.rate == 1.0 && sampled.sample.rate < 0.5);
        for (a, b) in exact.points.iter().zip(&sampled.points) {
            let error = (a.hit_ratio - b.hit_ratio).abs();
            assert!(error < error_max, "{policy:?}, {} bytes: {} {}", a.memory, a.hit_ratio, b.hit_ratio);
        }
    }
}

#[test]
fn every_second_get_is_for_one_key() {
    // The other keys are read twice, in the same order.
    for popular in ["popular", "front-page", "config"] {
        let key = |number: usize| match number % 2 {
            0 => format!("c{:08}", number / 2 % 50_000),
            _ => popular.to_string(),
        };
        let gets: Vec<Get> = (0..200_000).map(|number| (key(number), 100)).collect();
        assert_near(&gets, &[4 * MIB, 16 * MIB, 32 * MIB], 13_000, 0.01);
    }
}

#[test]
fn one_key_is_read_again_and_all_others_once() {
    let key = |number: usize| if number.is_multiple_of(2) { "hot".to_string() } else { format!("new-{number}") };
    let gets: Vec<Get> = (0..300_000).map(|number| (key(number), 100)).collect();
    for samples in [10_000, 2000] {
        assert_near(&gets, &[8 * MIB, 64 * MIB], samples, 0.001);
    }
}

#[test]
fn popular_keys_need_no_more_memory_than_they_have() {
    // 50 keys have values of 100 kB, of which all fit into 16 MiB. A hundredth of this holds one of them.
    let key = |number: usize| match number % 10 {
        0 => (format!("large-{}", number / 10 % 50), 100_000),
        _ => (format!("small-{}", number * 7919 % 60_000), 100),
    };
    let gets: Vec<Get> = (0..300_000).map(key).collect();
    assert_near(&gets, &[16 * MIB, 64 * MIB], 2000, 0.02);
}

#[test]
fn a_sample_of_all_keys_has_no_popular_ones() {
    let gets: Vec<Get> = (0..1000).map(|number| (format!("key-{}", number % 50), 10)).collect();
    let all = sample(&gets, 50).unwrap();
    assert_eq!((all.rate, all.popular.len()), (1.0, 0));
    assert_eq!(sample(&gets, 49).unwrap().popular.len(), 50);
}

#[test]
fn reasons_name_the_sample_if_they_are_from_it() {
    let once: Vec<Get> = (0..50_000).map(|number| (format!("key-{number}"), 10)).collect();
    assert_eq!(sample(&once, usize::MAX).unwrap_err(), HitRatioError::AllNew);
    let line = sample(&once, 100).unwrap_err().to_string();
    assert!(
        line.starts_with("no key of the sample has a get") && line.contains("in the sample: 100); use --samples all"),
        "{line}"
    );

    let without_sizes: Vec<Get> = (0..20_000).map(|number| (format!("key-{}", number % 10_000), 0)).collect();
    assert_eq!(sample(&without_sizes, 100).unwrap_err(), HitRatioError::NoSizes);
    let mut one_size = without_sizes;
    one_size[0].1 = 10;
    let line = sample(&one_size, 10).unwrap_err().to_string();
    assert!(line.starts_with("no key of the sample has a value size") && line.contains("in the sample: 10)"), "{line}");
}

#[test]
fn gets_that_a_sample_lacks_are_reported() {
    let ratio = |gets: &[Get], samples| {
        let found = curve(gets, &Policy::Lru, &[MIB], samples);
        found.sampled_gets / found.other_gets as f64
    };
    let alike: Vec<Get> = (0..80_000).map(|number| (format!("cold-{}", number % 40_000), 10)).collect();
    let found = ratio(&alike, 1000);
    assert!((0.9..1.1).contains(&found), "{found}");
    // 400 keys have nine gets of ten, which is more keys than are counted exactly; none is in the sample.
    let key = |number: usize| match number % 10 {
        0 => format!("cold-{}", number / 10),
        _ => format!("warm-{}", number * 7919 % 400),
    };
    let unlike: Vec<Get> = (0..400_000).map(|number| (key(number), 10)).collect();
    let found = ratio(&unlike, 60);
    assert!(found < 0.5, "{found}");
}

#[test]
fn first_gets_are_at_most_all_gets() {
    let gets: Vec<Get> =
        (0..60_000).map(|number| (format!("key-{}", if number % 1000 == 999 { 0 } else { number }), 10)).collect();
    for samples in [500, 1000, 3000, 10_000] {
        let Ok(found) = sample(&gets, samples) else { continue };
        assert!(found.first_gets <= found.gets as f64, "{samples}");
    }
}
