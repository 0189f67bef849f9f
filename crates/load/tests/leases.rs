//! Loads with leases against a tiny service: a healthy one is valid, and each fault of a lying one is found.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/service.rs"]
mod service;

use clock::Clock;
use load::{Config, MessagesConfig, MessagesSummary, Summary};
use service::{Fault, Seen, TinyService};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Long enough that no lease ends by chance while its client acknowledges.
const LEASE: Duration = Duration::from_secs(2);

fn run(
    after_receive: &str,
    lease: Duration,
    script: impl Fn(&Seen) -> Fault + Send + Sync + 'static,
) -> (Summary, MessagesSummary) {
    run_clients(4, after_receive, lease, script)
}

/// Runs against a service with this script. Returns the summary and its part about messages.
fn run_clients(
    clients: usize,
    after_receive: &str,
    lease: Duration,
    script: impl Fn(&Seen) -> Fault + Send + Sync + 'static,
) -> (Summary, MessagesSummary) {
    let service = TinyService::start(script);
    let messages = MessagesConfig {
        mix: "send,receive:2".parse().unwrap(),
        after_receive: after_receive.parse().unwrap(),
        queues: 2,
        lease,
        redelivery_time: Duration::from_millis(1500),
        ..MessagesConfig::default()
    };
    let config = Config {
        servers: vec![service.address.to_string()],
        messages: Some(messages),
        data_size: load::fixed_bytes(100),
        clients,
        warm_up: Duration::ZERO,
        requests: Some(600),
        reply_timeout: Duration::from_secs(5),
        failed_max: 1.0,
        ..Config::default()
    };
    let summary = load::run(&config, &Clock::monotonic(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    let messages = summary.messages.clone().unwrap();
    (summary, messages)
}

#[test]
fn a_healthy_service_is_valid_whatever_clients_do_with_leases() {
    let steps = "acknowledge:8,extend:2,nack:2,abandon:2";
    let (summary, messages) = run(steps, Duration::from_millis(50), |_| Fault::None);
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!((messages.lost, messages.doubled, messages.delivered_while_leased), (0, 0, 0), "{messages:?}");
    assert_eq!(messages.received, messages.acknowledged, "each once, those after the run included");
    assert!(messages.leased > messages.received - messages.drained && messages.redelivered > 0, "{messages:?}");
    let operations = &summary.operations.messages;
    for name in ["receive", "acknowledge", "extend", "nack"] {
        assert!(operations[name].count > 0, "{name}");
    }
}

#[test]
fn a_message_under_two_leases_is_found() {
    let (summary, messages) =
        run(
            "abandon",
            LEASE,
            |seen| if seen.is_receive() && seen.receives == 20 { Fault::LeaseAgain } else { Fault::None },
        );
    assert!(messages.delivered_while_leased >= 1 && messages.lost == 0, "{messages:?}");
    assert!(!summary.valid && summary.reasons[0].contains("under two valid leases"), "{:?}", summary.reasons);
}

#[test]
fn a_message_that_comes_back_after_its_acknowledgement_is_found() {
    let (summary, messages) = run("acknowledge", LEASE, |seen| {
        if seen.is_acknowledgement() && seen.acknowledgements == 5 { Fault::Keep } else { Fault::None }
    });
    assert!(messages.doubled >= 1 && messages.lost == 0, "{messages:?}");
    assert!(!summary.valid && summary.reasons[0].contains("more than once"), "{:?}", summary.reasons);
}

#[test]
fn a_lost_message_is_found_among_leases() {
    let (_, messages) =
        run(
            "acknowledge:3,nack",
            LEASE,
            |seen| {
                if seen.is_send() && seen.sends == 10 { Fault::Lose } else { Fault::None }
            },
        );
    assert_eq!((messages.lost, messages.doubled), (1, 0), "{messages:?}");
}

#[test]
fn a_lease_refused_too_early_is_found() {
    let (summary, messages) = run("acknowledge", LEASE, |seen| {
        if seen.is_acknowledgement() && seen.acknowledgements == 5 {
            Fault::Problem(410, "lease-expired")
        } else {
            Fault::None
        }
    });
    assert_eq!((messages.ended_early, messages.lost), (1, 0), "{messages:?}");
    assert!(!summary.valid && summary.reasons[0].contains("ended early"), "{:?}", summary.reasons);
}

#[test]
fn a_message_that_is_held_too_long_is_found() {
    let (summary, messages) = run("abandon", Duration::from_millis(100), |seen| {
        if seen.is_receive() && seen.receives % 50 == 25 { Fault::Hide(4000) } else { Fault::None }
    });
    assert!(messages.held_too_long >= 1 && messages.lost == 0, "{messages:?}");
    assert!((1500..4500).contains(&messages.held_longest_ms), "{messages:?}");
    assert!(!summary.valid && summary.reasons[0].contains("held too long"), "{:?}", summary.reasons);
}

#[test]
fn an_acknowledgement_in_doubt_is_repeated_until_its_outcome_is_known() {
    for fault in [Fault::Cut, Fault::DoneAndProblem(503, "in-doubt"), Fault::Problem(503, "overloaded")] {
        // With a single client, the run does not end before the repetition.
        let (summary, messages) = run_clients(1, "acknowledge", 2 * LEASE, move |seen| {
            if seen.is_acknowledgement() && seen.acknowledgements == 5 { fault } else { Fault::None }
        });
        // This service does not know acknowledgements that it has received before: a repeated one gets 410, so its
        // lease ended early, and its message is missing.
        let is_done = u64::from(fault != Fault::Problem(503, "overloaded"));
        assert_eq!((messages.ended_early, messages.lost), (is_done, is_done), "{messages:?}");
        assert_eq!((summary.valid, messages.acknowledged_in_doubt), (is_done == 0, 0), "{:?}", summary.reasons);
    }
}

#[test]
fn a_receive_in_doubt_explains_nothing_that_is_lost() {
    let (summary, messages) = run("acknowledge", Duration::from_millis(300), |seen| {
        if seen.is_receive() && seen.receives == 20 { Fault::Cut } else { Fault::None }
    });
    assert_eq!((messages.receives_in_doubt, messages.lost, messages.doubled), (1, 0, 0), "{messages:?}");
    assert!(summary.valid, "{:?}", summary.reasons);
}
