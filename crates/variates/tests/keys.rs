//! Patterns of keys: the language, and the frequency of each key.

use proptest::prelude::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, Normal};
use variates::{KEYS_MAX, Popularity};

fn random() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(5)
}

fn pattern(text: &str) -> Popularity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn counts(text: &str, keys: usize, draws: usize) -> Vec<f64> {
    let mut sampler = pattern(text).sampler(keys as u64, 0, 1);
    let mut random = random();
    let mut counts = vec![0.0; keys];
    (0..draws).for_each(|_| counts[sampler.draw(&mut random) as usize] += 1.0);
    counts
}

/// Asserts that counts are as likely as these weights, by chi-square at five standard deviations.
fn assert_in_proportion(counts: &[f64], weights: &[f64], what: &str) {
    let (drawn, total): (f64, f64) = (counts.iter().sum(), weights.iter().sum());
    let expected = weights.iter().map(|weight| weight / total * drawn);
    let cells: Vec<(f64, f64)> =
        counts.iter().copied().zip(expected).filter(|(_, expected)| *expected >= 5.0).collect();
    let sum: f64 = cells.iter().map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    let freedom = cells.len() as f64;
    assert!(sum < freedom + 5.0 * (2.0 * freedom).sqrt() + 10.0, "{what}: chi-square {sum} of {freedom}");
}

#[test]
fn uniform_keys_are_equally_likely() {
    assert_in_proportion(&counts("uniform", 100, 100_000), &[1.0; 100], "uniform");
    assert_in_proportion(&counts("hot:1:0.3", 100, 100_000), &[1.0; 100], "all keys are hot");
    assert_in_proportion(&counts("zipf:0", 100, 100_000), &[1.0; 100], "zipf:0");
}

#[test]
fn parts_of_a_sequence_are_every_key_once_a_round() {
    for (keys, parts) in [(10, 1), (10, 3), (7, 7), (1000, 4)] {
        let mut drawers: Vec<_> = (0..parts).map(|part| pattern("sequential").sampler(keys, part, parts)).collect();
        let mut random = random();
        for round in 0..3 {
            let mut seen = vec![0; keys as usize];
            for (part, sampler) in drawers.iter_mut().enumerate() {
                let stretch = keys as usize * (part + 1) / parts - keys as usize * part / parts;
                let drawn: Vec<u64> = (0..stretch).map(|_| sampler.draw(&mut random)).collect();
                assert!(drawn.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{drawn:?}");
                drawn.iter().for_each(|key| seen[*key as usize] += 1);
            }
            assert_eq!(seen, vec![1; keys as usize], "round {round} of {parts} parts");
        }
    }
    // More parts than keys: some share one.
    for part in 0..5 {
        let mut sampler = pattern("sequential").sampler(2, part, 5);
        let mut random = random();
        assert!((0..4).all(|_| sampler.draw(&mut random) < 2));
    }
}

#[test]
fn zipf_keys_are_the_same_for_every_part_and_have_the_shares_of_their_ranks() {
    let sampler = pattern("zipf:0.99").sampler(500, 0, 4);
    let keys: Vec<u64> = (0..500).map(|rank| sampler.key_of_rank(rank)).collect();
    let other = pattern("zipf:0.99").sampler(500, 3, 4);
    assert!((0..500).all(|rank| other.key_of_rank(rank) == keys[rank as usize]));
    let mut weights = vec![0.0; 500];
    keys.iter().zip(1..).for_each(|(key, rank)| weights[*key as usize] = f64::from(rank).powf(-0.99));
    assert_in_proportion(&counts("zipf:0.99", 500, 100_000), &weights, "zipf:0.99");
}

#[test]
fn gaussian_keys_are_a_truncated_normal() {
    let cases = [
        ("gaussian", 100, 50.0, 99.0 / 6.0),
        ("gaussian:20:5", 100, 20.5, 5.0),
        ("gaussian:0:30", 100, 0.5, 30.0),
        ("gaussian:99:300", 100, 99.5, 300.0),
        ("gaussian:50:40", 100, 50.5, 40.0),
        ("gaussian:3:0.2", 10, 3.5, 0.2),
        ("gaussian:0:1000000", 100, 0.5, 1e6),
    ];
    for (text, keys, centre, deviation) in cases {
        let normal = Normal::new(centre, deviation).unwrap();
        let weights: Vec<f64> =
            (0..keys).map(|key| normal.cdf(f64::from(key) + 1.0) - normal.cdf(f64::from(key))).collect();
        assert_in_proportion(&counts(text, keys as usize, 100_000), &weights, text);
    }
}

#[test]
fn hot_keys_get_their_share() {
    let counts = counts("hot:0.1:0.9", 200, 200_000);
    let sampler = pattern("hot:0.1:0.9").sampler(200, 0, 1);
    let mut weights = vec![0.1 / 180.0; 200];
    (0..20).for_each(|rank| weights[sampler.key_of_rank(rank) as usize] = 0.9 / 20.0);
    assert_in_proportion(&counts, &weights, "hot");
    let adjacent = (0..19).filter(|rank| sampler.key_of_rank(*rank).abs_diff(sampler.key_of_rank(rank + 1)) == 1);
    assert!(adjacent.count() <= 2, "hot keys are adjacent");
}

#[test]
fn the_share_of_the_most_popular_keys_matches_the_draws() {
    for text in ["uniform", "zipf:0.5", "zipf:1.2", "hot:0.05:0.8", "hot:1:0"] {
        let popularity = pattern(text);
        let mut sampler = popularity.sampler(2000, 0, 1);
        let mut random = random();
        let ranks: Vec<u64> = (0..100_000).map(|_| sampler.draw_rank(&mut random)).collect();
        for top in [1, 50, 100, 500, 2000] {
            let share = popularity.top_share(2000, top).unwrap();
            let drawn = ranks.iter().filter(|rank| **rank < top).count() as f64 / 1e5;
            assert!((share - drawn).abs() <= 5.0 * (share * (1.0 - share) / 1e5).sqrt() + 1e-9, "{text} {top}");
        }
        assert!((popularity.top_share(2000, 5000).unwrap() - 1.0).abs() < 1e-12);
    }
    assert_eq!(pattern("gaussian").top_share(10, 1), None);
}

#[test]
fn memtiers_letters_name_key_patterns() {
    assert_eq!(["R", "S", "G", "Z"].map(pattern), ["uniform", "sequential", "gaussian", "zipf:1"].map(pattern));
    assert_eq!((pattern("Z:0.8"), pattern("G:5:2")), (pattern("zipf:0.8"), pattern("gaussian:5:2")));
    assert_eq!(Popularity::default().to_string(), "uniform");
}

#[test]
fn a_refusal_names_the_part_and_gives_an_example_that_works() {
    let cases = [
        ("zipf", "wanted zipf:EXPONENT, not 0 values"),
        ("zipf:", "\"\" is not a finite number"),
        ("zipf:-1", "EXPONENT -1 is below 0"),
        ("zipf:nan", "\"nan\" is not a finite number"),
        ("zipf:1:2", "wanted zipf:EXPONENT, not 2 values"),
        ("uniform:1", "wanted no values, not 1 values"),
        ("gaussian:5", "wanted gaussian or gaussian:CENTRE:DEVIATION, not 1 values"),
        ("gaussian:-1:2", "CENTRE -1 is below 0"),
        ("gaussian:5:0", "DEVIATION 0 is not above 0"),
        ("hot:0.1", "wanted hot:KEYS_SHARE:REQUESTS_SHARE, not 1 values"),
        ("hot:0:0.9", "KEYS_SHARE 0 is not above 0"),
        ("hot:0.1:1.1", "REQUESTS_SHARE 1.1 is not 0 to 1"),
        ("pareto:1", "\"pareto\" is no pattern"),
        ("", "\"\" is no pattern"),
    ];
    for (text, part) in cases {
        let line = text.parse::<Popularity>().unwrap_err().to_string();
        assert!(line.contains(part) && !line.contains('\n'), "{line}");
        let (_, example) = line.rsplit_once("for example ").unwrap();
        assert!(example.parse::<Popularity>().is_ok(), "{line}");
    }
}

#[test]
fn an_empty_key_range_is_rejected() {
    let refusal = |text: &str, keys| pattern(text).check(keys).unwrap_err().to_string();
    assert!(refusal("uniform", 0).contains("cannot be drawn from 0 keys, only from 1 to 2^48"));
    assert!(refusal("uniform", KEYS_MAX + 1).contains("cannot be drawn from"));
    let line = refusal("gaussian:10:2", 10);
    assert!(line.contains("CENTRE 10 is above the last of the keys, which count from 0 to 9"), "{line}");
    assert_eq!(pattern("gaussian:9:2").check(10), Ok(()));
    assert!(Popularity::Zipf { exponent: f64::NAN }.check(10).is_err());
    for text in ["uniform", "sequential", "zipf:0.99", "gaussian", "gaussian:0:1", "hot:0.1:0.9"] {
        let mut sampler = pattern(text).sampler(1, 0, 1);
        assert!((0..100).all(|_| sampler.draw(&mut random()) == 0), "{text}");
    }
}

proptest! {
    #[test]
    fn printed_text_parses_to_the_same_value(kind in 0..6, one in 0.0..=1.0f64, two in 0.0..=1.0f64, keys in 1u64..1 << 30) {
        let text = match kind {
            0 => "uniform".to_owned(),
            1 => "sequential".to_owned(),
            2 => format!("zipf:{}", one * 4.0),
            3 => "gaussian".to_owned(),
            4 => format!("gaussian:{}:{}", (keys - 1) as f64 * one, two * 1000.0 + 0.1),
            _ => format!("hot:{}:{two}", one.max(1e-9)),
        };
        let popularity = pattern(&text);
        prop_assert_eq!(pattern(&popularity.to_string()), popularity);
        prop_assert_eq!(popularity.check(keys), Ok(()));
        let mut sampler = popularity.sampler(keys, 0, 2);
        let mut random = random();
        prop_assert!((0..100).all(|_| sampler.draw(&mut random) < keys));
    }

    #[test]
    fn no_text_causes_a_panic(text in "(zipf|gaussian|hot|uniform|Z|G)?[:,0-9a-z.-]{0,12}", keys in 1u64..2000) {
        if let Ok(popularity) = text.parse::<Popularity>() && popularity.check(keys).is_ok() {
            let mut sampler = popularity.sampler(keys, 0, 1);
            prop_assert!(sampler.draw(&mut random()) < keys);
        }
    }
}
