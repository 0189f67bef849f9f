//! `get` lines of any number of keys: sent on in parts, and answered as one request.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, servers, until};
use proxy::{Config, PartFailure, PoolConfig, RouteConfig};
use std::time::Duration;
use testkit::{Scripted, Server, memory_bytes};

/// A proxy that stores every seventh of `count` keys, and the reply to a `get` of them all.
fn filled(proxy: &Proxy, count: usize) -> (String, String) {
    let mut client = proxy.client();
    let (mut line, mut reply) = (String::from("get"), String::new());
    for key in 0..count {
        if key % 7 == 0 {
            client.ask(format!("set key{key} 0 0 5\r\n{key:05}\r\n"), "STORED\r\n");
            reply += &format!("VALUE key{key} 0 5\r\n{key:05}\r\n");
        }
        line += &format!(" key{key}");
    }
    (line, reply)
}

#[test]
fn a_get_of_eighteen_thousand_keys_is_answered_as_one_request() {
    for discipline in disciplines(2, false) {
        let proxy = Proxy::before(servers(3), |config| (config.loops, config.discipline) = (1, discipline));
        let (line, reply) = filled(&proxy, 18_725);
        let mut client = proxy.client();
        client.ask(format!("{line}\r\nget key7\n"), format!("{reply}END\r\nVALUE key7 0 5\r\n00007\r\nEND\r\n"));
        // The line need not be complete before its first part is sent, nor end with a key.
        client.send(&line);
        client.expect(&reply[..1000]);
        client.send("  \r\nmn\r\n");
        client.expect(format!("{}END\r\nMN\r\n", &reply[1000..]));
        let stats = proxy.stats();
        assert!(stats.contains("STAT cmd_get 37451\r\n"), "{stats}");
    }
}

#[test]
fn a_line_may_be_split_anywhere() {
    let proxy = Proxy::before(servers(2), |config| config.loops = 1);
    let (line, reply) = filled(&proxy, 400);
    let text = format!("{line}\r\n");
    for piece in [1, 2, 3, 127, 1023, 1024, 1025] {
        let mut client = proxy.client();
        for bytes in text.as_bytes().chunks(piece) {
            client.send(bytes);
        }
        client.expect(format!("{reply}END\r\n"));
    }
    // Exactly the keys of one part and of two, and the same key again and again.
    for keys in [127, 128, 129, 256, 257] {
        proxy.client().ask(format!("gets{}\r\n", " none".repeat(keys)), "END\r\n");
        let value = "VALUE key7 0 5\r\n00007\r\n";
        proxy.client().ask(format!("get{}\r\n", " key7".repeat(keys)), value.repeat(keys) + "END\r\n");
    }
    let keys = "key7 ".repeat(180);
    proxy.client().ask(format!("gat 0 {keys}\r\n"), "VALUE key7 0 5\r\n00007\r\n".repeat(180) + "END\r\n");
}

#[test]
fn a_bad_key_takes_the_place_of_the_end_and_the_rest_of_the_line_is_dropped() {
    let proxy = Proxy::before(servers(1), |config| config.loops = 1);
    let mut client = proxy.client();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let (long, value) = ("k".repeat(251), "VALUE a 0 1\r\nx\r\n");
    let error = "CLIENT_ERROR bad command line format\r\n";
    for (before, answered) in [(0, 0), (10, 0), (128, 128), (200, 128), (300, 256)] {
        for bad in [&long, "a\0b"] {
            let line = format!("get{} {bad}{}\r\n", " a".repeat(before), " a".repeat(20_000));
            client.ask(format!("{line}get a\r\n"), value.repeat(answered) + error + value + "END\r\n");
        }
    }
    // Whatever has arrived when the proxy looks first.
    let line = format!("get{} {long}\r\nget a\r\n", " a".repeat(600));
    for bytes in line.as_bytes().chunks(97) {
        client.send(bytes);
        std::thread::sleep(Duration::from_micros(300));
    }
    client.expect(value.repeat(512) + error + value + "END\r\n");
}

#[test]
fn a_part_that_fails_ends_the_line_and_the_next_one_is_answered() {
    // The server fails the requests that name the key `bad`.
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            peer.send(if line.contains("bad") { "SERVER_ERROR no\r\n" } else { "END\r\n" });
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| {
        (config.loops, config.part_failure) = (1, PartFailure::Error);
    });
    let mut client = proxy.client();
    for bad in [0, 127, 128, 500] {
        let line = format!("get{} bad{}\r\n", " a".repeat(bad), " a".repeat(1000));
        // A bad key at the end makes no second error.
        let refused = format!("get{} bad{} {}\r\n", " a".repeat(bad), " a".repeat(500), "k".repeat(251));
        client.send(line.repeat(3) + &refused + "get a\r\n");
        client.expect("SERVER_ERROR no\r\n".repeat(4) + "END\r\n");
    }
}

const FAILURE: &str = "SERVER_ERROR no\r\n";
const VALUE: &str = "VALUE a 0 1\r\nx\r\n";

/// A proxy before a server with the key `a`, and a server for the keys that begin with `bad`, which fails their requests.
fn half_failing(change: impl FnOnce(&mut Config)) -> (Proxy, Scripted) {
    let failing = Scripted::start(|peer, _| {
        while peer.line().is_some() {
            peer.send(FAILURE)
        }
    });
    let name = failing.address().to_string();
    let proxy = Proxy::before(servers(1), |config| {
        config.loops = 1;
        config.pools.push(PoolConfig::new("bad", &[name]));
        config.routes = vec![RouteConfig::new("bad", "bad")];
        change(config);
    });
    proxy.client().ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    (proxy, failing)
}

/// What the client receives does not depend on the parts in which the proxy sends the line on.
#[test]
fn failed_parts_of_a_long_line_are_answered_like_those_of_a_short_one() {
    let [good, bad] = [" a", " bad"];
    for failure in [PartFailure::Miss, PartFailure::Partial, PartFailure::Error] {
        let (proxy, _failing) = half_failing(|config| config.part_failure = failure);
        for shape in [
            vec![(good, 1), (bad, 1)],
            vec![(good, 128), (bad, 1)],
            vec![(bad, 1), (good, 300)],
            vec![(bad, 300), (good, 300)],
            vec![(good, 10), (bad, 300), (good, 300)],
            vec![(good, 300), (bad, 300)],
            vec![(bad, 64)],
            vec![(bad, 500)],
        ] {
            let words: String = shape.iter().map(|(word, count)| word.repeat(*count)).collect();
            let values: usize = shape.iter().filter(|(word, _)| *word == good).map(|(_, count)| count).sum();
            let expected = match failure {
                _ if values == 0 => FAILURE.to_string(),
                PartFailure::Miss => VALUE.repeat(values) + "END\r\n",
                PartFailure::Partial => VALUE.repeat(values) + FAILURE,
                PartFailure::Error => FAILURE.to_string(),
            };
            for verb in ["get", "gat 0"] {
                // One that has not read a value, one that has, and one whose line arrives in pieces.
                let line = format!("{verb}{words} \r\nmn\r\n");
                let mut client = proxy.client();
                (0..2).for_each(|_| client.ask(&line, expected.clone() + "MN\r\n"));
                for piece in line.as_bytes().chunks(700) {
                    client.send(piece);
                    std::thread::sleep(Duration::from_millis(1));
                }
                client.expect(expected.clone() + "MN\r\n");
            }
        }
        let stats = proxy.stats();
        assert!(!stats.contains("waystage_parts_failed 0\r\n"), "{stats}");
    }
}

/// The values that precede an error are held, but not more than half of what may be held for a client.
#[test]
fn an_error_stands_alone_unless_the_values_before_it_are_too_large_to_be_held() {
    let (proxy, _failing) = half_failing(|config| {
        (config.part_failure, config.client_buffer_bytes) = (PartFailure::Error, 200_000);
        config.metrics = Some("127.0.0.1:0".into());
    });
    let mut client = proxy.client();
    let big = format!("VALUE big 0 20000\r\n{}\r\n", "x".repeat(20_000));
    client.ask(format!("set big 0 0 20000\r\n{}\r\n", "x".repeat(20_000)), "STORED\r\n");
    client.ask(format!("get{}{} bad\r\n", " big".repeat(4), " a".repeat(800)), FAILURE);
    let metrics = proxy.metrics();
    assert!(metrics.contains("waystage_requests_total{operation=\"get\",outcome=\"server_error\"} 1\n"), "{metrics}");
    client.send(format!("get{}{} bad a\r\n", " big".repeat(30), " a".repeat(800)));
    client.expect(big.repeat(30) + VALUE);
    let mut rest = 1;
    let last = loop {
        let line = client.line();
        if line != "VALUE a 0 1\r\n" {
            break line;
        }
        client.expect("x\r\n");
        rest += 1;
    };
    assert_eq!(last, FAILURE);
    assert!(rest <= 800, "{rest}");
    // Without a failure all of them arrive.
    client.ask(
        format!("get{}{}\r\nmn\r\n", " big".repeat(30), " a".repeat(20_000)),
        big.repeat(30) + &VALUE.repeat(20_000) + "END\r\nMN\r\n",
    );
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_line_leaves_no_values() {
    let (proxy, _failing) = half_failing(|config| {
        (config.part_failure, config.metrics) = (PartFailure::Error, Some("127.0.0.1:0".into()));
    });
    let mut client = proxy.client();
    client.ask("get a\r\n", VALUE.to_string() + "END\r\n");
    client.send(format!("get{}", " a".repeat(1000)));
    client.half_close();
    client.expect_closed();
    let mut client = proxy.client();
    client.send(format!("get{}", " a".repeat(1000)));
    drop(client);
    until("nothing is held", || proxy.metrics().contains("\nwaystage_held_bytes 0\n"));
}

#[test]
fn an_endless_line_needs_no_memory() {
    let proxy = Proxy::before(vec![Server::embedded()], |config| config.loops = 1);
    let before = memory_bytes();
    let mut client = proxy.client();
    client.send("get");
    for _ in 0..200 {
        client.send(" some-key-that-is-not-there".repeat(1000));
    }
    client.ask("\r\n", "END\r\n");
    let mut spaces = proxy.client();
    spaces.send("get");
    (0..20).for_each(|_| spaces.send(vec![b' '; 1 << 20]));
    spaces.ask("k\r\nget\r\n", "END\r\nERROR\r\n");
    assert!(memory_bytes().saturating_sub(before) < 20 << 20);
}
