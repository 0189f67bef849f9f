//! Errors of a proxy that a single client would not notice: which commands reach the servers, and how often.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines};
use proxy::{Discipline, Failover, PartFailure, PoolConfig, RouteConfig, WarmUp};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::{Client, GatedServer, Scripted, Server, memory_bytes};

/// Runs a test in every discipline. The last one printed is the one that failed.
fn in_each(test: impl Fn(Discipline)) {
    for discipline in disciplines(2, true) {
        eprintln!("{discipline:?}");
        test(discipline);
    }
}

#[test]
fn invalid_and_local_commands_reach_no_server() {
    in_each(|discipline| {
        let server = GatedServer::start();
        let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.discipline) = (1, discipline));
        let (mut client, mut other) = (proxy.client(), proxy.client());
        let long = "k".repeat(251);
        let bad = "CLIENT_ERROR bad command line format\r\n";
        let cases = [
            ("set a 0 0 2\r\nhixx\r\n".to_string(), "CLIENT_ERROR bad data chunk\r\nERROR\r\n".to_string()),
            ("ms a 2\r\nhixx\r\n".into(), "CLIENT_ERROR bad data chunk\r\nERROR\r\n".into()),
            (format!("set {long} 0 0 7\r\nget x\r\n\r\n"), bad.into()),
            ("set a x 0 7\r\nget x\r\n\r\n".into(), bad.into()),
            ("set a 0 0 -1\r\nset a 0 0 4294967295\r\nset a 0 0 2147483647\r\n".into(), bad.repeat(3)),
            (format!("get a {long} b\r\ndelete {long}\r\nmg {long} v\r\n"), bad.repeat(3)),
            ("delete a 10\r\n".into(), bad.replace("format", "format.  Usage: delete <key> [noreply]")),
            ("incr a x\r\n".into(), "CLIENT_ERROR invalid numeric delta argument\r\n".into()),
            ("flush_all -1\r\nflush_all x\r\n".into(), "CLIENT_ERROR invalid exptime argument\r\n".repeat(2)),
            (
                "watch\r\nlru_crawler metadump all\r\ncache_memlimit 100\r\nslabs automove 1\r\n".into(),
                "ERROR\r\n".repeat(4),
            ),
            (
                "shutdown\r\ndebugtime 1\r\nlru mode flat\r\nextstore free_memchunks 1 1\r\n".into(),
                "ERROR\r\n".repeat(4),
            ),
            ("bogus\r\nGET a\r\nget\r\n\r\nset a\r\n".into(), "ERROR\r\n".repeat(5)),
            ("mn\r\nverbosity 1\r\nstats reset\r\nstats sizes \r\nstats cachedump 1 1\r\n".into(), {
                "MN\r\nOK\r\nRESET\r\nSTAT sizes_status disabled\r\nEND\r\nEND\r\n".into()
            }),
        ];
        for (send, expect) in cases {
            client.ask(send, expect);
        }
        // A client that disconnects within a value stores nothing.
        let mut disconnecting = proxy.client();
        disconnecting.ask("mn\r\nset a 0 0 100\r\nhalf a value", "MN\r\n");
        drop(disconnecting);
        server.answer("get innocent", "END\r\n");
        other.ask("get innocent\r\n", "END\r\n");
        assert_eq!(server.received(1)[0].1, "get innocent");
    });
}

#[test]
fn noreply_is_never_forwarded() {
    in_each(|discipline| {
        let server = GatedServer::start();
        let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.discipline) = (1, discipline));
        let mut client = proxy.client();
        let requests = [
            ("set a 0 0 1", "STORED"),
            ("incr a 1", "2"),
            ("touch a 0", "TOUCHED"),
            ("delete a", "NOT_FOUND"),
            ("flush_all", "OK"),
        ];
        for (line, reply) in requests {
            server.answer(line, &format!("{reply}\r\n"));
            let value = if line.starts_with("set") { "1\r\n" } else { "" };
            client.send(format!("{line} noreply\r\n{value}"));
        }
        server.answer("get a", "END\r\n");
        client.ask("get a\r\n", "END\r\n");
        let lines: Vec<String> = server.received(6).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines[..5], requests.map(|(line, _)| line.to_string()));
    });
}

#[test]
fn commands_that_are_not_idempotent_are_sent_once() {
    in_each(|discipline| {
        for request in
            ["incr n 1\r\n", "append n 0 0 1\r\nx\r\n", "cas n 0 0 1 5\r\nx\r\n", "ma n\r\n", "add n 0 0 1\r\nx\r\n"]
        {
            let times = Arc::new(AtomicUsize::new(0));
            let counter = times.clone();
            // The server reads the request and closes the connection.
            let server = Scripted::start(move |peer, _| {
                if peer.line().is_some() {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            });
            let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.discipline) = (1, discipline));
            let mut client = proxy.client();
            client.ask(request, format!("SERVER_ERROR backend {} lost the connection\r\n", server.address()));
            // The proxy reconnects, and sends no request.
            while server.connections() < 2 + usize::from(discipline != Discipline::Pipelined) {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(times.load(Ordering::SeqCst), 1, "{request:?}");
        }
    });
}

#[test]
fn a_reply_that_stops_in_the_middle_times_out() {
    in_each(|discipline| {
        for half in ["VALUE a 0 10\r\n01234", "VALUE a 0 1\r\nx\r", "VAL", "VALUE a 0 1\r\nx\r\nEND"] {
            let server = Scripted::start(move |peer, _| {
                peer.line();
                peer.send(half);
                peer.hang();
            });
            let proxy = Proxy::at(&[server.address()], |config| {
                (config.loops, config.discipline) = (1, discipline);
                let patient = proxy::Timeouts::all(Duration::from_secs(20));
                config.pools[0].timeouts = proxy::Timeouts { read: Duration::from_millis(400), ..patient };
            });
            let mut client = proxy.client();
            client.send("get a\r\n");
            let mut line = client.line();
            // Values that arrived completely and in time are forwarded, followed by the error in place of END.
            if half.ends_with("END") && line == "VALUE a 0 1\r\n" {
                client.expect("x\r\n");
                line = client.line();
            }
            assert_eq!(line, format!("SERVER_ERROR backend {} timed out\r\n", server.address()));
        }
    });
}

#[test]
fn a_failed_part_of_a_multi_get_is_reported_as_configured() {
    in_each(|discipline| {
        if matches!(discipline, Discipline::Shared { multi_get, .. } if multi_get != proxy::MultiGet::ByKey) {
            return;
        }
        let alive = Server::embedded();
        let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for policy in [PartFailure::Miss, PartFailure::Partial, PartFailure::Error] {
            let proxy = Proxy::at(&[alive.address(), dead], |config| {
                (config.loops, config.discipline, config.part_failure) = (1, discipline, policy);
                config.metrics = Some("127.0.0.1:0".into());
            });
            let mut client = proxy.client();
            let (mut values, mut stored) = (String::new(), Vec::new());
            let keys: Vec<String> = (0..20).map(|key| format!("key{key}")).collect();
            for key in &keys {
                client.send(format!("set {key} 0 0 1\r\nx\r\n"));
                if client.line() == "STORED\r\n" {
                    values += &format!("VALUE {key} 0 1\r\nx\r\n");
                    stored.push(key);
                }
            }
            let error = format!("SERVER_ERROR backend {dead} is down\r\n");
            let expected = match policy {
                PartFailure::Miss => values + "END\r\n",
                PartFailure::Partial => values + &error,
                PartFailure::Error => error,
            };
            client.ask(format!("get {}\r\nmn\r\n", keys.join(" ")), expected + "MN\r\n");
            let metrics = proxy.metrics();
            assert!(metrics.contains("waystage_parts_failed_total 1"), "{metrics}");
            // All keys belong to one server, and their only part fails.
            let failed: Vec<_> = keys.iter().filter(|key| !stored.contains(key)).map(String::as_str).collect();
            assert!(failed.len() > 1);
            client.ask(format!("get {}\r\n", failed.join(" ")), format!("SERVER_ERROR backend {dead} is down\r\n"));
            let metrics = proxy.metrics();
            assert!(metrics.contains("waystage_parts_failed_total 2"), "{metrics}");
        }
    });
}

#[test]
fn a_read_that_succeeds_on_another_replica_is_no_failed_part() {
    let alive = Server::embedded();
    let broken = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            assert!(line.starts_with("get "), "{line}");
            peer.send("SERVER_ERROR out of memory\r\n");
        }
    });
    let proxy = Proxy::at(&[alive.address(), broken.address()], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        (config.pools[0].replicas, config.pools[0].failover) = (2, Failover::OnError);
    });
    let mut direct = Client::connect(alive.address());
    let mut client = proxy.client();
    for key in 0..20 {
        direct.ask(format!("set key{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        client.ask(format!("get key{key}\r\n"), format!("VALUE key{key} 0 1\r\nx\r\nEND\r\n"));
    }
    let metrics = proxy.metrics();
    assert!(metrics.contains("waystage_parts_failed_total 0"), "{metrics}");
}

/// A line of more than 128 keys, and `gets` with a warm-up pool, are sent in parts that can have one key.
#[test]
fn failed_parts_of_one_key_are_counted_too() {
    let keys = |count: usize| (0..count).map(|key| format!(" key{key}")).collect::<String>();
    for (has_warm_up, line) in [(false, format!("get{} gone", keys(128))), (true, "gets key0 gone".into())] {
        let (alive, old, gone) = (Server::embedded(), Server::embedded(), Scripted::start(|_, _| ()));
        let proxy = Proxy::at(&[alive.address()], |config| {
            (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
            config.pools.push(PoolConfig::new("gone", &[gone.address().to_string()]));
            config.routes.push(RouteConfig::new("gone", "gone"));
            config.pools.push(PoolConfig::new("old", &[old.address().to_string()]));
            let warm_up = WarmUp { from: "old".into(), expiry: Duration::from_secs(60) };
            config.pools[0].warm_up = has_warm_up.then_some(warm_up);
        });
        let mut client = proxy.client();
        // Of a client whose values are unknown, the proxy takes fewer keys at once.
        client.ask("set known 0 0 1\r\nx\r\n", "STORED\r\n");
        client.ask("get known\r\n", "VALUE known 0 1\r\nx\r\nEND\r\n");
        // The line is answered like one that is sent on as a whole: another server has answered, so the failed key is a miss.
        client.ask(format!("{line}\r\n"), "END\r\n");
        // A line of one key that fails is no multi-get.
        client.send("gets gone\r\n");
        assert!(client.line().starts_with("SERVER_ERROR"));
        client.ask("gets key0\r\n", "END\r\n");
        let metrics = proxy.metrics();
        assert!(metrics.contains("waystage_parts_failed_total 1\n"), "{metrics}");
    }
}

#[test]
fn a_multi_get_of_which_every_part_has_failed_is_an_error() {
    in_each(|discipline| {
        let dead = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let servers = [dead(), dead(), dead()];
        let has_replicas =
            matches!(discipline, Discipline::Shared { multi_get, .. } if multi_get != proxy::MultiGet::ByKey);
        for policy in [PartFailure::Miss, PartFailure::Partial, PartFailure::Error] {
            let proxy = Proxy::at(&servers, |config| {
                (config.loops, config.discipline, config.part_failure) = (1, discipline, policy);
                config.pools[0].replicas = if has_replicas { 3 } else { 1 };
            });
            let mut client = proxy.client();
            let keys: String = (0..100).map(|key| format!(" key{key}")).collect();
            for command in ["get", "gets", "gat 0"] {
                client.send(format!("{command}{keys}\r\nmn\r\n"));
                let line = client.line();
                let is_named =
                    servers.iter().any(|server| line == format!("SERVER_ERROR backend {server} is down\r\n"));
                assert!(is_named, "{policy:?}: {line}");
                client.expect("MN\r\n");
            }
        }
    });
}

#[test]
fn a_server_that_does_not_read_buffers_limited_bytes_and_others_are_served() {
    let is_over = Arc::new(AtomicUsize::new(0));
    let ending = is_over.clone();
    let deaf = Scripted::start(move |_, _| {
        while ending.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let alive = Server::embedded();
    let proxy = Proxy::at(&[deaf.address(), alive.address()], |config| {
        (config.loops, config.backend_buffer_bytes) = (1, 1 << 20);
        config.pools[0].timeouts = proxy::Timeouts::all(Duration::from_secs(60));
        config.client_window = 100_000;
        config.client_buffer_bytes = 1 << 30;
    });
    let before = memory_bytes();
    let mut client = proxy.client();
    let value = "x".repeat(100_000);
    // The kernel buffers a few more megabytes for each server.
    for key in 0..400 {
        client.send(format!("set key{key} 0 0 100000 noreply\r\n{value}\r\n"));
    }
    let mut other = proxy.client();
    let (mut refused, mut stored) = (0, 0);
    for key in 0..200 {
        let mut one = proxy.client();
        one.send(format!("set new{key} 0 0 1\r\nx\r\n"));
        match one.line_within(Duration::from_millis(200)).as_deref() {
            Some("STORED\r\n") => stored += 1,
            Some(line) if line.starts_with("SERVER_ERROR") && line.ends_with("has too much waiting\r\n") => {
                refused += 1
            }
            Some(line) => panic!("{line:?}"),
            None => {}
        }
        if stored > 5 && refused > 5 {
            break;
        }
    }
    assert!(stored > 5 && refused > 5, "{stored} stored, {refused} refused");
    other.ask("mn\r\n", "MN\r\n");
    // The embedded server keeps its part in this process, too.
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 120 << 20, "{grown} bytes");
    is_over.store(1, Ordering::SeqCst);
}
