//! Replicas: how many must apply a write, which one is read, and which values no client may receive. The names of these tests
//! correspond to the guarantees in docs/consistency.md.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, servers, until};
use proxy::{Config, Failover, Hedge, PoolConfig, Reads, Router, Timeouts, Writes};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Client, GatedServer, Server, memcached_is_here};

/// A timeout that is long enough for a busy machine, and short enough for a test.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// The timeout of servers that must not time out.
const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy with one loop, in front of servers that all store every value.
fn proxy(addresses: &[SocketAddr], change: impl FnOnce(&mut PoolConfig)) -> Proxy {
    Proxy::at(addresses, |config| {
        config.loops = 1;
        config.pools[0].replicas = addresses.len();
        config.pools[0].timeouts = Timeouts::all(TIMEOUT);
        change(&mut config.pools[0]);
    })
}

/// The servers in the order of a key's replicas.
fn in_order<'s, S>(servers: &'s [S], address: impl Fn(&S) -> SocketAddr, key: &str) -> Vec<&'s S> {
    let names: Vec<String> = servers.iter().map(|server| address(server).to_string()).collect();
    let primary = usize::from(Router::new(&Config::new("", &names)).primary(key.as_bytes()));
    (0..servers.len()).map(|step| &servers[(primary + step) % servers.len()]).collect()
}

fn gated(count: usize) -> Vec<GatedServer> {
    (0..count).map(|_| GatedServer::start()).collect()
}

/// The value of a key on one server, read directly.
fn value_at(address: SocketAddr, key: &str) -> Option<String> {
    let mut direct = Client::connect(address);
    direct.send(format!("mg {key} v\r\n"));
    direct.line().starts_with("VA").then(|| direct.line().trim_end().to_string())
}

#[test]
fn a_write_is_acknowledged_when_its_quorum_has_applied_it() {
    for (writes, needed) in [(Writes::First, 1), (Writes::Majority, 2), (Writes::All, 3)] {
        let backends = gated(3);
        let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
        let proxy = proxy(&addresses, |pool| (pool.writes, pool.timeouts) = (writes, Timeouts::all(PATIENCE)));
        let mut client = proxy.client();
        client.send("set k 0 0 1\r\nx\r\n");
        backends.iter().for_each(|backend| drop(backend.received(1)));
        // Any quorum will do: here, the last servers of the list.
        for backend in backends.iter().rev().take(needed - 1) {
            backend.answer("set k 0 0 1", "STORED\r\n");
        }
        let mut other = proxy.client();
        other.ask("mn\r\n", "MN\r\n");
        client.expect_silence();
        backends[3 - needed].answer("set k 0 0 1", "STORED\r\n");
        client.expect("STORED\r\n");
        // The others answer late, without effect.
        for backend in backends.iter().take(3 - needed) {
            backend.answer("set k 0 0 1", "STORED\r\n");
        }
        client.send("get k\r\n");
        in_order(&backends, GatedServer::address, "k")[0].answer("get k", "END\r\n");
        client.expect("END\r\n");
    }
}

#[test]
fn a_write_without_a_quorum_is_an_error() {
    for (writes, reply) in
        [(Writes::First, "STORED"), (Writes::Majority, "SERVER_ERROR"), (Writes::All, "SERVER_ERROR")]
    {
        let backends = gated(3);
        let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
        let proxy = proxy(&addresses, |pool| pool.writes = writes);
        let mut client = proxy.client();
        client.send("set k 0 0 1\r\nx\r\n");
        let order = in_order(&backends, GatedServer::address, "k");
        order[0].answer("set k 0 0 1", "STORED\r\n");
        order[1].answer("set k 0 0 1", "SERVER_ERROR out of memory storing object\r\n");
        order[2].answer("set k 0 0 1", "SERVER_ERROR out of memory storing object\r\n");
        assert!(client.line().starts_with(reply), "{writes:?}");
        // The replicas that refused the write receive a delete.
        order[1].answer("delete k", "DELETED\r\n");
        order[2].answer("delete k", "NOT_FOUND\r\n");
        until("both have received it", || order[1..].iter().all(|backend| backend.received_so_far() == 2));
    }
}

#[test]
fn reads_are_spread_over_the_replicas_or_go_to_the_least_outstanding() {
    let backends = gated(2);
    let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
    let order = in_order(&backends, GatedServer::address, "k");
    let any = proxy(&addresses, |pool| (pool.reads, pool.timeouts) = (Reads::Any, Timeouts::all(PATIENCE)));
    let mut clients: Vec<_> = (0..4).map(|_| any.client()).collect();
    warm(&any, &backends);
    clients.iter_mut().for_each(|client| client.send("get k\r\n"));
    until("two each", || order.iter().all(|backend| backend.received_so_far() == 3));
    order.iter().for_each(|backend| (0..2).for_each(|_| backend.answer("get k", "END\r\n")));
    clients.iter_mut().for_each(|client| client.expect("END\r\n"));
    drop(any);

    let backends = gated(2);
    let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
    let order = in_order(&backends, GatedServer::address, "k");
    let least =
        proxy(&addresses, |pool| (pool.reads, pool.timeouts) = (Reads::LeastOutstanding, Timeouts::all(PATIENCE)));
    warm(&least, &backends);
    let mut clients: Vec<_> = (0..6).map(|_| least.client()).collect();
    // Three gets from the primary: `gets` may read no other replica.
    clients[..3].iter_mut().for_each(|client| client.send("gets k\r\n"));
    until("the primary is busy", || order[0].received_so_far() == 4);
    clients[3..].iter_mut().for_each(|client| client.send("get k\r\n"));
    until("the other has received it", || order[1].received_so_far() == 4);
    (0..3).for_each(|_| order[0].answer("gets k", "END\r\n"));
    (0..3).for_each(|_| order[1].answer("get k", "END\r\n"));
    clients.iter_mut().for_each(|client| client.expect("END\r\n"));
}

/// Opens every connection by sending one request to each backend.
fn warm(proxy: &Proxy, backends: &[GatedServer]) {
    let mut client = proxy.client();
    client.send("delete warm\r\n");
    backends.iter().for_each(|backend| backend.answer("delete warm", "NOT_FOUND\r\n"));
    client.expect("NOT_FOUND\r\n");
}

#[test]
fn a_read_that_fails_or_misses_goes_to_the_next_replica_if_configured() {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let order: Vec<_> = in_order(&backends, Server::address, "k").into_iter().map(Server::address).collect();
    for failover in [Failover::Never, Failover::OnError, Failover::OnMiss] {
        let proxy = proxy(&addresses, |pool| pool.failover = failover);
        let mut client = proxy.client();
        client.ask("set k 0 0 1\r\nx\r\nset j 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
        Client::connect(order[0]).ask("delete k\r\n", "DELETED\r\n");
        let (one, several, meta) = match failover {
            Failover::OnMiss => {
                ("VALUE k 0 1\r\nx\r\nEND\r\n", "VALUE j 0 1\r\ny\r\nVALUE k 0 1\r\nx\r\nEND\r\n", "VA 1\r\nx\r\n")
            }
            _ => ("END\r\n", "VALUE j 0 1\r\ny\r\nEND\r\n", "EN\r\n"),
        };
        client.ask("get k\r\n", one);
        client.ask("get j none k\r\n", several);
        client.ask("mg k v\r\nmg none v\r\n", format!("{meta}EN\r\n"));
        client.ask("gets k\r\n", "END\r\n");
    }
}

#[test]
fn while_a_server_is_down_reads_fail_over_and_writes_use_the_remaining_replicas() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be killed");
        return;
    }
    let mut backends: Vec<_> = (0..3).map(|_| Server::memcached()).collect();
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let primary = in_order(&backends, Server::address, "k")[0].address();
    let proxy = proxy(&addresses, |pool| (pool.writes, pool.failover) = (Writes::Majority, Failover::OnError));
    let mut client = proxy.client();
    client.ask("set k 0 0 1\r\n1\r\nset j 0 0 1\r\nj\r\n", "STORED\r\nSTORED\r\n");
    let down = backends.iter_mut().find(|backend| backend.address() == primary).unwrap();
    down.kill();
    // The first request may be the one that fails.
    until("the loss is noticed", || {
        client.send("get k\r\n");
        let line = client.line();
        line.starts_with("VALUE").then(|| client.expect("1\r\nEND\r\n"));
        line.starts_with("VALUE")
    });
    for value in 2..9 {
        client.ask(format!("set k 0 0 1\r\n{value}\r\n"), "STORED\r\n");
        client.ask("get k\r\n", format!("VALUE k 0 1\r\n{value}\r\nEND\r\n"));
        client.ask("get j k\r\n", format!("VALUE j 0 1\r\nj\r\nVALUE k 0 1\r\n{value}\r\nEND\r\n"));
    }
    let stats = proxy.stats();
    assert!(
        !stats.contains("waystage_failovers 0\r\n") && !stats.contains("waystage_degraded_writes 0\r\n"),
        "{stats}"
    );
    assert!(stats.contains("waystage_ejections 1\r\n"), "{stats}");
}

#[test]
fn a_replica_that_missed_an_acknowledged_write_is_not_read_until_it_is_invalidated() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be frozen");
        return;
    }
    for reads in [Reads::Primary, Reads::Any] {
        let mut backends: Vec<_> = (0..2).map(|_| Server::memcached()).collect();
        let addresses: Vec<_> = backends.iter().map(Server::address).collect();
        let primary = in_order(&backends, Server::address, "k")[0].address();
        let proxy = proxy(&addresses, |pool| {
            (pool.writes, pool.reads, pool.failover) = (Writes::First, reads, Failover::OnError);
        });
        let mut client = proxy.client();
        client.ask("set k 0 0 3\r\nold\r\n", "STORED\r\n");
        until("both have it", || addresses.iter().all(|&address| value_at(address, "k").is_some()));
        let frozen = backends.iter_mut().find(|backend| backend.address() == primary).unwrap();
        frozen.freeze();
        client.ask("set k 0 0 3\r\nnew\r\n", "STORED\r\n");
        client.ask("delete k\r\nset k 0 0 3\r\nnew\r\n", "DELETED\r\nSTORED\r\n");
        // The frozen server times out. From then on an invalidation is pending.
        until("an invalidation is pending", || proxy.stats().contains("waystage_invalidations_pending 1\r\n"));
        frozen.thaw();
        let clock = Clock::monotonic();
        let end = clock.now() + Duration::from_secs(3);
        while clock.now() < end {
            client.send("get k\r\n");
            match client.line().as_str() {
                "VALUE k 0 3\r\n" => client.expect("new\r\nEND\r\n"),
                "END\r\n" => {}
                line => assert!(line.starts_with("SERVER_ERROR"), "{line}"),
            }
        }
        until("the invalidation is done", || proxy.stats().contains("waystage_invalidations_pending 0\r\n"));
        assert_ne!(value_at(primary, "k").as_deref(), Some("old"));
        assert_eq!(proxy.stop().lost, 0);
    }
}

#[test]
fn a_slow_read_is_hedged_and_the_first_answer_counts() {
    let backends = gated(2);
    let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
    let order = in_order(&backends, GatedServer::address, "k");
    let proxy = proxy(&addresses, |pool| {
        pool.hedge = Some(Hedge { delay: Duration::from_millis(20), budget: 1.0 });
        pool.timeouts = Timeouts::all(PATIENCE);
    });
    warm(&proxy, &backends);
    let mut client = proxy.client();
    for (request, reply) in [("get k", "VALUE k 0 1\r\nx\r\nEND\r\n"), ("mg k v", "VA 1\r\nx\r\n")] {
        client.send(format!("{request}\r\n"));
        order[1].answer(request, reply);
        client.expect(reply);
        // The first replica answers late, with another value, which no client may receive.
        order[0].answer(request, &reply.replace('x', "y"));
    }
    client.send("get k\r\n");
    order[0].answer("get k", "END\r\n");
    client.expect("END\r\n");
    let stats = proxy.stats();
    assert!(stats.contains("waystage_hedges 2\r\n") || stats.contains("waystage_hedges 3\r\n"), "{stats}");
    assert!(stats.contains("waystage_hedges_won 2\r\n"), "{stats}");
    // The reply to a hedge that was not needed is read, too, so the connection stays usable.
    order[1].answer("get k", "END\r\n");
}

#[test]
fn a_write_that_depends_on_the_value_runs_on_the_primary_and_deletes_the_replicas_if_it_changed() {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = proxy(&addresses, |pool| pool.reads = Reads::Any);
    let mut client = proxy.client();
    let replicas = || addresses.iter().filter_map(|&address| value_at(address, "k")).collect::<Vec<_>>();
    client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask(
        "add k 0 0 1\r\n2\r\nincr none 1\r\nreplace none 0 0 1\r\nx\r\n",
        "NOT_STORED\r\nNOT_FOUND\r\nNOT_STORED\r\n",
    );
    assert_eq!(replicas(), ["1", "1", "1"]);
    client.ask("incr k 4\r\n", "5\r\n");
    assert_eq!(replicas(), ["5"]);
    client.send("gets k\r\n");
    let cas = client.line().trim_end().rsplit(' ').next().unwrap().to_string();
    client.expect("5\r\nEND\r\n");
    client.ask(format!("cas k 0 0 1 {cas}\r\n6\r\ncas k 0 0 1 {cas}\r\n7\r\n"), "STORED\r\nEXISTS\r\n");
    assert_eq!(replicas(), ["6"]);
    client.ask("set k 0 0 1\r\n8\r\nappend k 0 0 1\r\n9\r\n", "STORED\r\nSTORED\r\n");
    assert_eq!(replicas(), ["89"]);
}

#[test]
fn a_gat_of_one_key_sets_the_expiry_time_on_every_replica() {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = proxy(&addresses, |_| ());
    let mut client = proxy.client();
    client.ask("set k 0 0 1\r\n1\r\ngat 500 k\r\n", "STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n");
    for address in addresses {
        let mut direct = Client::connect(address);
        direct.send("mg k t\r\n");
        let line = direct.line();
        let seconds: u32 = line.trim_end().trim_start_matches("HD t").parse().unwrap();
        assert!((400..=500).contains(&seconds), "{line}");
    }
}

#[test]
fn flush_all_reaches_the_pools_that_may_be_flushed_and_fails_if_none_may() {
    let backends = servers(1);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = proxy(&addresses, |pool| pool.flush = false);
    let mut client = proxy.client();
    client.ask(
        "set k 0 0 1\r\n1\r\nflush_all\r\nget k\r\n",
        "STORED\r\nSERVER_ERROR flush_all is switched off\r\nVALUE k 0 1\r\n1\r\nEND\r\n",
    );
}

#[test]
fn a_set_that_is_too_large_deletes_the_old_value() {
    let backends = servers(3);
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    for replicas in [1, 3] {
        let proxy = Proxy::at(&addresses, |config| {
            (config.pools[0].replicas, config.value_bytes) = (replicas, 100);
        });
        let mut client = proxy.client();
        let large = "x".repeat(200);
        for (command, refused) in [
            (format!("set k 0 0 200\r\n{large}\r\n"), "SERVER_ERROR object too large for cache\r\n"),
            (format!("set k 0 0 200 noreply\r\n{large}\r\n"), ""),
            (format!("ms k 200\r\n{large}\r\n"), "SERVER_ERROR object too large for cache\r\n"),
        ] {
            client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
            client.ask(format!("{command}get k\r\nmn\r\n"), format!("{refused}END\r\nMN\r\n"));
            assert!(addresses.iter().all(|&address| value_at(address, "k").is_none()), "{command}");
        }
        client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
        client.ask(
            format!("add k 0 0 200\r\n{large}\r\nget k\r\n"),
            "SERVER_ERROR object too large for cache\r\nVALUE k 0 1\r\n1\r\nEND\r\n",
        );
    }
}

#[test]
fn a_long_key_of_any_bytes_can_be_invalidated() {
    let backends = gated(2);
    let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
    let proxy = proxy(&addresses, |pool| pool.writes = Writes::First);
    let key = "\u{e4}".repeat(125);
    assert_eq!(key.len(), 250);
    let order = in_order(&backends, GatedServer::address, &key);
    let mut client = proxy.client();
    client.send(format!("set {key} 0 0 1\r\nx\r\n"));
    order[0].answer(&format!("set {key} 0 0 1"), "STORED\r\n");
    client.expect("STORED\r\n");
    order[1].answer(&format!("set {key} 0 0 1"), "SERVER_ERROR out of memory storing object\r\n");
    order[1].answer(&format!("delete {key}"), "DELETED\r\n");
    until("the invalidation is done", || {
        order[1].received_so_far() == 2 && proxy.stats().contains("waystage_invalidations_pending 0\r\n")
    });
}

#[test]
fn a_long_key_with_a_carriage_return_can_be_invalidated() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be frozen");
        return;
    }
    let mut backends: Vec<_> = (0..2).map(|_| Server::memcached()).collect();
    let addresses: Vec<_> = backends.iter().map(Server::address).collect();
    let proxy = proxy(&addresses, |pool| pool.writes = Writes::First);
    let mut client = proxy.client();
    let long = "x".repeat(240);
    let keys = [format!("{long}\ry"), format!("\r{long}"), format!("{long}\r"), format!("{long}\t\u{7f}\u{e4}")];
    backends[1].freeze();
    for key in &keys {
        client.ask(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    until("invalidations are pending", || proxy.stats().contains("waystage_invalidations_pending 4\r\n"));
    backends[1].thaw();
    until("the invalidations are done", || proxy.stats().contains("waystage_invalidations_pending 0\r\n"));
    let mut direct = Client::connect(addresses[1]);
    keys.iter().for_each(|key| direct.ask(format!("get {key}\r\n"), "END\r\n"));
}

#[test]
fn requests_that_could_fail_over_end_with_the_proxy() {
    let backends = gated(3);
    let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
    let proxy = proxy(&addresses, |pool| {
        (pool.failover, pool.timeouts) = (Failover::OnError, Timeouts::all(Duration::from_secs(60)));
    });
    let mut client = proxy.client();
    client.send("version\r\nget k\r\nget j k i\r\n");
    until("they have received it", || backends.iter().map(GatedServer::received_so_far).sum::<usize>() >= 2);
    // Closing a client with an unread reply resets the connection.
    std::thread::sleep(Duration::from_millis(50));
    drop(client);
    until("it is gone", || proxy.stats().contains("curr_connections 1\r\n"));
    assert_eq!(proxy.stop().lost, 0);
}

#[test]
fn a_cas_token_of_a_write_is_that_of_the_primary() {
    let backends = gated(2);
    let addresses: Vec<_> = backends.iter().map(GatedServer::address).collect();
    let proxy = proxy(&addresses, |pool| (pool.writes, pool.timeouts) = (Writes::First, Timeouts::default()));
    let order = in_order(&backends, GatedServer::address, "k");
    let mut client = proxy.client();
    for ((reply_of_primary, expected), requests) in [
        ("HD c3\r\n", "HD c3\r\n"),
        // The other replica has stored the value. Its token is of no use.
        ("SERVER_ERROR out of memory storing object\r\n", "HD c18446744073709551615\r\n"),
    ]
    .into_iter()
    .zip(1..)
    {
        client.send("ms k 1 c\r\nx\r\n");
        backends.iter().for_each(|backend| drop(backend.received(requests)));
        order[1].answer("ms k 1 c", "HD c5\r\n");
        let mut other = proxy.client();
        other.ask("mn\r\n", "MN\r\n");
        order[0].answer("ms k 1 c", reply_of_primary);
        client.expect(expected);
    }
}
