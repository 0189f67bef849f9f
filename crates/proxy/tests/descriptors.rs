//! A proxy without a free descriptor keeps serving. A file of its own, because the limit applies to the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, until};
use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use testkit::Server;

/// Only one test at a time may take all descriptors.
static TURN: Mutex<()> = Mutex::new(());

/// Takes all descriptors that are left.
fn take_all() -> Vec<File> {
    let taken = std::iter::from_fn(|| File::open("/dev/null").ok()).take(2_000_000).collect::<Vec<_>>();
    assert!(File::open("/dev/null").is_err(), "the limit is not reached by {} files", taken.len());
    taken
}

#[test]
fn without_descriptors_connected_clients_are_served_and_new_ones_wait() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let proxy = Proxy::before(vec![Server::embedded()], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
    });
    let mut first = proxy.client();
    first.ask("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    let mut taken = take_all();
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

#[test]
fn without_descriptors_a_successor_waits() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let _proxy = Proxy::before(vec![Server::embedded()], |config| {
        (config.loops, config.transport.control) = (1, Some(control.clone()));
    });
    let mut taken = take_all();
    // The successor's own socket uses the last one.
    taken.pop();
    let successor = net::Channel::connect(&control).unwrap();
    successor.send("take-over 1", &[]).unwrap();
    let early = successor.receive(Duration::from_millis(200)).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "no descriptor is free");
    drop(taken);
    let (names, sockets) = successor.receive(Duration::from_secs(20)).expect("the successor is accepted later");
    assert_eq!((names.lines().count(), sockets.len()), (1, 1));
}
