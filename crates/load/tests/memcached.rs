//! End to end against memcached itself, when it is installed.

mod support;

use load::{Config, ThinkTime, fixed_bytes};
use std::time::Duration;
use testkit::{Server, memcached_is_here};

fn config(server: &Server) -> Config {
    Config {
        servers: vec![server.address().to_string()],
        clients: 20,
        threads: 2,
        key_maximum: 999,
        warm_up: Duration::from_millis(100),
        test_time: Duration::from_millis(500),
        ..Config::default()
    }
}

#[test]
fn memcached_passes() {
    if !memcached_is_here() {
        return;
    }
    let server = Server::memcached();
    let exponential = ThinkTime::exponential(Duration::from_millis(1));
    let runs = [
        Config { ratio_get: 1, ..config(&server) },
        Config { pipeline: 16, multi_key_get: 12, ..config(&server) },
        Config { data_size: fixed_bytes(200_000), key_maximum: 49, ratio_get: 2, ..config(&server) },
        Config { think_time: exponential, key_maximum: 9, ratio_get: 1, ..config(&server) },
    ];
    for config in runs {
        let summary = support::run(&config);
        assert!(summary.valid, "{config:?}: {:?}", summary.reasons);
        assert!(summary.errors.is_empty(), "{:?}", summary.errors);
        assert_eq!(summary.totals.requests_sent, summary.totals.requests_answered);
        assert_eq!((summary.totals.misses, summary.verification.keys_uncertain), (0, 0));
        assert!(summary.totals.requests > 10);
        let shown = load::render(&summary);
        assert!(shown.contains("N=20 clients") && !shown.contains("INVALID"), "{shown}");
    }
}

#[test]
fn values_that_memcached_rejects_are_reported_in_its_words() {
    if !memcached_is_here() {
        return;
    }
    let server = Server::memcached();
    let config = Config { data_size: fixed_bytes(2 << 20), ..config(&server) };
    let line = support::try_run(&config).unwrap_err().to_string();
    assert!(line.contains("SERVER_ERROR object too large for cache"), "{line}");
    let summary = support::run(&Config { prefill: false, ratio_set: 1, ratio_get: 9, key_maximum: 99_999, ..config });
    assert!(summary.errors["SERVER_ERROR object too large for cache"] > 0, "{:?}", summary.errors);
    assert!(summary.verification.keys_uncertain > 0 && summary.verification.unexpected_reply == 0);
}
