//! Reloading the configuration while invalidations are pending: a replica that missed a write is not read for that key, however
//! the new configuration names it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{servers, until};
use proxy::{Config, Discipline, Lookup, MultiGet, PoolConfig, Reads, RouteConfig, Running, Timeouts, Writes, start};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Client, Scripted, Server};

/// The keys that the replica misses.
const KEYS: usize = 20;
/// How often each of them is read afterwards.
const READS: usize = 70;

/// The timeout of a server that is frozen. The other one must answer within it, also on a busy machine.
const TIMEOUT: Duration = Duration::from_millis(800);

/// A pool with two replicas, which is written to while one of them is down.
fn pool(name: &str, servers: &[String]) -> PoolConfig {
    let mut pool = PoolConfig::new(name, servers);
    (pool.replicas, pool.writes, pool.reads) = (servers.len(), Writes::First, Reads::Any);
    pool.timeouts = Timeouts::all(TIMEOUT);
    pool
}

fn config(pools: Vec<PoolConfig>) -> Config {
    let mut config =
        Config::new("127.0.0.1:0", &pools[0].servers.iter().map(|s| s.address.clone()).collect::<Vec<_>>());
    config.pools = pools;
    config.loops = 1;
    // Every name is this machine's.
    config.transport.lookup = Lookup::new(|host_port| Ok(vec![SocketAddr::from(([127, 0, 0, 1], host_port.port()))]));
    config
}

/// Routes the keys with this prefix to a pool.
fn route(config: &mut Config, prefix: &str, pool: &str) {
    config.routes.push(RouteConfig::new(prefix, pool));
}

/// Forwards connections to a server, so that the server has another address.
fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(to).unwrap();
            let (near_again, far_again) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            for (mut from, mut into) in [(near, far), (far_again, near_again)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

fn value(text: &str, key: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{text}\r\nEND\r\n", text.len())
}

/// Sets every key, also while the second server is frozen, reloads, and counts the reads of overwritten values.
fn stale_reads(servers: &mut [Server], prefixes: &[&str], before: Config, after: Config) -> usize {
    let keys: Vec<String> =
        (0..KEYS).map(|number| format!("{}key{number}", prefixes[number % prefixes.len()])).collect();
    let mut running = start(before, Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    let set = |client: &mut Client, text: &str| {
        for key in &keys {
            client.ask(format!("set {key} 0 0 3\r\n{text}\r\n"), "STORED\r\n");
        }
    };
    set(&mut client, "old");
    servers[1].freeze();
    // A frozen server applies later what it has received. After a timeout it is sent nothing.
    client.ask("set other 0 0 1\r\n1\r\n", "STORED\r\n");
    std::thread::sleep(3 * TIMEOUT);
    set(&mut client, "new");
    end(replace(&mut running, after));
    // Requests that wait for the connection must not overtake the deletions.
    let mut waiting = Client::connect(running.address().unwrap());
    waiting.send(keys.iter().map(|key| format!("get {key}\r\n")).collect::<String>());
    std::thread::sleep(Duration::from_millis(20));
    servers[1].thaw();
    let is_stale = |client: &mut Client| {
        let first = client.line();
        let text = if first.starts_with("VALUE") { client.line() } else { String::new() };
        assert!(text.is_empty() || client.line() == "END\r\n");
        text == "old\r\n"
    };
    let mut stale = keys.iter().filter(|_| is_stale(&mut waiting)).count();
    for _ in 0..READS {
        for key in &keys {
            client.send(format!("get {key}\r\n"));
            stale += usize::from(is_stale(&mut client));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(running.stop().unwrap().lost, 0);
    stale
}

/// Reloads the configuration; returns the proxy with the old one.
fn replace(running: &mut Running, config: Config) -> Running {
    let new = running.reload(config).expect("a valid configuration");
    assert_eq!(new.warnings, Vec::<String>::new());
    std::mem::replace(running, new)
}

fn end(mut old: Running) {
    old.wait_for_clients(|| false);
    assert_eq!(old.stop().unwrap().lost, 0);
}

fn addresses(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| server.address().to_string()).collect()
}

fn check(change: impl Fn(&mut Config, &[Server])) {
    if !testkit::memcached_is_here() {
        return;
    }
    let mut servers = servers(2);
    let (before, mut after) =
        (config(vec![pool("p", &addresses(&servers))]), config(vec![pool("p", &addresses(&servers))]));
    change(&mut after, &servers);
    assert_eq!(stale_reads(&mut servers, &[""], before, after), 0, "reads of overwritten values");
}

/// Pending invalidations are sent on connections for background jobs, which a pool without replicas would not need.
#[test]
fn a_configuration_with_shared_workers_and_without_replicas_keeps_pending_invalidations() {
    check(|after, _| {
        let pool = &mut after.pools[0];
        (pool.replicas, pool.writes, pool.reads) = (1, Writes::All, Reads::Primary);
        after.discipline = Discipline::Shared { workers: 2, multi_get: MultiGet::ByKey, fault_write_hold: None };
    });
}

#[test]
fn an_unchanged_configuration_keeps_pending_invalidations() {
    check(|_, _| ());
}

#[test]
fn a_renamed_pool_keeps_pending_invalidations() {
    check(|config, _| config.pools[0].name = "renamed".into());
}

#[test]
fn a_server_under_another_name_keeps_pending_invalidations() {
    check(|config, servers| {
        config.pools[0].servers[1].address = format!("localhost:{}", servers[1].address().port());
        // The address is part of the key distribution.
        config.pools[0].servers[1].name = Some(servers[1].address().to_string());
    });
}

#[test]
fn a_server_at_an_unknown_address_gets_the_pending_invalidations_of_all() {
    check(|config, servers| {
        config.pools[0].servers[1].address = relay(servers[1].address()).to_string();
        config.pools[0].servers[1].name = Some(servers[1].address().to_string());
    });
}

#[test]
fn a_server_of_two_pools_keeps_the_pending_invalidations_of_both() {
    if !testkit::memcached_is_here() {
        return;
    }
    let mut servers = servers(2);
    let names = addresses(&servers);
    let mut before = config(vec![pool("p", &names), pool("q", &names)]);
    route(&mut before, "q", "q");
    let after = config(vec![pool("r", &names)]);
    assert_eq!(stale_reads(&mut servers, &["", "q"], before, after), 0, "reads of overwritten values");
}

/// A pool with one server has no replicas, but the server may still have an old value.
#[test]
fn a_pool_that_has_no_replicas_any_more_keeps_pending_invalidations() {
    check(|config, servers| {
        config.pools = vec![PoolConfig::new("p", &addresses(&servers[1..]))];
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(5));
        // Reads and deletions use different connections.
        config.discipline = proxy::Discipline::PerBackend { readers: 4, writers: 1, fault_write_poll: None };
    });
}

/// The write was in flight when the configuration was reloaded.
#[test]
fn a_write_that_is_lost_after_the_reload_is_invalidated_by_the_new_configuration() {
    for is_known in [true, false] {
        let (is_lost, is_deleted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (losing, deleting) = (is_lost.clone(), is_deleted.clone());
        let second = Scripted::start(move |peer, _| {
            while let Some(line) = peer.line() {
                if line.starts_with("set ") {
                    peer.line();
                    while !losing.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return;
                }
                if line.starts_with("delete ") {
                    deleting.store(true, Ordering::SeqCst);
                    peer.send("DELETED\r\n");
                } else if line.starts_with("get ") {
                    let is_old = !deleting.load(Ordering::SeqCst);
                    peer.send(if is_old { value("old", "k") } else { "END\r\n".into() });
                } else {
                    peer.send("VERSION 1.6.0\r\n");
                }
            }
        });
        let first = Server::start();
        let names = [first.address().to_string(), second.address().to_string()];
        let patient = |name: &str, names: &[String]| {
            let mut config = config(vec![pool(name, names)]);
            config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
            config
        };
        let mut running = start(patient("p", &names), Clock::monotonic()).unwrap();
        let address = running.address().unwrap();
        let mut client = Client::connect(address);
        client.ask("set k 0 0 3\r\nnew\r\n", "STORED\r\n");
        let again = if is_known { names.clone() } else { [names[0].clone(), relay(second.address()).to_string()] };
        let old = replace(&mut running, patient("renamed", &again));
        is_lost.store(true, Ordering::SeqCst);
        end(old);
        for _ in 0..10 {
            client.send("get k\r\n");
            let mut reply = client.line();
            while !reply.ends_with("END\r\n") {
                reply += &client.line();
            }
            assert!(reply == "END\r\n" || reply == value("new", "k"), "{reply}");
        }
        until("the key is deleted", || is_deleted.load(Ordering::SeqCst));
        assert_eq!(running.stop().unwrap().lost, 0);
    }
}

/// A server that could be any of the old ones misses nothing that another server misses after the reload.
#[test]
fn an_unknown_server_keeps_what_is_written_after_the_reload() {
    let [near, unknown] = [Server::start(), Server::start()];
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let names = [near.address(), down, unknown.address()].map(|address| address.to_string());
    let mut running = start(config(vec![pool("p", &names[..2])]), Clock::monotonic()).unwrap();
    end(replace(&mut running, config(vec![pool("p", &names)])));
    let mut client = Client::connect(running.address().unwrap());
    let mut direct = Client::connect(unknown.address());
    for round in 0..100 {
        client.ask(format!("set k 0 0 3\r\n{round:03}\r\n"), "STORED\r\n");
        let mut stored = String::new();
        until("the write has reached the unknown server", || {
            direct.send("get k\r\n");
            stored = direct.line();
            if stored.starts_with("VALUE") {
                stored = direct.line();
                direct.line();
            }
            stored == format!("{round:03}\r\n")
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    direct.ask("get k\r\n", value("099", "k"));
    assert_eq!(running.stop().unwrap().lost, 0);
}
