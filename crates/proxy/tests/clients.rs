//! Misbehaving clients: none of them affects another, and none uses unbounded memory.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, servers, until};
use proxy::Timeouts;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{GatedServer, Scripted, memory_bytes};

#[test]
fn a_client_that_never_reads_is_not_read_from_and_others_are_served() {
    // On a busy machine a timeout would count as a shorter reply.
    let proxy = Proxy::before(servers(1), |config| {
        config.loops = 1;
        config.pools[0].timeouts = proxy::Timeouts::all(Duration::from_secs(60));
    });
    let mut other = proxy.client();
    let value = "x".repeat(100_000);
    other.ask(format!("set big 0 0 100000\r\n{value}\r\n"), "STORED\r\n");
    let mut greedy = proxy.client();
    let before = memory_bytes();
    // Each reply has 100 kB: without a limit, the proxy would buffer gigabytes.
    let request = format!("get big{}\r\n", " ".repeat(990));
    let taken = greedy.flood(request.repeat(100).as_bytes(), 100 << 20);
    let grown = memory_bytes().saturating_sub(before);
    assert!(taken < 100 << 20, "the proxy took all {taken} bytes");
    assert!(grown < 300 << 20, "{grown} bytes more than before");
    other.ask("get none\r\n", "END\r\n");
    // When the client reads at last, every reply arrives, and nothing else.
    let reply = format!("VALUE big 0 100000\r\n{value}\r\nEND\r\n");
    for _ in 0..taken / request.len() {
        greedy.expect(&reply);
    }
    greedy.half_close();
    greedy.expect_closed();
}

#[test]
fn a_half_closed_client_gets_every_reply() {
    let proxy = Proxy::before(servers(2), |_| ());
    let mut client = proxy.client();
    client.send("set a 0 0 1\r\nx\r\nget a\r\nget b\r\nversi");
    client.half_close();
    client.expect("STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\n");
    client.expect_closed();
}

#[test]
fn a_half_closed_client_with_more_than_the_window_gets_everything() {
    let proxy = Proxy::before(servers(1), |config| config.client_window = 7);
    let mut client = proxy.client();
    client.send("get a\r\n".repeat(1000));
    client.half_close();
    client.expect("END\r\n".repeat(1000));
    client.expect_closed();
}

#[test]
fn a_vanished_client_ends_only_its_own_jobs() {
    let server = Scripted::start(|peer, _| {
        while peer.line().is_some() {
            std::thread::sleep(Duration::from_millis(5));
            peer.send("END\r\n");
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
    let mut other = proxy.client();
    for _ in 0..20 {
        let mut client = proxy.client();
        client.send("get a\r\nget b\r\nset c 0 0 100\r\nhalf a val");
        drop(client);
        other.ask("get x\r\n", "END\r\n");
    }
    // Dropping the proxy checks that no job was lost.
}

#[test]
fn a_claimed_gigabyte_costs_no_memory() {
    let proxy = Proxy::before(servers(1), |config| config.loops = 1);
    let before = memory_bytes();
    let mut clients: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send("set a 0 0 1000000000\r\n");
        client.expect("SERVER_ERROR object too large for cache\r\n");
        client.send(vec![b'x'; 1 << 20]);
    }
    assert!(memory_bytes().saturating_sub(before) < 100 << 20);
    proxy.client().ask("get a\r\n", "END\r\n");
}

#[test]
fn a_line_without_end_closes_only_its_connection() {
    let proxy = Proxy::before(servers(1), |_| ());
    let mut client = proxy.client();
    client.send("x".repeat(4000));
    assert!(client.line().starts_with("CLIENT_ERROR"), "the error precedes the close");
    client.expect_closed();
    let mut many_keys = proxy.client();
    many_keys.ask(format!("get {}\r\n", "key ".repeat(10_000)), "END\r\n");
    let mut endless = proxy.client();
    let taken = endless.flood(&[b"get ".as_slice(), &vec![b'k'; 100_000]].concat(), 100 << 20);
    assert!(taken < 100 << 20);
    proxy.client().ask("get a\r\n", "END\r\n");
}

#[test]
fn a_web_request_is_closed_silently() {
    let proxy = Proxy::before(servers(1), |_| ());
    let mut client = proxy.client();
    client.send("GET /get%20a HTTP/1.1\r\nHost: x\r\n\r\n");
    client.expect_closed();
}

#[test]
fn clients_beyond_the_limit_are_closed_at_once() {
    let proxy = Proxy::before(servers(1), |config| config.clients_max = 3);
    let mut clients: Vec<_> = (0..3).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.ask("get a\r\n", "END\r\n");
    }
    proxy.client().expect_closed();
    drop(clients.pop());
    until("a freed connection slot is used again", || {
        let (mut stream, mut reply) = (TcpStream::connect(proxy.address).unwrap(), [0; 7]);
        // A refused client is closed, which resets the connection if it has sent something.
        stream.write_all(b"version\r\n").is_ok() && stream.read_exact(&mut reply).is_ok() && reply == *b"VERSION"
    });
}

#[test]
fn requests_read_before_the_end_are_answered() {
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], |_| ());
    let mut client = proxy.client();
    client.send("get a\r\nget b\r\n");
    server.received(2);
    let address = proxy.address;
    let ended = std::thread::spawn(move || proxy.stop());
    until("the proxy accepts no more", || TcpStream::connect(address).is_err());
    ["get a", "get b"].iter().for_each(|request| server.answer(request, "END\r\n"));
    client.expect("END\r\nEND\r\n");
    client.expect_closed();
    let totals = ended.join().unwrap();
    assert_eq!((totals.requests, totals.lost), (2, 0));
}

#[test]
fn a_reply_that_makes_progress_is_read_to_its_end_after_a_stop() {
    let (pieces, pause) = (40, Duration::from_millis(150));
    let server = Scripted::start(move |peer, _| {
        while peer.line().is_some() {
            peer.send(format!("VALUE a 0 {}\r\n", 10 * pieces));
            for _ in 0..pieces {
                std::thread::sleep(pause);
                peer.send("0123456789");
            }
            peer.send("\r\nEND\r\n");
        }
    });
    // The reply takes 6 s, far longer than the server may be silent.
    let timeouts = Timeouts { reply: Duration::from_secs(60), ..Timeouts::all(Duration::from_secs(2)) };
    let proxy = Proxy::at(&[server.address()], |config| config.pools[0].timeouts = timeouts);
    let mut client = proxy.client();
    client.send("get a\r\n");
    std::thread::sleep(Duration::from_millis(100));
    let ended = std::thread::spawn(move || proxy.stop());
    client.expect(format!("VALUE a 0 {}\r\n{}\r\nEND\r\n", 10 * pieces, "0123456789".repeat(pieces)));
    client.expect_closed();
    let totals = ended.join().unwrap();
    assert_eq!((totals.requests, totals.lost), (1, 0));
}

#[test]
fn a_client_that_never_reads_does_not_keep_the_proxy_from_ending() {
    let proxy = Proxy::before(servers(1), |config| config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60)));
    let mut client = proxy.client();
    client.ask(format!("set big 0 0 1000000\r\n{}\r\n", "x".repeat(1_000_000)), "STORED\r\n");
    client.send("get big\r\n".repeat(100));
    std::thread::sleep(Duration::from_millis(300));
    let clock = Clock::monotonic();
    let before = clock.now();
    assert_eq!(proxy.stop().lost, 0);
    // Sooner than the timeouts of the server, because the server has answered every request.
    let waited = clock.now().after(before);
    assert!(waited < Duration::from_secs(30), "the proxy took {waited:?} to end");
}
