//! The CPU time of waiting for a service time. A file of its own, because CPU time is counted for the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use cache::{Config, ServiceTime};
use std::time::Duration;
use support::{Client, cache, finish};

/// On a host with a small share of a CPU, a server that polls uses up the share, and the kernel stops it.
#[test]
fn waiting_for_a_service_time_costs_little_cpu_time() {
    let service_ms = 4;
    let requests = 250;
    let running =
        cache(&Config { service_time: ServiceTime::Fixed(Duration::from_millis(service_ms)), ..Config::default() });
    let mut client = Client::new(running.address());
    let before = clock::process_cpu();
    client.send("get k\r\n".repeat(requests));
    client.expect("END\r\n".repeat(requests), "all at once");
    let after = clock::process_cpu();
    drop(client);
    finish(running);
    let used = after.user_s + after.system_s - before.user_s - before.system_s;
    let served = Duration::from_millis(service_ms).as_secs_f64() * requests as f64;
    // The server sleeps until 50 us before the end of each service time, and polls then.
    assert!(used < 0.15 * served, "{used} s of CPU time in {served} s");
}
