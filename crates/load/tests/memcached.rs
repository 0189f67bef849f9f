//! End to end against memcached itself, when it is installed.

mod support;

use load::{Config, ThinkTime};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A memcached of our own; stopped when dropped.
struct Memcached {
    child: Child,
    address: String,
}

impl Memcached {
    /// None when it is not installed (or this host has no loopback).
    fn start(arguments: &[&str]) -> Option<Memcached> {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let child = Command::new("memcached")
            .args(["-u", "root", "-U", "0", "-l", "127.0.0.1", "-p", &port.to_string()])
            .args(arguments)
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let address = format!("127.0.0.1:{port}");
        let memcached = Memcached { child, address };
        for _ in 0..200 {
            if TcpStream::connect(&memcached.address).is_ok() {
                return Some(memcached);
            }
            sleep(Duration::from_millis(10));
        }
        panic!("memcached does not listen on {}", memcached.address);
    }

    fn config(&self) -> Config {
        Config {
            servers: vec![self.address.clone()],
            clients: 20,
            threads: 2,
            key_maximum: 999,
            warm_up: Duration::from_millis(100),
            test_time: Duration::from_millis(500),
            ..Config::default()
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn memcached_is_found_to_be_right() {
    let Some(memcached) = Memcached::start(&[]) else { return };
    let exponential = ThinkTime::Exponential(Duration::from_millis(1));
    let runs = [
        Config { ratio_get: 1, ..memcached.config() },
        Config { pipeline: 16, multi_key_get: 12, ..memcached.config() },
        Config { data_size_bytes: 200_000, key_maximum: 49, ratio_get: 2, ..memcached.config() },
        Config { think_time: exponential, key_maximum: 9, ratio_get: 1, ..memcached.config() },
    ];
    for config in runs {
        let summary = support::run(&config);
        assert!(summary.valid, "{config:?}: {:?}", summary.reasons);
        assert!(summary.errors.is_empty(), "{:?}", summary.errors);
        assert_eq!(summary.totals.requests_sent, summary.totals.requests_answered);
        assert_eq!((summary.totals.misses, summary.verification.keys_uncertain), (0, 0));
        assert!(summary.totals.requests > 10);
        let shown = load::render(&summary);
        assert!(shown.contains("N=20 clients") && !shown.contains("NOT VALID"), "{shown}");
    }
}

#[test]
fn values_that_memcached_refuses_are_its_words() {
    let Some(memcached) = Memcached::start(&[]) else { return };
    let config = Config { data_size_bytes: 2 << 20, ..memcached.config() };
    let line = support::try_run(&config).unwrap_err().to_string();
    assert!(line.contains("SERVER_ERROR object too large for cache"), "{line}");
    let summary = support::run(&Config { prefill: false, ratio_set: 1, ratio_get: 9, key_maximum: 99_999, ..config });
    assert!(summary.errors["SERVER_ERROR object too large for cache"] > 0, "{:?}", summary.errors);
    assert!(summary.verification.keys_uncertain > 0 && summary.verification.unexpected_reply == 0);
}
