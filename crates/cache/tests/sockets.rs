//! Connections: requests split at any byte, clients that disconnect early, never read, or announce too much.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use cache::{Config, ServiceTime};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::time::Duration;
use support::{Client, cache, finish};

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_client_that_closes_first_gets_every_reply() {
    for service_time in [ServiceTime::None, ServiceTime::Fixed(Duration::from_millis(2))] {
        let running = cache(&Config { service_time, ..Config::default() });
        let mut client = Client::new(running.address());
        client.send("set k 0 0 1\r\nx\r\n".to_owned() + &"get k\r\n".repeat(50) + "get incompl");
        client.stream.shutdown(Shutdown::Write).unwrap();
        client.expect("STORED\r\n".to_owned() + &"VALUE k 0 1\r\nx\r\nEND\r\n".repeat(50), "half-closed");
        client.expect_closed("half-closed");
        let mut client = Client::new(running.address());
        client.send("get k\r\nquit\r\nget k\r\n");
        client.expect("VALUE k 0 1\r\nx\r\nEND\r\n", "quit");
        client.expect_closed("quit");
        assert_eq!(finish(running).counters.requests, 53);
    }
}

#[test]
fn requests_received_before_the_stop_are_answered() {
    let service_time = ServiceTime::Fixed(Duration::from_millis(1));
    let running = cache(&Config { service_time, ..Config::default() });
    let mut client = Client::new(running.address());
    client.send("get k\r\n".repeat(100));
    let mut other = Client::new(running.address());
    while other.statistic("requests_in_service") == 0 {}
    let totals = finish(running);
    client.expect("END\r\n".repeat(100), "stopped");
    client.expect_closed("stopped");
    other.expect_closed("stopped");
    assert_eq!(totals.counters.cmd_get, 100);
}

#[test]
fn a_client_that_never_reads_is_not_read_from() {
    for service_time in [ServiceTime::None, ServiceTime::Fixed(Duration::from_nanos(100))] {
        let running = cache(&Config { service_time, ..Config::default() });
        let mut deaf = Client::new(running.address());
        deaf.send([b"set k 0 0 100000\r\n".as_slice(), &vec![b'x'; 100_000], b"\r\n"].concat());
        deaf.expect("STORED\r\n", "deaf");
        let before = resident_bytes();
        deaf.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let requests = "get k\r\n".repeat(10_000);
        let mut sent = 0;
        let refused = loop {
            match deaf.stream.write(requests.as_bytes()) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
            assert!(sent < 256 << 20, "the kernel's buffers are not that large");
        };
        assert!(matches!(refused.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{refused}");
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} bytes for a client that does not read");
        let mut other = Client::new(running.address());
        let expected = [b"VALUE k 0 100000\r\n".as_slice(), &vec![b'x'; 100_000], b"\r\nEND\r\n"].concat();
        other.send("get k\r\n");
        other.expect(&expected, "the others are served");
        assert!(other.statistic("cmd_get") < 1000, "requests wait until their replies can be sent");
        // The client starts to read: everything arrives, in order.
        for number in 0..200 {
            deaf.expect(&expected, &format!("late reply {number}"));
        }
        drop((deaf, other));
        finish(running);
    }
}

#[test]
fn a_promised_gigabyte_costs_no_memory() {
    let running = cache(&Config::default());
    let mut client = Client::new(running.address());
    client.send("set k 0 0 1\r\nx\r\n");
    client.expect("STORED\r\n", "before");
    let before = resident_bytes();
    client.send("set k 0 0 1073741824\r\n");
    client.expect("SERVER_ERROR object too large for cache\r\n", "promised");
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        client.send(&piece);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for a value that is refused");
    // The largest accepted value uses as much memory as has arrived, not as much as was announced.
    let mut many: Vec<Client> = (0..100).map(|_| Client::new(running.address())).collect();
    for client in &mut many {
        client.send("set k 0 0 1000000\r\nx");
    }
    let mut other = Client::new(running.address());
    other.send("get k\r\n");
    other.expect("END\r\n", "the old value is gone");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for values that do not come");
    drop((client, many, other));
    finish(running);
}

#[test]
fn an_endless_line_closes_its_connection() {
    let running = cache(&Config::default());
    let mut client = Client::new(running.address());
    client.send(vec![b'x'; 2000]);
    client.expect("CLIENT_ERROR line too long\r\n", "endless");
    finish(running);
}

#[test]
fn statistics_have_the_names_that_tools_read() {
    let running = cache(&Config { memory_limit_bytes: 1 << 20, ..Config::default() });
    let mut client = Client::new(running.address());
    assert_eq!(client.ask("version\r\n", "\r\n"), "VERSION 1.6.18-waystage\r\n");
    client.send("set k 0 0 1\r\nx\r\nget k none\r\n");
    client.expect("STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n", "some traffic");
    let expected = [
        ("pid", u64::from(std::process::id())),
        ("curr_items", 1),
        ("cmd_get", 2),
        ("cmd_set", 1),
        ("get_hits", 1),
        ("get_misses", 1),
        ("limit_maxbytes", 1 << 20),
        ("evictions", 0),
        ("curr_connections", 1),
        ("total_connections", 1),
        ("threads", 1),
        ("bytes", 61),
    ];
    for (name, value) in expected {
        assert_eq!(client.statistic(name), value, "{name}");
    }
    for argument in ["settings", "items", "slabs"] {
        assert_eq!(client.ask(format!("stats {argument}\r\n"), "\r\n"), "END\r\n");
    }
    finish(running);
}

#[test]
fn connections_beyond_the_limit_wait_for_their_turn() {
    let running = cache(&Config { connections_maximum: 2, ..Config::default() });
    let mut first = Client::new(running.address());
    let mut second = Client::new(running.address());
    let mut third = Client::new(running.address());
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask("get k\r\n", "\r\n"), "END\r\n");
    }
    third.send("get k\r\n");
    third.stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    assert!(third.stream.peek(&mut [0]).is_err(), "the limit is two connections");
    drop(first);
    third.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    third.expect("END\r\n", "the first has disconnected");
    drop((second, third));
    assert!(finish(running).counters.accepts_deferred > 0);
}

/// The requests of one client; its number makes every reply different.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u8),
    Set(u8),
    SetQuietly(u8),
    Increase,
    Version,
    Nonsense,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..4).prop_map(Step::Get),
        (0u8..4).prop_map(Step::Set),
        (0u8..4).prop_map(Step::SetQuietly),
        Just(Step::Increase),
        Just(Step::Version),
        Just(Step::Nonsense),
    ]
}

/// The requests of these steps, and the expected replies.
fn conversation(client: usize, steps: &[Step]) -> (String, String) {
    let (mut sent, mut expected) = (format!("set n{client} 0 0 1\r\n0\r\n"), "STORED\r\n".to_owned());
    let (mut values, mut number) = (HashMap::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Get(key) => {
                sent += &format!("get k{client}-{key}\r\n");
                if let Some(value) = values.get(key) {
                    expected += &format!("VALUE k{client}-{key} 0 4\r\n{value}\r\n");
                }
                expected += "END\r\n";
            }
            Step::Set(key) | Step::SetQuietly(key) => {
                let quiet = if matches!(step, Step::Set(_)) { "" } else { " noreply" };
                values.insert(*key, format!("{index:04}"));
                sent += &format!("set k{client}-{key} 0 0 4{quiet}\r\n{index:04}\r\n");
                expected += if quiet.is_empty() { "STORED\r\n" } else { "" };
            }
            Step::Increase => {
                number += 1;
                sent += &format!("incr n{client} 1\r\n");
                expected += &format!("{number}\r\n");
            }
            Step::Version => {
                sent += "version\r\n";
                expected += "VERSION 1.6.18-waystage\r\n";
            }
            Step::Nonsense => {
                sent += "nonsense\r\n";
                expected += "ERROR\r\n";
            }
        }
    }
    (sent, expected)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn replies_come_in_the_order_of_requests(
        steps in proptest::collection::vec(proptest::collection::vec(step(), 1..80), 1..5),
        cuts in proptest::collection::vec(1usize..60, 1..20),
        workers in 1usize..5,
        is_served in any::<bool>(),
    ) {
        let service_time =
            if is_served { ServiceTime::Exponential(Duration::from_micros(40)) } else { ServiceTime::None };
        let running = cache(&Config { service_time, workers, ..Config::default() });
        let mut clients: Vec<Client> = steps.iter().map(|_| Client::new(running.address())).collect();
        let talks: Vec<_> = steps.iter().enumerate().map(|(client, steps)| conversation(client, steps)).collect();
        let mut rest: Vec<&[u8]> = talks.iter().map(|(sent, _)| sent.as_bytes()).collect();
        for cut in cuts.iter().cycle() {
            for (client, rest) in clients.iter_mut().zip(&mut rest) {
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                client.send(piece);
                *rest = left;
            }
            if rest.iter().all(|rest| rest.is_empty()) {
                break;
            }
        }
        for (client, (_, expected)) in clients.iter_mut().zip(&talks) {
            client.expect(expected, &format!("{service_time}, {workers} workers"));
            client.stream.shutdown(Shutdown::Write).unwrap();
            client.expect_closed("after everything");
        }
        finish(running);
    }
}
