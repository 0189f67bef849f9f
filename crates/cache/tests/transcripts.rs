//! Requests and their exact replies: one table, run against the cache in several configurations and with several ways of
//! splitting the bytes, and against memcached itself if it is installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use cache::{Config, ServiceTime};
use std::net::SocketAddr;
use std::time::Duration;
use support::table::TRANSCRIPTS;
use support::{Client, cache, finish, say};

/// A request with an immediate reply of its own, which shows that nothing unexpected arrived before.
const MARK: (&str, &str) = ("verbosity 1\r\n", "OK\r\n");

/// How the bytes of a transcript are split.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Every request waits for the reply to the one before.
    Polite,
    /// All at once.
    Pipelined,
    /// Byte by byte.
    Bytes,
}

fn run_all(address: SocketAddr, server: &str, cuts: &[Cut]) {
    for (name, steps) in TRANSCRIPTS {
        for &cut in cuts {
            let context = format!("{server}, {name}, {cut:?}");
            let mut client = Client::new(address);
            client.send("flush_all\r\n");
            client.expect("OK\r\n", &context);
            run(&mut client, steps, cut, &context);
        }
    }
}

fn run(client: &mut Client, steps: &[(&str, &str)], cut: Cut, context: &str) {
    let sent: String = steps.iter().map(|(send, _)| *send).chain([MARK.0]).collect();
    let expected: String = steps.iter().map(|(_, expect)| *expect).chain([MARK.1]).collect();
    match cut {
        Cut::Polite => {
            for (send, expect) in steps {
                client.send(send);
                client.expect(expect, &format!("{context}, {send:?}"));
            }
            client.send(MARK.0);
            client.expect(MARK.1, context);
        }
        Cut::Pipelined => {
            client.send(sent);
            client.expect(expected, context);
        }
        Cut::Bytes => {
            for byte in sent.bytes() {
                client.send([byte]);
            }
            client.expect(expected, context);
        }
    }
}

/// Steps with a number that only the server knows.
fn unique_numbers(address: SocketAddr, server: &str) {
    let mut client = Client::new(address);
    let mut unique = || {
        let reply = client.ask("gets k\r\n", "END\r\n");
        let line = reply.lines().next().unwrap().to_owned();
        (line.rsplit(' ').next().unwrap().parse::<u64>().unwrap(), line)
    };
    let mut setter = Client::new(address);
    assert_eq!(setter.ask("set k 2 0 1\r\n5\r\n", "\r\n"), "STORED\r\n", "{server}");
    let (first, line) = unique();
    assert_eq!(line, format!("VALUE k 2 1 {first}"), "{server}");
    assert_eq!(unique().0, first, "{server}: reading changes nothing");
    let exchange = |unique: u64| format!("cas k 2 0 1 {unique}\r\n6\r\n");
    assert_eq!(setter.ask(exchange(first), "\r\n"), "STORED\r\n", "{server}");
    assert_eq!(setter.ask(exchange(first), "\r\n"), "EXISTS\r\n", "{server}");
    for (change, answer) in [("incr k 1\r\n", "7\r\n"), ("append k 0 0 1\r\n1\r\n", "STORED\r\n")] {
        let before = unique().0;
        assert_eq!(setter.ask(change, "\r\n"), answer, "{server}");
        assert_ne!(unique().0, before, "{server}: {change:?} changes the number");
        assert_eq!(setter.ask(exchange(before), "\r\n"), "EXISTS\r\n", "{server}");
    }
    let before = unique().0;
    assert_eq!(setter.ask("touch k 0\r\n", "\r\n"), "TOUCHED\r\n", "{server}");
    assert_eq!(unique().0, before, "{server}: touching is no change");
    let reply = setter.ask("gats 0 k\r\n", "END\r\n");
    assert_eq!(reply, format!("VALUE k 2 2 {before}\r\n71\r\nEND\r\n"), "{server}");
}

/// The longest key, to the byte.
fn long_keys(address: SocketAddr, server: &str) {
    let mut client = Client::new(address);
    let (longest, too_long) = ("k".repeat(250), "k".repeat(251));
    let refused = "CLIENT_ERROR bad command line format\r\n";
    let steps = [
        (format!("set {longest} 0 0 1\r\nx\r\n"), "STORED\r\n".into()),
        (format!("get {longest}\r\n"), format!("VALUE {longest} 0 1\r\nx\r\nEND\r\n")),
        (format!("get {too_long}\r\n"), refused.into()),
        (format!("delete {too_long}\r\n"), refused.into()),
        (format!("incr {too_long} 1\r\n"), refused.into()),
        (format!("touch {too_long} 1\r\n"), refused.into()),
        (format!("get {longest} {too_long}\r\n"), refused.to_owned()),
    ];
    let steps: Vec<(&str, &str)> = steps.iter().map(|(send, expect)| (send.as_str(), expect.as_str())).collect();
    run(&mut client, &steps, Cut::Polite, &format!("{server}, long keys"));
}

/// The largest value, to the byte, and the old value after a new one that is too large.
fn large_values(address: SocketAddr, server: &str) {
    let largest = 1024 * 1024 - 59 - 1;
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    let mut client = Client::new(address);
    let mut offer = |verb: &str, size: usize, rest: &str, expected: &str| {
        let head = format!("{verb} k 0 0 {size}{rest}\r\n");
        client.send([head.as_bytes(), &vec![b'x'; size], b"\r\n", MARK.0.as_bytes()].concat());
        client.expect([expected, MARK.1].concat(), &format!("{server}, {verb} of {size}{rest}"));
        let reply = client.ask("get k\r\n", "END\r\n");
        reply.lines().next().unwrap().split(' ').nth(3).map(|size| size.parse::<usize>().unwrap())
    };
    for size in [largest + 1, 1024 * 1024, 3_000_000] {
        for verb in ["add", "replace", "append", "prepend"] {
            assert_eq!(offer("set", 1, "", "STORED\r\n"), Some(1));
            assert_eq!(offer(verb, size, "", too_large), Some(1), "{server}, {verb}: the old value stays");
        }
        assert_eq!(offer("set", size, "", too_large), None, "{server}: the old value is gone");
        assert_eq!(offer("set", 1, "", "STORED\r\n"), Some(1));
        assert_eq!(offer("set", size, " noreply", ""), None, "{server}: the old value is gone");
    }
    assert_eq!(offer("set", largest, "", "STORED\r\n"), Some(largest));
    assert_eq!(offer("append", 1, "", "NOT_STORED\r\n"), Some(largest), "{server}: the old value stays");
}

#[test]
fn the_cache_answers_as_expected() {
    let us = Duration::from_micros;
    let table = [
        (ServiceTime::None, 1),
        (ServiceTime::Fixed(us(5)), 1),
        (ServiceTime::Exponential(us(20)), 4),
        (ServiceTime::Uniform(us(1), us(50)), 3),
    ];
    for (service_time, workers) in table {
        let running = cache(&Config { service_time, workers, ..Config::default() });
        let server = format!("cache with {service_time} and {workers} workers");
        run_all(running.address(), &server, &[Cut::Polite, Cut::Pipelined, Cut::Bytes]);
        unique_numbers(running.address(), &server);
        long_keys(running.address(), &server);
        large_values(running.address(), &server);
        let totals = finish(running);
        assert_eq!(totals.counters.accepts_deferred, 0);
    }
}

/// Not a test of the cache: it shows that the expectations above are memcached's own.
#[test]
fn memcached_answers_the_same() {
    if !testkit::memcached_is_here() {
        return say("memcached is not installed: the transcripts were NOT compared with it");
    }
    let memcached = testkit::Server::memcached();
    let address = memcached.address();
    run_all(address, "memcached", &[Cut::Polite, Cut::Pipelined]);
    unique_numbers(address, "memcached");
    long_keys(address, "memcached");
    large_values(address, "memcached");
    let version = Client::new(address).ask("version\r\n", "\r\n");
    say(&format!("{} transcripts were compared with memcached, {}", TRANSCRIPTS.len(), version.trim_end()));
}
