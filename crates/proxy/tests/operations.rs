//! Requests that go to another pool because of what they do: plain reads to the read pool of a pool, deletes to several pools.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers, until};
use proxy::{Config, Discipline, PoolConfig, Timeouts, WarmUp, Writes};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Client, GatedServer, Server, memcached_is_here};

/// The timeout of servers that are frozen.
const TIMEOUT: Duration = Duration::from_millis(300);

/// A proxy with a pool `main` of the first `replicas` servers and one pool for each other server: `near`, `far`, `other`. Plain reads go
/// to `near`.
fn proxy(addresses: &[SocketAddr], replicas: usize, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&addresses[..replicas], |config| {
        config.loops = 1;
        (config.pools[0].name, config.pools[0].replicas) = ("main".into(), replicas);
        for (name, address) in ["near", "far", "other"].iter().zip(&addresses[replicas..]) {
            config.pools.push(PoolConfig::new(name, &[address.to_string()]));
        }
        config.pools[0].read_pool = Some("near".into());
        change(config);
    })
}

fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(Server::address).collect()
}

fn warm_up(from: &str) -> Option<WarmUp> {
    Some(WarmUp { from: from.into(), expiry: Duration::from_secs(100) })
}

/// Stores a value on one server.
fn store(address: SocketAddr, key: &str, value: &str) {
    Client::connect(address).ask(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
}

/// The value of a key on one server.
fn value_at(address: SocketAddr, key: &str) -> Option<String> {
    let mut direct = Client::connect(address);
    direct.send(format!("get {key}\r\n"));
    direct.line().starts_with("VALUE").then(|| direct.line().trim_end().into())
}

fn no_memcached() -> bool {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache has no meta commands and cannot be frozen");
    }
    !memcached_is_here()
}

#[test]
fn plain_reads_go_to_the_read_pool_and_all_other_commands_to_the_pool() {
    if no_memcached() {
        return;
    }
    for discipline in disciplines(2, true) {
        let backends: Vec<_> = (0..2).map(|_| Server::memcached()).collect();
        let [main, near] = addresses(&backends)[..] else { unreachable!() };
        let proxy = proxy(&[main, near], 1, |config| config.discipline = discipline);
        let mut client = proxy.client();
        for (number, (command, reply, after)) in [
            ("get K\r\n", "VALUE K 0 1\r\n1\r\nEND\r\n", Some("5")),
            ("get K none K\r\n", "VALUE K 0 1\r\n1\r\nVALUE K 0 1\r\n1\r\nEND\r\n", Some("5")),
            ("mg K v k O3\r\n", "VA 1 kK O3\r\n1\r\n", Some("5")),
            ("mg K v T30\r\n", "VA 1\r\n5\r\n", Some("5")),
            ("mg K v h\r\n", "VA 1 h0\r\n5\r\n", Some("5")),
            ("mg K v N30\r\n", "VA 1\r\n5\r\n", Some("5")),
            ("gat 30 K\r\n", "VALUE K 0 1\r\n5\r\nEND\r\n", Some("5")),
            ("gat 30 K none\r\n", "VALUE K 0 1\r\n5\r\nEND\r\n", Some("5")),
            ("set K 0 0 1\r\n6\r\nget K\r\n", "STORED\r\nVALUE K 0 1\r\n1\r\nEND\r\n", Some("6")),
            ("add K 0 0 1\r\n6\r\n", "NOT_STORED\r\n", Some("5")),
            ("append K 0 0 1\r\n6\r\n", "STORED\r\n", Some("56")),
            ("incr K 1\r\n", "6\r\n", Some("6")),
            ("ma K v\r\n", "VA 1\r\n6\r\n", Some("6")),
            ("ms K 1 ME\r\n6\r\n", "NS\r\n", Some("5")),
            ("touch K 30\r\n", "TOUCHED\r\n", Some("5")),
            ("cas K 0 0 1 1000000\r\n6\r\n", "EXISTS\r\n", Some("5")),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("k{number}");
            store(main, &key, "5");
            store(near, &key, "1");
            client.ask(command.replace('K', &key), reply.replace('K', &key));
            let context = format!("{command} {discipline:?}");
            assert_eq!(value_at(main, &key).as_deref(), after, "{context}");
            assert_eq!(value_at(near, &key).as_deref(), Some("1"), "{context}");
        }
        // A cas token is that of the pool that writes change.
        for command in ["gets k0", "gats 30 k0"] {
            client.send(format!("{command}\r\n"));
            let line = client.line();
            let token = line.strip_prefix("VALUE k0 0 1 ").unwrap().trim_end().to_string();
            client.expect("5\r\nEND\r\n");
            client.ask(format!("cas k0 0 0 1 {token}\r\n5\r\n"), "STORED\r\n");
        }
    }
}

/// A `gat` whose values did not fit is read again with `get`, and still from the pool that has the touched value.
#[test]
fn a_read_that_is_repeated_goes_to_the_same_pool() {
    let backends = servers(2);
    let [main, near] = addresses(&backends)[..] else { unreachable!() };
    let proxy = proxy(&[main, near], 1, |config| config.client_buffer_bytes = 400_000);
    for (address, letter) in [(main, "m"), (near, "n")] {
        (0..20).for_each(|number| store(address, &format!("k{number}"), &letter.repeat(100_000)));
    }
    let keys: String = (0..20).map(|number| format!(" k{number}")).collect();
    for (command, letter) in [("gat 100", "m"), ("get", "n")] {
        let mut client = proxy.client();
        client.send(format!("{command}{keys}\r\n").repeat(5));
        std::thread::sleep(Duration::from_millis(300));
        for number in (0..20).cycle().take(100) {
            client.expect(format!("VALUE k{number} 0 100000\r\n{}\r\n", letter.repeat(100_000)));
            if number == 19 {
                client.expect("END\r\n");
            }
        }
    }
    assert!(!proxy.stats().contains("waystage_reads_repeated 0\r\n"), "{}", proxy.stats());
}

#[test]
fn a_delete_reaches_every_pool_that_can_return_the_value() {
    if no_memcached() {
        return;
    }
    for discipline in disciplines(2, false) {
        for replicas in [1, 2] {
            let backends: Vec<_> = (0..replicas + 3).map(|_| Server::memcached()).collect();
            let all = addresses(&backends);
            let proxy = proxy(&all, replicas, |config| {
                config.discipline = discipline;
                config.pools[0].delete_pools = vec!["far".into()];
                // Not named, but `far` would fetch the value from it.
                config.pools[2].warm_up = warm_up("other");
            });
            let mut client = proxy.client();
            for (number, (command, found, missing)) in [
                ("delete K\r\n", "DELETED\r\n", "NOT_FOUND\r\n"),
                ("delete K noreply\r\nmn\r\n", "MN\r\n", "MN\r\n"),
                ("md K\r\n", "HD\r\n", "NF\r\n"),
                ("md K q O4 k\r\nmn\r\n", "MN\r\n", "NF O4 kK\r\nMN\r\n"),
                ("md K O4 k\r\n", "HD O4 kK\r\n", "NF O4 kK\r\n"),
                ("md B b\r\n", "HD\r\n", "NF\r\n"),
            ]
            .into_iter()
            .enumerate()
            {
                for holders in [&all[..], &all[..1], &all[replicas..=replicas], &all[replicas + 2..], &[]] {
                    let key = format!("key{}", number % 10);
                    let named = |text: &str| text.replace('K', &key).replace('B', &base64_of(&key));
                    holders.iter().for_each(|&holder| store(holder, &key, "1"));
                    client.ask(named(command), named(if holders.is_empty() { missing } else { found }));
                    let left: Vec<_> = all.iter().filter(|&&address| value_at(address, &key).is_some()).collect();
                    assert!(left.is_empty(), "{command} {discipline:?}: {left:?} of {holders:?}");
                    client.ask(format!("get {key}\r\n"), "END\r\n");
                }
            }
        }
    }
}

/// The text `keyN` in base64.
fn base64_of(key: &str) -> String {
    let digits = ["MA==", "MQ==", "Mg==", "Mw==", "NA==", "NQ==", "Ng==", "Nw==", "OA==", "OQ=="];
    let digit: usize = key.strip_prefix("key").unwrap().parse().unwrap();
    format!("a2V5{}", digits[digit])
}

#[test]
fn a_delete_that_depends_on_the_value_reaches_the_other_pools_unless_it_is_refused() {
    if no_memcached() {
        return;
    }
    for replicas in [1, 2] {
        let backends: Vec<_> = (0..replicas + 2).map(|_| Server::memcached()).collect();
        let all = addresses(&backends);
        let proxy = proxy(&all, replicas, |config| config.pools[0].delete_pools = vec!["far".into()]);
        let (near, far) = (all[replicas], all[replicas + 1]);
        let store_everywhere = |key: &str| all.iter().for_each(|&address| store(address, key, "1"));
        let mut client = proxy.client();
        store_everywhere("k");
        client.ask("md k C1000000\r\n", "EX\r\n");
        assert_eq!([value_at(near, "k"), value_at(far, "k")].map(|value| value.is_some()), [true, true]);
        client.send("mg k c\r\n");
        let token = client.line().trim().strip_prefix("HD c").unwrap().to_string();
        client.ask(format!("md k C{token} O7\r\n"), "HD O7\r\n");
        assert!(all.iter().all(|&address| value_at(address, "k").is_none()));
        // The pool does not have it, but the others do.
        store(near, "k", "1");
        store(far, "k", "1");
        client.ask("md k C1\r\n", "HD\r\n");
        assert!(all.iter().all(|&address| value_at(address, "k").is_none()));
        client.ask("md k C1\r\n", "NF\r\n");
        // A value that is marked as stale here is deleted there.
        store_everywhere("k");
        client.ask("md k I T30\r\n", "HD\r\n");
        assert!(value_at(all[0], "k").is_some() && value_at(near, "k").is_none() && value_at(far, "k").is_none());
    }
}

#[test]
fn a_pool_that_missed_a_delete_does_not_return_the_value_until_it_is_deleted_there() {
    if no_memcached() {
        return;
    }
    for discipline in disciplines(4, false) {
        let mut backends: Vec<_> = (0..3).map(|_| Server::memcached()).collect();
        let [main, near, far] = addresses(&backends)[..] else { unreachable!() };
        let proxy = proxy(&[main, near, far], 1, |config| {
            config.discipline = discipline;
            config.pools[0].delete_pools = vec!["far".into()];
            config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(TIMEOUT));
        });
        let mut client = proxy.client();
        // Every connection is used once, so that it is open.
        client.ask("delete none\r\nget none\r\n", "NOT_FOUND\r\nEND\r\n");
        for down in [1, 2, 0] {
            [main, near, far].iter().for_each(|&address| store(address, "k", "old"));
            backends[down].freeze();
            client.send("delete k\r\n");
            let line = client.line();
            // The delete has reached the pool itself, or the client knows that it has not.
            assert_eq!(line.starts_with("SERVER_ERROR"), down == 0, "{discipline:?}, {down}: {line}");
            for _ in 0..3 {
                client.send("get k\r\n");
                let line = client.line();
                assert!(!line.starts_with("VALUE"), "{discipline:?}, {down}: {line}");
            }
            assert!(!proxy.stats().contains("waystage_invalidations_pending 0\r\n"), "{discipline:?}, {down}");
            backends[down].thaw();
            until("the delete is repeated", || proxy.stats().contains("waystage_invalidations_pending 0\r\n"));
            until("the server is used again", || {
                client.send("get k\r\n");
                let line = client.line();
                assert!(!line.starts_with("VALUE"), "{discipline:?}, {down}: {line}");
                line == "END\r\n"
            });
            assert!([main, near, far].iter().all(|&address| value_at(address, "k").is_none()));
        }
    }
}

/// The read pool is a cache of the pool: it fetches what it misses.
#[test]
fn a_read_pool_can_be_warmed_up_from_the_pool() {
    for discipline in disciplines(2, false) {
        let backends = servers(2);
        let [main, near] = addresses(&backends)[..] else { unreachable!() };
        let proxy = proxy(&[main, near], 1, |config| {
            config.discipline = discipline;
            config.pools[1].warm_up = warm_up("main");
        });
        let mut client = proxy.client();
        for number in 0..50 {
            let key = format!("k{number}");
            let value = |value: &str| format!("VALUE {key} 0 1\r\n{value}\r\nEND\r\n");
            client.ask(format!("set {key} 0 0 1\r\n1\r\nget {key}\r\n"), "STORED\r\n".to_string() + &value("1"));
            until("the value is stored", || value_at(near, &key).is_some());
            // It lives there for the expiry, also if it changes in the pool.
            client.ask(format!("set {key} 0 0 1\r\n2\r\nget {key} none\r\n"), "STORED\r\n".to_string() + &value("1"));
            client.ask(format!("delete {key}\r\nget {key}\r\n"), "DELETED\r\nEND\r\n");
            client.ask(format!("add {key} 0 0 1\r\n3\r\nget none {key}\r\n"), "STORED\r\n".to_string() + &value("3"));
        }
    }
}

/// Otherwise the read pool could store the old value again, from the replica that the delete has not reached.
#[test]
fn a_delete_waits_for_slow_replicas_from_which_another_pool_could_fetch_the_value() {
    let (slow, fast, near) = (GatedServer::start(), GatedServer::start(), Server::start());
    let proxy = proxy(&[slow.address(), fast.address(), near.address()], 2, |config| {
        config.pools[0].writes = Writes::First;
    });
    let mut client = proxy.client();
    fast.answer("delete k", "DELETED\r\n");
    client.send("delete k\r\n");
    slow.received(1);
    client.expect_silence();
    slow.answer("delete k", "NOT_FOUND\r\n");
    client.expect("DELETED\r\n");
}

#[test]
fn a_listener_of_the_pool_reads_and_flushes_the_read_pool() {
    let backends = servers(3);
    let [main, near, far] = addresses(&backends)[..] else { unreachable!() };
    let proxy = proxy(&[main, near, far], 1, |config| {
        config.pools[0].listen = vec!["127.0.0.2:0".into()];
        config.pools[0].delete_pools = vec!["far".into()];
        config.discipline = Discipline::Pipelined;
    });
    let listening = &proxy.running.as_ref().unwrap().listening;
    let mut client = Client::connect(listening[1].host_port().unwrap().number().unwrap());
    for (address, value) in [(main, "m"), (near, "n"), (far, "f")] {
        store(address, "k", value);
    }
    client.ask("get k\r\ngat 0 k\r\n", "VALUE k 0 1\r\nn\r\nEND\r\nVALUE k 0 1\r\nm\r\nEND\r\n");
    client.ask("flush_all\r\n", "OK\r\n");
    assert_eq!([value_at(main, "k"), value_at(near, "k"), value_at(far, "k")], [None, None, Some("f".into())]);
    client.ask("delete k\r\n", "DELETED\r\n");
    assert_eq!(value_at(far, "k"), None);
}
