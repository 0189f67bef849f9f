//! Pipelining clients get the same replies as from a single store: no request overtakes another that it depends on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers, until};
use proxy::{Config, Discipline, FailoverPool, MultiGet, PoolConfig, Reads, Router, Timeouts, Writes};
use std::collections::HashMap;
use std::time::Duration;
use testkit::GatedServer;

const CLIENTS: u64 = 4;
const REQUESTS_PER_CLIENT: usize = 2000;
/// The number of keys. It is small, so that successive requests often have the same key.
const KEYS: u64 = 5;

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The values of one client's keys on a single server with one connection.
#[derive(Default)]
struct Model {
    values: HashMap<String, String>,
    /// Whether to use commands that run on the primary and delete the other replicas, which a multi-get of replicas would then miss.
    has_all_commands: bool,
}

impl Model {
    /// A random request on keys that begin with `prefix`, and its reply.
    fn request(&mut self, prefix: &str, random: &mut Random) -> (String, String) {
        let mut name = || format!("{prefix}-{}", random.below(KEYS));
        let (key, others) = (name(), [name(), name()]);
        let value = random.below(1000).to_string();
        let is_there = self.values.contains_key(&key);
        let command = if self.has_all_commands { random.below(20) } else { random.below(14) };
        let encoded = || {
            let mut encoded = Vec::new();
            wire::encode_base64(key.as_bytes(), &mut encoded);
            String::from_utf8(encoded).unwrap()
        };
        let brought = |value: Option<&String>| value.map(|value| format!("VA {}\r\n{value}\r\n", value.len()));
        match command {
            0..=1 => {
                let request = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
                self.values.insert(key, value);
                (request, "STORED\r\n".into())
            }
            2 => {
                let request = format!("set {key} 0 0 {} noreply\r\n{value}\r\n", value.len());
                self.values.insert(key, value);
                (request, String::new())
            }
            3 => (
                format!("delete {key}\r\n"),
                ["NOT_FOUND\r\n", "DELETED\r\n"][usize::from(self.values.remove(&key).is_some())].into(),
            ),
            4..=6 => (format!("get {key}\r\n"), self.found(&[&key]) + "END\r\n"),
            7 => {
                let keys = [&key, &others[0], &others[1]];
                (format!("get {} {} {}\r\n", keys[0], keys[1], keys[2]), self.found(&keys) + "END\r\n")
            }
            // The same in the meta protocol, with the key in base64 or not.
            8 => {
                let request = format!("ms {} {} b\r\n{value}\r\n", encoded(), value.len());
                self.values.insert(key, value);
                (request, "HD\r\n".into())
            }
            9 => {
                let request = format!("ms {key} {} q\r\n{value}\r\n", value.len());
                self.values.insert(key, value);
                (request, String::new())
            }
            10 => {
                let request = format!("mg {} b v\r\n", encoded());
                (request, brought(self.values.get(&key)).unwrap_or("EN\r\n".into()))
            }
            11 => (format!("mg {key} v q\r\n"), brought(self.values.get(&key)).unwrap_or_default()),
            // It touches, so it is both a read and a write.
            12 => {
                let request = format!("mg {} v b T0\r\nmn\r\n", encoded());
                (request, brought(self.values.get(&key)).unwrap_or("EN\r\n".into()) + "MN\r\n")
            }
            13 => (format!("md {key} q\r\n"), ["NF\r\n", ""][usize::from(self.values.remove(&key).is_some())].into()),
            14 => {
                let request = format!("add {key} 0 0 {}\r\n{value}\r\n", value.len());
                self.values.entry(key).or_insert(value);
                (request, if is_there { "NOT_STORED\r\n" } else { "STORED\r\n" }.into())
            }
            15 => (format!("gat 0 {key} {}\r\n", others[0]), self.found(&[&key, &others[0]]) + "END\r\n"),
            16 => {
                let request = format!("ms {key} {} ME\r\n{value}\r\n", value.len());
                self.values.entry(key).or_insert(value);
                (request, if is_there { "NS\r\n" } else { "HD\r\n" }.into())
            }
            // A missing value is created, then filled by the client that has won it.
            17 => {
                let request = format!("mg {key} v N0\r\nms {key} {} q\r\n{value}\r\n", value.len());
                let reply = brought(self.values.get(&key)).unwrap_or("VA 0 W\r\n\r\n".into());
                self.values.insert(key, value);
                (request, reply)
            }
            18 => {
                let request = format!("ma {} b v\r\n", encoded());
                let Some(value) = self.values.get_mut(&key) else { return (request, "NF\r\n".into()) };
                *value = (value.parse::<u64>().unwrap() + 1).to_string();
                (request, brought(Some(value)).unwrap())
            }
            _ => {
                let request = format!("incr {key} 1\r\n");
                let Some(value) = self.values.get_mut(&key) else { return (request, "NOT_FOUND\r\n".into()) };
                *value = (value.parse::<u64>().unwrap() + 1).to_string();
                (request, format!("{value}\r\n"))
            }
        }
    }

    fn found(&self, keys: &[&String]) -> String {
        let value =
            |key: &&String| self.values.get(*key).map(|value| format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len()));
        keys.iter().filter_map(value).collect()
    }
}

/// One client's requests, in bursts of any length.
fn run_client(proxy: &Proxy, seed: u64, has_all_commands: bool) {
    let (mut random, mut client) = (Random(seed), proxy.client());
    let mut model = Model { has_all_commands, ..Model::default() };
    let mut left = REQUESTS_PER_CLIENT;
    while left > 0 {
        let burst = (1 + random.below(60) as usize).min(left);
        left -= burst;
        let (sent, expected): (Vec<_>, Vec<_>) =
            (0..burst).map(|_| model.request(&format!("c{seed}"), &mut random)).unzip();
        client.send(sent.concat());
        // If this fails, the difference shows the request, and the keys contain the seed.
        client.expect(expected.concat());
    }
}

#[test]
fn pipelining_clients_read_what_they_wrote() {
    for loops in [1, 2] {
        for discipline in disciplines(3 * loops, true) {
            let reads_replicas =
                matches!(discipline, Discipline::Shared { multi_get, .. } if multi_get != MultiGet::ByKey);
            let proxy = Proxy::before(servers(3), |config| {
                (config.loops, config.discipline) = (loops, discipline);
                config.pools[0].replicas = if reads_replicas { 3 } else { 2 };
            });
            std::thread::scope(|scope| {
                for seed in 0..CLIENTS {
                    let proxy = &proxy;
                    scope.spawn(move || run_client(proxy, seed, !reads_replicas));
                }
            });
        }
    }
}

#[test]
fn a_read_waits_for_earlier_writes_of_its_own_client_only() {
    for discipline in disciplines(2, true).into_iter().skip(1) {
        let server = GatedServer::start();
        let proxy = Proxy::at(&[server.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
            config.metrics = Some("127.0.0.1:0".into());
        });
        let (mut client, mut other) = (proxy.client(), proxy.client());
        client.send("set a 0 0 1\r\nx\r\nget a\r\nget b\r\nset a 0 0 1\r\ny\r\n");
        assert_eq!(server.received(1)[0].1, "set a 0 0 1");
        server.answer("get c", "END\r\n");
        other.ask("get c\r\n", "END\r\n");
        server.answer("set a 0 0 1", "STORED\r\n");
        client.expect("STORED\r\n");
        // Both reads may be in flight. The second write waits for both.
        assert_eq!(server.received(4).len(), 4);
        server.answer("get b", "END\r\n");
        assert_eq!(server.received(4).len(), 4);
        server.answer("get a", "END\r\n");
        client.expect("END\r\nEND\r\n");
        assert_eq!(server.received(5)[4].1, "set a 0 0 1");
        server.answer("set a 0 0 1", "STORED\r\n");
        client.expect("STORED\r\n");
        assert!(proxy.metrics().contains("waystage_order_waits_total 2"), "{}", proxy.metrics());
    }
}

#[test]
fn the_two_protocols_wait_for_each_other_also_where_a_key_is_in_base64() {
    for discipline in disciplines(2, true).into_iter().skip(1) {
        let server = GatedServer::start();
        let proxy = Proxy::at(&[server.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
        });
        let mut client = proxy.client();
        client.send("ms YQ== 1 b\r\nx\r\nget a\r\nmg YQ== v b q\r\nmg a T0\r\nmn\r\nset a 0 0 1\r\ny\r\nmg a\r\n");
        assert_eq!(server.received(1)[0].1, "ms YQ== 1 b");
        server.answer("ms YQ== 1 b", "HD\r\n");
        // Both reads may be in flight. The one that touches waits for both.
        server.received(3);
        server.answer("mg YQ== v b", "EN\r\n");
        server.received(3);
        server.answer("get a", "END\r\n");
        assert_eq!(server.received(if is_alone(discipline) { 4 } else { 5 })[3].1, "mg a T0");
        server.answer("mg a T0", "HD\r\n");
        assert_eq!(server.received(5)[4].1, "set a 0 0 1");
        server.answer("set a 0 0 1", "STORED\r\n");
        assert_eq!(server.received(6)[5].1, "mg a");
        server.answer("mg a", "HD\r\n");
        client.expect("HD\r\nEND\r\nHD\r\nMN\r\nSTORED\r\nHD\r\n");
    }
}

/// Whether two writes of one client are never in flight together.
fn is_alone(discipline: Discipline) -> bool {
    matches!(discipline, Discipline::Shared { .. })
}

#[test]
fn a_blocked_client_that_closes_its_side_gets_every_reply() {
    for discipline in disciplines(2, true) {
        let proxy = Proxy::before(servers(1), |config| {
            (config.loops, config.discipline, config.client_window) = (2, discipline, 5);
        });
        let mut client = proxy.client();
        client.send("set a 0 0 1\r\nx\r\nget a\r\nmn\r\nbogus\r\n".repeat(200));
        client.half_close();
        let reply = "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nMN\r\nERROR\r\n";
        client.expect(reply.repeat(200));
        client.expect_closed();
    }
}

#[test]
fn a_read_waits_for_late_replicas_of_earlier_writes_that_it_could_overtake() {
    // `shared` has no late replicas: there, every write waits for all.
    for (discipline, uses_other_connection) in [
        (Discipline::Pipelined, false),
        (Discipline::PerBackend { readers: 2, writers: 2, fault_write_poll: None }, true),
    ] {
        for (line, reply, is_read) in [
            ("get k", "END\r\n", true),
            ("mg k v", "EN\r\n", true),
            ("get k k", "END\r\n", true),
            ("delete k", "NOT_FOUND\r\n", false),
        ] {
            let servers = [GatedServer::start(), GatedServer::start()];
            let proxy = Proxy::at(&servers.each_ref().map(GatedServer::address), |config| {
                (config.loops, config.discipline) = (1, discipline);
                config.metrics = Some("127.0.0.1:0".into());
                let pool = &mut config.pools[0];
                (pool.replicas, pool.writes, pool.reads) = (2, Writes::First, Reads::Any);
                pool.timeouts = Timeouts::all(Duration::from_secs(60));
            });
            let (mut client, mut other) = (proxy.client(), proxy.client());
            client.send("set k 0 0 1\r\nx\r\n");
            servers.iter().for_each(|server| _ = server.received(1));
            servers[0].answer("set k 0 0 1", "STORED\r\n");
            client.expect("STORED\r\n");
            // Four requests, so that reads of any replica go to both.
            client.send(format!("{line}\r\n").repeat(4));
            let received = || servers.iter().map(GatedServer::received_so_far).sum::<usize>();
            let waits = uses_other_connection && is_read;
            if waits {
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(received(), 2, "{discipline:?}: {line}");
            } else {
                until("the requests arrive", || received() > 2);
            }
            if uses_other_connection {
                // Other clients do not wait.
                other.send("get other\r\n");
                servers.iter().for_each(|server| server.answer("get other", "END\r\n"));
                other.expect("END\r\n");
            }
            servers[1].answer("set k 0 0 1", "STORED\r\n");
            servers.iter().for_each(|server| (0..4).for_each(|_| server.answer(line, reply)));
            client.expect(reply.repeat(4));
            let waited = proxy.metrics().contains("waystage_order_waits_total 1");
            assert_eq!(waited, waits, "{discipline:?}: {line}");
        }
    }
}

#[test]
fn writes_of_one_client_reach_the_failover_pool_in_order() {
    for discipline in [Discipline::Pipelined, Discipline::PerBackend { readers: 2, writers: 2, fault_write_poll: None }]
    {
        let [slow, failover] = [GatedServer::start(), GatedServer::start()];
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = Proxy::at(&[dead, slow.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
            config.pools.push(PoolConfig::new("failover", &[failover.address().to_string()]));
            let pool = &mut config.pools[0];
            pool.replicas = 2;
            pool.failover_pool = Some(FailoverPool { pool: "failover".into(), expiry: Duration::from_secs(60) });
            pool.timeouts = Timeouts::all(Duration::from_millis(300));
        });
        let names = [dead, slow.address()].map(|address| address.to_string());
        let router = Router::new(&Config::new("", &names));
        // Its primary is down. The other replica does not answer.
        let key = (0..).map(|key| format!("k{key}")).find(|key| router.primary(key.as_bytes()) == 0).unwrap();
        let mut client = proxy.client();
        client.send(format!("set {key} 0 0 1\r\nx\r\nadd {key} 0 0 1\r\ny\r\n"));
        let set = failover.received(1).remove(0).1;
        assert!(set.starts_with(&format!("set {key} ")), "{discipline:?}: {set}");
        failover.answer(&set, "STORED\r\n");
        client.expect("STORED\r\n");
        let add = failover.received(2).remove(1).1;
        assert!(add.starts_with(&format!("add {key} ")), "{discipline:?}: {add}");
        failover.answer(&add, "STORED\r\n");
        client.expect("STORED\r\n");
    }
}

#[test]
fn a_read_waits_for_several_late_writes_one_after_another() {
    let (fast, late) = (GatedServer::start(), GatedServer::start());
    let proxy = Proxy::at(&[fast.address(), late.address()], |config| {
        (config.loops, config.discipline) =
            (1, Discipline::PerBackend { readers: 2, writers: 2, fault_write_poll: None });
        let pool = &mut config.pools[0];
        (pool.replicas, pool.writes, pool.reads) = (2, Writes::First, Reads::Any);
        pool.timeouts = Timeouts::all(Duration::from_secs(60));
    });
    let mut client = proxy.client();
    client.send("set first 0 0 1\r\nx\r\n");
    fast.answer("set first 0 0 1", "STORED\r\n");
    client.expect("STORED\r\n");
    client.send("set second 0 0 1\r\nx\r\nget k\r\n");
    late.received(2);
    // The first write is no longer late when the second one becomes so.
    late.answer("set first 0 0 1", "STORED\r\n");
    std::thread::sleep(Duration::from_millis(50));
    fast.answer("set second 0 0 1", "STORED\r\n");
    client.expect("STORED\r\n");
    assert_eq!((fast.received(2).len(), late.received(2).len()), (2, 2));
    late.answer("set second 0 0 1", "STORED\r\n");
    [&fast, &late].iter().for_each(|server| server.answer("get k", "END\r\n"));
    client.expect("END\r\n");
}

#[test]
fn a_read_that_waits_for_a_late_replica_goes_on_when_that_replica_fails() {
    let (fast, late) = (GatedServer::start(), GatedServer::start());
    let proxy = Proxy::at(&[fast.address(), late.address()], |config| {
        (config.loops, config.discipline) =
            (1, Discipline::PerBackend { readers: 2, writers: 2, fault_write_poll: None });
        let pool = &mut config.pools[0];
        (pool.replicas, pool.writes, pool.reads) = (2, Writes::First, Reads::Any);
        pool.timeouts = Timeouts::all(Duration::from_secs(2));
    });
    let mut client = proxy.client();
    client.send("set k 0 0 1\r\nx\r\n");
    fast.answer("set k 0 0 1", "STORED\r\n");
    client.expect("STORED\r\n");
    // The late replica has missed the write, so both reads go to the other one.
    client.send("get k\r\n".repeat(2));
    let reply = "VALUE k 0 1\r\nx\r\nEND\r\n";
    (0..2).for_each(|_| fast.answer("get k", reply));
    client.expect(reply.repeat(2));
}
