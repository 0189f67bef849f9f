//! A proxy without a free descriptor keeps serving. A file of its own, because the limit applies to the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, until};
use std::fs::File;
use testkit::Server;

#[test]
fn without_descriptors_connected_clients_are_served_and_new_ones_wait() {
    let proxy = Proxy::before(vec![Server::embedded()], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
    });
    let mut first = proxy.client();
    first.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    let mut taken = std::iter::from_fn(|| File::open("/dev/null").ok()).take(2_000_000).collect::<Vec<_>>();
    assert!(File::open("/dev/null").is_err(), "the limit is not reached by {} files", taken.len());
    // The client's own socket uses the last one.
    taken.pop();
    let mut second = proxy.client();
    second.send("get k\r\n");
    first.ask("get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
    // The statistics need no descriptor.
    until("the proxy has paused accepting", || {
        first.send("stats\r\n");
        let lines = std::iter::from_fn(|| Some(first.line()).filter(|line| line != "END\r\n"));
        lines.filter(|line| line.starts_with("STAT listen_disabled_num ") && !line.ends_with(" 0\r\n")).count() == 1
    });
    first.ask("get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
    drop(taken);
    second.expect("VALUE k 0 1\r\nx\r\nEND\r\n");
    let metrics = proxy.metrics();
    assert!(!metrics.contains("waystage_accept_pauses_total 0"), "{metrics}");
}
