//! Large replies with `pipelined`: they have a connection of their own to each backend, and the order of a client is kept.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers, until};
use proxy::{Config, Discipline, Timeouts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::{Client, GatedServer, Scripted};

/// The size of a large value: its reply is expected to be large, too.
const LARGE_BYTES: usize = 300 * 1024;

fn settings(config: &mut Config) {
    (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
    (config.client_buffer_bytes, config.client_window) = (64 << 20, 1024);
    config.pools[0].timeouts = Timeouts::all(Duration::from_secs(5));
}

fn large_reply() -> String {
    format!("VALUE large 0 {LARGE_BYTES}\r\n{}\r\nEND\r\n", "x".repeat(LARGE_BYTES))
}

/// A counter of the metrics, summed over its labels.
fn number(proxy: &Proxy, name: &str) -> u64 {
    let metrics = proxy.metrics();
    let values = metrics.lines().filter(|line| line.starts_with(name)).map(|line| line.split(' ').next_back().unwrap());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

/// Reads large values until one was read on the connection for large replies.
fn warm_up(client: &mut Client, proxy: &Proxy, mut answer: impl FnMut()) {
    until("a large reply has a connection of its own", || {
        client.send("get large\r\n");
        answer();
        client.expect(large_reply());
        number(proxy, "waystage_backend_bulk_requests_total") > 0
    });
}

#[test]
fn a_large_reply_that_is_slow_delays_no_other_client() {
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], settings);
    let (mut client, mut other) = (proxy.client(), proxy.client());
    warm_up(&mut client, &proxy, || server.answer("get large", &large_reply()));
    assert_eq!(number(&proxy, "waystage_backend_connections_up"), 1, "a bulk connection does not count as up");
    let before = server.received_so_far();
    client.send("get large\r\n");
    until("it is received", || server.received_so_far() > before);
    for key in 0..10 {
        server.answer(&format!("get small{key}"), "END\r\n");
        other.ask(format!("get small{key}\r\n"), "END\r\n");
    }
    server.answer("get large", &large_reply());
    client.expect(large_reply());
}

#[test]
fn a_large_read_and_other_requests_of_its_client_wait_for_each_other() {
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], settings);
    let mut client = proxy.client();
    warm_up(&mut client, &proxy, || server.answer("get large", &large_reply()));
    let before = server.received_so_far();
    client.send("get large\r\nget large\r\nset k 0 0 1\r\nx\r\nget large\r\nversion\r\n");
    // Both large reads are in flight together. The others wait in the order of the requests.
    assert_eq!(server.received(before + 2).len(), before + 2);
    (0..2).for_each(|_| server.answer("get large", &large_reply()));
    client.expect(large_reply().repeat(2));
    assert_eq!(server.received(before + 3)[before + 2].1, "set k 0 0 1");
    server.answer("set k 0 0 1", "STORED\r\n");
    client.expect("STORED\r\n");
    assert_eq!(server.received(before + 4)[before + 3].1, "get large");
    server.answer("get large", &large_reply());
    client.expect(large_reply());
    assert!(client.line().starts_with("VERSION"));
    assert_eq!(number(&proxy, "waystage_order_waits_total"), 2);
}

#[test]
fn a_connection_for_large_replies_is_closed_when_it_is_not_used() {
    let open = Arc::new(AtomicUsize::new(0));
    let counter = open.clone();
    let server = Scripted::start(move |peer, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        while peer.line().is_some() {
            peer.send(large_reply());
        }
        counter.fetch_sub(1, Ordering::SeqCst);
    });
    let proxy = Proxy::at(&[server.address()], settings);
    let mut client = proxy.client();
    until("the ordinary connection is open", || open.load(Ordering::SeqCst) == 1);
    for _ in 0..2 {
        let before = number(&proxy, "waystage_backend_bulk_requests_total");
        warm_up(&mut client, &proxy, || ());
        until("it was used", || {
            client.ask("get large\r\n", large_reply());
            number(&proxy, "waystage_backend_bulk_requests_total") > before
        });
        assert_eq!(open.load(Ordering::SeqCst), 2);
        until("it is closed", || open.load(Ordering::SeqCst) == 1);
    }
    assert_eq!(number(&proxy, "waystage_backend_connections_lost_total"), 0);
}

#[test]
fn a_backend_that_refuses_a_second_connection_serves_large_replies_on_the_first() {
    let server = Scripted::start(|peer, number| {
        while number == 0 && peer.line().is_some() {
            peer.send(large_reply());
        }
    });
    let proxy = Proxy::at(&[server.address()], settings);
    let mut client = proxy.client();
    for _ in 0..200 {
        client.send("get large\r\n");
        let line = client.line();
        if line.starts_with("VALUE") {
            client.expect(&large_reply()[line.len()..]);
        } else {
            // A read in flight on the connection that is closed.
            assert!(line.starts_with("SERVER_ERROR"), "{line}");
        }
    }
    let errors = number(&proxy, "waystage_backend_bulk_requests_total");
    assert!(errors < 20, "{errors} of 200 reads used the second connection");
}

#[test]
fn pipelining_clients_with_large_values_read_what_they_wrote() {
    let proxy = Proxy::before(servers(2), |config| {
        settings(config);
        config.discipline = Discipline::Pipelined;
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(20));
    });
    std::thread::scope(|scope| {
        for number in 0..2 {
            let mut client = proxy.client();
            scope.spawn(move || {
                for round in 0..30 {
                    let (mut sent, mut expected) = (String::new(), String::new());
                    for step in 0..4 {
                        let key = format!("c{number}-{}", (round + step) % 3);
                        let value = format!("{round}.{step}.").repeat(LARGE_BYTES / 4);
                        let bytes = value.len();
                        sent += &format!("set {key} 0 0 {bytes}\r\n{value}\r\nget {key}\r\nget {key} none\r\n");
                        sent += &format!("delete {key}\r\nget {key}\r\nset {key} 0 0 2\r\nhi\r\nget {key}\r\n");
                        let found = format!("VALUE {key} 0 {bytes}\r\n{value}\r\nEND\r\n");
                        let small = format!("VALUE {key} 0 2\r\nhi\r\nEND\r\n");
                        expected += &format!("STORED\r\n{found}{found}DELETED\r\nEND\r\nSTORED\r\n{small}");
                    }
                    client.send(sent);
                    client.expect(expected);
                }
            });
        }
    });
    let used = number(&proxy, "waystage_backend_bulk_requests_total");
    assert!(used > 50, "{used} reads used the connection for large replies");
}

#[test]
fn many_new_clients_request_few_values_on_the_shared_connection_before_the_first_reply() {
    const KEYS: usize = 16;
    const CLIENTS: usize = 20;
    // This number of clients may send all their keys. Each further client must receive its first value before it may send
    // more.
    const WHOLE: usize = 4;
    let server = GatedServer::start();
    let proxy = Proxy::at(&[server.address()], |config| {
        settings(config);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60));
    });
    let keys = |client: usize, from: usize| (from..KEYS).map(|key| format!(" k{client}-{key}")).collect::<String>();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| proxy.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("get{}\r\n", keys(number, 0)));
    }
    let received = server.received(CLIENTS);
    let keys_of = |line: &str| line.split(' ').count() - 1;
    let whole = received.iter().filter(|(_, line)| keys_of(line) == KEYS).count();
    let keys_received: usize = received.iter().map(|(_, line)| keys_of(line)).sum();
    assert_eq!((whole, keys_received), (WHOLE, WHOLE * KEYS + CLIENTS - WHOLE), "{received:?}");
    // The limit does not apply to writes, nor to a client that has received a value.
    for number in 0..CLIENTS {
        for line in [format!("get{}", keys(number, 0)), format!("get k{number}-0"), format!("get{}", keys(number, 1))] {
            server.answer(&line, "END\r\n");
        }
    }
    clients.iter_mut().for_each(|client| client.expect("END\r\n"));
    assert_eq!(server.received_so_far(), CLIENTS + CLIENTS - WHOLE);
}

fn patient_proxy(server: &GatedServer) -> Proxy {
    Proxy::at(&[server.address()], |config| {
        settings(config);
        config.pools[0].timeouts = Timeouts::all(Duration::from_secs(60));
    })
}

/// New clients that together have as many keys in flight as all new clients may have.
fn crowd(proxy: &Proxy, server: &GatedServer) -> Vec<Client> {
    let before = server.received_so_far();
    let keys: String = (0..16).map(|key| format!(" k{key}")).collect();
    let mut crowd: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
    crowd.iter_mut().for_each(|client| client.send(format!("get{keys}\r\n")));
    server.received(before + crowd.len());
    crowd
}

/// Lets the server answer, so that the proxy can exit.
fn answer_all(server: &GatedServer) {
    server.received(server.received_so_far()).iter().for_each(|(_, line)| server.answer(line, "END\r\n"));
}

#[test]
fn a_client_that_only_writes_sends_its_requests_together_however_many_new_clients_there_are() {
    let server = GatedServer::start();
    let proxy = patient_proxy(&server);
    let _crowd = crowd(&proxy, &server);
    let before = server.received_so_far();
    let mut writer = proxy.client();
    writer.send("set a 0 0 1\r\nx\r\ndelete b\r\nincr c 1\r\n");
    let received = server.received(before + 3);
    let lines: Vec<&str> = received[before..].iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["set a 0 0 1", "delete b", "incr c 1"]);
    answer_all(&server);
}

#[test]
fn a_stored_value_shows_how_large_the_values_of_a_client_are() {
    let server = GatedServer::start();
    let proxy = patient_proxy(&server);
    let [mut writer, mut deleter] = [(); 2].map(|()| proxy.client());
    server.answer("set a 0 0 1", "STORED\r\n");
    writer.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    server.answer("delete a", "DELETED\r\n");
    deleter.ask("delete a\r\n", "DELETED\r\n");
    let _crowd = crowd(&proxy, &server);
    let before = server.received_so_far();
    writer.send("get a b c\r\n");
    assert_eq!(server.received(before + 1)[before].1, "get a b c");
    // The other client has neither read nor stored a value yet.
    server.answer("get e f", "END\r\n");
    deleter.send("get d e f\r\n");
    assert_eq!(server.received(before + 2)[before + 1].1, "get d");
    answer_all(&server);
}

#[test]
fn large_replies_have_their_time_one_after_the_other() {
    const READS: usize = 8;
    // Each reply takes 0.7 s. All replies together take far longer than the timeout of one.
    let server = Scripted::start(|peer, _| {
        while peer.line().is_some() {
            let reply = large_reply();
            for piece in reply.as_bytes().chunks(reply.len() / 6) {
                std::thread::sleep(Duration::from_millis(100));
                peer.send(piece);
            }
        }
    });
    let timeouts = Timeouts { reply: Duration::from_secs(3), ..Timeouts::all(Duration::from_secs(2)) };
    let proxy = Proxy::at(&[server.address()], |config| {
        settings(config);
        config.pools[0].timeouts = timeouts;
    });
    let mut client = proxy.client();
    warm_up(&mut client, &proxy, || {});
    client.send("get large\r\n".repeat(READS));
    client.expect(large_reply().repeat(READS));
    assert_eq!(number(&proxy, "waystage_backend_connections_lost_total"), 0);
}

/// Each large reply is in time, but together they take longer than any timeout.
#[test]
fn every_large_read_has_a_reply_when_the_proxy_stops() {
    const READS: usize = 12;
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = is_slow.clone();
    let server = Scripted::start(move |peer, _| {
        while peer.line().is_some() {
            if slow.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(500));
            }
            peer.send(large_reply());
        }
    });
    let proxy = Proxy::at(&[server.address()], |config| {
        settings(config);
        let second = Duration::from_secs(1);
        config.pools[0].timeouts = Timeouts { reply: second, ..Timeouts::all(second) };
    });
    let mut client = proxy.client();
    warm_up(&mut client, &proxy, || ());
    is_slow.store(true, Ordering::SeqCst);
    client.send("get large\r\n".repeat(READS));
    client.expect(large_reply());
    let stopped = std::thread::spawn(move || proxy.stop());
    for number in 1..READS {
        let line = client.line();
        if line.starts_with("VALUE") {
            client.expect(&large_reply()[line.len()..]);
        } else {
            assert!(line.starts_with("SERVER_ERROR backend "), "reply {number} is {line:?}");
        }
    }
    client.expect_closed();
    assert_eq!(stopped.join().unwrap().lost, 0);
}
