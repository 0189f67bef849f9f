//! A process without a free descriptor continues to serve. A file of its own, because the limit applies to the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use cache::Config;
use std::fs::File;
use std::net::TcpStream;
use std::time::Duration;
use support::{Client, cache, finish};

#[test]
fn without_descriptors_the_others_are_served() {
    let running = cache(&Config::default());
    let mut first = Client::new(running.address());
    assert_eq!(first.ask("get k\r\n", "\r\n"), "END\r\n");
    // A client needs a descriptor of this process too, so it gets its own before none is left.
    let waiting = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let taken = std::iter::from_fn(|| File::open("/dev/null").ok()).take(2_000_000).collect::<Vec<_>>();
    assert!(File::open("/dev/null").is_err(), "the limit is not reached by {} files", taken.len());
    waiting.connect(&running.address().into()).unwrap();
    let mut second = Client { stream: TcpStream::from(waiting) };
    second.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    second.send("get k\r\n");
    assert!(second.stream.peek(&mut [0]).is_err(), "there is no descriptor for it");
    assert_eq!(first.ask("get k\r\n", "\r\n"), "END\r\n");
    drop(taken);
    second.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    second.expect("END\r\n", "there are descriptors again");
    drop((first, second));
    assert!(finish(running).counters.accepts_deferred > 0);
}
