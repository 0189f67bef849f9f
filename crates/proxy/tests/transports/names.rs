//! Backends with host names. The test decides to which addresses a name resolves, and changes them.

use crate::common::Proxy;
use crate::speak::proxy;
use proxy::{Config, Lookup, Timeouts};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, Scripted};

/// The addresses of the name, shared by the proxy and the test.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<Vec<SocketAddr>>>);

impl Addresses {
    fn set(&self, addresses: &[SocketAddr]) {
        *self.0.lock().unwrap() = addresses.to_vec();
    }

    /// Resolves to the current addresses. Without any, it fails like a name that does not exist.
    fn lookup(&self) -> Lookup {
        let resolved = self.clone();
        Lookup::new(move |host_port| {
            assert_eq!(host_port.to_string(), "cache.test:11211");
            let addresses = resolved.0.lock().unwrap().clone();
            if addresses.is_empty() { Err(io::Error::other("no such name")) } else { Ok(addresses) }
        })
    }
}

/// A proxy in front of the name.
fn before(resolved: &Addresses, every: Duration, change: impl FnOnce(&mut Config)) -> Proxy {
    let running = proxy(&["127.0.0.1:0".into()], &["cache.test:11211".into()], |config| {
        config.metrics = Some("127.0.0.1:0".into());
        config.transport.resolve_every = every;
        config.transport.lookup = resolved.lookup();
        change(config);
    });
    Proxy::of(running)
}

/// A server that replies with its own name to every read.
fn named(name: &'static str) -> Scripted {
    Scripted::start(move |peer, _| {
        while let Some(line) = peer.line() {
            let key = line.trim_start_matches("get ").trim_end().to_string();
            peer.send(format!("VALUE {key} 0 {}\r\n{name}\r\nEND\r\n", name.len()));
        }
    })
}

/// Repeats a request until its reply is this one.
fn ask_until(client: &mut Client, expected: &str) {
    for _ in 0..1000 {
        client.send("get k\r\n");
        let first = client.line();
        let answer = if first.starts_with("VALUE") {
            let value = client.line();
            assert_eq!(client.line(), "END\r\n");
            value
        } else {
            first
        };
        if answer.trim_end() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("never {expected:?}");
}

/// Repeats a check for a limited time.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the expected reply never arrives");
}

fn value(name: &str) -> String {
    format!("VALUE k 0 {}\r\n{name}\r\nEND\r\n", name.len())
}

/// A server that replies only when the test allows it.
fn gated(go_on: Receiver<()>) -> (Scripted, Receiver<()>) {
    let (on_request, received): (Sender<()>, _) = channel();
    let ends = Mutex::new(Some((go_on, on_request)));
    let server = Scripted::start(move |peer, _| {
        let Some(line) = peer.line() else { return };
        assert_eq!(line, "get k\r\n");
        let (go_on, on_request) = ends.lock().unwrap().take().expect("the server has one connection");
        on_request.send(()).unwrap();
        go_on.recv_timeout(Duration::from_secs(20)).unwrap();
        peer.send(value("old"));
        peer.hang();
    });
    (server, received)
}

#[test]
fn requests_go_to_the_new_address_and_the_old_connection_drains() {
    for discipline in crate::common::disciplines(2, false) {
        let (release, go_on) = channel();
        let (old, received) = gated(go_on);
        let new = named("new");
        let resolved = Addresses::default();
        resolved.set(&[old.address()]);
        let proxy = before(&resolved, Duration::from_millis(100), |config| {
            config.discipline = discipline;
            config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
        });
        let mut first = proxy.client();
        first.send("get k\r\n");
        received.recv_timeout(Duration::from_secs(20)).expect("the old server has received it");
        resolved.set(&[new.address()]);
        // The move is counted after the loops were informed. Before that, requests would go to the old server, which does not reply.
        wait_until(|| {
            proxy.metrics().contains("waystage_backend_moves_total{pool=\"default\",backend=\"cache.test:11211\"} 1")
        });
        // Other clients use the new address while a request is in flight to the old one.
        for _ in 0..4 {
            proxy.client().ask("get k\r\n", value("new"));
        }
        release.send(()).unwrap();
        first.expect(value("old"));
        first.ask("get k\r\n", value("new"));
        let metrics = proxy.metrics();
        assert!(metrics.contains("waystage_backend_connections_lost_total{pool=\"default\",backend=\"cache.test:11211\",reason=\"lost\"} 0"), "{metrics}");
        assert!(
            metrics.contains("waystage_backend_in_flight{pool=\"default\",backend=\"cache.test:11211\"} 0"),
            "{metrics}"
        );
    }
}

#[test]
fn a_failure_triggers_a_lookup_even_without_an_interval() {
    let resolved = Addresses::default();
    let new = named("new");
    let (die, death) = channel();
    let death = Mutex::new(death);
    let dying = Scripted::start(move |peer, number| {
        // The first connection answers once, and closes when the test lets it. Later ones close at once.
        if number == 0 && peer.line().is_some() {
            peer.send(value("first"));
            let _ = death.lock().unwrap().recv_timeout(Duration::from_secs(20));
        }
    });
    resolved.set(&[dying.address()]);
    let proxy = before(&resolved, Duration::ZERO, |config| config.loops = 1);
    let mut client = proxy.client();
    client.ask("get k\r\n", value("first"));
    resolved.set(&[new.address()]);
    die.send(()).unwrap();
    ask_until(&mut client, "new");
}

#[test]
fn a_backend_whose_name_does_not_resolve_is_down_until_it_does() {
    let resolved = Addresses::default();
    let proxy = before(&resolved, Duration::from_millis(100), |_| ());
    let warnings = &proxy.running.as_ref().unwrap().warnings;
    let expected =
        "--server cache.test:11211 cannot be resolved (no such name): the backend is down until its name resolves";
    assert_eq!(warnings, &[expected]);
    let mut client = proxy.client();
    client.send("set k 0 0 1\r\n1\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR") && line.contains("cache.test:11211"), "{line}");
    let server = named("late");
    resolved.set(&[server.address()]);
    ask_until(&mut client, "late");
}

#[test]
fn an_address_stays_in_use_while_lookups_fail_or_hang() {
    let server = named("same");
    let resolved = Addresses::default();
    resolved.set(&[server.address()]);
    let proxy = before(&resolved, Duration::from_millis(100), |_| ());
    let mut client = proxy.client();
    client.ask("get k\r\n", value("same"));
    resolved.set(&[]);
    wait_until(|| {
        client.ask("get k\r\n", value("same"));
        !proxy
            .metrics()
            .contains("waystage_backend_lookups_failed_total{pool=\"default\",backend=\"cache.test:11211\"} 0")
    });
    // A lookup that hangs, while this lock is locked, delays no other lookup.
    let hanging = resolved.0.lock().unwrap();
    std::thread::sleep(Duration::from_millis(250));
    for _ in 0..50 {
        proxy.client().ask("get k\r\n", value("same"));
    }
    assert_eq!(server.connections(), 2, "one for each loop, and never another");
    drop(hanging);
}

#[test]
fn one_reachable_address_of_several_is_used_and_kept() {
    // No server listens on the first address, whose port was free a moment ago.
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (one, other) = (named("one"), named("other"));
    let resolved = Addresses::default();
    resolved.set(&[closed_port, one.address(), other.address()]);
    let proxy = before(&resolved, Duration::from_millis(100), |config| config.loops = 1);
    let mut client = proxy.client();
    ask_until(&mut client, "one");
    // Many name servers change the order with every reply.
    resolved.set(&[other.address(), one.address(), closed_port]);
    std::thread::sleep(Duration::from_millis(300));
    client.ask("get k\r\n", value("one"));
    assert_eq!(other.connections(), 0);
}

#[test]
fn the_start_waits_for_every_name_although_others_are_resolved_twice_meanwhile() {
    let servers = ["quick", "delayed", "slow"].map(named);
    let ([quick, delayed, slow], lookups) =
        (servers.each_ref().map(|server| server.address()), Arc::new(AtomicUsize::new(0)));
    let names = ["quick.test:1", "delayed.test:1", "slow.test:1"].map(String::from);
    let running = proxy(&["127.0.0.1:0".into()], &names, |config| {
        config.transport.resolve_every = Duration::from_millis(100);
        config.transport.lookup = Lookup::new(move |host_port| {
            let address = match host_port.host() {
                "quick.test" => {
                    lookups.fetch_add(1, Ordering::SeqCst);
                    quick
                }
                // The quick name is due again when this one is resolved.
                "delayed.test" => {
                    std::thread::sleep(Duration::from_millis(200));
                    delayed
                }
                _ => {
                    wait_until(|| lookups.load(Ordering::SeqCst) > 1);
                    std::thread::sleep(Duration::from_millis(100));
                    slow
                }
            };
            Ok(vec![address])
        });
    });
    let running = Proxy::of(running);
    assert_eq!(running.running.as_ref().unwrap().warnings, Vec::<String>::new());
}

#[test]
fn a_reload_keeps_the_address_in_use_of_a_name_with_several() {
    let (one, other) = (named("one"), named("other"));
    let resolved = Addresses::default();
    resolved.set(&[one.address(), other.address()]);
    let mut old = proxy(&["127.0.0.1:0".into()], &["cache.test:11211".into()], |config| {
        config.transport.lookup = resolved.lookup();
    });
    let mut client = Client::connect(old.address().unwrap());
    client.ask("get k\r\n", value("one"));
    // Many name servers change the order with every reply.
    resolved.set(&[other.address(), one.address()]);
    let reloaded = old.reload(old.config().clone()).unwrap();
    old.wait_for_clients(|| false);
    assert_eq!(old.stop().unwrap().lost, 0);
    let reloaded = Proxy::of(reloaded);
    let mut new = reloaded.client();
    for client in [&mut client, &mut new] {
        client.ask("get k\r\n", value("one"));
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_reload_keeps_the_address_of_a_name_that_does_not_resolve_at_that_moment() {
    let resolved = Addresses::default();
    let (server, new) = (named("server"), named("new"));
    resolved.set(&[server.address()]);
    let mut old = proxy(&["127.0.0.1:0".into()], &["cache.test:11211".into()], |config| {
        config.transport.resolve_every = Duration::from_millis(100);
        config.transport.lookup = resolved.lookup();
    });
    let mut client = Client::connect(old.address().unwrap());
    ask_until(&mut client, "server");
    resolved.set(&[]);
    let reloaded = old.reload(old.config().clone()).unwrap();
    let expected = format!(
        "--server cache.test:11211 cannot be resolved (no such name): its address {} stays in use",
        server.address()
    );
    assert_eq!(reloaded.warnings, [expected]);
    old.wait_for_clients(|| false);
    assert_eq!(old.stop().unwrap().lost, 0);
    let reloaded = Proxy::of(reloaded);
    let mut other = reloaded.client();
    for client in [&mut client, &mut other] {
        client.ask("get k\r\n", value("server"));
    }
    resolved.set(&[new.address()]);
    ask_until(&mut client, "new");
}
