//! Clients that are idle, hang in the middle of something, or connect too often.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers, until};
use proxy::Config;
use std::time::Duration;
use testkit::Client;

const TIMEOUT: Duration = Duration::from_millis(1500);

fn proxy(change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::before(servers(1), |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        change(config);
    })
}

/// How many clients were closed for this reason.
fn closed(proxy: &Proxy, reason: &str) -> u64 {
    let name = format!("waystage_clients_closed_total{{reason=\"{reason}\"}} ");
    let page = proxy.metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("the metric exists").parse().unwrap()
}

#[test]
fn an_idle_client_is_closed_and_a_busy_one_is_not() {
    let proxy = proxy(|config| config.client_limits.idle_timeout = TIMEOUT);
    let (mut idle, mut busy) = (proxy.client(), proxy.client());
    idle.ask("get a\r\n", "END\r\n");
    for _ in 0..10 {
        std::thread::sleep(TIMEOUT / 5);
        busy.ask("get a\r\n", "END\r\n");
    }
    idle.expect_closed();
    // The connection of `get` above.
    assert_eq!(closed(&proxy, "idle"), 1);
}

#[test]
fn an_unfinished_request_is_closed_when_no_byte_arrives() {
    let proxy = proxy(|config| config.client_limits.request_timeout = TIMEOUT);
    let unfinished = ["get a", "set a 0 0 100\r\nhalf", "set a 0 0 99999999\r\n", &format!("get{}", " a".repeat(600))];
    let mut clients: Vec<Client> = unfinished.iter().map(|_| proxy.client()).collect();
    let mut idle = proxy.client();
    idle.ask("get a\r\n", "END\r\n");
    for (client, request) in clients.iter_mut().zip(unfinished) {
        client.send(request);
    }
    clients[2].expect("SERVER_ERROR object too large for cache\r\n");
    let mut slow = proxy.client();
    for byte in b"get a\r\n" {
        std::thread::sleep(TIMEOUT / 3);
        slow.send([*byte]);
    }
    slow.expect("END\r\n");
    clients.iter_mut().for_each(Client::expect_closed);
    assert_eq!((closed(&proxy, "request"), closed(&proxy, "idle")), (4, 0));
    idle.ask("get a\r\n", "END\r\n");
}

#[test]
fn a_client_that_reads_nothing_is_closed_and_a_slow_reader_is_not() {
    let proxy = proxy(|config| config.client_limits.unread_timeout = TIMEOUT);
    let value = "x".repeat(500_000);
    proxy.client().ask(format!("set big 0 0 500000\r\n{value}\r\n"), "STORED\r\n");
    let reply = format!("VALUE big 0 500000\r\n{value}\r\nEND\r\n");
    let (mut deaf, mut slow) = (proxy.client(), proxy.client());
    for client in [&mut deaf, &mut slow] {
        client.send("get big\r\n".repeat(40));
    }
    for _ in 0..40 {
        std::thread::sleep(TIMEOUT / 10);
        slow.expect(&reply);
    }
    until("the client that does not read is closed", || closed(&proxy, "unread") == 1);
    drop(deaf);
}

#[test]
fn an_address_has_only_so_many_clients() {
    let proxy = proxy(|config| config.client_limits.per_address = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.ask("get a\r\n", "END\r\n"));
    proxy.client().expect_closed();
    assert!(proxy.metrics().contains("waystage_clients_refused_address_total 1\n"));
    clients.pop();
    until("another client is accepted", || {
        let mut client = proxy.client();
        client.send("version\r\n");
        client.line_within(Duration::from_secs(1)).is_some_and(|line| line.starts_with("VERSION"))
    });
}
