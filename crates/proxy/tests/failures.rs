//! Servers that fail in every way: each request is answered or failed within the timeout, and no reply reaches another request.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, connections, disciplines, name_servers, until};
use proxy::{Discipline, Timeouts};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{Client, Peer, Scripted, Server, memcached_is_here};

/// The timeout of servers that must time out.
const TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout of servers that must not: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The timeout of a server that is frozen, and must not time out before and after that.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a test in every discipline, with enough slots for all requests that a test sends at once.
fn in_each(test: impl Fn(Discipline)) {
    disciplines(4, false).into_iter().for_each(test);
}

fn proxy(addresses: &[SocketAddr], discipline: Discipline, timeout: Duration) -> Proxy {
    Proxy::at(addresses, |config| {
        (config.loops, config.discipline) = (1, discipline);
        config.pools[0].timeouts = Timeouts::all(timeout);
        name_servers(config);
    })
}

/// Repeats a request until its reply is the expected one. The proxy uses a server that has come back only after a moment.
fn ask_until(client: &mut Client, request: &str, expected: &str) {
    until(&format!("{request:?} is answered by {expected:?}"), || {
        client.send(request);
        client.line() == expected
    });
}

/// Answers every line with the same bytes.
fn echo(reply: &'static str) -> impl Fn(&mut Peer, usize) {
    move |peer, _| {
        while peer.line().is_some() {
            peer.send(reply);
        }
    }
}

#[test]
fn a_server_that_never_answers_is_a_timeout_and_then_down() {
    in_each(|discipline| {
        let server = Scripted::start(|peer, _| peer.hang());
        let proxy = proxy(&[server.address()], discipline, TIMEOUT);
        let mut client = proxy.client();
        let clock = Clock::monotonic();
        let began = clock.now();
        client.send("get a\r\nget b\r\nget c\r\n");
        for _ in 0..3 {
            let line = client.line();
            assert_eq!(line, format!("SERVER_ERROR backend {} timed out\r\n", server.address()));
        }
        let waited = Duration::from_nanos(clock.now().since(began));
        assert!(waited >= TIMEOUT && waited < PATIENCE, "{waited:?}");
    });
}

#[test]
fn requests_for_an_unreachable_server_fail_at_once() {
    in_each(|discipline| {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = proxy(&[free], discipline, PATIENCE);
        let mut client = proxy.client();
        for _ in 0..20 {
            client.ask("get a\r\n", format!("SERVER_ERROR backend {free} is down\r\n"));
        }
    });
}

#[test]
fn a_late_reply_is_never_matched_with_a_later_request() {
    in_each(|discipline| {
        // `late` is answered after the timeout, with a value that matches no request any more.
        let server = Scripted::start(|peer, _| {
            while let Some(line) = peer.line() {
                if line.contains("late") {
                    std::thread::sleep(2 * TIMEOUT);
                    peer.send("VALUE late 0 4\r\nlate\r\nEND\r\n");
                } else if line.contains("other") {
                    peer.send("VALUE other 0 5\r\nother\r\nEND\r\n");
                } else {
                    peer.send("END\r\n");
                }
            }
        });
        let proxy = proxy(&[server.address()], discipline, TIMEOUT);
        let mut client = proxy.client();
        client.ask("get late\r\n", format!("SERVER_ERROR backend {} timed out\r\n", server.address()));
        ask_until(&mut client, "get other\r\n", "VALUE other 0 5\r\n");
        client.expect("other\r\nEND\r\n");
        client.ask("get other\r\n", "VALUE other 0 5\r\nother\r\nEND\r\n");
    });
}

#[test]
fn unsolicited_bytes_close_the_connection() {
    in_each(|discipline| {
        for unasked in ["STORED\r\n", "x", "END\r\nEND\r\n"] {
            let server = Scripted::start(move |peer, number| {
                while peer.line().is_some() {
                    peer.send(if number == 0 { format!("END\r\n{unasked}") } else { "END\r\n".into() });
                }
            });
            let proxy = proxy(&[server.address()], discipline, PATIENCE);
            let mut client = proxy.client();
            client.ask("get a\r\n", "END\r\n");
            ask_until(&mut client, "get a\r\n", "END\r\n");
            assert!(server.connections() >= 2, "{unasked:?}");
        }
    });
}

#[test]
fn an_unparsable_reply_fails_only_requests_in_flight_on_its_connection() {
    in_each(|discipline| {
        for nonsense in ["HELLO\r\n", "VALUE a\r\n", "VALUE a 0 99999999999\r\n", "STORED\r\n", "\r\n", "\0\n"] {
            let server = Scripted::start(echo(nonsense));
            let proxy = proxy(&[server.address()], discipline, PATIENCE);
            let mut client = proxy.client();
            client.ask("get a\r\n", format!("SERVER_ERROR backend {} lost the connection\r\n", server.address()));
            client.ask("bogus\r\n", "ERROR\r\n");
        }
    });
}

#[test]
fn a_connection_closed_in_the_middle_of_a_reply_is_an_error_not_half_a_reply() {
    in_each(|discipline| {
        let server = Scripted::start(|peer, _| {
            peer.line();
            peer.send("VALUE a 0 10\r\n01234");
        });
        let proxy = proxy(&[server.address()], discipline, PATIENCE);
        let lost = format!("SERVER_ERROR backend {} lost the connection\r\n", server.address());
        proxy.client().ask("get a\r\n", lost);
    });
}

#[test]
fn replies_in_pieces_of_one_byte_are_whole_replies() {
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            peer.trickle(if line.starts_with("get a") { "VALUE a 7 5\r\nEND\r\n\r\nEND\r\n" } else { "END\r\n" });
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| config.loops = 1);
    let mut client = proxy.client();
    client.ask(
        "get a\r\nget b\r\nget a\r\n",
        "VALUE a 7 5\r\nEND\r\n\r\nEND\r\nEND\r\nVALUE a 7 5\r\nEND\r\n\r\nEND\r\n",
    );
}

#[test]
fn a_server_error_in_place_of_end_is_forwarded_and_the_connection_stays_open() {
    in_each(|discipline| {
        let server = Scripted::start(echo("VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory writing get response\r\n"));
        let proxy = proxy(&[server.address()], discipline, PATIENCE);
        let mut client = proxy.client();
        let reply = "VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory writing get response\r\n";
        client.ask("get a\r\nget a\r\n", format!("{reply}{reply}"));
        assert!(server.connections() <= connections(discipline));
    });
}

#[test]
fn an_idle_connection_that_the_server_closed_is_never_an_error_for_a_client() {
    in_each(|discipline| {
        let server = Scripted::start(|peer, _| {
            peer.line();
            peer.send("END\r\n");
            // Returning closes the connection: one request for each.
        });
        let proxy = proxy(&[server.address()], discipline, PATIENCE);
        let mut client = proxy.client();
        let all = connections(discipline);
        until("all connections are open", || server.connections() == all);
        for round in 1..=10 {
            client.ask("get a\r\n", "END\r\n");
            until("the proxy has noticed and opened another one", || server.connections() == all + round);
        }
    });
}

#[test]
fn one_dead_server_of_three_affects_neither_the_others_nor_the_order() {
    in_each(|discipline| {
        let alive = [Scripted::start(echo("END\r\n")), Scripted::start(echo("END\r\n"))];
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = proxy(&[alive[0].address(), free, alive[1].address()], discipline, PATIENCE);
        let mut client = proxy.client();
        let (mut ended, mut failed) = (0, 0);
        for round in 0..50 {
            client.send(format!("get key{round}\r\nversion\r\n"));
            match client.line().as_str() {
                "END\r\n" => ended += 1,
                line if line == format!("SERVER_ERROR backend {free} is down\r\n") => failed += 1,
                line => panic!("{line:?}"),
            }
            assert!(client.line().starts_with("VERSION"));
        }
        assert!(ended > 10 && failed > 5, "{ended} {failed}");
        // A multi-get over all three: the dead server's keys are misses, unless configured otherwise.
        let keys: Vec<String> = (0..50).map(|key| format!("key{key}")).collect();
        client.ask(format!("get {}\r\n", keys.join(" ")), "END\r\n");
    });
}

#[test]
fn a_killed_and_a_frozen_memcached_are_used_again_when_they_recover() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH: the scripted servers above stand for it");
        return;
    }
    in_each(|discipline| {
        let mut server = Server::memcached();
        let proxy = proxy(&[server.address()], discipline, FREEZE_TIMEOUT);
        let mut client = proxy.client();
        client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        server.kill();
        client.send("get a\r\n");
        assert!(client.line().starts_with("SERVER_ERROR backend"));
        server.restart();
        ask_until(&mut client, "set a 0 0 1\r\ny\r\n", "STORED\r\n");
        client.ask("get a\r\n", "VALUE a 0 1\r\ny\r\nEND\r\n");
        server.freeze();
        // By default it is ejected after three timeouts in a row.
        let [timed_out, down] =
            ["timed out", "is down"].map(|what| format!("SERVER_ERROR backend {} {what}\r\n", server.address()));
        client.ask("get a\r\n", &timed_out);
        let replies: Vec<String> = (0..3)
            .map(|_| {
                client.send("get a\r\n");
                client.line()
            })
            .collect();
        assert!(replies[2] == down && replies.iter().all(|reply| [&timed_out, &down].contains(&reply)), "{replies:?}");
        server.thaw();
        ask_until(&mut client, "set a 0 0 1\r\nz\r\n", "STORED\r\n");
        client.ask("get a\r\n", "VALUE a 0 1\r\nz\r\nEND\r\n");
    });
}

#[test]
fn more_requests_than_a_server_may_have_waiting_are_refused_at_once() {
    let server = Scripted::start(|peer, _| peer.hang());
    let proxy = Proxy::at(&[server.address()], |config| {
        config.loops = 1;
        config.backend_window = 10;
        config.pools[0].timeouts = Timeouts::all(TIMEOUT);
    });
    let mut client = proxy.client();
    client.send("get a\r\n".repeat(30));
    let lines: Vec<String> = (0..30).map(|_| client.line()).collect();
    let refused = lines.iter().filter(|line| line.contains("has too much waiting")).count();
    assert_eq!(refused, 20, "{lines:?}");
}

#[test]
fn when_one_connection_recovers_the_others_reconnect_at_once() {
    if !memcached_is_here() {
        eprintln!("no memcached on the PATH, and the embedded cache cannot be killed");
        return;
    }
    let mut server = Server::memcached();
    let proxy = Proxy::at(&[server.address()], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        config.discipline = disciplines(12, false)[2];
    });
    let mut client = proxy.client();
    ask_until(&mut client, "get a\r\n", "END\r\n");
    // On a busy machine the others need longer in some attempts. If each connection waited for its own pause, they would
    // need longer in every attempt.
    let is_up = (0..8).any(|_| {
        server.kill();
        // By then the pauses have grown to at least half a second.
        std::thread::sleep(Duration::from_millis(2500));
        server.restart();
        ask_until(&mut client, "get a\r\n", "END\r\n");
        std::thread::sleep(Duration::from_millis(100));
        let metrics = proxy.metrics();
        let up = metrics.lines().find(|line| line.starts_with("waystage_backend_connections_up{")).unwrap();
        up.ends_with(" 12")
    });
    assert!(is_up, "{}", proxy.metrics());
}
