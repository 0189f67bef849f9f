//! A drained server receives no requests, and keeps its keys: requests for them are handled as if it were down, so that no client
//! reads an old value when it is used again.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers, until};
use proxy::{Config, Failover, FailoverPool, PoolConfig, Timeouts, Writes};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Client, GatedServer, Server};

fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(Server::address).collect()
}

/// Goes on with a configuration in which the servers with these numbers are drained. The earlier one ends.
fn drain(proxy: &mut Proxy, drained: &[usize]) {
    let running = proxy.running.as_mut().unwrap();
    let mut config: Config = running.config().clone();
    let all = config.pools.iter_mut().flat_map(|pool| &mut pool.servers);
    all.enumerate().for_each(|(number, server)| server.is_drained = drained.contains(&number));
    let new = running.reload(config).unwrap();
    let mut old = std::mem::replace(running, new);
    std::thread::spawn(move || {
        old.wait_for_clients(|| false);
        old.stop().unwrap();
    });
}

/// The reply to `stats backends`.
fn backends_of(proxy: &Proxy) -> String {
    let mut client = proxy.client();
    client.send("stats backends\r\n");
    let mut text = String::new();
    while !text.ends_with("END\r\n") {
        text += &client.line();
    }
    text
}

fn value_at(address: SocketAddr, key: &str) -> Option<String> {
    let mut direct = Client::connect(address);
    direct.send(format!("get {key}\r\n"));
    direct.line().starts_with("VALUE").then(|| direct.line().trim_end().into())
}

#[test]
fn a_drained_replica_is_neither_read_nor_written_and_returns_no_old_value_afterwards() {
    for discipline in disciplines(2, false) {
        let backends = servers(3);
        let all = addresses(&backends);
        let mut proxy = Proxy::at(&all, |config| {
            let is_shared = discipline.name() == "shared";
            (config.loops, config.discipline) = (1, discipline);
            config.metrics = Some("127.0.0.1:0".into());
            (config.pools[0].replicas, config.pools[0].failover) = (3, Failover::OnError);
            // With `shared`, writes need all replicas, and fail.
            config.pools[0].writes = if is_shared { Writes::All } else { Writes::Majority };
        });
        let mut client = proxy.client();
        let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        for key in &keys {
            client.ask(format!("set {key} 0 0 3\r\nold\r\n"), "STORED\r\n");
        }
        drain(&mut proxy, &[1]);
        let mut client = proxy.client();
        let drained = format!("waystage_backend_drained{{pool=\"default\",backend=\"{}\"}} 1\n", all[1]);
        assert!(proxy.metrics().contains(&drained), "{}", proxy.metrics());
        assert!(backends_of(&proxy).contains(&format!("STAT {}:drained 1\r\n", all[1])));
        let mut acknowledged = Vec::new();
        until("the other replicas are connected", || {
            client.send("set other 0 0 1\r\nx\r\nget other\r\n");
            let is_stored = client.line() == "STORED\r\n" || discipline.name() == "shared";
            let is_read = client.line().starts_with("VALUE");
            if is_read {
                client.expect("x\r\nEND\r\n");
            }
            is_read && is_stored
        });
        for key in &keys {
            client.send(format!("set {key} 0 0 3\r\nnew\r\n"));
            acknowledged.push(client.line() == "STORED\r\n");
            client.send(format!("get {key}\r\n"));
            let line = client.line();
            assert!(line.starts_with("VALUE"), "{discipline:?}: {line}");
            client.expect("new\r\nEND\r\n");
            assert_eq!(value_at(all[1], key).as_deref(), Some("old"), "{discipline:?}");
        }
        assert!(
            acknowledged.iter().all(|is| *is == (discipline.name() != "shared")),
            "{discipline:?}: {acknowledged:?}"
        );
        drain(&mut proxy, &[]);
        let mut client = proxy.client();
        for _ in 0..5 {
            for key in &keys {
                client.send(format!("get {key}\r\n"));
                if client.line().starts_with("VALUE") {
                    client.expect("new\r\nEND\r\n");
                }
            }
        }
        until("the writes that it has missed are invalidated", || {
            proxy.stats().contains("waystage_invalidations_pending 0\r\n")
        });
        assert!(keys.iter().all(|key| value_at(all[1], key).is_none()), "{discipline:?}");
        assert!(backends_of(&proxy).contains(&format!("STAT {}:drained 0\r\n", all[1])));
    }
}

#[test]
fn a_pool_can_be_drained_as_a_whole_and_fails_over() {
    let backends = servers(2);
    let all = addresses(&backends);
    let mut proxy = Proxy::at(&all[..1], |config| {
        config.loops = 1;
        config.pools.push(PoolConfig::new("spare", &[all[1].to_string()]));
        config.pools[0].failover_pool = Some(FailoverPool { pool: "spare".into(), expiry: Duration::from_secs(60) });
        config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(Duration::from_secs(2)));
    });
    proxy.client().ask("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    drain(&mut proxy, &[0]);
    let mut client = proxy.client();
    until("the other pool is connected", || {
        client.send("set k 0 0 3\r\nnew\r\n");
        client.line() == "STORED\r\n"
    });
    client.ask("get k\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n");
    assert_eq!([value_at(all[0], "k").as_deref(), value_at(all[1], "k").as_deref()], [Some("old"), Some("new")]);
    drain(&mut proxy, &[]);
    until("the old value is deleted", || value_at(all[0], "k").is_none());
    let mut client = proxy.client();
    client.ask("get k\r\n", "END\r\n");
}

#[test]
fn a_request_in_flight_is_answered_by_the_server_that_is_drained() {
    let gated = GatedServer::start();
    let mut proxy = Proxy::at(&[gated.address()], |config| config.loops = 1);
    let mut client = proxy.client();
    client.send("get k\r\n");
    gated.received(1);
    drain(&mut proxy, &[0]);
    gated.answer("get k", "VALUE k 0 1\r\nx\r\nEND\r\n");
    client.expect("VALUE k 0 1\r\nx\r\nEND\r\n");
    let line = format!("SERVER_ERROR backend {} is down\r\n", gated.address());
    client.ask("get k\r\nset k 0 0 1\r\ny\r\n", line.clone() + &line);
    assert_eq!(gated.received_so_far(), 1);
}

/// Requests that the proxy has read are answered by the server, also those that wait behind others of their client.
#[test]
fn requests_that_wait_in_the_proxy_are_answered_by_the_server_that_is_drained() {
    for discipline in disciplines(1, false) {
        let gated = GatedServer::start();
        let mut proxy = Proxy::at(&[gated.address()], |config| (config.loops, config.discipline) = (1, discipline));
        // More than may be in flight, and reads behind a write.
        let mut clients = [proxy.client(), proxy.client()];
        clients[0].send("get a\r\n".repeat(100));
        clients[1].send("set b 0 0 1\r\nx\r\nget b\r\nset c 0 0 1\r\nx\r\nget c\r\n");
        until("requests are in flight", || gated.received_so_far() >= 1);
        std::thread::sleep(Duration::from_millis(100));
        drain(&mut proxy, &[0]);
        std::thread::sleep(Duration::from_millis(100));
        let read = |key: &str| format!("VALUE {key} 0 1\r\nx\r\nEND\r\n");
        (0..100).for_each(|_| gated.answer("get a", &read("a")));
        for key in ["b", "c"] {
            gated.answer(&format!("set {key} 0 0 1"), "STORED\r\n");
            gated.answer(&format!("get {key}"), &read(key));
        }
        clients[0].expect(read("a").repeat(100));
        clients[1].expect(format!("STORED\r\n{}STORED\r\n{}", read("b"), read("c")));
        // Those that come later are not.
        let line = format!("SERVER_ERROR backend {} is down\r\n", gated.address());
        clients.iter_mut().for_each(|client| client.ask("get a\r\n", &line));
    }
}

/// With another replica, no request fails while servers are drained and used again.
#[test]
fn clients_see_no_error_while_servers_are_drained_in_turn() {
    for discipline in [disciplines(2, false)[0], disciplines(2, false)[1]] {
        let backends = servers(2);
        let mut proxy = Proxy::at(&addresses(&backends), |config| {
            (config.loops, config.discipline) = (2, discipline);
            (config.pools[0].replicas, config.pools[0].failover) = (2, Failover::OnError);
            config.pools[0].writes = Writes::First;
        });
        let address = proxy.address;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    while !is_over.load(Ordering::Relaxed) {
                        for turn in 0..10 {
                            client.send(format!("set k{number}-{turn} 0 0 1\r\nx\r\nget k{number}-{turn}\r\n"));
                        }
                        for turn in 0..10 {
                            client.expect("STORED\r\n");
                            let line = client.line();
                            if line == format!("VALUE k{number}-{turn} 0 1\r\n") {
                                client.expect("x\r\nEND\r\n");
                            } else {
                                // A value that a server has missed is deleted there.
                                assert_eq!(line, "END\r\n");
                            }
                        }
                    }
                });
            }
            for drained in [&[0][..], &[], &[1], &[], &[0], &[]] {
                std::thread::sleep(Duration::from_millis(200));
                drain(&mut proxy, drained);
                until("what was missed is invalidated", || {
                    proxy.stats().contains("waystage_invalidations_pending 0\r\n") || !drained.is_empty()
                });
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_drained_server_has_no_connection_also_for_large_replies() {
    let backends = servers(2);
    let all = addresses(&backends);
    let mut proxy = Proxy::at(&all, |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
    });
    let mut client = proxy.client();
    let large = "x".repeat(500_000);
    for number in 0..20 {
        client.ask(format!("set k{number} 0 0 500000\r\n{large}\r\n"), "STORED\r\n");
    }
    drain(&mut proxy, &[0]);
    let mut client = proxy.client();
    let mut values = 0;
    for number in (0..20).cycle().take(100) {
        client.send(format!("get k{number}\r\n"));
        let line = client.line();
        if line.starts_with("VALUE") {
            client.expect(format!("{large}\r\nEND\r\n"));
            values += 1;
        } else {
            assert!(line.starts_with("SERVER_ERROR backend"), "{line}");
        }
    }
    let opened = format!("waystage_backend_connections_opened_total{{pool=\"default\",backend=\"{}\"}}", all[0]);
    let metrics = proxy.metrics();
    // The counter continues from the earlier configuration, which had opened one.
    let count = metrics.lines().find_map(|line| line.strip_prefix(&format!("{opened} "))).unwrap();
    assert!(values > 0 && count.parse::<f64>().unwrap() <= 1.0, "{values} values, {count} connections");
}
