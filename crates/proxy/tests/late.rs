//! Servers that are slow: bytes that flow are progress, one late reply fails one request, and a frozen server is ejected.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, connections, disciplines, until};
use proxy::{Config, Timeouts};
use std::time::Duration;
use testkit::{Client, Peer, Scripted, Server, memcached_is_here};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(2);
const PIECE: Duration = Duration::from_millis(400);
const MEMCACHED_IS_MISSING: &str = "no memcached on the PATH: the scripted servers above stand for it";

fn proxy(server: &Scripted, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&[server.address()], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        config.pools[0].timeouts = Timeouts::all(TIMEOUT);
        change(config);
    })
}

fn failed(server: &Scripted, what: &str) -> String {
    format!("SERVER_ERROR backend {} {what}\r\n", server.address())
}

/// A metric, summed over the lines whose labels contain this text.
fn sum(proxy: &Proxy, name: &str, labels: &str) -> u64 {
    let metrics = proxy.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

fn lost(proxy: &Proxy) -> u64 {
    sum(proxy, "waystage_backend_connections_lost_total", "")
}

/// Answers each line; `slow` answers those that it knows.
fn answering(slow: impl Fn(&mut Peer, &str) -> bool + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |peer, _| {
        while let Some(line) = peer.line() {
            if !slow(peer, line.trim_end()) {
                peer.send("END\r\n");
            }
        }
    })
}

#[test]
fn a_reply_that_makes_progress_is_not_late_nor_are_the_requests_behind_it() {
    // Twice as long as the timeout: many values, and one value in pieces.
    let server = answering(|peer, line| match line {
        "get a b c d e f g h i j" => {
            for key in "abcdefghij".chars() {
                std::thread::sleep(PIECE);
                peer.send(format!("VALUE {key} 0 1\r\nx\r\n"));
            }
            peer.send("END\r\n");
            true
        }
        "get large" => {
            peer.send("VALUE large 0 10\r\n");
            for _ in 0..10 {
                std::thread::sleep(PIECE);
                peer.send("x");
            }
            peer.send("\r\nEND\r\n");
            true
        }
        _ => false,
    });
    let proxy = proxy(&server, |_| {});
    let (mut slow, mut other) = (proxy.client(), proxy.client());
    slow.ask("get first\r\n", "END\r\n");
    let values: String = "abcdefghij".chars().map(|key| format!("VALUE {key} 0 1\r\nx\r\n")).collect();
    for (request, reply) in [
        ("get a b c d e f g h i j\r\n", values + "END\r\n"),
        ("get large\r\n", "VALUE large 0 10\r\nxxxxxxxxxx\r\nEND\r\n".into()),
    ] {
        slow.send(request);
        std::thread::sleep(PIECE / 2);
        other.send("get other\r\nset other 0 0 1\r\nx\r\n");
        slow.expect(reply);
        // The script answers each of the three lines.
        other.expect("END\r\n");
        other.line();
        until("the connection is open again", || {
            slow.send("get first\r\n");
            slow.line() == "END\r\n"
        });
    }
    assert_eq!(sum(&proxy, "waystage_backend_errors_total", "kind=\"timeout\""), 0);
}

#[test]
fn a_reply_that_trickles_is_bounded_by_the_time_for_a_whole_reply() {
    let server = answering(|peer, line| {
        if line == "get slow" {
            peer.send("VALUE slow 0 1000\r\n");
            for _ in 0..40 {
                std::thread::sleep(PIECE);
                peer.send("x");
            }
        }
        line == "get slow"
    });
    let proxy = proxy(&server, |config| config.pools[0].timeouts.reply = 4 * TIMEOUT);
    let mut client = proxy.client();
    client.ask("get first\r\n", "END\r\n");
    let clock = Clock::monotonic();
    let began = clock.now();
    client.ask("get slow\r\n", failed(&server, "timed out"));
    let waited = Duration::from_nanos(clock.now().since(began));
    assert!(waited >= 4 * TIMEOUT && waited < 8 * TIMEOUT, "{waited:?}");
    assert_eq!(sum(&proxy, "waystage_backend_connections_lost_total", "reason=\"timeout\""), 1);
}

/// A server that is silent for one and a half timeouts before it answers `get late`.
fn late_once() -> Scripted {
    answering(|peer, line| {
        if line == "get late" {
            std::thread::sleep(TIMEOUT + TIMEOUT / 2);
            peer.send("VALUE late 0 4\r\nlate\r\nEND\r\n");
        } else if line == "get mine" {
            peer.send("VALUE mine 0 4\r\nmine\r\nEND\r\n");
        }
        line == "get late" || line == "get mine"
    })
}

#[test]
fn one_late_reply_fails_one_request() {
    for discipline in disciplines(4, false) {
        let server = late_once();
        let proxy = proxy(&server, |config| config.discipline = discipline);
        let (mut late, mut other) = (proxy.client(), proxy.client());
        other.ask("get mine\r\n", "VALUE mine 0 4\r\nmine\r\nEND\r\n");
        let all = connections(discipline);
        until("all connections are open", || server.connections() == all);
        late.send("get late\r\n");
        // It is sent behind the late request if they share a connection, and is not late itself.
        std::thread::sleep(TIMEOUT);
        other.ask("get mine\r\n", "VALUE mine 0 4\r\nmine\r\nEND\r\n");
        late.expect(failed(&server, "timed out"));
        late.ask("get mine\r\n", "VALUE mine 0 4\r\nmine\r\nEND\r\n");
        until("the late reply is dropped", || sum(&proxy, "waystage_backend_late_replies_total", "") == 1);
        late.ask("get mine\r\n", "VALUE mine 0 4\r\nmine\r\nEND\r\n");
        assert_eq!((lost(&proxy), server.connections()), (0, all), "{discipline:?}");
    }
}

#[test]
fn a_late_reply_with_another_key_closes_the_connection() {
    let server = answering(|peer, line| {
        if line == "get late" {
            std::thread::sleep(TIMEOUT + TIMEOUT / 2);
            peer.send("VALUE other 0 4\r\nlate\r\nEND\r\n");
        }
        line == "get late"
    });
    let proxy = proxy(&server, |_| {});
    let mut client = proxy.client();
    client.ask("get first\r\n", "END\r\n");
    client.ask("get late\r\n", failed(&server, "timed out"));
    until("it is closed", || sum(&proxy, "waystage_backend_connections_lost_total", "reason=\"out_of_step\"") == 1);
}

#[test]
fn a_reply_that_never_comes_is_noticed() {
    for discipline in disciplines(1, false) {
        let server = answering(|_, line| line == "get swallowed");
        let proxy = proxy(&server, |config| config.discipline = discipline);
        let (mut client, mut other) = (proxy.client(), proxy.client());
        client.ask("get first\r\n", "END\r\n");
        client.ask("get swallowed\r\n", failed(&server, "timed out"));
        until("the connection is in step again", || {
            other.send("get other\r\n");
            other.line() == "END\r\n"
        });
        assert_eq!(
            sum(&proxy, "waystage_backend_connections_lost_total", "reason=\"out_of_step\""),
            1,
            "{discipline:?}"
        );
    }
}

#[test]
fn a_server_that_stays_silent_is_given_up_after_some_timeouts() {
    for discipline in disciplines(1, false) {
        for failures in [1, 3] {
            let server = answering(|_, line| {
                if line == "get nothing" {
                    std::thread::sleep(10 * TIMEOUT);
                }
                line == "get nothing"
            });
            let proxy = proxy(&server, |config| {
                (config.discipline, config.pools[0].failures) = (discipline, failures);
            });
            let mut client = proxy.client();
            client.ask("get first\r\n", "END\r\n");
            let clock = Clock::monotonic();
            let began = clock.now();
            client.ask("get nothing\r\n", failed(&server, "timed out"));
            // Without another request the silence counts as well.
            until("it is given up", || sum(&proxy, "waystage_backend_connections_lost_total", "timeout") == 1);
            let waited = Duration::from_nanos(clock.now().since(began));
            assert!(waited >= failures * TIMEOUT && waited < (failures + 3) * TIMEOUT, "{failures} {waited:?}");
        }
    }
}

#[test]
fn a_client_that_waits_for_each_reply_ejects_a_server_after_as_many_timeouts_as_configured() {
    for discipline in disciplines(4, false) {
        for failures in [1, 2, 3, 4] {
            let server = answering(|_, line| {
                if line == "get nothing" {
                    std::thread::sleep(10 * TIMEOUT);
                }
                false
            });
            let proxy = proxy(&server, |config| {
                (config.discipline, config.pools[0].failures) = (discipline, failures);
                config.pools[0].timeouts = Timeouts::all(TIMEOUT / 4);
                config.pools[0].timeouts.reply = 10 * TIMEOUT;
            });
            let mut client = proxy.client();
            client.ask("get first\r\n", "END\r\n");
            // The probes behind late requests time out as well, and must not count on their own.
            let mut timeouts = 0;
            while lost(&proxy) == 0 {
                client.ask("get nothing\r\n", failed(&server, "timed out"));
                timeouts += 1;
            }
            assert_eq!(timeouts, failures, "{discipline:?}");
        }
    }
}

#[test]
fn a_frozen_memcached_is_ejected_and_used_again() {
    if !memcached_is_here() {
        return eprintln!("{MEMCACHED_IS_MISSING}");
    }
    for discipline in disciplines(16, false) {
        let mut server = Server::memcached();
        let proxy = Proxy::at(&[server.address()], |config| {
            (config.loops, config.discipline) = (1, discipline);
            config.pools[0].timeouts = Timeouts::all(TIMEOUT);
        });
        let mut clients: Vec<Client> = (0..8).map(|_| proxy.client()).collect();
        clients.iter_mut().for_each(|client| client.ask("get a\r\n", "END\r\n"));
        server.freeze();
        let clock = Clock::monotonic();
        let began = clock.now();
        // They do not time out at the same time.
        for client in &mut clients {
            client.send("get a\r\n");
            std::thread::sleep(TIMEOUT / 20);
        }
        for client in &mut clients {
            assert!(client.line().starts_with("SERVER_ERROR backend"));
        }
        clients[0].ask("get a\r\n", format!("SERVER_ERROR backend {} is down\r\n", server.address()));
        let ejected = Duration::from_nanos(clock.now().since(began));
        eprintln!("{discipline:?}: ejected {ejected:?} after it was frozen");
        assert!(ejected < 5 * TIMEOUT / 2, "{discipline:?} {ejected:?}");
        server.thaw();
        until("it is used again", || {
            clients[0].send("get a\r\n");
            clients[0].line() == "END\r\n"
        });
    }
}

#[test]
fn an_unknown_command_fails_nobody_else() {
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            peer.send(if line.starts_with("get") { "END\r\n" } else { "ERROR\r\n" });
        }
    });
    let proxy = proxy(&server, |_| {});
    let (mut client, mut other) = (proxy.client(), proxy.client());
    other.ask("get a\r\n", "END\r\n");
    for request in ["mg a v\r\n", "md a\r\n", "ma a\r\n", "me a\r\n", "gat 0 a\r\n", "touch a 0\r\n", "incr a 1\r\n"] {
        client.send(format!("{request}{request}"));
        other.ask("get a\r\n", "END\r\n");
        client.expect("ERROR\r\nERROR\r\n");
    }
    assert_eq!((lost(&proxy), server.connections()), (0, 1));
    // The server reads the value as a command, so its replies are out of step.
    client.ask("ms a 1\r\nx\r\n", "ERROR\r\n");
    until("it is closed", || lost(&proxy) == 1);
}

#[test]
fn requests_of_which_no_byte_was_sent_are_carried_over() {
    const SETS: usize = 400;
    // The first connection reads a little of a large backlog and breaks. The next ones answer everything.
    let server = Scripted::start(|peer, number| {
        while let Some(line) = peer.line() {
            match line.trim_end() {
                "get first" => peer.send("END\r\n"),
                "get last" => peer.send("VALUE last 0 1\r\nx\r\nEND\r\n"),
                line if line.starts_with("set") && number == 0 => return std::thread::sleep(TIMEOUT / 2),
                line if line.starts_with("set") => {
                    peer.line();
                    peer.send("STORED\r\n");
                }
                _ => {}
            }
        }
    });
    let proxy = proxy(&server, |config| config.client_buffer_bytes = 64 << 20);
    let (mut writer, mut reader) = (proxy.client(), proxy.client());
    writer.ask("get first\r\n", "END\r\n");
    // More than the buffers of the kernel take.
    let value = "x".repeat(40_000);
    for key in 0..SETS {
        writer.send(format!("set large{key} 0 0 40000\r\n{value}\r\n"));
    }
    reader.send("get last\r\n");
    assert_eq!(reader.line(), "VALUE last 0 1\r\n");
    let replies: Vec<String> = (0..SETS).map(|_| writer.line()).collect();
    assert_eq!(replies[0], failed(&server, "lost the connection"), "a part of it was sent");
    let lost = replies.iter().take_while(|reply| **reply == failed(&server, "lost the connection")).count();
    assert!(replies[lost..].iter().all(|reply| reply == "STORED\r\n"), "{lost} were lost: {:?}", &replies[lost..]);
    assert!(sum(&proxy, "waystage_backend_carried_over_total", "") > 1, "{lost} of {SETS} were lost");
    assert_eq!(server.connections(), 2);
}
