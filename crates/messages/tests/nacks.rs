//! A nack without delay returns the message to its place before the reply, so the next receive gets it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{counts, lease_action, make, receive};
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::time::Duration;

#[test]
fn a_nacked_message_is_the_next_with_both_disciplines() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 4 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let mut client = Client::connect(running.address(), "alice");
        make(&mut client, "jobs", "");
        for round in 0..20 {
            for body in ["first", "second", "third"] {
                client.send("/v1/queues/jobs/messages", body);
            }
            let first = receive(&mut client, "jobs", "lease=1h");
            let second = receive(&mut client, "jobs", "lease=1h");
            assert_eq!(lease_action(&mut client, &second, "nack"), 204);
            assert_eq!(lease_action(&mut client, &first, if round % 2 == 0 { "nack" } else { "nack?delay=0s" }), 204);
            assert_eq!(lease_action(&mut client, &first, "nack"), 410, "its lease has ended");
            let again = receive(&mut client, "jobs", "lease=1h");
            assert_eq!((again.id, again.attempt, again.body.as_str()), (first.id, 2, "first"), "round {round}");
            assert_eq!(lease_action(&mut client, &first, "acknowledge"), 410, "its lease was nacked");
            assert_eq!(lease_action(&mut client, &again, "acknowledge"), 204);
            for body in ["second", "third"] {
                assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop"), (200, body.into()), "round {round}");
            }
        }
        assert_eq!(counts(&mut client, "jobs"), (0, 0));
        client.short("DELETE", "/v1/queues/jobs");
        running.stop().unwrap();
    }
}

/// Pops start at the low-water mark, which the nacked message is below.
#[test]
fn a_nacked_message_is_found_below_the_low_water_mark() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { low_water_refresh_after: 1, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    for _ in 0..3 {
        client.send("/v1/queues/jobs/messages", "old");
        let old = receive(&mut client, "jobs", "lease=1h");
        for _ in 0..10 {
            client.send("/v1/queues/jobs/messages", "young");
            assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop"), (200, "young".into()));
            std::thread::sleep(Duration::from_millis(60));
        }
        client.send("/v1/queues/jobs/messages", "young");
        assert_eq!(lease_action(&mut client, &old, "nack"), 204);
        for body in ["old", "young"] {
            assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop"), (200, body.into()));
        }
    }
    running.stop().unwrap();
}

/// A nack does not wait for a transaction that has locked the row of the queue, because it would stop the lane.
#[test]
fn a_nack_to_a_locked_queue_returns_later() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "work");
    let job = receive(&mut client, "jobs", "lease=1h");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connected = runtime.block_on(tokio_postgres::connect(&database.server.url(), tokio_postgres::NoTls));
    let (other, connection) = connected.unwrap();
    runtime.spawn(connection);
    let run = |statements: &str| runtime.block_on(other.batch_execute(statements)).unwrap();
    run("BEGIN; SELECT FROM queue WHERE name = 'jobs' FOR UPDATE");
    assert_eq!(lease_action(&mut client, &job, "nack"), 204);
    assert_eq!(counts(&mut client, "jobs"), (0, 1));
    run("ROLLBACK");
    let again = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!((again.id, again.attempt), (job.id, 2));
    running.stop().unwrap();
}

/// The queue's backoff and its dead-letter queue apply to nacks.
#[test]
fn a_backoff_or_the_last_attempt_keeps_a_nacked_message_away() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "slow", r#"{"backoff": "1h"}"#);
    make(&mut client, "dead", "");
    make(&mut client, "last", r#"{"attempts": 1, "dead_letter_queue": "dead"}"#);
    for queue in ["slow", "last"] {
        client.send(&format!("/v1/queues/{queue}/messages"), queue);
        let job = receive(&mut client, queue, "lease=1h");
        assert_eq!(lease_action(&mut client, &job, "nack"), 204);
        assert_eq!(client.short("POST", &format!("/v1/queues/{queue}/messages:pop")).0, 204);
    }
    assert_eq!(counts(&mut client, "slow"), (0, 1));
    assert_eq!(client.short("POST", "/v1/queues/dead/messages:pop?wait=50s"), (200, "last".into()));
    running.stop().unwrap();
}
