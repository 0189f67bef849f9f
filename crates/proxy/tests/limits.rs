//! Limits on memory, connections and time: every case here once leaked, hung or grew without bound.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, servers, until};
use proxy::Timeouts;
use std::time::Duration;
use testkit::{GatedServer, Scripted, Server, memory_bytes};

#[test]
fn a_client_that_fills_its_window_exactly_and_half_closes_is_closed() {
    let proxy = Proxy::before(servers(1), |config| (config.loops, config.client_window) = (1, 16));
    for rest in ["", "GET / HTTP/1.1\r\n", "quit\r\n"] {
        let mut client = proxy.client();
        client.send("mn\r\n".repeat(16) + rest);
        client.half_close();
        client.expect("MN\r\n".repeat(16));
        client.expect_closed();
    }
}

#[test]
fn a_client_whose_last_request_waits_for_room_is_closed_although_it_sends_more() {
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.client_window) = (1, 1));
    let mut client = proxy.client();
    client.send("get a\r\nquit\r\n");
    server.received(1);
    // These bytes stay unread, because the window is full.
    client.send("get b\r\n");
    std::thread::sleep(Duration::from_millis(50));
    server.answer("get a", "END\r\n");
    client.expect("END\r\n");
    client.expect_closed();
}

#[test]
fn a_client_that_half_closes_within_a_refused_value_gets_the_error_and_is_closed() {
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], |config| {
        (config.loops, config.client_window, config.value_bytes) = (1, 1, 1000);
    });
    let mut client = proxy.client();
    client.send("set k 0 0 60000\r\nhalf a value");
    // The old value is deleted. Until then, the window is full.
    server.received(1);
    client.half_close();
    std::thread::sleep(Duration::from_millis(50));
    server.answer("delete k", "DELETED\r\n");
    client.expect("SERVER_ERROR object too large for cache\r\n");
    client.expect_closed();
}

#[test]
fn a_request_that_is_taken_when_a_turn_ends_is_sent_in_the_next_one() {
    // With a window of one, each reply admits one more request. After some local replies the turn ends.
    for discipline in common::disciplines(1, true) {
        let proxy = Proxy::before(servers(1), |config| {
            (config.loops, config.client_window, config.discipline) = (1, 1, discipline);
        });
        let mut client = proxy.client();
        for local in 0..12 {
            client.send("bogus\r\n".repeat(local) + "get a\r\n");
            client.expect("ERROR\r\n".repeat(local) + "END\r\n");
        }
    }
}

#[test]
fn a_nul_in_a_key_is_refused_and_the_value_is_not_read_as_commands() {
    let proxy = Proxy::before(servers(1), |config| config.loops = 1);
    let mut client = proxy.client();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("delete a\0b\r\nincr a\0b 1\r\nget a\0b\r\n", "CLIENT_ERROR bad command line format\r\n".repeat(3));
    let body = "set injected 0 0 3\r\nabc\r\n";
    let refused = "CLIENT_ERROR bad command line format\r\n";
    client.ask(format!("set a\0b 0 0 {}\r\n{body}\r\n", body.len()), refused);
    client.ask("get injected a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn replies_to_accepted_requests_arrive_although_the_client_still_sends() {
    let proxy = Proxy::before(servers(1), |config| config.loops = 1);
    let mut client = proxy.client();
    let value = "x".repeat(900_000);
    client.ask(format!("set big 0 0 900000\r\n{value}\r\n"), "STORED\r\n");
    client.send("get big\r\nget big\r\nget big\r\nquit\r\n");
    std::thread::sleep(Duration::from_millis(100));
    // Closing a socket with unread input resets it, and a reset takes away what the client has not read yet.
    client.send("get big\r\n".repeat(100));
    client.expect(format!("VALUE big 0 900000\r\n{value}\r\nEND\r\n").repeat(3));
    client.expect_closed();
}

#[test]
fn a_reply_beyond_the_limit_is_an_error_for_its_request_only() {
    // With a smaller buffer the proxy would read the values one after another instead.
    let proxy = Proxy::before(servers(1), |config| {
        (config.loops, config.reply_bytes, config.client_buffer_bytes) = (1, 4 << 20, 64 << 20);
    });
    let mut client = proxy.client();
    let value = "x".repeat(900_000);
    client.ask(format!("set big 0 0 900000\r\n{value}\r\nset small 0 0 1\r\ns\r\n"), "STORED\r\nSTORED\r\n");
    let before = memory_bytes();
    let mut greedy = proxy.client();
    greedy.send(format!("get {}\r\n", "big ".repeat(30)));
    client.ask("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n");
    let line = greedy.line();
    assert!(
        line.starts_with("SERVER_ERROR") && line.ends_with("sent a reply that is larger than reply-max\r\n"),
        "{line}"
    );
    greedy.ask("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n");
    assert!(memory_bytes().saturating_sub(before) < 100 << 20);
}

#[test]
fn unread_large_replies_are_bounded_by_the_client_buffer_and_freed() {
    let proxy = Proxy::before(servers(1), |config| config.loops = 1);
    let value = "x".repeat(500_000);
    proxy.client().ask(format!("set big 0 0 500000\r\n{value}\r\n"), "STORED\r\n");
    let before = memory_bytes();
    let mut client = proxy.client();
    client.send("get big\r\n");
    client.expect(format!("VALUE big 0 500000\r\n{value}\r\nEND\r\n"));
    client.send("get big\r\n".repeat(1000));
    std::thread::sleep(Duration::from_millis(500));
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 60 << 20, "{grown} bytes for one client that does not read");
}

#[test]
fn the_proxy_pauses_before_reconnecting_to_a_server_that_closes_every_connection() {
    // `version` is answered, then the connection closes.
    let server = Scripted::start(|_, _| ());
    let _proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
    let clock = Clock::monotonic();
    let began = clock.now();
    std::thread::sleep(Duration::from_secs(1));
    until("it reconnects", || server.connections() >= 2);
    let (connections, seconds) = (server.connections(), clock.now().since(began) as f64 / 1e9);
    assert!((connections as f64) < 20.0 * seconds, "{connections} connections in {seconds} s");
}

#[test]
fn a_reply_to_a_request_that_was_never_sent_reaches_no_client() {
    // The server reads one request and answers two: the second reply matches no request.
    let server = Scripted::start(|peer, _| {
        while peer.line().is_some() {
            peer.send("END\r\nVALUE secret 0 3\r\nbad\r\nEND\r\n");
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
    let mut client = proxy.client();
    client.ask("get a\r\n", "END\r\n");
    for _ in 0..20 {
        client.send("get secret\r\n");
        let line = client.line();
        assert!(line == "END\r\n" || line.starts_with("SERVER_ERROR"), "{line}");
    }
}

#[test]
fn a_reply_to_another_command_matches_no_request() {
    let server = Scripted::start(|peer, _| {
        while peer.line().is_some() {
            peer.send("TOUCHED\r\n");
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
    proxy.client().ask("delete a\r\n", format!("SERVER_ERROR backend {} lost the connection\r\n", server.address()));
}

#[test]
fn requests_already_read_are_answered_while_the_proxy_stops() {
    let server = Scripted::start(|peer, _| {
        while peer.line().is_some() {
            std::thread::sleep(Duration::from_millis(1));
            peer.send("END\r\n");
        }
    });
    // The proxy stops only after the backend timeout. On a busy machine two hundred replies take longer than the default.
    let proxy = Proxy::at(&[server.address()], |config| {
        (config.loops, config.client_window) = (1, 10);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60));
    });
    let mut client = proxy.client();
    // Requests that arrived together with an answered one were read, too.
    client.send("version\r\n".to_string() + &"get a\r\n".repeat(200));
    assert!(client.line().starts_with("VERSION"));
    let ended = std::thread::spawn(move || proxy.stop());
    client.expect("END\r\n".repeat(200));
    client.expect_closed();
    assert_eq!(ended.join().unwrap().requests, 201);
}

#[test]
fn a_value_larger_than_the_proxy_would_store_can_still_be_read() {
    let backend = Server::start();
    let mut direct = testkit::Client::connect(backend.address());
    direct.ask(format!("set a 0 0 2000\r\n{}\r\n", "x".repeat(2000)), "STORED\r\n");
    let proxy = Proxy::before(vec![backend], |config| config.value_bytes = 1000);
    let mut client = proxy.client();
    client.ask("get a\r\n", format!("VALUE a 0 2000\r\n{}\r\nEND\r\n", "x".repeat(2000)));
}

#[test]
fn a_value_beyond_the_reply_limit_is_an_error_for_its_request_only() {
    const BYTES: usize = 300_000;
    for discipline in common::disciplines(1, false) {
        let backend = Server::start();
        let mut direct = testkit::Client::connect(backend.address());
        direct.ask(format!("set large 0 0 {BYTES}\r\n{}\r\n", "x".repeat(BYTES)), "STORED\r\n");
        direct.ask("set small 0 0 1\r\ns\r\n", "STORED\r\n");
        let name = backend.address().to_string();
        let proxy = Proxy::before(vec![backend], |config| {
            (config.loops, config.discipline, config.reply_bytes) = (1, discipline, 2000);
            // With a smaller buffer the proxy would read the values one after another instead.
            config.client_buffer_bytes = 64 << 20;
            config.metrics = Some("127.0.0.1:0".into());
        });
        let (mut greedy, mut other) = (proxy.client(), proxy.client());
        let error = format!("SERVER_ERROR backend {name} sent a reply that is larger than reply-max\r\n");
        let small = "VALUE small 0 1\r\ns\r\nEND\r\n";
        other.ask("get small\r\n", small);
        for request in ["get large\r\n", "gets large small\r\n", "get small large small\r\n", "mg large v k O7\r\n"] {
            greedy.send(request.repeat(20));
            for _ in 0..20 {
                other.ask("get small\r\n", small);
                greedy.expect(&error);
            }
            greedy.ask("get small\r\n", small);
        }
        let metrics = proxy.metrics();
        let mut lost = metrics.lines().filter(|line| line.starts_with("waystage_backend_connections_lost_total{"));
        assert!(lost.all(|line| line.ends_with(" 0")), "{discipline:?} {metrics}");
    }
}

#[test]
fn a_value_beyond_the_reply_limit_under_another_key_closes_the_connection() {
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            match line.trim_end() {
                "get mine" => peer.send(format!("VALUE other 0 5000\r\n{}\r\nEND\r\n", "x".repeat(5000))),
                // A length that no server has, and values that do not end where they should.
                "get huge" => peer.send("VALUE huge 0 99999999999\r\n"),
                "get longer" => peer.send(format!("VALUE longer 0 5000\r\n{}\r\nEND\r\n", "x".repeat(5001))),
                "get ends" => peer.send(format!("VALUE ends 0 5000\r\n{}abEND\r\n", "x".repeat(5000))),
                _ => peer.send("END\r\n"),
            }
        }
    });
    for request in ["get mine\r\n", "get huge\r\n", "get longer\r\n", "get ends\r\n"] {
        let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.reply_bytes) = (1, 2000));
        let mut client = proxy.client();
        client.ask("get other\r\n", "END\r\n");
        client.ask(request, format!("SERVER_ERROR backend {} lost the connection\r\n", server.address()));
    }
}

#[test]
fn a_value_beyond_the_reply_limit_may_arrive_in_pieces() {
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            if line.trim_end() != "get large" {
                peer.send("END\r\n");
                continue;
            }
            let reply = format!("VALUE large 0 5000\r\n{}\r\nEND\r\n", "x".repeat(5000));
            let mut rest = reply.as_str();
            for bytes in [4000, 1020, 1, 1, 1, 1] {
                let (piece, behind) = rest.split_at(bytes);
                peer.send(piece);
                std::thread::sleep(Duration::from_millis(20));
                rest = behind;
            }
            peer.send(rest);
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.reply_bytes) = (1, 2000));
    let mut client = proxy.client();
    client.send("get large\r\nget other\r\n");
    client.expect(format!(
        "SERVER_ERROR backend {} sent a reply that is larger than reply-max\r\nEND\r\n",
        server.address()
    ));
}
