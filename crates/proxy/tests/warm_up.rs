//! Commands that need a value which only the warm-up pool has: they find it, and do not destroy it (docs/consistency.md).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers, until};
use proxy::{Config, PoolConfig, Timeouts, WarmUp};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use testkit::{Client, Scripted, Server, memcached_is_here};

/// A proxy whose first pool, with these servers, is warmed up from the last server.
fn proxy(addresses: &[SocketAddr], change: impl FnOnce(&mut Config)) -> Proxy {
    let (source, main) = addresses.split_last().unwrap();
    Proxy::at(main, |config| {
        config.pools[0].replicas = main.len();
        config.pools[0].warm_up = Some(WarmUp { from: "source".into(), expiry: Duration::from_secs(100) });
        config.pools.push(PoolConfig::new("source", &[source.to_string()]));
        config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(2)));
        change(config);
    })
}

/// The value of a key on one server, with its client flags.
fn value_at(address: SocketAddr, key: &str) -> Option<String> {
    let mut direct = Client::connect(address);
    direct.send(format!("mg {key} v f\r\n"));
    let line = direct.line();
    let flags = line.split_whitespace().find_map(|flag| flag.strip_prefix('f'))?;
    Some(format!("{flags}:{}", direct.line().trim_end()))
}

/// The seconds that a value has left on one server.
fn seconds_left(address: SocketAddr, key: &str) -> i64 {
    let mut direct = Client::connect(address);
    direct.send(format!("mg {key} t\r\n"));
    let line = direct.line();
    line.split_whitespace().find_map(|flag| flag.strip_prefix('t')).unwrap().parse().unwrap()
}

/// A command for a key `K` whose value `5`, with the flags 7, only the warm-up pool has; its reply; and the value that the pool
/// and the warm-up pool have after it.
type Case = (&'static str, &'static str, Option<&'static str>, Option<&'static str>);

const CASES: [Case; 28] = [
    ("touch K 30\r\n", "TOUCHED\r\n", Some("7:5"), None),
    ("touch K 30 noreply\r\n", "", Some("7:5"), None),
    ("md K I T30 O9\r\n", "HD O9\r\n", Some("7:5"), None),
    ("md K I T30 q\r\n", "", Some("7:5"), None),
    ("gat 30 K\r\n", "VALUE K 7 1\r\n5\r\nEND\r\n", Some("7:5"), None),
    ("mg K T30 v f O3\r\n", "VA 1 f7 O3\r\n5\r\n", Some("7:5"), None),
    ("mg K N30 v\r\n", "VA 1\r\n5\r\n", Some("7:5"), Some("7:5")),
    ("mg K v l\r\n", "VA 1 l0\r\n5\r\n", Some("7:5"), Some("7:5")),
    ("incr K 1\r\n", "6\r\n", Some("7:6"), None),
    ("decr K 1 noreply\r\n", "", Some("7:4"), None),
    ("append K 0 0 1\r\n+\r\n", "STORED\r\n", Some("7:5+"), None),
    ("prepend K 0 0 1\r\n+\r\n", "STORED\r\n", Some("7:+5"), None),
    ("replace K 3 0 1\r\n8\r\n", "STORED\r\n", Some("3:8"), None),
    ("cas K 0 0 1 1000000\r\n8\r\n", "EXISTS\r\n", Some("7:5"), Some("7:5")),
    ("add K 0 0 1\r\n8\r\n", "NOT_STORED\r\n", Some("7:5"), Some("7:5")),
    ("ma K\r\n", "HD\r\n", Some("7:6"), None),
    ("ma K N30 J1 v\r\n", "VA 1\r\n6\r\n", Some("7:6"), None),
    ("ms K 1 ME O1\r\n8\r\n", "NS O1\r\n", Some("7:5"), Some("7:5")),
    ("ms K 1 MA\r\n+\r\n", "HD\r\n", Some("7:5+"), None),
    ("ms K 1 MP q\r\n+\r\n", "", Some("7:+5"), None),
    ("ms K 1 MR F3\r\n8\r\n", "HD\r\n", Some("3:8"), None),
    ("md K C1000000\r\n", "EX\r\n", Some("7:5"), Some("7:5")),
    ("delete K\r\n", "DELETED\r\n", None, None),
    ("md K O4\r\n", "HD O4\r\n", None, None),
    ("set K 0 0 1\r\n8\r\n", "STORED\r\n", Some("0:8"), None),
    ("touch none-K 30\r\ngets none-K\r\ngat 30 none-K\r\n", "NOT_FOUND\r\nEND\r\nEND\r\n", None, Some("7:5")),
    ("add none-K 0 0 1\r\n8\r\n", "STORED\r\n", None, Some("7:5")),
    ("incr none-K 1\r\nmd none-K I\r\nmg none-K T30\r\n", "NOT_FOUND\r\nNF\r\nEN\r\n", None, Some("7:5")),
];

#[test]
fn a_command_that_needs_a_value_finds_it_in_the_warm_up_pool() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache has no meta commands");
        return;
    }
    for discipline in disciplines(2, false) {
        for replicas in [1, 2] {
            let backends: Vec<_> = (0..=replicas).map(|_| Server::memcached()).collect();
            let addresses: Vec<_> = backends.iter().map(Server::address).collect();
            let (source, main) = addresses.split_last().unwrap();
            let proxy = proxy(&addresses, |config| config.discipline = discipline);
            let mut client = proxy.client();
            for (number, (command, reply, in_pool, in_source)) in CASES.into_iter().enumerate() {
                let key = format!("k{number}");
                Client::connect(*source).ask(format!("set {key} 7 0 1\r\n5\r\n"), "STORED\r\n");
                client.ask(command.replace('K', &key), reply.replace('K', &key));
                client.ask("mn\r\n", "MN\r\n");
                let found: Vec<_> = main.iter().filter_map(|&address| value_at(address, &key)).collect();
                let context = format!("{command} {discipline:?}, {replicas} replicas");
                assert!(found.iter().all(|value| Some(value.as_str()) == in_pool), "{context}: {found:?}");
                assert_eq!(found.is_empty(), in_pool.is_none(), "{context}");
                assert_eq!(value_at(*source, &key).as_deref(), in_source, "{context}");
                if command.contains("30") && in_pool == Some("7:5") && !command.contains('N') {
                    let left: Vec<_> = main.iter().filter(|&&address| value_at(address, &key).is_some()).collect();
                    assert!(left.iter().all(|&&address| (20..=30).contains(&seconds_left(address, &key))), "{context}");
                }
            }
        }
    }
}

/// A double of a memcached that is newer than 1.6.18: `ms` with `MA` and `N` creates a missing value.
fn newer_server(stored: &'static str) -> Scripted {
    let store = Mutex::new(stored.to_string());
    Scripted::start(move |peer, _| {
        while let Some(line) = peer.line() {
            let words: Vec<_> = line.split_whitespace().collect();
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            let is_missing = store.is_empty();
            let reply = match words[0] {
                "mg" if is_missing => "EN\r\n".to_string(),
                "mg" => format!("VA {}{}\r\n{store}\r\n", store.len(), if words.contains(&"f") { " f0" } else { "" }),
                "ms" => {
                    let value = peer.line().unwrap();
                    let is_refused = words.contains(&"ME") && !is_missing;
                    if !is_refused {
                        store.push_str(value.trim_end());
                    }
                    if is_refused { "NS\r\n" } else { "HD\r\n" }.to_string()
                }
                "md" => {
                    store.clear();
                    if is_missing { "NF\r\n" } else { "HD\r\n" }.to_string()
                }
                _ => panic!("{line}"),
            };
            peer.send(reply);
        }
    })
}

#[test]
fn an_append_that_would_create_the_value_finds_it_in_the_warm_up_pool() {
    for (command, source, expected) in
        [("ms k 1 MA N60\r\n+\r\n", "old", "VA 4\r\nold+\r\n"), ("ms k 1 MA N60\r\n+\r\n", "", "VA 1\r\n+\r\n")]
    {
        let backends = [newer_server(""), newer_server(source)];
        let proxy = proxy(&backends.each_ref().map(Scripted::address), |config| config.loops = 1);
        let mut client = proxy.client();
        client.ask(command, "HD\r\n");
        client.ask("mg k v\r\n", expected);
    }
}

#[test]
fn a_cas_token_of_a_value_from_the_warm_up_pool_is_valid() {
    let backends = servers(2);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = proxy(&addresses, |_| {});
    let mut client = proxy.client();
    for (key, command) in [("a", "gets a"), ("b", "gats 60 b")] {
        Client::connect(addresses[1]).ask(format!("set {key} 7 0 1\r\n5\r\n"), "STORED\r\n");
        client.send(format!("{command}\r\n"));
        let line = client.line();
        let token = line.strip_prefix(&format!("VALUE {key} 7 1 ")).unwrap().trim_end().to_string();
        client.expect("5\r\nEND\r\n");
        client.ask(format!("cas {key} 0 0 1 {token}\r\n6\r\n"), "STORED\r\n");
        client.ask(format!("get {key}\r\n"), format!("VALUE {key} 0 1\r\n6\r\nEND\r\n"));
        Client::connect(addresses[1]).ask(format!("get {key}\r\n"), "END\r\n");
    }
}

#[test]
fn each_key_of_a_line_is_found_in_the_warm_up_pool() {
    for discipline in disciplines(2, false) {
        let backends = servers(3);
        let addresses: Vec<_> = backends.iter().map(Server::address).collect();
        let proxy = proxy(&addresses, |config| (config.discipline, config.pools[0].replicas) = (discipline, 1));
        let mut client = proxy.client();
        for key in ["a", "b", "c", "d", "e"] {
            Client::connect(addresses[2]).ask(format!("set {key} 7 0 1\r\n{key}\r\n"), "STORED\r\n");
        }
        client.ask("gat 30 a none b\r\n", "VALUE a 7 1\r\na\r\nVALUE b 7 1\r\nb\r\nEND\r\n");
        for command in ["gets b c none d a", "gats 30 d e none a b c"] {
            client.send(format!("{command}\r\n"));
            for key in command.split(' ').filter(|word| word.len() == 1) {
                let line = client.line();
                assert!(line.starts_with(&format!("VALUE {key} 7 1 ")), "{command}: {line}");
                client.expect(format!("{key}\r\n"));
            }
            client.expect("END\r\n");
        }
    }
}

#[test]
fn a_pipelined_delete_follows_the_whole_command_before_it() {
    for discipline in disciplines(2, false) {
        let backends = servers(2);
        let addresses: Vec<_> = backends.iter().map(Server::address).collect();
        let proxy = proxy(&addresses, |config| config.discipline = discipline);
        let mut client = proxy.client();
        for number in 0..50 {
            Client::connect(addresses[1]).ask(format!("set k{number} 7 0 1\r\n5\r\n"), "STORED\r\n");
            client.ask(
                format!("incr k{number} 1\r\ntouch k{number} 9\r\ndelete k{number}\r\nget k{number}\r\n"),
                "6\r\nTOUCHED\r\nDELETED\r\nEND\r\n",
            );
        }
    }
}

#[test]
fn a_value_is_not_lost_while_the_warm_up_pool_or_the_pool_is_down() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be frozen");
        return;
    }
    for is_source_down in [true, false] {
        let mut backends = [Server::memcached(), Server::memcached()];
        let addresses = [backends[0].address(), backends[1].address()];
        let proxy = proxy(&addresses, |_| {});
        let mut client = proxy.client();
        Client::connect(addresses[1]).ask("set k 7 0 1\r\n5\r\n", "STORED\r\n");
        client.ask("get other\r\n", "END\r\n");
        let down = &mut backends[usize::from(is_source_down)];
        down.freeze();
        for request in ["touch k 30\r\n", "md k I T30\r\n", "gat 30 k\r\n", "incr k 1\r\n", "mg k T30 v\r\n"] {
            client.send(request);
            let line = client.line();
            let is_miss = ["NOT_FOUND\r\n", "NF\r\n", "END\r\n", "EN\r\n"].contains(&line.as_str());
            assert!(
                line.starts_with("SERVER_ERROR") != is_source_down && is_miss == is_source_down,
                "{request}: {line}"
            );
        }
        down.thaw();
        until("the value is found", || {
            client.send("get k\r\n");
            let line = client.line();
            line.starts_with("VALUE k 7 1").then(|| client.expect("5\r\nEND\r\n"));
            line.starts_with("VALUE")
        });
    }
}

#[test]
fn a_pool_that_grows_can_be_warmed_up_from_its_own_servers() {
    let servers = servers(3);
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    for replicas in [1, 2] {
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let proxy = Proxy::at(&addresses, |config| {
            config.pools[0].replicas = replicas;
            config.pools[0].warm_up = Some(WarmUp { from: "before".into(), expiry: Duration::from_secs(100) });
            config.pools.push(PoolConfig::new("before", &names[..2]));
            config.pools[1].replicas = replicas;
        });
        let mut client = proxy.client();
        for number in 0..60 {
            for (write, reply) in [
                ("set K 0 0 1\r\n1\r\n", "STORED\r\n"),
                ("incr K 1\r\n", "2\r\n"),
                ("touch K 100\r\n", "TOUCHED\r\n"),
                ("gat 100 K\r\n", "VALUE K 0 1\r\n2\r\nEND\r\n"),
                ("get K\r\n", "VALUE K 0 1\r\n2\r\nEND\r\n"),
                ("delete K\r\n", "DELETED\r\n"),
                ("get K\r\n", "END\r\n"),
                ("add K 0 0 1\r\n3\r\n", "STORED\r\n"),
                ("get K\r\n", "VALUE K 0 1\r\n3\r\nEND\r\n"),
            ] {
                let key = format!("r{replicas}k{number}");
                client.ask(write.replace('K', &key), reply.replace('K', &key));
            }
        }
        for number in 0..60 {
            client.ask(format!("set r{replicas}m{number} 0 0 1\r\n1\r\n"), "STORED\r\n");
            client.ask(format!("mg r{replicas}m{number} T1 v\r\n"), "VA 1\r\n1\r\n");
        }
        std::thread::sleep(Duration::from_secs(3));
        (0..60).for_each(|number| client.ask(format!("get r{replicas}m{number}\r\n"), "END\r\n"));
    }
}

#[test]
fn values_of_a_pool_that_has_grown_are_found_on_its_former_servers() {
    let servers = servers(3);
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let before = Proxy::at(&addresses[..2], |_| ());
    let mut client = before.client();
    (0..60).for_each(|number| client.ask(format!("set k{number} 0 0 1\r\n1\r\n"), "STORED\r\n"));
    let proxy = Proxy::at(&addresses, |config| {
        config.pools[0].warm_up = Some(WarmUp { from: "before".into(), expiry: Duration::from_secs(100) });
        config.pools.push(PoolConfig::new("before", &names[..2]));
    });
    let mut client = proxy.client();
    for number in 0..60 {
        client.ask(format!("get k{number}\r\n"), format!("VALUE k{number} 0 1\r\n1\r\nEND\r\n"));
        client.ask(format!("incr k{number} 1\r\n"), "2\r\n");
        client.ask(format!("get k{number}\r\n"), format!("VALUE k{number} 0 1\r\n2\r\nEND\r\n"));
    }
}
