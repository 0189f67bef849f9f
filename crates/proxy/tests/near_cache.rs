//! The near-cache: a `get` of a hot key is answered without a server, never with a value from before an acknowledged write of this
//! proxy, and with one written elsewhere after the lifetime at the latest. If memcached is installed, it is the server.
//!
//! The tests were seen to fail: with a proxy that counts no writes, seven of them do, and so do many scenarios of `simulation.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers, until};
use proxy::{Config, Discipline, ListenerConfig, NearCache, PoolConfig, RecordsConfig, RouteConfig, start};
use records::{NO_BACKEND, Reader};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::{Client, GatedServer, Server};

/// The longest lifetime, so that a value that a write has not discarded would be seen also on a busy machine.
const LIFETIME: Duration = Duration::from_secs(1);

/// A near-cache for all keys, as hot ones need some time until they are found.
fn for_every_key() -> Option<NearCache> {
    Some(NearCache { keeps_every_key: true, ..NearCache::new(LIFETIME) })
}

fn stat(proxy: &Proxy, name: &str) -> u64 {
    let stats = proxy.stats();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_string));
    line.unwrap_or_else(|| panic!("{name} in {stats}")).parse().unwrap()
}

fn hits(proxy: &Proxy) -> u64 {
    stat(proxy, "waystage_near_cache_hits")
}

fn listener(proxy: &Proxy, index: usize) -> SocketAddr {
    proxy.running.as_ref().unwrap().listening[index].host_port().unwrap().number().unwrap()
}

/// Sends a request again and again, each after the reply to the one before. The first one fills the near-cache, others may be hits.
fn again(client: &mut Client, request: &str, reply: &str) {
    (0..3).for_each(|_| client.ask(request, reply));
}

/// Two clients, each on an event loop of its own.
fn of_both_loops(proxy: &Proxy) -> [Client; 2] {
    [proxy.client(), proxy.client()]
}

#[test]
fn a_hot_key_is_answered_by_the_proxy_and_values_written_elsewhere_are_seen_after_the_lifetime() {
    let server = Server::start();
    let proxy = Proxy::at(&[server.address()], |config| {
        config.loops = 1;
        config.metrics = Some("127.0.0.1:0".into());
        config.pools[0].near_cache = Some(NearCache::new(Duration::from_millis(50)));
    });
    let (mut client, mut elsewhere) = (proxy.client(), Client::connect(server.address()));
    client.ask("set hot 5 0 3\r\nold\r\n", "STORED\r\n");
    let old = "VALUE hot 5 3\r\nold\r\nEND\r\n";
    until("the key is hot", || {
        client.ask("get hot\r\n".repeat(100), old.repeat(100));
        hits(&proxy) > 0
    });
    // Only the hot key: of other keys nothing is kept.
    let before = hits(&proxy);
    (0..20).for_each(|number| client.ask(format!("get cold{number}\r\n").repeat(2), "END\r\n".repeat(2)));
    assert_eq!(hits(&proxy), before);
    let line = format!("waystage_near_cache_hits_total{{pool=\"default\"}} {before}");
    assert!(proxy.metrics().lines().any(|other| other == line), "{line} in {}", proxy.metrics());
    // Every `get` counts as a hit of the key, whoever has answered it.
    let sent = stat(&proxy, "cmd_get");
    client.ask("get hot\r\n".repeat(100), old.repeat(100));
    assert_eq!((stat(&proxy, "cmd_get") - sent, stat(&proxy, "get_hits") - before > 0), (100, true));
    elsewhere.ask("set hot 0 0 3\r\nnew\r\n", "STORED\r\n");
    until("the new value is seen", || {
        client.send("get hot\r\n");
        let line = client.line();
        let value = client.line();
        client.expect("END\r\n");
        assert!(matches!(
            (line.as_str(), value.as_str()),
            ("VALUE hot 5 3\r\n", "old\r\n") | ("VALUE hot 0 3\r\n", "new\r\n")
        ));
        value == "new\r\n"
    });
}

/// A command, its reply, and the reply to a `get` after it.
const WRITES: [(&str, &str, &str); 20] = [
    ("set k 0 0 2\r\n10\r\n", "STORED\r\n", "10"),
    ("set k 0 0 2 noreply\r\n11\r\nmn\r\n", "MN\r\n", "11"),
    ("add k 0 0 1\r\n1\r\n", "NOT_STORED\r\n", "11"),
    ("replace k 0 0 2\r\n12\r\n", "STORED\r\n", "12"),
    ("append k 0 0 1\r\n3\r\n", "STORED\r\n", "123"),
    ("prepend k 0 0 1\r\n4\r\n", "STORED\r\n", "4123"),
    ("incr k 1\r\n", "4124\r\n", "4124"),
    ("decr k 2\r\n", "4122\r\n", "4122"),
    ("ma k\r\n", "HD\r\n", "4123"),
    ("ms k 1\r\n5\r\n", "HD\r\n", "5"),
    ("ms aw== 1 b\r\n6\r\n", "HD\r\n", "6"),
    ("ms k 1 q\r\n7\r\nmn\r\n", "MN\r\n", "7"),
    ("md k\r\n", "HD\r\n", ""),
    ("add k 0 0 1\r\n8\r\n", "STORED\r\n", "8"),
    ("delete k\r\n", "DELETED\r\n", ""),
    ("mg k N0 v\r\n", "VA 0 W\r\n\r\n", "?"),
    ("set k 0 0 1\r\n9\r\n", "STORED\r\n", "9"),
    ("touch k -1\r\n", "TOUCHED\r\n", ""),
    ("set k 0 0 1\r\n8\r\n", "STORED\r\n", "8"),
    ("gat -1 k\r\n", "VALUE k 0 1\r\n8\r\nEND\r\n", ""),
];

fn reply_of(value: &str) -> String {
    match value {
        "" => "END\r\n".into(),
        // What `mg` with `N` has created is an empty value.
        "?" => "VALUE k 0 0\r\n\r\nEND\r\n".into(),
        _ => format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", value.len()),
    }
}

#[test]
fn after_the_reply_to_any_write_no_loop_returns_the_value_from_before() {
    for discipline in common::disciplines(2, false) {
        let proxy = Proxy::before(servers(1), |config| {
            (config.loops, config.discipline) = (2, discipline);
            config.pools[0].near_cache = for_every_key();
        });
        let mut clients = of_both_loops(&proxy);
        let mut before = "END\r\n".to_string();
        for round in 0..20 {
            for (index, (request, reply, value)) in WRITES.iter().enumerate() {
                // Both loops keep the old value, if there is one.
                clients.iter_mut().for_each(|client| again(client, "get k\r\n", &before));
                clients[(index + round) % 2].ask(request, reply);
                before = reply_of(value);
                clients.iter_mut().rev().for_each(|client| client.ask("get k\r\n", &before));
            }
            // Everything, and several keys at once.
            clients[0].ask("set k 0 0 1\r\n1\r\nset l 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
            clients.iter_mut().for_each(|client| again(client, "get k\r\n", &reply_of("1")));
            clients[1].ask("gat -1 l k\r\n", "VALUE l 0 1\r\n1\r\nVALUE k 0 1\r\n1\r\nEND\r\n");
            clients.iter_mut().for_each(|client| client.ask("get k\r\n", "END\r\n"));
            clients[0].ask("set k 0 0 1\r\n2\r\n", "STORED\r\n");
            clients.iter_mut().for_each(|client| again(client, "get k\r\n", &reply_of("2")));
            clients[1].ask("flush_all\r\n", "OK\r\n");
            clients.iter_mut().for_each(|client| client.ask("get k\r\n", "END\r\n"));
            before = "END\r\n".into();
        }
        assert!(hits(&proxy) > 0, "{discipline:?}");
    }
}

#[test]
fn a_client_that_pipelines_reads_what_it_has_just_written() {
    for discipline in common::disciplines(2, false) {
        let proxy = Proxy::before(servers(2), |config| {
            (config.loops, config.discipline) = (2, discipline);
            config.pools[0].near_cache = for_every_key();
        });
        let [mut writer, mut reader] = of_both_loops(&proxy);
        for number in 10..99 {
            let value = reply_of(&number.to_string());
            let set = format!("set k 0 0 2\r\n{number}\r\n");
            writer.ask(format!("{set}get k\r\nget k\r\n"), format!("STORED\r\n{value}{value}"));
            again(&mut reader, "get k\r\n", &value);
            again(&mut writer, "get k\r\n", &value);
        }
        assert!(hits(&proxy) > 0, "{discipline:?}");
    }
}

#[test]
fn a_reply_that_overtook_a_write_is_not_kept() {
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], |config| {
        config.loops = 2;
        config.pools[0].near_cache = for_every_key();
    });
    let [mut reader, mut writer] = of_both_loops(&proxy);
    reader.send("get k\r\n");
    let before = server.received(1).len();
    writer.send("set k 0 0 1\r\n2\r\n");
    server.received(before + 1);
    // The server reads before it writes, but its reply to the read comes last.
    server.answer("set k 0 0 1", "STORED\r\n");
    writer.expect("STORED\r\n");
    server.answer("get k", "VALUE k 0 1\r\n1\r\nEND\r\n");
    reader.expect(reply_of("1"));
    reader.send("get k\r\n");
    server.answer("get k", "VALUE k 0 1\r\n2\r\nEND\r\n");
    reader.expect(reply_of("2"));
    // While a write is in flight nothing is kept, and no kept value is returned.
    writer.send("delete k\r\n");
    server.received(before + 3);
    for _ in 0..2 {
        reader.send("get k\r\n");
        server.answer("get k", "VALUE k 0 1\r\n2\r\nEND\r\n");
        reader.expect(reply_of("2"));
    }
    server.answer("delete k", "DELETED\r\n");
    writer.expect("DELETED\r\n");
    reader.send("get k\r\n");
    server.answer("get k", "END\r\n");
    reader.expect("END\r\n");
    assert_eq!(hits(&proxy), 0);
}

#[test]
fn commands_that_return_more_than_the_value_go_to_the_server() {
    let server = Server::start();
    let proxy = Proxy::at(&[server.address()], |config| config.pools[0].near_cache = for_every_key());
    let (mut client, mut elsewhere) = (proxy.client(), Client::connect(server.address()));
    for number in 10..30 {
        client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
        again(&mut client, "get k\r\n", &reply_of("1"));
        elsewhere.ask(format!("set k 0 0 2\r\n{number}\r\n"), "STORED\r\n");
        client.ask("mg k v\r\n", format!("VA 2\r\n{number}\r\n"));
        client.ask("get k missing\r\n", reply_of(&number.to_string()));
        client.send("gets k\r\n");
        let line = client.line();
        assert!(line.starts_with("VALUE k 0 2 "), "{line}");
        client.expect(format!("{number}\r\nEND\r\n"));
    }
    assert!(hits(&proxy) > 0);
}

#[test]
fn the_keys_of_a_route_that_changes_them_are_those_of_the_servers() {
    let server = Server::start();
    let mut config = Config::new("127.0.0.1:0", &[server.address().to_string()]);
    config.loops = 2;
    config.pools[0].near_cache = for_every_key();
    // Another pool of the same server, whose clients write the keys without the prefix.
    let other =
        PoolConfig { listen: vec!["127.0.0.2:0".into()], ..PoolConfig::new("other", &[server.address().to_string()]) };
    config.pools.push(other);
    config.routes = vec![RouteConfig { strip_prefix: true, ..RouteConfig::new("a:", "default") }];
    let proxy = Proxy::of(start(config, clock::Clock::monotonic()).unwrap());
    let addresses = [0, 1].map(|index| listener(&proxy, index));
    let (mut client, mut other) = (Client::connect(addresses[0]), Client::connect(addresses[1]));
    let value = |key: &str, value: &str| format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
    for number in 10..40 {
        let text = number.to_string();
        client.ask(format!("set a:k 0 0 2\r\n{text}\r\n"), "STORED\r\n");
        again(&mut client, "get a:k\r\n", &value("a:k", &text));
        again(&mut client, "get k\r\n", &value("k", &text));
        other.ask("get k\r\n", value("k", &text));
        other.ask("append k 0 0 1\r\n+\r\n", "STORED\r\n");
        client.ask("get a:k\r\nget k\r\n", value("a:k", &format!("{text}+")) + &value("k", &format!("{text}+")));
        client.ask("append k 0 0 1\r\n-\r\nget a:k\r\n", format!("STORED\r\n{}", value("a:k", &format!("{text}+-"))));
    }
    assert!(hits(&proxy) > 0);
}

#[test]
fn a_reload_has_the_writes_of_both_configurations() {
    let server = Server::start();
    let config = |near: bool| {
        let mut config = Config::new("127.0.0.1:0", &[server.address().to_string()]);
        config.loops = 2;
        config.pools[0].timeouts = proxy::Timeouts { reply: Duration::from_secs(1), ..proxy::Timeouts::default() };
        config.pools[0].near_cache = for_every_key().filter(|_| near);
        config
    };
    let mut proxy = Proxy::of(start(config(false), clock::Clock::monotonic()).unwrap());
    let address = proxy.address;
    let (is_over, rounds) = (std::sync::atomic::AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (is_over, rounds) = (&is_over, &rounds);
            scope.spawn(move || {
                let (mut writer, mut reader) = (Client::connect(address), Client::connect(address));
                let mut number = 100;
                while !is_over.load(Ordering::Relaxed) {
                    number = 100 + (number + 1) % 900;
                    writer.ask(format!("set k{client} 0 0 3\r\n{number}\r\n"), "STORED\r\n");
                    let value = format!("VALUE k{client} 0 3\r\n{number}\r\nEND\r\n");
                    again(&mut reader, &format!("get k{client}\r\n"), &value);
                    writer.ask(format!("get k{client}\r\n"), &value);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut step = |near| {
            let until_more = rounds.load(Ordering::Relaxed) + 40;
            until("rounds go on", || rounds.load(Ordering::Relaxed) > until_more);
            let running = proxy.running.as_mut().unwrap();
            let new = running.reload(config(near)).unwrap();
            let mut old = std::mem::replace(running, new);
            old.wait_for_clients(|| false);
            assert_eq!(old.stop().unwrap().lost, 0);
        };
        [true, true, false, true, true].into_iter().for_each(&mut step);
        until("values are kept again", || hits(&proxy) > 0);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_record_of_a_hit_has_no_backend_and_no_time_there() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::before(servers(1), |config| {
        config.loops = 1;
        config.pools[0].near_cache = for_every_key();
        config.records = Some(RecordsConfig { directory: directory.path().into(), sample: 1 });
    });
    let mut client = proxy.client();
    client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    until("a hit", || {
        client.ask("get k\r\n", reply_of("1"));
        hits(&proxy) > 0
    });
    let expected = hits(&proxy);
    drop(client);
    proxy.stop();
    let file = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let reader = Reader::open(&file, false).unwrap();
    let gets = reader.rows().filter(|(row, _)| row.operation == wire::Verb::Get as u8);
    let of_hits: Vec<_> = gets.filter(|(row, _)| row.backend == NO_BACKEND).collect();
    assert_eq!(of_hits.len() as u64, expected);
    for (row, stamps) in of_hits {
        assert_eq!((row.hits, row.keys, row.legs, row.outcome), (1, 1, 0, records::Outcome::Answered as u8));
        // From `routed` to `answered` nothing happens.
        assert!(stamps[2..7].iter().all(|stamp| *stamp == stamps[2]) && stamps[7] > stamps[6], "{stamps:?}");
    }
}

#[test]
fn a_value_that_the_client_has_no_room_for_is_not_answered_at_once() {
    // The replies to one client are bounded, also if the proxy has the value.
    let proxy = Proxy::before(servers(1), |config| {
        config.loops = 1;
        config.client_buffer_bytes = 200_000;
        config.memory_bytes = 400_000;
        config.pools[0].near_cache = for_every_key();
    });
    let mut client = proxy.client();
    let text = "x".repeat(50_000);
    client.ask(format!("set k 0 0 50000\r\n{text}\r\n"), "STORED\r\n");
    let value = format!("VALUE k 0 50000\r\n{text}\r\nEND\r\n");
    for _ in 0..5 {
        client.ask("get k\r\n", &value);
    }
    client.send("get k\r\n".repeat(200));
    (0..200).for_each(|_| client.expect(&value));
    assert!(hits(&proxy) > 0);
}

#[test]
fn a_pool_with_another_discipline_and_replicas_keeps_its_promise() {
    let proxy = Proxy::before(servers(3), |config| {
        config.loops = 2;
        config.discipline = Discipline::PerBackend { readers: 4, writers: 2, fault_write_poll: None };
        config.pools[0].replicas = 3;
        config.pools[0].reads = proxy::Reads::Any;
        config.pools[0].near_cache = for_every_key();
    });
    let [mut writer, mut reader] = of_both_loops(&proxy);
    for number in 100..400 {
        writer.ask(format!("set k 0 0 3\r\n{number}\r\n"), "STORED\r\n");
        let value = reply_of(&number.to_string());
        again(&mut reader, "get k\r\n", &value);
        writer.ask("get k\r\n", &value);
    }
    assert!(hits(&proxy) > 0);
}

#[test]
fn a_listener_that_only_reads_shares_the_values() {
    let proxy = Proxy::before(servers(1), |config| {
        config.loops = 1;
        let allow = Some(vec![proxy::CommandGroup::Read]);
        config.listen.push(ListenerConfig { allow, ..ListenerConfig::new("127.0.0.2:0") });
        config.pools[0].near_cache = for_every_key();
    });
    let addresses = [0, 1].map(|index| listener(&proxy, index));
    let (mut client, mut reader) = (Client::connect(addresses[0]), Client::connect(addresses[1]));
    for number in 10..40 {
        client.ask(format!("set k 0 0 2\r\n{number}\r\n"), "STORED\r\n");
        again(&mut reader, "get k\r\n", &reply_of(&number.to_string()));
        reader.ask("delete k\r\n", "CLIENT_ERROR delete is not allowed on this listener\r\n");
    }
    assert!(hits(&proxy) > 0);
}
