//! A failover pool never returns a value that a later write has replaced, neither while the pool's server comes back nor in the
//! next outage (docs/consistency.md).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, disciplines, until};
use proxy::{Config, FailoverPool, PoolConfig, RouteConfig, Timeouts, WarmUp};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Client, Server, memcached_is_here};

/// The timeout of servers that are frozen, and must not time out before and after that.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of servers that are at most killed, which is noticed at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a server fails, and comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outage {
    /// It is killed, and restarts empty.
    Killed,
    /// It stops answering, and goes on with its values and with the requests in its buffers.
    Frozen,
}

impl Outage {
    fn begin(self, server: &mut Server) {
        match self {
            Outage::Killed => server.kill(),
            Outage::Frozen => server.freeze(),
        }
    }

    fn end(self, server: &mut Server) {
        match self {
            Outage::Killed => server.restart(),
            Outage::Frozen => server.thaw(),
        }
    }
}

/// A proxy whose first pool fails over to the second. Each has one server.
fn proxy(main: &Server, failover: &Server, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&[main.address()], |config| {
        config.loops = 1;
        config.pools[0].name = "main".into();
        config.pools.push(PoolConfig::new("failover", &[failover.address().to_string()]));
        config.pools[0].failover_pool = Some(FailoverPool { pool: "failover".into(), expiry: Duration::from_secs(60) });
        config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(PATIENCE));
        change(config);
    })
}

/// Makes requests to a frozen server time out soon.
fn time_out(config: &mut Config) {
    config.pools.iter_mut().for_each(|pool| pool.timeouts = Timeouts::all(TIMEOUT));
}

/// The value of `k` that a client reads, or nothing if it gets a miss or an error.
fn value(client: &mut Client) -> Option<String> {
    client.send("get k\r\n");
    if !client.line().starts_with("VALUE") {
        return None;
    }
    let value = client.line().trim_end().to_string();
    client.expect("END\r\n");
    Some(value)
}

/// Sends a request until its reply is not an error, and returns that reply.
fn acknowledged(client: &mut Client, request: &str) -> String {
    let mut reply = String::new();
    until("the request is acknowledged", || {
        client.send(request);
        reply = client.line();
        !reply.starts_with("SERVER_ERROR")
    });
    reply
}

fn set(value: &str) -> String {
    format!("set k 0 0 {}\r\n{value}\r\n", value.len())
}

fn value_at(address: SocketAddr) -> Option<String> {
    value(&mut Client::connect(address))
}

fn no_memcached() -> bool {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be killed or frozen");
    }
    !memcached_is_here()
}

#[test]
fn a_value_of_the_failover_pool_does_not_come_back_after_a_write_to_the_pool() {
    if no_memcached() {
        return;
    }
    for outage in [Outage::Killed, Outage::Frozen] {
        let (mut main, failover) = (Server::memcached(), Server::memcached());
        let proxy = proxy(&main, &failover, |config| {
            config.loops = 2;
            time_out(config);
        });
        let mut clients = [proxy.client(), proxy.client()];
        assert_eq!(acknowledged(&mut clients[0], &set("A")), "STORED\r\n");
        outage.begin(&mut main);
        assert_eq!(acknowledged(&mut clients[0], &set("B")), "STORED\r\n");
        assert_eq!(value_at(failover.address()).as_deref(), Some("B"));
        outage.end(&mut main);
        let clock = Clock::monotonic();
        let end = clock.now() + Duration::from_secs(2);
        let (mut reads, mut old, mut number) = (0, 0, 0);
        while clock.now() < end {
            number += 1;
            let newest = format!("C{number}");
            assert_eq!(acknowledged(&mut clients[number % 2], &set(&newest)), "STORED\r\n");
            for client in &mut clients {
                reads += 1;
                old += usize::from(value(client).is_some_and(|value| value != newest));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(old, 0, "{outage:?}: {old} of {reads} reads return an older value");
        until("no invalidation is pending", || proxy.stats().contains("waystage_invalidations_pending 0\r\n"));
        // In the next outage the failover pool has nothing from the first one.
        acknowledged(&mut clients[0], &set("D"));
        outage.begin(&mut main);
        for client in &mut clients {
            assert!(value(client).is_none_or(|value| value == "D"), "{outage:?}");
        }
        outage.end(&mut main);
    }
}

/// Writes with the key's place as `K`, each with its reply. Those that need a value find `5` on the pool's server.
const WRITES: [(&str, &str); 20] = [
    ("set K 0 0 1\r\nC\r\n", "STORED\r\n"),
    ("set K 0 0 1 noreply\r\nC\r\n", ""),
    ("ms K 1\r\nC\r\n", "HD\r\n"),
    ("ms K 1 q\r\nC\r\n", ""),
    ("delete K\r\n", "DELETED\r\n"),
    ("delete K noreply\r\n", ""),
    ("md K O7 k\r\n", "HD O7 kK\r\n"),
    ("md K q\r\n", ""),
    ("md K I T30\r\n", "HD\r\n"),
    ("add new-K 0 0 1\r\nC\r\n", "STORED\r\n"),
    ("ms new-K 1 ME\r\nC\r\n", "HD\r\n"),
    ("ma new-K N0 J5\r\n", "HD\r\n"),
    ("replace K 0 0 1\r\nC\r\n", "STORED\r\n"),
    ("append K 0 0 1\r\nC\r\n", "STORED\r\n"),
    ("prepend K 0 0 1\r\nC\r\n", "STORED\r\n"),
    ("ms K 1 MA\r\nC\r\n", "HD\r\n"),
    ("incr K 1\r\n", "6\r\n"),
    ("decr K 1 noreply\r\n", ""),
    ("ma K\r\n", "HD\r\n"),
    ("set K 0 0 2000\r\n", "SERVER_ERROR object too large for cache\r\n"),
];

#[test]
fn every_write_to_the_pool_deletes_what_the_failover_pool_has() {
    if no_memcached() {
        return;
    }
    for discipline in disciplines(2, false) {
        let (mut main, failover) = (Server::memcached(), Server::memcached());
        let proxy = proxy(&main, &failover, |config| {
            (config.discipline, config.loops, config.value_bytes) = (discipline, 2, 1000);
        });
        let mut client = proxy.client();
        let keys: Vec<String> =
            (0..WRITES.len()).flat_map(|number| [format!("k{number}"), format!("new-k{number}")]).collect();
        main.kill();
        for key in &keys {
            assert_eq!(acknowledged(&mut client, &format!("set {key} 0 0 1\r\n3\r\n")), "STORED\r\n");
        }
        main.restart();
        until("the client's event loop has a connection to the server", || {
            assert_eq!(acknowledged(&mut client, "set k 0 0 1\r\n3\r\n"), "STORED\r\n");
            value_at(main.address()).is_some()
        });
        until("no invalidation is pending", || proxy.stats().contains("waystage_invalidations_pending 0\r\n"));
        for (number, (write, reply)) in WRITES.into_iter().enumerate() {
            Client::connect(main.address()).ask(format!("set k{number} 0 0 1\r\n5\r\n"), "STORED\r\n");
            let value = if write.ends_with("2000\r\n") { "x".repeat(2000) + "\r\n" } else { String::new() };
            client.ask(write.replace('K', &format!("k{number}")) + &value, reply.replace('K', &format!("k{number}")));
            client.ask("mn\r\n", "MN\r\n");
            let key = if write.contains("new-K") { format!("new-k{number}") } else { format!("k{number}") };
            Client::connect(failover.address()).ask(format!("get {key}\r\n"), "END\r\n");
        }
        // A touch changes no value. It reaches the value wherever it is.
        client.ask("touch new-k0 40\r\ntouch none 40\r\n", "TOUCHED\r\nNOT_FOUND\r\n");
        let mut direct = Client::connect(failover.address());
        direct.send("mg new-k0 t\r\n");
        let left: u32 = direct.line().trim_start_matches("HD t").trim_end().parse().unwrap();
        assert!((30..=40).contains(&left), "{left}");
    }
}

#[test]
fn a_failover_pool_that_cannot_delete_a_value_is_not_read() {
    if no_memcached() {
        return;
    }
    let (mut main, mut failover) = (Server::memcached(), Server::memcached());
    let proxy = proxy(&main, &failover, time_out);
    let mut client = proxy.client();
    main.kill();
    assert_eq!(acknowledged(&mut client, "set k 0 0 1\r\n3\r\n"), "STORED\r\n");
    main.restart();
    until("no invalidation is pending", || {
        acknowledged(&mut client, "get other\r\n");
        proxy.stats().contains("waystage_invalidations_pending 0\r\n")
    });
    failover.freeze();
    assert_eq!(acknowledged(&mut client, "set k 0 0 1\r\n7\r\n"), "STORED\r\n");
    main.kill();
    failover.thaw();
    let clock = Clock::monotonic();
    let end = clock.now() + Duration::from_secs(2);
    while clock.now() < end {
        assert_ne!(value(&mut client).as_deref(), Some("3"));
        client.send("incr k 1\r\n");
        let line = client.line();
        assert!(line.starts_with("SERVER_ERROR") || line == "NOT_FOUND\r\n", "{line}");
    }
    // A delete that has timed out withholds the key for a whole reply.
    assert_eq!(acknowledged(&mut client, "get k\r\n"), "END\r\n");
}

#[test]
fn a_cas_token_is_not_compared_with_one_of_the_failover_pool() {
    if no_memcached() {
        return;
    }
    let (mut main, failover) = (Server::memcached(), Server::memcached());
    let proxy = proxy(&main, &failover, |_| {});
    let mut client = proxy.client();
    main.kill();
    assert_eq!(acknowledged(&mut client, "set k 0 0 1\r\n3\r\n"), "STORED\r\n");
    for request in ["cas k 0 0 1 1\r\n4\r\n", "ms k 1 C1\r\n4\r\n", "md k C1\r\n", "ma k C1\r\n"] {
        client.send(request);
        let line = client.line();
        assert!(line.starts_with("SERVER_ERROR"), "{line}");
    }
    until("the value is found unchanged", || value(&mut client).is_some_and(|value| value == "3"));
}

#[test]
fn writes_of_one_client_keep_their_order_when_they_fail_over() {
    if no_memcached() {
        return;
    }
    let (mut main, failover, source) = (Server::memcached(), Server::memcached(), Server::memcached());
    let proxy = proxy(&main, &failover, |config| {
        config.pools.push(PoolConfig::new("source", &[source.address().to_string()]));
        config.pools[0].warm_up = Some(WarmUp { from: "source".into(), expiry: Duration::from_secs(60) });
    });
    let mut client = proxy.client();
    client.ask("get other\r\n", "END\r\n");
    main.kill();
    acknowledged(&mut client, "set other 0 0 1\r\nx\r\n");
    for number in 0..50 {
        // The set waits for its deletion in the warm-up pool, and the append does not.
        client.ask(
            format!("set k{number} 0 0 1\r\nx\r\nappend k{number} 0 0 1\r\ny\r\nget k{number}\r\n"),
            format!("STORED\r\nSTORED\r\nVALUE k{number} 0 2\r\nxy\r\nEND\r\n"),
        );
    }
}

#[test]
fn a_write_does_not_fail_over_after_a_later_flush_all() {
    if no_memcached() {
        return;
    }
    for discipline in disciplines(2, false) {
        let (mut main, failover) = (Server::memcached(), Server::memcached());
        let proxy = proxy(&main, &failover, |config| {
            time_out(config);
            config.discipline = discipline;
            config.pools[0].failures = 10;
        });
        let mut client = proxy.client();
        assert_eq!(acknowledged(&mut client, &set("A")), "STORED\r\n");
        main.freeze();
        client.send(set("B"));
        // The flush_all times out later than the write. Meanwhile the write has failed over, and the server goes on.
        std::thread::sleep(TIMEOUT / 2);
        client.send("flush_all\r\n");
        assert_eq!(client.line(), "STORED\r\n");
        main.thaw();
        assert_eq!(client.line(), "OK\r\n", "{discipline:?}");
        assert_eq!(value(&mut client), None, "{discipline:?}");
        assert_eq!(value_at(failover.address()), None, "{discipline:?}");
    }
}

#[test]
fn many_writes_that_fail_over_together_stop_nobody() {
    if no_memcached() {
        return;
    }
    let (mut main, failover, healthy) = (Server::memcached(), Server::memcached(), Server::memcached());
    let proxy = proxy(&main, &failover, |config| {
        config.pools.push(PoolConfig::new("healthy", &[healthy.address().to_string()]));
        config.pools[2].timeouts = Timeouts::all(Duration::from_secs(60));
        config.routes.push(RouteConfig::new("healthy:", "healthy"));
    });
    let mut other = proxy.client();
    other.ask("set healthy:k 0 0 1\r\nx\r\n", "STORED\r\n");
    main.freeze();
    let mut clients: Vec<Client> = (0..60).map(|_| proxy.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send((0..1000).map(|key| format!("set k{number}-{key} 0 0 1\r\nx\r\n")).collect::<String>());
    }
    let clock = Clock::monotonic();
    let end = clock.now() + TIMEOUT * 3;
    // The client has 10 s of patience.
    while clock.now() < end {
        other.ask("get healthy:k\r\n", "VALUE healthy:k 0 1\r\nx\r\nEND\r\n");
    }
    main.thaw();
}
