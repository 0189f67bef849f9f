//! The bytes held for one client and for the whole proxy are bounded, and a client that does not read delays nobody.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, servers, until};
use proxy::{Config, Timeouts};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use testkit::{Client, memory_bytes};

/// The tests measure the memory of the process, so only one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());
const VALUE_BYTES: usize = 300_000;

/// A proxy with one loop and small limits, and a server that has the keys `big0` to `big15`.
fn proxy(change: impl FnOnce(&mut Config)) -> Proxy {
    let proxy = Proxy::before(servers(1), |config| {
        (config.loops, config.client_buffer_bytes, config.metrics) = (1, 1 << 20, Some("127.0.0.1:0".into()));
        // Only delays are compared. A busy machine must not time out.
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60));
        change(config);
    });
    let mut client = proxy.client();
    for key in 0..16 {
        client.ask(format!("set big{key} 0 0 {VALUE_BYTES}\r\n{}\r\n", value(key)), "STORED\r\n");
    }
    client.ask("set small 0 0 1\r\ns\r\n", "STORED\r\n");
    proxy
}

/// The value of a key, which differs from that of the others at every place.
fn value(key: usize) -> String {
    (0..VALUE_BYTES).map(|at| char::from(b'a' + ((at / 7 + at / 1000 + key) % 26) as u8)).collect()
}

fn multi_get() -> String {
    "get big0 big1 big2 big3 big4 big5 big6 big7 big8 big9 big10 big11 big12 big13 big14 big15\r\n".into()
}

fn multi_get_reply() -> String {
    (0..16).map(|key| format!("VALUE big{key} 0 {VALUE_BYTES}\r\n{}\r\n", value(key))).collect::<String>() + "END\r\n"
}

/// The sum of a counter over all its labels.
fn counter(proxy: &Proxy, name: &str) -> u64 {
    let page = proxy.metrics();
    let lines = page.lines().filter(|line| line.starts_with(name) && !line.starts_with('#'));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

/// Sends small requests for a while; returns the longest time that one of them took.
fn slowest_get(client: &mut Client, for_how_long: Duration) -> Duration {
    let clock = Clock::monotonic();
    let end = clock.now() + for_how_long;
    let mut slowest = Duration::ZERO;
    while clock.now() < end {
        let before = clock.now();
        client.ask("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n");
        slowest = slowest.max(clock.now().after(before));
        std::thread::sleep(Duration::from_millis(1));
    }
    slowest
}

#[test]
fn a_client_that_never_reads_multi_gets_of_large_values_holds_little_and_delays_nobody() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|_| ());
    let mut other = proxy.client();
    let mut attempt = || {
        let mut greedy = proxy.client();
        let before = memory_bytes();
        // 480 MB of replies.
        greedy.send(multi_get().repeat(100));
        let slowest = slowest_get(&mut other, Duration::from_millis(1500));
        let grown = memory_bytes().saturating_sub(before);
        assert!(grown < 40 << 20, "{grown} bytes for one client that does not read");
        (slowest, greedy)
    };
    // A busy machine delays the other client in some attempts. A proxy that makes it wait delays it in every attempt.
    let greedy = (0..6).find_map(|_| {
        let (slowest, greedy) = attempt();
        (slowest < Duration::from_millis(900)).then_some(greedy)
    });
    let mut greedy = greedy.expect("an attempt in which the other client waits less than a second");
    assert!(counter(&proxy, "waystage_replies_dropped_total") > 0);
    // When it reads at last, it gets every byte.
    for _ in 0..3 {
        greedy.expect(multi_get_reply());
    }
    assert!(counter(&proxy, "waystage_reads_repeated_total") > 0);
}

#[test]
fn a_slow_reader_gets_every_byte_in_order() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|config| config.client_buffer_bytes = 400_000);
    let mut client = proxy.client();
    client.send(multi_get().repeat(6) + "get small\r\nmn\r\n");
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(50));
        client.expect(multi_get_reply());
    }
    client.expect("VALUE small 0 1\r\ns\r\nEND\r\nMN\r\n");
}

#[test]
fn values_of_different_sizes_that_do_not_fit_together_are_all_returned() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|_| ());
    let mut client = proxy.client();
    let sizes = [900_000, 100, 200_000, 800_000, 500_000, 600_000, 1_000_000, 30_000];
    let value = |at: usize| char::from(b'a' + at as u8).to_string().repeat(sizes[at]);
    for (at, size) in sizes.iter().enumerate() {
        client.ask(format!("set v{at} 0 0 {size}\r\n{}\r\n", value(at)), "STORED\r\n");
    }
    for first in 0..sizes.len() {
        let places: Vec<usize> = (0..sizes.len()).map(|at| (first + at) % sizes.len()).collect();
        let keys: String = places.iter().map(|at| format!(" v{at}")).collect();
        let values: String =
            places.iter().map(|&at| format!("VALUE v{at} 0 {}\r\n{}\r\n", sizes[at], value(at))).collect();
        client.ask(format!("get{keys}\r\n"), values + "END\r\n");
    }
}

#[test]
fn a_client_with_small_values_that_requests_huge_ones_at_once_gets_them_all() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|_| ());
    let mut client = proxy.client();
    for _ in 0..200 {
        client.ask("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n");
    }
    let before = memory_bytes();
    client.send("get big3\r\ngat 0 big4\r\nmg big5 v\r\n".repeat(100));
    std::thread::sleep(Duration::from_millis(300));
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes for one client that does not read");
    for _ in 0..100 {
        client.expect(format!("VALUE big3 0 {VALUE_BYTES}\r\n{}\r\nEND\r\n", value(3)));
        client.expect(format!("VALUE big4 0 {VALUE_BYTES}\r\n{}\r\nEND\r\n", value(4)));
        client.expect(format!("VA {VALUE_BYTES}\r\n{}\r\n", value(5)));
    }
}

#[test]
fn a_reply_that_wins_a_stale_value_is_not_dropped() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|config| config.client_buffer_bytes = 400_000);
    let mut client = proxy.client();
    for key in 0..8 {
        client.ask(format!("md big{key} I T60\r\n"), "HD\r\n");
    }
    // A client whose values were small: the proxy requests all of them at the same time, and they do not fit.
    let mut reader = proxy.client();
    reader.ask("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n");
    reader.send((0..8).map(|key| format!("mg big{key} v\r\n")).collect::<String>());
    std::thread::sleep(Duration::from_millis(300));
    for key in 0..8 {
        let line = reader.line();
        assert!(line.contains(" W"), "big{key}: {line}");
        reader.expect(value(key) + "\r\n");
    }
}

#[test]
fn a_dropped_read_is_not_repeated_after_a_write_of_its_client() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|config| config.client_buffer_bytes = 500_000);
    let mut client = proxy.client();
    client.send("get big0 big1 big2\r\nset big2 0 0 1\r\nx\r\nget big2\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR the client has too much unread"), "{line}");
    client.expect("STORED\r\nVALUE big2 0 1\r\nx\r\nEND\r\n");
    assert_eq!(counter(&proxy, "waystage_replies_refused_total{reason=\"write\"}"), 1);
}

#[test]
fn many_clients_that_never_read_hold_no_more_than_the_proxy_may() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|config| config.memory_bytes = 10 << 20);
    let mut other = proxy.client();
    other.ask(format!("set huge 0 0 1040000\r\n{}\r\n", "h".repeat(1_040_000)), "STORED\r\n");
    let before = memory_bytes();
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let mut client = proxy.client();
            client.send(multi_get().repeat(20));
            client
        })
        .collect();
    let slowest = slowest_get(&mut other, Duration::from_secs(2));
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for 60 clients that do not read");
    assert!(slowest < Duration::from_secs(20), "another client waited {slowest:?}");
    assert!(counter(&proxy, "waystage_held_bytes") <= 12 << 20);
    until("a large value is refused", || {
        other.send("get huge\r\n");
        let line = other.line();
        if line.starts_with("VALUE") {
            other.expect("h".repeat(1_040_000) + "\r\nEND\r\n");
        }
        line.starts_with("SERVER_ERROR out of memory")
    });
    assert!(counter(&proxy, "waystage_replies_refused_total{reason=\"memory\"}") > 0);
    drop(clients);
    other.ask(multi_get(), multi_get_reply());
}

#[test]
fn half_sent_values_of_many_clients_hold_no_more_than_the_proxy_may() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = proxy(|config| config.memory_bytes = 30 << 20);
    let before = memory_bytes();
    let part = vec![b'x'; 400_000];
    let mut clients: Vec<_> = (0..200)
        .map(|number| {
            let mut client = proxy.client();
            client.ask(format!("set part{number} 0 0 3\r\nold\r\n"), "STORED\r\n");
            client.send(format!("set part{number} 0 0 800000\r\n"));
            client.send(&part);
            client
        })
        .collect();
    until("values are refused", || counter(&proxy, "waystage_values_refused_total") >= 100);
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 80 << 20, "{grown} bytes for values that did not arrive");
    let mut refused = 0;
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&part);
        client.send("\r\n");
        let line = client.line();
        if line != "STORED\r\n" {
            assert_eq!(line, "SERVER_ERROR out of memory storing object\r\n");
            // The old value was meant to be replaced.
            client.ask(format!("get part{number}\r\n"), "END\r\n");
            refused += 1;
        }
    }
    assert!((100..200).contains(&refused), "{refused} values were refused");
    assert_eq!(counter(&proxy, "waystage_values_refused_total"), refused);
}
