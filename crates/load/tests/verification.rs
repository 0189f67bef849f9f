//! Servers that reply with wrong bytes: every kind is found, named and makes the run invalid.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use load::{Config, Summary};
use std::collections::HashSet;
use std::sync::Mutex;
use support::{Fault, TinyServer, config, run};

/// Runs against a server with `fault` in every seventh get.
fn with_fault(fault: Fault) -> Summary {
    let server = TinyServer::start(move |seen| if !seen.is_set && seen.number % 7 == 0 { fault } else { Fault::None });
    run(&config(&server))
}

fn assert_found(summary: &Summary, reason: &str) {
    assert!(!summary.valid);
    assert_eq!(summary.reasons.len(), 1, "{:?}", summary.reasons);
    assert!(summary.reasons[0].contains(reason), "{:?}", summary.reasons);
}

#[test]
fn a_healthy_server_passes() {
    let summary = with_fault(Fault::None);
    assert!(summary.valid, "{:?}", summary.reasons);
    let verification = summary.verification;
    assert_eq!(
        (verification.wrong, verification.torn, verification.stale, verification.unexpected_reply),
        (0, 0, 0, 0)
    );
    assert!(verification.checked > 0 && verification.keys_uncertain == 0);
    assert_eq!(summary.totals.requests_sent, summary.totals.requests_answered);
    assert_eq!(summary.totals.misses, 0);
}

#[test]
fn an_older_version_is_stale() {
    let summary = with_fault(Fault::Stale);
    assert_found(&summary, "are stale");
    assert!(summary.verification.stale > 0 && summary.verification.wrong == 0 && summary.verification.torn == 0);
}

/// A server that fails one set of each key and then acknowledges every set. If `keeps`, it stores them, too.
fn one_failure_per_key(keeps: bool) -> Summary {
    let failed = Mutex::new(HashSet::new());
    let server = TinyServer::start_with_keys(move |seen, key| {
        if !seen.is_load() || !seen.is_set {
            Fault::None
        } else if failed.lock().unwrap().insert(key.to_owned()) {
            Fault::Line("SERVER_ERROR once")
        } else if keeps {
            Fault::None
        } else {
            Fault::Line("STORED")
        }
    });
    // Every key is written often, so that most reads follow an acknowledged write.
    run(&Config { ratio_set: 1, ratio_get: 1, failed_max: 1.0, key_maximum: 9, ..config(&server) })
}

#[test]
fn lost_writes_are_found_after_a_failure_of_each_key() {
    let summary = one_failure_per_key(false);
    assert!(!summary.valid && summary.verification.stale > 0, "{:?}", summary.verification);
    assert!(summary.reasons.iter().any(|line| line.contains("are stale")), "{:?}", summary.reasons);
    let healthy = one_failure_per_key(true);
    assert_eq!((healthy.verification.stale, healthy.verification.keys_uncertain), (0, 0), "{:?}", healthy.verification);
}

#[test]
fn reads_that_cannot_be_judged_invalidate_a_run() {
    // Every set fails, so no value can be judged after the first set of its key.
    let server =
        TinyServer::start(|seen| if seen.is_load() && seen.is_set { Fault::Line("SERVER_ERROR") } else { Fault::None });
    let summary = run(&Config { failed_max: 0.7, key_maximum: 4, ..config(&server) });
    assert!(summary.verification.unjudged > 0 && summary.verification.stale == 0, "{:?}", summary.verification);
    assert_found(&summary, "could not be judged for staleness");
    // With noreply no value can ever be judged, so the run remains valid.
    let cache = testkit::Server::embedded();
    let quiet = run(&Config { noreply: true, servers: vec![cache.address().to_string()], ..config(&server) });
    assert!(quiet.valid && quiet.verification.unjudged > 0, "{:?}", quiet.reasons);
}

#[test]
fn another_keys_value_is_wrong() {
    let summary = with_fault(Fault::Wrong);
    assert_found(&summary, "belong to another key");
    assert!(summary.verification.wrong > 0 && summary.verification.torn == 0 && summary.verification.stale == 0);
}

#[test]
fn halves_of_two_versions_and_short_values_are_torn() {
    for fault in [Fault::Torn, Fault::Short] {
        let summary = with_fault(fault);
        assert_found(&summary, "are torn");
        assert!(summary.verification.torn > 0 && summary.verification.wrong == 0 && summary.verification.stale == 0);
    }
}

#[test]
fn a_reply_to_another_request_is_unexpected_and_the_run_continues() {
    for line in ["STORED", "BANANA", "42"] {
        let server =
            TinyServer::start(
                move |seen| {
                    if !seen.is_set && seen.number % 50 == 0 { Fault::Line(line) } else { Fault::None }
                },
            );
        let summary = run(&Config { failed_max: 1.0, ..config(&server) });
        assert_found(&summary, "replies matched no request");
        assert!(summary.verification.unexpected_reply > 1 && summary.errors["connection out of step"] > 1);
        assert!(summary.totals.requests > 100, "{}", summary.totals.requests);
    }
}

#[test]
fn values_in_any_order_and_of_repeated_keys_are_matched() {
    let server = TinyServer::start(|seen| if seen.number % 2 == 0 { Fault::Reversed } else { Fault::None });
    let summary = run(&Config { multi_key_get: 30, ratio_get: 5, ..config(&server) });
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!(summary.operations.get.hits, 30 * summary.operations.get.count);
    assert_eq!(summary.totals.keys, summary.operations.get.hits + summary.operations.set.count);
}

#[test]
fn values_too_short_for_their_version_are_verified_as_far_as_possible() {
    for data_size_bytes in [0, 1, 8, 9, 15, 16, 17] {
        let server = TinyServer::healthy();
        let summary = run(&Config { data_size: load::fixed_bytes(data_size_bytes), ..config(&server) });
        assert!(summary.valid, "{data_size_bytes}: {:?}", summary.reasons);
        assert!(summary.verification.checked > 0);
    }
}

#[test]
fn values_of_an_earlier_run_are_not_judged_until_overwritten() {
    let server = TinyServer::healthy();
    assert!(run(&config(&server)).valid);
    let second = run(&Config { prefill: false, seed: 2, ..config(&server) });
    assert!(second.valid, "{:?}", second.reasons);
    assert_eq!(second.verification.keys_uncertain, 0);
}

#[test]
fn misses_are_expected_without_a_prefill() {
    let server = TinyServer::healthy();
    let summary = run(&Config { prefill: false, ratio_set: 0, ..config(&server) });
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!((summary.totals.hits, summary.verification.checked), (0, 0));
    assert_eq!(summary.totals.misses, summary.totals.requests);
}
