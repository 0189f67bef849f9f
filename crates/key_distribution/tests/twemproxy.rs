//! Every key has the server that twemproxy chose, so that replacing twemproxy does not empty the caches.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use key_distribution::{Distribution, Hash, KeyDistribution};
use std::collections::BTreeMap;

fn key_distribution(distribution: Distribution, hash: Hash, servers: &[(String, u32)]) -> KeyDistribution {
    let named: Vec<(&str, u32)> = servers.iter().map(|(name, weight)| (distribution.name_of(name), *weight)).collect();
    KeyDistribution::new(distribution, hash, &named)
}

/// The servers that twemproxy 0.5.0 (`hash: md5`, `distribution: ketama`) chose, found by reading the keys from each server.
#[test]
fn keys_go_to_the_servers_twemproxy_chooses() {
    let of = |ports: &[u16], weights: &[u32]| {
        let addresses = ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let servers: Vec<_> = addresses.zip(weights.iter().copied()).collect();
        key_distribution(Distribution::Ketama, Hash::Md5, &servers)
    };
    let three = of(&[11411, 11412, 11413], &[1; 3]);
    let five = of(&[11411, 11412, 11413, 11414, 11211], &[1; 5]).tagged(Some(*b"{}"));
    let weighted = of(&[11411, 11412, 11413], &[1, 2, 5]);
    let mut checked = 0;
    for line in include_str!("ketama-twemproxy.csv").lines().skip(1) {
        let mut fields = line.split(',');
        let (pool, key) = (fields.next().unwrap(), fields.next().unwrap().as_bytes());
        let server: usize = fields.next().unwrap().parse().unwrap();
        let ours = match pool {
            "three" => three.owner(key),
            "five" => five.owner(key),
            _ => weighted.owner(key),
        };
        assert_eq!(ours, server, "{line}");
        checked += 1;
    }
    assert_eq!(checked, 1227);
}

/// One of the recorded pools, by its name in the file.
fn recorded(distribution: &str, hash: &str, servers: &str) -> KeyDistribution {
    let ports = match servers {
        "three" => 31311..31314,
        "named" => 31311..31315,
        _ => 31311..31316,
    };
    let weights = if servers == "weighted" { [1, 2, 5, 1, 3] } else { [1; 5] };
    let named = |index: usize, port: u16| match servers {
        "named" => format!("cache-{index}"),
        _ => format!("127.0.0.1:{port}"),
    };
    let servers: Vec<_> = ports.enumerate().map(|(index, port)| (named(index, port), weights[index])).collect();
    let distribution = if distribution == "modula" { Distribution::Modulo } else { Distribution::Ketama };
    key_distribution(distribution, Hash::named(hash).unwrap(), &servers)
}

/// The same for its other distribution and hashes, for weights, for names, and for keys beyond ASCII.
#[test]
fn every_hash_chooses_the_server_twemproxy_chooses() {
    let mut placements = BTreeMap::new();
    let mut checked = 0;
    for line in include_str!("hashes-twemproxy.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [distribution, hash, servers, key, server] = fields[..] else { panic!("{line}") };
        let pool = (distribution, hash, servers);
        let key_distribution = placements.entry(pool).or_insert_with(|| recorded(distribution, hash, servers));
        let digits = key.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let key: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        assert_eq!(key_distribution.owner(&key), server.parse::<usize>().unwrap(), "{line}");
        checked += 1;
    }
    assert_eq!((checked, placements.len()), (2268, 18));
}
