//! Loops that rest, as on a host with slower cores.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::Proxy;
use testkit::Server;

#[test]
fn a_loop_rests_in_proportion_to_its_work() {
    let server = Server::start();
    let proxy = Proxy::at(&[server.address()], |config| (config.loops, config.slow_down) = (1, Some(500.0)));
    let mut client = proxy.client();
    let clock = Clock::monotonic();
    let start = clock.now();
    for round in 0..20 {
        client.send(format!("set a 0 0 2\r\n{round:02}\r\nget a\r\n"));
        client.expect(format!("STORED\r\nVALUE a 0 2\r\n{round:02}\r\nEND\r\n"));
    }
    // A round has two turns at least, each of several microseconds of CPU time. Without the key, 20 rounds take a few milliseconds.
    let took_ns = clock.now().since(start);
    assert!(took_ns > 50_000_000, "20 rounds took {took_ns} ns");
}
