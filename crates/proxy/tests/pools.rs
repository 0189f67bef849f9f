//! Several pools: routes by prefix, a failover pool, a warm-up pool and a shadow pool.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers, until};
use proxy::{Config, Discipline, FailoverPool, PoolConfig, RouteConfig, Shadow, Timeouts, WarmUp};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Client, GatedServer, Server, memcached_is_here};

/// A proxy with one pool for each server: `main`, then `other`.
fn proxy(main: SocketAddr, other: SocketAddr, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&[main], |config| {
        config.loops = 1;
        config.pools[0].name = "main".into();
        config.pools.push(PoolConfig::new("other", &[other.to_string()]));
        config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(2)));
        change(config);
    })
}

/// The reply of a server to a direct request.
fn direct_reply(address: SocketAddr, request: &str) -> String {
    let mut direct = Client::connect(address);
    direct.send(format!("{request}\r\n"));
    let line = direct.line();
    if line.starts_with("VA") { direct.line().trim_end().into() } else { line.trim_end().into() }
}

/// One number in the reply to `stats`.
fn number(stats: &str, name: &str) -> u64 {
    let prefix = format!("STAT {name} ");
    stats.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().trim_end().parse().unwrap()
}

#[test]
fn the_longest_prefix_decides_and_a_multi_get_may_span_pools() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let route = |prefix: &str, pool: &str| RouteConfig::new(prefix, pool);
    let proxy = proxy(main, other, |config| {
        config.routes = vec![route("user:", "other"), route("user:old:", "main")];
    });
    let mut client = proxy.client();
    for key in ["user:1", "user:old:1", "page"] {
        client.ask(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    assert_eq!(
        ["user:1", "user:old:1", "page"].map(|key| direct_reply(main, &format!("mg {key} v"))),
        ["EN", "x", "x"]
    );
    assert_eq!(
        ["user:1", "user:old:1", "page"].map(|key| direct_reply(other, &format!("mg {key} v"))),
        ["x", "EN", "EN"]
    );
    let values = ["page", "user:1", "user:old:1"].map(|key| format!("VALUE {key} 0 1\r\nx\r\n")).concat();
    client.ask("get page user:1 none user:none user:old:1\r\n", values + "END\r\n");
    client.ask("mg dXNlcjox b v\r\n", "VA 1\r\nx\r\n");
}

/// The clients of a pool's own listener use this pool for every key.
#[test]
fn a_pool_with_a_listener_has_all_keys_of_its_clients() {
    let backends = servers(3);
    let [main, other, source] = [backends[0].address(), backends[1].address(), backends[2].address()];
    let proxy = proxy(main, other, |config| {
        config.routes = vec![RouteConfig::new("user:", "other")];
        config.pools[1].listen = vec!["127.0.0.2:0".into()];
        config.pools[1].warm_up = Some(WarmUp { from: "source".into(), expiry: Duration::from_secs(100) });
        let source = PoolConfig::new("source", &[source.to_string()]);
        config.pools.push(PoolConfig { listen: vec!["127.0.0.3:0".into()], ..source });
    });
    let listening = &proxy.running.as_ref().unwrap().listening;
    let at = |index: usize| Client::connect(listening[index].host_port().unwrap().number().unwrap());
    let (mut of_all, mut of_other, mut of_source) = (at(0), at(1), at(2));
    of_other.ask("set page 0 0 1\r\nx\r\nset user:1 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
    of_source.ask("set user:2 0 0 1\r\nz\r\nmg page v\r\n", "STORED\r\nEN\r\n");
    // A client of the proxy's listener follows the routes.
    of_all.ask("get page user:1\r\n", "VALUE user:1 0 1\r\ny\r\nEND\r\n");
    let values = "VALUE page 0 1\r\nx\r\nVALUE user:1 0 1\r\ny\r\nVALUE user:2 0 1\r\nz\r\nEND\r\n";
    of_other.ask("get page user:1 user:2\r\n", values);
    of_other.ask("mg page v\r\n", "VA 1\r\nx\r\n");
    assert_eq!([direct_reply(main, "mg page v"), direct_reply(main, "mg user:2 v")], ["EN", "EN"]);
    until("the value is stored", || direct_reply(other, "mg user:2 v") == "z");
    // It flushes its pool, and the one that could return the values again.
    of_all.ask("set page 0 0 1\r\nm\r\n", "STORED\r\n");
    of_other.ask("flush_all\r\nget page user:1 user:2\r\n", "OK\r\nEND\r\n");
    assert_eq!([direct_reply(main, "mg page v"), direct_reply(source, "mg user:2 v")], ["m", "EN"]);
}

#[test]
fn a_failover_pool_serves_writes_and_reads_and_old_values_do_not_come_back() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be frozen");
        return;
    }
    let mut main = Server::memcached();
    let other = Server::memcached();
    let proxy = proxy(main.address(), other.address(), |config| {
        config.pools[0].failover_pool = Some(FailoverPool { pool: "other".into(), expiry: Duration::from_secs(60) });
    });
    let mut client = proxy.client();
    client.ask("set k 0 0 3\r\nold\r\nset j 0 0 1\r\nj\r\n", "STORED\r\nSTORED\r\n");
    main.freeze();
    client.ask("set k 0 0 3\r\nnew\r\n", "STORED\r\n");
    let left = direct_reply(other.address(), "mg k t");
    let seconds: u32 = left.trim_start_matches("HD t").parse().unwrap();
    assert!((30..=60).contains(&seconds), "{left}");
    client.ask("get k\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n");
    client.ask("get j k none\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n");
    client.ask("delete j\r\n", "NOT_FOUND\r\n");
    // A command that was never sent may run in the failover pool, even if it is not idempotent.
    client.ask("append k 0 0 1\r\n!\r\nget k\r\n", "STORED\r\nVALUE k 0 4\r\nnew!\r\nEND\r\n");
    // Every command that stores it caps the expiry time.
    client.ask("ms m 1 T0\r\nm\r\ntouch k 0\r\n", "HD\r\nTOUCHED\r\n");
    for key in ["k", "m"] {
        let left = direct_reply(other.address(), &format!("mg {key} t"));
        let seconds: u32 = left.trim_start_matches("HD t").parse().unwrap_or_else(|_| panic!("{left}"));
        assert!((30..=60).contains(&seconds), "{key}: {left}");
    }
    main.thaw();
    until("no invalidation is pending", || proxy.stats().contains("waystage_invalidations_pending 0\r\n"));
    assert_eq!(direct_reply(main.address(), "mg k v"), "EN");
    assert_eq!(direct_reply(main.address(), "mg j v"), "EN", "it was deleted");
    client.ask("get k\r\n", "END\r\n");
    let stats = proxy.stats();
    // The set, three reads, the delete and the append.
    assert!(number(&stats, "waystage_failover_pool_requests") >= 6, "{stats}");
    assert!(number(&stats, "waystage_invalidations_sent") >= 2 && number(&stats, "waystage_ejections") >= 1, "{stats}");
}

#[test]
fn missing_values_are_read_from_the_warm_up_pool_and_kept_until_they_change() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let proxy = proxy(main, other, |config| {
        config.pools[0].warm_up = Some(WarmUp { from: "other".into(), expiry: Duration::from_secs(100) });
    });
    for key in ["a", "b", "c", "d"] {
        assert_eq!(direct_reply(other, &format!("ms {key} 1 F7\r\n{key}")), "HD");
    }
    let mut client = proxy.client();
    client.ask("get a\r\n", "VALUE a 7 1\r\na\r\nEND\r\n");
    client.ask("get b none c\r\n", "VALUE b 7 1\r\nb\r\nVALUE c 7 1\r\nc\r\nEND\r\n");
    client.ask("mg d v f\r\nmg none v\r\n", "VA 1 f7\r\nd\r\nEN\r\n");
    for key in ["a", "b", "c"] {
        until("the value is stored", || direct_reply(main, &format!("mg {key} v")) == key);
        assert!(direct_reply(main, &format!("mg {key} t")).starts_with("HD t"));
        assert_eq!(direct_reply(main, &format!("mg {key} f")), "HD f7");
    }
    client.ask("set a 0 0 1\r\nA\r\ndelete b\r\nincr none 1\r\n", "STORED\r\nDELETED\r\nNOT_FOUND\r\n");
    assert_eq!([direct_reply(other, "mg a v"), direct_reply(other, "mg b v")], ["EN", "EN"]);
    client.ask("get a b\r\n", "VALUE a 0 1\r\nA\r\nEND\r\n");
    client.ask("append c 0 0 1\r\n+\r\n", "STORED\r\n");
    assert_eq!(direct_reply(other, "mg c v"), "EN");
    let stats = proxy.stats();
    let counts = ["hits", "fills"].map(|name| number(&stats, &format!("waystage_warm_up_{name}")));
    assert_eq!(counts, [4, 3], "an mg is not stored: {stats}");
}

#[test]
fn a_filled_value_is_ordered_with_its_clients_writes() {
    let (main, other) = (GatedServer::start(), GatedServer::start());
    let proxy = proxy(main.address(), other.address(), |config| {
        config.pools[0].warm_up = Some(WarmUp { from: "other".into(), expiry: Duration::from_secs(100) });
        config.discipline = Discipline::PerBackend { readers: 2, writers: 3, fault_write_poll: None };
        config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(20)));
    });
    let mut clients = [proxy.client(), proxy.client()];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("get k{number}\r\n"));
        main.answer(&format!("get k{number}"), "END\r\n");
        let value = format!("VALUE k{number} 0 1\r\nx\r\nEND\r\n");
        other.answer(&format!("get k{number}"), &value);
        client.expect(value);
        client.send(format!("delete k{number}\r\n"));
        main.answer(&format!("add k{number} 0 100 1"), "STORED\r\n");
        main.answer(&format!("delete k{number}"), "DELETED\r\n");
        other.answer(&format!("delete k{number}"), "DELETED\r\n");
        client.expect("DELETED\r\n");
    }
    let asked = main.received(6);
    let connection = |line: &str| asked.iter().find(|(_, asked)| asked == line).unwrap().0;
    for number in 0..2 {
        assert_eq!(
            connection(&format!("add k{number} 0 100 1")),
            connection(&format!("delete k{number}")),
            "{asked:?}"
        );
    }
}

#[test]
fn a_fill_that_may_arrive_late_is_deleted() {
    let (main, other) = (GatedServer::start(), GatedServer::start());
    let proxy = proxy(main.address(), other.address(), |config| {
        config.pools[0].warm_up = Some(WarmUp { from: "other".into(), expiry: Duration::from_secs(100) });
    });
    let mut client = proxy.client();
    client.send("get k\r\n");
    main.answer("get k", "END\r\n");
    other.answer("get k", "VALUE k 0 1\r\nx\r\nEND\r\n");
    client.expect("VALUE k 0 1\r\nx\r\nEND\r\n");
    // The server never replies to `add`, so the proxy closes its connection.
    main.answer("delete k", "DELETED\r\n");
    assert!(main.received(3).iter().any(|(_, line)| line == "add k 0 100 1"));
}

#[test]
fn a_shadow_receives_its_share_of_writes_and_delays_no_reply() {
    let main = servers(1);
    let other = GatedServer::start();
    let proxy = proxy(main[0].address(), other.address(), |config| {
        config.pools[0].shadow = Some(Shadow { to: "other".into(), share: 1.0, reads: false });
        config.pools[1].timeouts = Timeouts::all(Duration::from_secs(20));
    });
    let mut client = proxy.client();
    client.ask("set k 0 0 1\r\nx\r\nget k\r\ndelete k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nDELETED\r\n");
    let asked: Vec<String> = other.received(2).into_iter().map(|(_, line)| line).collect();
    assert_eq!(asked, ["set k 0 0 1", "delete k"]);
    other.answer("set k 0 0 1", "STORED\r\n");
    other.answer("delete k", "DELETED\r\n");
    assert_eq!(number(&proxy.stats(), "waystage_shadowed_requests"), 2);
    let totals = proxy.stop();
    assert_eq!((totals.requests, totals.lost), (4, 0), "`stats` is a client request, requests to a shadow are not");
}

#[test]
fn a_shadow_receives_a_multi_get_as_one_read_per_key() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let proxy = proxy(main, other, |config| {
        config.pools[0].shadow = Some(Shadow { to: "other".into(), share: 0.5, reads: true });
    });
    let mut client = proxy.client();
    for number in 0..200 {
        client.ask(format!("set k{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    client.send(format!("get{}\r\n", (0..200).map(|number| format!(" k{number}")).collect::<String>()));
    (0..200).for_each(|number| client.expect(format!("VALUE k{number} 0 1\r\nx\r\n")));
    client.expect("END\r\n");
    let count = || (0..200).filter(|number| direct_reply(other, &format!("mg k{number} v")) == "x").count();
    until("half of them are stored", || (60..140).contains(&count()));
}

#[test]
fn a_warm_up_of_a_shadow_is_stored_in_the_shadow() {
    let backends = servers(3);
    let [main, other, source] = [backends[0].address(), backends[1].address(), backends[2].address()];
    let proxy = proxy(main, other, |config| {
        config.pools[0].shadow = Some(Shadow { to: "other".into(), share: 1.0, reads: true });
        config.pools[1].warm_up = Some(WarmUp { from: "source".into(), expiry: Duration::from_secs(100) });
        config.pools.push(PoolConfig::new("source", &[source.to_string()]));
    });
    assert_eq!(direct_reply(source, "ms k 1\r\nx"), "HD");
    let mut client = proxy.client();
    client.ask("get k\r\n", "END\r\n");
    until("the value is stored", || direct_reply(other, "mg k v") == "x");
    assert_eq!(direct_reply(main, "mg k v"), "EN");
}

#[test]
fn a_shadow_that_is_warmed_up_from_the_shadowed_pool_leaves_its_values_alone() {
    let backends = servers(2);
    let [main, other] = [backends[0].address(), backends[1].address()];
    let proxy = proxy(main, other, |config| {
        config.pools[0].shadow = Some(Shadow { to: "other".into(), share: 1.0, reads: true });
        config.pools[1].warm_up = Some(WarmUp { from: "main".into(), expiry: Duration::from_secs(100) });
    });
    assert_eq!(direct_reply(main, "ms n 1\r\n5"), "HD");
    let mut client = proxy.client();
    for (request, reply) in [
        ("set k 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("touch k 100\r\n", "TOUCHED\r\n"),
        ("gat 100 k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n"),
        ("append k 0 0 1\r\ny\r\n", "STORED\r\n"),
        ("incr n 1\r\n", "6\r\n"),
        ("add last 0 0 1\r\nz\r\n", "STORED\r\n"),
    ] {
        client.ask(request, reply);
    }
    until("the shadow has received all", || direct_reply(other, "mg last v") == "z");
    client.ask("get k n last\r\n", "VALUE k 0 2\r\nxy\r\nVALUE n 0 1\r\n6\r\nVALUE last 0 1\r\nz\r\nEND\r\n");
    assert_eq!([direct_reply(other, "mg k v"), direct_reply(other, "mg n v")], ["xy", "EN"]);
}
