//! Without sampling, the LRU by bytes is exact: random small traces against a list that is searched from end to end.

#![allow(clippy::unwrap_used, reason = "tests")]

use hit_ratio::{Census, Operation, Policy, Request, Sample, Simulation, SlabSettings};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const TRACES: u64 = 10_000;

#[derive(Clone, Debug)]
struct Row {
    key: Vec<u8>,
    operation: Operation,
    value_bytes: u32,
    ttl_s: u32,
    at_s: u32,
}

/// An LRU as a vector, the most recently used item first. Knows nothing of the crate but the size of an item.
#[derive(Default)]
struct Slow {
    items: Vec<(Vec<u8>, u64, Option<u32>)>,
    memory: u64,
}

impl Slow {
    fn store(&mut self, key: &[u8], bytes: u64, expires_s: Option<u32>) {
        if bytes > self.memory {
            return;
        }
        self.items.retain(|item| item.0 != key);
        self.items.insert(0, (key.to_vec(), bytes, expires_s));
        while self.items.iter().map(|item| item.1).sum::<u64>() > self.memory {
            self.items.pop();
        }
    }

    /// Hits of the gets of a trace.
    fn hits(memory: u64, rows: &[Row], fills: bool) -> u64 {
        let mut cache = Slow { memory, ..Slow::default() };
        let mut hits = 0;
        for (number, row) in rows.iter().enumerate() {
            let bytes = |value: u32| u64::from(SlabSettings::default().item_bytes(row.key.len(), value));
            let expires = |ttl_s: u32| (ttl_s > 0).then_some(row.at_s + ttl_s);
            if row.operation != Operation::Delete {
                cache.items.retain(|item| item.0 != row.key || item.2.is_none_or(|at| at > row.at_s));
            }
            let place = cache.items.iter().position(|item| item.0 == row.key);
            match (row.operation, place) {
                (Operation::Get, Some(place)) => {
                    hits += 1;
                    let item = cache.items.remove(place);
                    cache.items.insert(0, item);
                }
                (Operation::Get, None) if fills => {
                    // The last size and time to live that the trace has for this key.
                    let known = rows[..=number].iter().filter(|other| other.key == row.key);
                    let size = known.clone().rev().find_map(|other| match other.operation {
                        Operation::Get => Some(other.value_bytes).filter(|bytes| *bytes > 0),
                        _ if other.operation.writes() => Some(other.value_bytes),
                        _ => None,
                    });
                    let names = |other: &&Row| {
                        other.operation.writes() || (other.operation == Operation::Get && other.ttl_s > 0)
                    };
                    let ttl_s = known.rev().find(names).map_or(0, |other| other.ttl_s);
                    if let Some(size) = size {
                        cache.store(&row.key, bytes(size), expires(ttl_s));
                    }
                }
                (Operation::Set, _) if bytes(row.value_bytes) > memory => cache.items.retain(|item| item.0 != row.key),
                (Operation::Set, _) | (Operation::Add, None) | (Operation::Replace, Some(_)) => {
                    cache.store(&row.key, bytes(row.value_bytes), expires(row.ttl_s));
                }
                (Operation::Append, Some(place)) => {
                    let (key, old, expires_s) = cache.items[place].clone();
                    cache.store(&key, old + u64::from(row.value_bytes), expires_s);
                }
                (Operation::Delete, Some(place)) => drop(cache.items.remove(place)),
                _ => {}
            }
        }
        hits
    }
}

/// A trace of up to 60 requests for up to 12 keys.
fn rows(random: &mut Xoshiro256PlusPlus) -> Vec<Row> {
    const OPERATIONS: [Operation; 10] = [
        Operation::Get,
        Operation::Get,
        Operation::Get,
        Operation::Get,
        Operation::Set,
        Operation::Add,
        Operation::Replace,
        Operation::Append,
        Operation::Delete,
        Operation::Increment,
    ];
    let keys = random.random_range(2..=12);
    let count = random.random_range(2..=60);
    let mut at_s = 0;
    let mut row = |_| {
        at_s += random.random_range(0..=3);
        let number = random.random_range(0..keys);
        Row {
            key: "k".repeat(1 + number).into_bytes(),
            operation: OPERATIONS[random.random_range(0..OPERATIONS.len())],
            value_bytes: if random.random_bool(0.2) { 0 } else { random.random_range(1..=400) },
            ttl_s: if random.random_bool(0.5) { 0 } else { random.random_range(1..=20) },
            at_s,
        }
    };
    (0..count).map(&mut row).collect()
}

fn request(row: &Row) -> Request<'_> {
    let Row { operation, value_bytes, ttl_s, at_s, .. } = *row;
    Request { key: &row.key, operation, value_bytes, ttl_s, at_s }
}

#[test]
fn ten_thousand_small_traces_are_exact() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(25);
    let (mut compared, mut with_evictions, mut with_fewer_hits) = (0u32, 0u32, 0u32);
    for trace in 0..TRACES {
        let rows = rows(&mut random);
        let mut census = Census::new(SlabSettings::default(), None, usize::MAX);
        rows.iter().for_each(|row| census.add(&request(row)));
        // A trace without a repeated get has no curve.
        let Ok(sample) = census.finish() else { continue };
        let gets = sample.gets as f64;
        let sizes: Vec<u64> = [50, 200, 400, 800, 1600, 10_000].to_vec();
        let fills = trace % 3 != 0;
        let settings = SlabSettings::default();
        let mut simulation = Simulation::new(sample, &Policy::Lru, &sizes, settings, None, fills);
        rows.iter().for_each(|row| simulation.add(&request(row)));
        let curve = simulation.finish();
        for point in &curve.points {
            let expected = Slow::hits(point.memory, &rows, fills) as f64;
            let found = point.hit_ratio * gets;
            assert!((found - expected).abs() < 1e-6, "trace {trace}, {} bytes: {found} {expected}", point.memory);
            with_evictions += u32::from(point.evictions > 0.0);
        }
        compared += 1;
        let last = curve.points.last().unwrap().hit_ratio;
        with_fewer_hits += u32::from(curve.points.iter().any(|point| point.hit_ratio < last));
    }
    assert!(compared > 8000 && with_evictions > 10_000 && with_fewer_hits > 4000, "{compared} traces are too easy");
}

#[test]
fn a_census_of_all_keys_is_exact() {
    let settings = SlabSettings::default();
    let mut census = Census::new(settings, None, usize::MAX);
    let get =
        |key: &'static [u8], value_bytes| Request { key, operation: Operation::Get, value_bytes, ttl_s: 0, at_s: 7 };
    for request in [get(b"a", 10), get(b"bb", 20), get(b"a", 30), get(b"bb", 2 << 20)] {
        census.add(&request);
    }
    let Sample { rate, keys, item_bytes, first_gets, too_large, span_s, .. } = census.finish().unwrap();
    assert_eq!((rate, keys, first_gets, too_large, span_s), (1.0, 2.0, 2.0, 1, 7));
    assert_eq!(item_bytes, f64::from(settings.item_bytes(1, 30) + settings.item_bytes(2, 2 << 20)));
}
