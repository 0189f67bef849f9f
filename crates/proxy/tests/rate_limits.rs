//! Rate limits of pools: a refused request has one error at once, and reaches no server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, servers, until};
use proxy::{Config, PoolConfig, RateLimit, RouteConfig, Running, Shadow, start};
use std::time::Duration;
use testkit::{Client, Server};

/// A limit that fills so slowly that a test sees only its burst.
fn burst(burst: u32) -> Option<RateLimit> {
    Some(RateLimit { per_second: 1, burst: Some(burst) })
}

fn refused(pool: &str) -> String {
    format!("SERVER_ERROR pool {pool} has reached its rate limit\r\n")
}

/// Takes so many tokens that there is none for minutes.
fn exhaust(client: &mut Client) {
    client.ask(format!("get{}\r\n", " none".repeat(60)).repeat(4), "");
    for _ in 0..4 {
        let line = client.line();
        assert!(line == "END\r\n" || line.starts_with("SERVER_ERROR pool "), "{line}");
    }
}

fn number(stats: &str, name: &str) -> u64 {
    let prefix = format!("STAT {name} ");
    stats.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().trim_end().parse().unwrap()
}

#[test]
fn a_refused_request_has_an_error_at_once_and_is_not_sent() {
    let proxy = Proxy::before(servers(1), |config| {
        (config.loops, config.value_bytes, config.pools[0].rate_limit) = (1, 100_000, burst(5));
        config.metrics = Some("127.0.0.1:0".into());
    });
    let mut client = proxy.client();
    client.ask("set k 0 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    exhaust(&mut client);
    let before = number(&proxy.stats(), "waystage_rate_limited");
    let line = refused("default");
    for request in [
        "set k 0 0 1\r\ny\r\n",
        "ms k 1 q\r\ny\r\n",
        "delete k\r\n",
        "md k q\r\n",
        "get k\r\n",
        "get k a b c\r\n",
        "mg k v q\r\n",
        "gat 1 k\r\n",
        "touch k 1\r\n",
        "incr k 1\r\n",
        "me k\r\n",
        "flush_all\r\n",
    ] {
        client.ask(format!("{request}mn\r\n"), line.clone() + "MN\r\n");
    }
    client.ask("set k 0 0 1 noreply\r\ny\r\ndelete k noreply\r\nmn\r\n", "MN\r\n");
    // A value that is too large is not deleted either, because the delete would be sent.
    let value = "y".repeat(200_000);
    client.ask(format!("set k 0 0 200000\r\n{value}\r\nmn\r\n"), line.clone() + "MN\r\n");
    // What needs no server is answered.
    client.ask("verbosity 1\r\nbogus\r\n", "OK\r\nERROR\r\n");
    assert_eq!(number(&proxy.stats(), "waystage_rate_limited") - before, 15);
    let metrics = proxy.metrics();
    let expected = format!("waystage_rate_limited_total{{pool=\"default\"}} {}\n", before + 15);
    assert!(metrics.contains(&expected), "{metrics}");
    assert!(metrics.contains("waystage_requests_total{operation=\"delete\",outcome=\"overloaded\"} 2\n"), "{metrics}");
    // Another client does not get a token either, and the value is as before.
    proxy.client().ask("get k\r\n", line);
}

#[test]
fn nothing_of_a_refused_write_is_applied() {
    let backends = servers(1);
    let proxy = Proxy::at(&[backends[0].address()], |config| {
        (config.loops, config.pools[0].rate_limit) = (1, burst(5));
    });
    let (mut client, mut direct) = (proxy.client(), Client::connect(backends[0].address()));
    client.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    exhaust(&mut client);
    let line = refused("default");
    client.ask("set k 0 0 1\r\ny\r\ndelete k\r\nflush_all\r\ntouch k -1\r\n", line.repeat(4));
    client.ask("delete k noreply\r\nmn\r\n", "MN\r\n");
    direct.ask("get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
}

/// Clients on different event loops have one limit, and one client has all of it.
#[test]
fn event_loops_share_the_limit_of_a_pool() {
    for clients in [1, 12] {
        let proxy = Proxy::before(servers(2), |config| {
            (config.loops, config.pools[0].rate_limit) = (4, burst(300));
        });
        let clock = Clock::monotonic();
        let began = clock.now();
        let mut clients: Vec<Client> = (0..clients).map(|_| proxy.client()).collect();
        let share = 600 / clients.len();
        clients.iter_mut().for_each(|client| client.send("get none\r\n".repeat(share)));
        let lines: Vec<String> =
            clients.iter_mut().flat_map(|client| (0..share).map(|_| client.line()).collect::<Vec<_>>()).collect();
        let admitted = lines.iter().filter(|line| *line == "END\r\n").count();
        assert!(lines.iter().all(|line| line == "END\r\n" || *line == refused("default")), "{lines:?}");
        let passed = clock.now().after(began).as_secs() as usize;
        assert!((300..=302 + passed).contains(&admitted), "{admitted} of {} clients", clients.len());
    }
}

#[test]
fn a_limit_admits_its_rate() {
    let proxy = Proxy::before(servers(1), |config| {
        let limit = RateLimit { per_second: 2000, burst: Some(20) };
        (config.loops, config.pools[0].rate_limit) = (2, Some(limit));
    });
    let clock = Clock::monotonic();
    let began = clock.now();
    let mut clients = [proxy.client(), proxy.client()];
    let (mut admitted, mut all) = (0, 0);
    while clock.now().after(began) < Duration::from_secs(2) {
        for client in &mut clients {
            client.send("get none\r\n".repeat(50));
            admitted += (0..50).filter(|_| client.line() == "END\r\n").count();
            all += 50;
        }
    }
    let most = 20.0 + 2000.0 * clock.now().after(began).as_secs_f64() + 1.0;
    assert!(admitted as f64 <= most, "{admitted} of {all}, at most {most}");
    // A busy machine may not let the test ask for as much.
    assert!(admitted as f64 >= 0.5 * most || all < 10_000, "{admitted} of {all}, at most {most}");
}

#[test]
fn a_pool_without_a_limit_is_not_affected_and_a_request_is_refused_as_a_whole() {
    let backends = servers(2);
    let proxy = Proxy::at(&[backends[0].address()], |config| {
        let limited = PoolConfig::new("limited", &[backends[1].address().to_string()]);
        let listen = vec!["127.0.0.2:0".into()];
        config.pools.push(PoolConfig { rate_limit: burst(10), listen, ..limited });
        config.routes = vec![RouteConfig::new("b", "limited")];
        config.loops = 1;
    });
    let mut client = proxy.client();
    let of_pool = proxy.running.as_ref().unwrap().listening[1].host_port().unwrap().number().unwrap();
    let mut of_pool = Client::connect(of_pool);
    client.ask("set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
    client.ask("get a b\r\n", "VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    exhaust(&mut of_pool);
    // The keys of the other pool are not misses, and not values: the client repeats the request.
    client
        .ask("get a b\r\nget a\r\nget b\r\n", refused("limited") + "VALUE a 0 1\r\nx\r\nEND\r\n" + &refused("limited"));
    // Through the pool's listener, every key belongs to it.
    of_pool.ask("get a\r\nmg YQ== b v\r\n", refused("limited").repeat(2));
    client.ask("mg YQ== b v\r\nmg Yg== b v\r\n", "VA 1\r\nx\r\n".to_string() + &refused("limited"));
    client.ask("flush_all\r\nget a\r\n", refused("limited") + "VALUE a 0 1\r\nx\r\nEND\r\n");
}

/// Sends a line, in pieces of so many bytes.
fn send_in_pieces(client: &mut Client, line: &str, bytes: usize) {
    for piece in line.as_bytes().chunks(bytes) {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// However many groups of keys the proxy sends it on in, and however it arrives.
#[test]
fn a_line_of_many_keys_is_admitted_or_refused_as_a_whole() {
    for bytes in [usize::MAX, 1500, 300] {
        let proxy = Proxy::before(servers(1), |config| (config.loops, config.pools[0].rate_limit) = (1, burst(10)));
        let mut clients = [proxy.client(), proxy.client()];
        let line = format!("get{}\r\n", " none".repeat(1000));
        // One that is new, and has read nothing.
        send_in_pieces(&mut clients[0], &line, bytes);
        clients[0].expect("END\r\n");
        for client in &mut clients {
            send_in_pieces(client, &line, bytes);
            client.ask("mn\r\n", refused("default") + "MN\r\n");
        }
        assert_eq!(number(&proxy.stats(), "waystage_rate_limited"), 2);
    }
}

#[test]
fn a_long_line_of_several_pools_takes_all_tokens_or_none() {
    let backends = servers(2);
    let proxy = Proxy::at(&[backends[0].address()], |config| {
        let other = PoolConfig::new("other", &[backends[1].address().to_string()]);
        config.pools.push(PoolConfig { rate_limit: burst(1), ..other });
        config.routes = vec![RouteConfig::new("b", "other")];
        (config.loops, config.pools[0].rate_limit) = (1, burst(3));
    });
    let mut client = proxy.client();
    client.ask("get b\r\n", "END\r\n");
    // The only key of the other pool is the last one.
    for _ in 0..3 {
        client.ask(format!("get{} b\r\n", " a".repeat(700)), refused("other"));
    }
    client.ask("get a\r\n".repeat(3), "END\r\n".repeat(3));
    client.ask("get a\r\n", refused("default"));
}

/// Such a line need not be in memory: the limit decides about 64 KiB of it at a time.
#[test]
fn a_line_of_more_than_64_kib_is_admitted_in_pieces() {
    let key = format!(" {}", "k".repeat(199));
    let count = 65_536 / key.len();
    for bytes in [usize::MAX, 10_000] {
        let proxy = Proxy::before(servers(1), |config| {
            (config.loops, config.pools[0].rate_limit) = (1, burst(count as u32 + 1));
        });
        let mut client = proxy.client();
        client.ask(format!("set{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        send_in_pieces(&mut client, &format!("get{}\r\nmn\r\n", key.repeat(1000)), bytes);
        client.expect(format!("VALUE{key} 0 1\r\nx\r\n").repeat(count) + &refused("default") + "MN\r\n");
        assert_eq!(number(&proxy.stats(), "waystage_rate_limited"), 1);
        // An invalid key ends a line, and what is refused has no second error.
        client.ask(format!("get{}{key}\0 a\r\nmn\r\n", key.repeat(400)), refused("default") + "MN\r\n");
    }
}

/// More spaces than a piece has bytes can arrive at once, with the key behind them.
#[test]
fn a_key_behind_many_spaces_counts() {
    let proxy = Proxy::before(servers(1), |config| {
        (config.loops, config.pools[0].rate_limit) = (1, burst(5));
    });
    let mut client = proxy.client();
    exhaust(&mut client);
    for _ in 0..100 {
        client.send(format!("get {}", " ".repeat(2000)));
        std::thread::sleep(Duration::from_millis(5));
        client.ask(format!("{}none\r\nmn\r\n", " ".repeat(150_000)), refused("default") + "MN\r\n");
    }
}

/// The proxy sends such reads twice, but the client only once.
#[test]
fn reads_that_are_repeated_because_of_memory_count_once() {
    let proxy = Proxy::before(servers(1), |config| {
        (config.loops, config.client_buffer_bytes, config.pools[0].rate_limit) = (1, 200_000, burst(62));
    });
    let mut client = proxy.client();
    client.ask(format!("set big 0 0 100000\r\n{}\r\n", "x".repeat(100_000)), "STORED\r\n");
    let mut reader = proxy.client();
    reader.send("get big\r\n".repeat(20) + &format!("get{}\r\n", " big".repeat(20)));
    let (mut values, mut ends) = (0, 0);
    while ends < 21 {
        let line = reader.line();
        values += usize::from(line.starts_with("VALUE"));
        ends += usize::from(line == "END\r\n");
        assert!(!line.starts_with("SERVER_ERROR"), "{line}");
    }
    assert_eq!(values, 40);
    assert!(number(&proxy.stats(), "waystage_rate_limited") == 0);
    client.send("get none\r\n".repeat(100));
    let admitted = (0..100).filter(|_| client.line() == "END\r\n").count();
    assert!((21..50).contains(&admitted), "{admitted}");
}

#[test]
fn requests_of_another_pools_policy_do_not_count() {
    let backends = servers(2);
    let proxy = Proxy::at(&[backends[0].address()], |config| {
        let shadow = PoolConfig::new("shadow", &[backends[1].address().to_string()]);
        config.pools.push(PoolConfig { rate_limit: burst(1), ..shadow });
        config.pools[0].shadow = Some(Shadow { to: "shadow".into(), share: 1.0, reads: true });
        config.loops = 1;
    });
    let mut client = proxy.client();
    for number in 0..50 {
        client.ask(format!("set k{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    until("the shadow has the last value", || {
        let mut direct = Client::connect(backends[1].address());
        direct.send("mg k49 v\r\n");
        direct.line() == "VA 1\r\n"
    });
    assert_eq!(number(&proxy.stats(), "waystage_rate_limited"), 0);
}

#[test]
fn a_reload_keeps_what_was_used_of_a_limit() {
    let servers: Vec<Server> = servers(1);
    let config = |name: &str, rate_limit| {
        let mut config = Config::new("127.0.0.1:0", &[servers[0].address().to_string()]);
        (config.loops, config.pools[0].name, config.pools[0].rate_limit) = (2, name.into(), rate_limit);
        config
    };
    let mut running = start(config("p", burst(20)), Clock::monotonic()).unwrap();
    let mut client = Client::connect(running.address().unwrap());
    exhaust(&mut client);
    let reload = |running: &mut Running, config| {
        let mut old = running.reload(config).map(|new| std::mem::replace(running, new)).unwrap();
        old.wait_for_clients(|| false);
        assert_eq!(old.stop().unwrap().lost, 0);
    };
    reload(&mut running, config("p", burst(20)));
    client.ask("get none\r\n", refused("p"));
    // As many tokens are missing as before, of a larger bucket.
    reload(&mut running, config("p", burst(100)));
    client.send("get none\r\n".repeat(100));
    let admitted = (0..100).filter(|_| client.line() == "END\r\n").count();
    assert!((40..60).contains(&admitted), "{admitted}");
    reload(&mut running, config("p", None));
    client.ask("get none\r\n".repeat(100), "END\r\n".repeat(100));
    // A pool with another name is another pool.
    reload(&mut running, config("q", burst(20)));
    client.ask("get none\r\n".repeat(20), "END\r\n".repeat(20));
    assert_eq!(running.stop().unwrap().lost, 0);
}
