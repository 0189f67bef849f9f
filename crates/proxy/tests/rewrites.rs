//! Routes that strip or replace the prefix of their keys: servers receive the changed keys, and clients see their own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers, until};
use proxy::{Config, FailoverPool, Lookup, PoolConfig, Reads, RouteConfig, Shadow, Timeouts, WarmUp, Writes};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Client, GatedServer};

fn strip(prefix: &str, pool: &str) -> RouteConfig {
    RouteConfig { strip_prefix: true, ..RouteConfig::new(prefix, pool) }
}

fn replace(prefix: &str, replacement: &str, pool: &str) -> RouteConfig {
    RouteConfig { replace_prefix: Some(replacement.into()), ..RouteConfig::new(prefix, pool) }
}

/// A proxy with the pools `main` and `other`, of one server each. Keys with `s:` go to `other` without it, keys with `r:` go there with
/// `new:`, keys with `m:` go to `main` without it, and keys with `o:` go to `other` as they are.
fn proxy(main: SocketAddr, other: SocketAddr, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&[main], |config| {
        config.loops = 1;
        config.pools[0].name = "main".into();
        config.pools.push(PoolConfig::new("other", &[other.to_string()]));
        config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(5)));
        config.routes = vec![
            strip("s:", "other"),
            replace("r:", "new:", "other"),
            strip("m:", "main"),
            RouteConfig::new("o:", "other"),
        ];
        change(config);
    })
}

/// The value of a key on a server; `-` if it has none.
fn value(address: SocketAddr, key: &str) -> String {
    let mut direct = Client::connect(address);
    direct.send(format!("mg {key} v\r\n"));
    if direct.line().starts_with("VA") { direct.line().trim_end().into() } else { "-".into() }
}

#[test]
fn servers_receive_changed_keys_and_clients_see_their_own() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let proxy = proxy(main, other, |_| {});
    let mut client = proxy.client();
    for (key, value) in [("s:1", "a"), ("r:1", "b"), ("m:1", "c"), ("o:1", "d"), ("1x", "e")] {
        client.ask(format!("set {key} 7 0 1\r\n{value}\r\n"), "STORED\r\n");
    }
    assert_eq!(["1", "new:1", "o:1", "s:1", "r:1"].map(|key| value(other, key)), ["a", "b", "d", "-", "-"]);
    assert_eq!(["1", "1x", "m:1"].map(|key| value(main, key)), ["c", "e", "-"]);
    // One key, and several of one server or of two.
    client.ask("get s:1\r\n", "VALUE s:1 7 1\r\na\r\nEND\r\n");
    client.ask("get m:none\r\n", "END\r\n");
    let all = |keys: &[&str]| {
        let value_of = |key: &&str| match *key {
            "s:1" => "a",
            "r:1" => "b",
            "m:1" => "c",
            "o:1" => "d",
            _ => "e",
        };
        let values = keys.iter().filter(|key| !key.ends_with('n'));
        let values: Vec<String> = values.map(|key| format!("VALUE {key} 7 1\r\n{}\r\n", value_of(key))).collect();
        (format!("get {}\r\n", keys.join(" ")), values.concat() + "END\r\n")
    };
    for keys in [
        &["r:1", "s:1"][..],
        &["s:n", "r:1", "s:1", "s:1", "r:n"],
        &["m:1", "s:1", "s:n", "1x", "o:1", "r:1", "m:1"],
        &["1x", "m:1", "m:n"],
        &["o:1", "1x"],
    ] {
        let (request, reply) = all(keys);
        client.ask(request, reply);
    }
    client.ask("gat 0 r:1 s:1\r\n", "VALUE r:1 7 1\r\nb\r\nVALUE s:1 7 1\r\na\r\nEND\r\n");
    client.send("gets r:1\r\n");
    let line = client.line();
    assert!(line.starts_with("VALUE r:1 7 1 "), "{line}");
    let token = line.trim_end().rsplit(' ').next().unwrap().to_string();
    assert_eq!([client.line(), client.line()], ["b\r\n", "END\r\n"]);
    client.ask(format!("cas r:1 0 0 1 {token}\r\n5\r\n"), "STORED\r\n");
    client.ask("incr r:1 2\r\ndecr r:1 1\r\n", "7\r\n6\r\n");
    client.ask("append r:1 0 0 1\r\n0\r\ntouch r:1 100\r\n", "STORED\r\nTOUCHED\r\n");
    assert_eq!(value(other, "new:1"), "60");
    client.ask("delete r:1\r\ndelete r:1\r\ndelete s:1 noreply\r\nget s:1\r\n", "DELETED\r\nNOT_FOUND\r\nEND\r\n");
    assert_eq!(["1", "new:1"].map(|key| value(other, key)), ["-", "-"]);
}

#[test]
fn meta_commands_return_the_clients_keys() {
    let backends = servers(2);
    let proxy = proxy(backends[0].address(), backends[1].address(), |_| {});
    let mut client = proxy.client();
    client.ask("ms r:1 2 k O9 T0\r\nhi\r\n", "HD kr:1 O9\r\n");
    assert_eq!(value(backends[1].address(), "new:1"), "hi");
    client.ask("mg r:1 s k v O1\r\nmg r:2 k v\r\nmg r:1 v\r\n", "VA 2 s2 kr:1 O1\r\nhi\r\nEN kr:2\r\nVA 2\r\nhi\r\n");
    client.ask("mg r:2 k v q\r\nmg r:1 k q\r\nmn\r\n", "HD kr:1\r\nMN\r\n");
    client.send("me r:1\r\n");
    let line = client.line();
    assert!(line.starts_with("ME r:1 "), "{line}");
    client.ask("ma r:n N0 J5 k\r\nmd r:n k O3\r\nmd r:n k O3\r\n", "HD kr:n\r\nHD kr:n O3\r\nNF kr:n O3\r\n");
    // In base64: `s:1`, and `s:` before bytes that no key may have as text.
    client.ask("ms czox 1 b k\r\nx\r\nmg czox b k v\r\n", "HD kczox b\r\nVA 1 kczox b\r\nx\r\n");
    assert_eq!(value(backends[1].address(), "1"), "x");
    // memcached returns the key as it was stored.
    client.ask("mg s:1 k v\r\n", "VA 1 kczox b\r\nx\r\n");
    for (key, changed) in [("czogAQ==", "IAE="), ("czphCmI=", "YQpi")] {
        client.ask(format!("ms {key} 1 b\r\ny\r\nmg {key} b k v\r\n"), format!("HD\r\nVA 1 k{key} b\r\ny\r\n"));
        Client::connect(backends[1].address()).ask(format!("mg {changed} b v\r\n"), "VA 1\r\ny\r\n");
    }
}

#[test]
fn a_changed_key_that_is_impossible_is_refused_as_memcached_refuses_it() {
    const REFUSED: &str = "CLIENT_ERROR bad command line format\r\n";
    let backends = servers(2);
    let proxy = proxy(backends[0].address(), backends[1].address(), |_| {});
    let mut client = proxy.client();
    let long = format!("r:{}", "x".repeat(247));
    for key in ["s:", &long] {
        for request in [
            format!("get {key}\r\n"),
            format!("get 1 {key} m:1\r\n"),
            format!("get {}{key} m:1\r\n", "1 ".repeat(300)),
            format!("get {key}{}\r\n", " m:1".repeat(300)),
            format!("gat 0 {key}\r\n"),
            format!("set {key} 0 0 1\r\nx\r\n"),
            format!("delete {key}\r\n"),
            format!("incr {key} 1\r\n"),
            format!("touch {key} 1\r\n"),
            format!("mg {key} v q\r\n"),
            format!("ms {key} 1 q\r\nx\r\n"),
        ] {
            client.ask(request + "mn\r\n", format!("{REFUSED}MN\r\n"));
        }
        client.ask(format!("set {key} 0 0 1 noreply\r\nx\r\nmn\r\n"), "MN\r\n");
    }
    // 250 bytes are possible, in base64, too.
    let longest = format!("r:{}", "x".repeat(246));
    client.ask(
        format!("set {longest} 0 0 1\r\nx\r\nget {longest}\r\n"),
        format!("STORED\r\nVALUE {longest} 0 1\r\nx\r\nEND\r\n"),
    );
    let base64 = |bytes: usize| format!("cjp4{}", "eHh4".repeat(bytes / 3 - 1));
    client.ask(format!("mg {} b k v\r\n", base64(183)), format!("EN k{} b\r\n", base64(183)));
    client.ask(format!("mg {} b k v\r\n", base64(186)), REFUSED);
    client.ask("mg czo= b\r\n", REFUSED);
}

/// The policies of a pool, and other pools, have the changed keys.
#[test]
fn replicas_and_other_pools_receive_the_changed_keys() {
    let backends = servers(6);
    let [main, other, second, shadow, source, failover] =
        [0, 1, 2, 3, 4, 5].map(|index: usize| backends[index].address());
    let proxy = proxy(main, other, |config| {
        let expiry = Duration::from_secs(100);
        for (name, address) in [("shadow", shadow), ("source", source), ("failover", failover)] {
            config.pools.push(PoolConfig::new(name, &[address.to_string()]));
        }
        let pool = &mut config.pools[1];
        pool.servers.extend(PoolConfig::new("", &[second.to_string()]).servers);
        pool.replicas = 2;
        pool.warm_up = Some(WarmUp { from: "source".into(), expiry });
        pool.failover_pool = Some(FailoverPool { pool: "failover".into(), expiry });
        pool.shadow = Some(Shadow { to: "shadow".into(), share: 1.0, reads: true });
    });
    let mut client = proxy.client();
    Client::connect(source)
        .ask("set new:1 0 0 1\r\na\r\nset 1 0 0 1\r\nb\r\nset 2 0 0 1\r\nc\r\n", "STORED\r\n".repeat(3));
    client.ask("set m:9 0 0 1\r\nz\r\n", "STORED\r\n");
    // Values of the warm-up pool are returned and stored, of one read key, of several, and for a command that needs them.
    client.ask("get r:1\r\n", "VALUE r:1 0 1\r\na\r\nEND\r\n");
    let several = "VALUE s:1 0 1\r\nb\r\nVALUE m:9 0 1\r\nz\r\nVALUE r:1 0 1\r\na\r\nEND\r\n";
    client.ask("get s:1 m:9 s:none r:1\r\n", several);
    client.ask("append s:2 0 0 1\r\nd\r\nget s:2\r\n", "STORED\r\nVALUE s:2 0 2\r\ncd\r\nEND\r\n");
    until("the values are stored", || {
        ["new:1", "1", "2"].iter().all(|key| value(other, key) != "-" || value(second, key) != "-")
    });
    client.ask("set s:3 0 0 1\r\ne\r\n", "STORED\r\n");
    assert_eq!([value(other, "3"), value(second, "3")], ["e", "e"]);
    until("the shadow pool has the value", || value(shadow, "3") == "e");
    client.ask("delete s:3\r\n", "DELETED\r\n");
    assert_eq!([value(other, "3"), value(second, "3")], ["-", "-"]);
    until("the shadow pool has deleted it", || value(shadow, "3") == "-");
}

/// Keys of two routes can become the same key. Then an invalidation of one concerns the other, too.
#[test]
fn pending_invalidations_are_those_of_changed_keys() {
    let (silent, backends) = (GatedServer::start(), servers(1));
    let proxy = Proxy::at(&[silent.address(), backends[0].address()], |config| {
        config.loops = 1;
        let pool = &mut config.pools[0];
        (pool.replicas, pool.reads, pool.writes) = (2, Reads::Any, Writes::First);
        // The server that answers nothing stays up, so that only the invalidation keeps reads from it.
        (pool.timeouts, pool.failures) = (Timeouts::all(Duration::from_secs(2)), 1000);
        config.routes = vec![strip("a:", "default"), strip("b:", "default")];
    });
    let mut client = proxy.client();
    client.ask("set a:1 0 0 1\r\nx\r\n", "STORED\r\n");
    until("an invalidation is pending", || proxy.stats().contains("waystage_invalidations_pending 1\r\n"));
    for _ in 0..6 {
        client.ask("get b:1\r\n", "VALUE b:1 0 1\r\nx\r\nEND\r\n");
    }
}

/// The listener of a pool has no routes, so it changes no keys.
#[test]
fn a_listener_of_a_pool_changes_no_keys() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let proxy = proxy(main, other, |config| config.pools[1].listen = vec!["127.0.0.2:0".into()]);
    let port = proxy.running.as_ref().unwrap().listening[1].host_port().unwrap().number().unwrap();
    Client::connect(port).ask("set s:1 0 0 1\r\nx\r\nget s:1\r\n", "STORED\r\nVALUE s:1 0 1\r\nx\r\nEND\r\n");
    assert_eq!([value(other, "s:1"), value(other, "1")], ["x", "-"]);
}

#[test]
fn hot_keys_are_those_of_clients() {
    let backends = servers(2);
    let proxy = proxy(backends[0].address(), backends[1].address(), |config| config.operations.hot_keys = 4);
    let mut client = proxy.client();
    until("the key is hot", || {
        client.ask("get s:hot\r\n".repeat(100), "END\r\n".repeat(100));
        client.send("stats hotkeys\r\n");
        let mut is_listed = false;
        loop {
            let line = client.line();
            assert!(!line.starts_with("STAT hot "), "{line}");
            is_listed |= line.starts_with("STAT s:hot ");
            if line == "END\r\n" {
                return is_listed;
            }
        }
    });
}

/// A reply that does not fit is dropped, and the keys of the client are routed again when it has room.
#[test]
fn a_dropped_reply_is_read_again_with_the_clients_keys() {
    let backends = servers(2);
    let proxy = proxy(backends[0].address(), backends[1].address(), |config| config.client_buffer_bytes = 3000);
    let mut client = proxy.client();
    let (value, keys) = ("x".repeat(1500), ["s:1", "m:1", "r:1", "s:2", "m:2", "r:2", "o:2"]);
    for key in keys {
        client.ask(format!("set {key} 0 0 1500\r\n{value}\r\n"), "STORED\r\n");
    }
    let values = keys.map(|key| format!("VALUE {key} 0 1500\r\n{value}\r\n"));
    let of_one_pool = ["s:1", "r:1", "s:2", "r:2"].map(|key| format!("VALUE {key} 0 1500\r\n{value}\r\n")).concat();
    for _ in 0..3 {
        // A new client has no sizes of values by which its requests could be admitted.
        let mut client = proxy.client();
        client.ask(format!("get {}\r\n", keys.join(" ")), values.concat() + "END\r\n");
        client.ask("get s:1 r:1 s:2 r:2\r\n", of_one_pool.clone() + "END\r\n");
        client.ask("mg r:1 k v\r\n", format!("VA 1500 kr:1\r\n{value}\r\n"));
    }
    assert!(!proxy.stats().contains("waystage_reads_repeated_total 0\r\n"), "{}", proxy.stats());
}

/// The longest matching route counts, whatever the order of the routes, and the changed key is not routed again.
#[test]
fn the_longest_prefix_counts_and_a_changed_key_is_not_routed_again() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let whole = "p".repeat(250);
    let proxy = proxy(main, other, |config| {
        config.routes = vec![
            strip("a", "main"),
            replace("abc", "c", "other"),
            RouteConfig::new("ab", "other"),
            replace("x:", "a", "main"),
            strip("y:", "other"),
            replace(&whole, "short", "other"),
        ];
    });
    let mut client = proxy.client();
    for (key, server, stored) in [
        ("a1", main, "1"),
        ("ab1", other, "ab1"),
        ("abc1", other, "c1"),
        ("x:b1", main, "ab1"),
        ("y:a2", other, "a2"),
        ("y:x:3", other, "x:3"),
        (&whole, other, "short"),
    ] {
        client.ask(format!("set {key} 0 0 1\r\nv\r\n"), "STORED\r\n");
        assert_eq!(value(server, stored), "v", "{key}");
        client.ask(format!("get {key}\r\n"), format!("VALUE {key} 0 1\r\nv\r\nEND\r\n"));
        client.ask(format!("mg {key} k\r\ndelete {key}\r\n"), format!("HD k{key}\r\nDELETED\r\n"));
        assert_eq!(value(server, stored), "-", "{key}");
    }
}

/// Keys that are one key for the servers are one value, also in a multi-get, in which each keeps its own name.
#[test]
fn keys_that_become_one_key_share_a_value() {
    let backends = servers(3);
    for count in [1, 3] {
        let addresses: Vec<SocketAddr> = backends[..count].iter().map(testkit::Server::address).collect();
        let proxy = Proxy::at(&addresses, |config| {
            config.loops = 1;
            config.routes = vec![strip("a:", "default"), strip("b:", "default")];
        });
        let mut client = proxy.client();
        client.ask("set a:1 0 0 1\r\nx\r\nset 2 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
        let value = |key: &str, data: &str| format!("VALUE {key} 0 1\r\n{data}\r\n");
        let all = value("b:1", "x") + &value("1", "x") + &value("b:2", "y") + &value("a:1", "x") + &value("b:1", "x");
        client.ask("get b:1 1 b:2 a:none a:1 b:1\r\n", all + "END\r\n");
        client.ask("delete b:1\r\nget a:1 1 b:1\r\ndelete 2\r\n", "DELETED\r\nEND\r\nDELETED\r\n");
    }
}

/// An error names the server, also if its name begins as the flag of the key does.
#[test]
fn an_error_line_is_no_place_for_a_key() {
    let backends = servers(1);
    let proxy = proxy(backends[0].address(), "127.0.0.1:1".parse().unwrap(), |config| {
        config.pools[1].servers = PoolConfig::new("", &["kv.test:11211".into()]).servers;
        config.transport.lookup = Lookup::new(|_| Ok(vec!["127.0.0.1:1".parse().unwrap()]));
    });
    let mut client = proxy.client();
    for request in ["mg s:1 k v", "md r:1 k", "ma s:1 O1 k", "mg czox b k v"] {
        client.ask(format!("{request}\r\n"), "SERVER_ERROR backend kv.test:11211 is down\r\n");
    }
}
