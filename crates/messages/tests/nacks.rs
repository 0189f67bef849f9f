//! A nack without delay returns the message to its place before the reply, so the next receive gets it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::batch::one_batch;
use common::leases::{counts, lease_action, make, receive, serve_a_lease, serve_leases};
use common::{Client, Database, Session, serve};
use messages::{Config, DispatchConfig};
use std::time::Duration;

fn one_lane(database: &Database) -> Config {
    Config { dispatch: DispatchConfig::Fused { lanes: 1 }, ..database.config() }
}

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
    let (running, mut client, job) = serve_a_lease(&database);
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM queue WHERE name = 'jobs' FOR UPDATE");
    assert_eq!(lease_action(&mut client, &job, "nack"), 204);
    assert_eq!(counts(&mut client, "jobs"), (0, 1));
    other.run("ROLLBACK");
    let again = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!((again.id, again.attempt), (job.id, 2));
    running.stop().unwrap();
}

/// A nack whose queue stays locked is tried again. If the database then refuses it, other nacks of the same batch were applied, and their
/// replies say so.
#[test]
fn a_nack_that_fails_later_fails_alone() {
    let Some(database) = Database::start() else { return };
    let (running, mut client, jobs) = serve_leases(&one_lane(&database), ["locked", "free"]);
    database.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full'; END$$;
         CREATE TRIGGER refuse BEFORE UPDATE ON invisible_message FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let holder = Session::connect(&database);
    holder.run("BEGIN; SELECT FROM queue WHERE name = 'locked' FOR UPDATE");
    let nacks = jobs.map(|job| (format!("/v1/leases/{}/nack", job.lease_token), ""));
    let [locked, free] = one_batch(&database, running.address(), "free", nacks);
    assert_eq!((locked.status, free.status), (503, 204), "{} {}", locked.text(), free.text());
    assert!(locked.text().contains("database-error\""), "{}", locked.text());
    assert_eq!(counts(&mut client, "free"), (1, 0));
    assert_eq!(counts(&mut client, "locked"), (0, 1));
    running.stop().unwrap();
}

/// The database refuses to move a message, because another program has changed the tables. Others of the same batch are moved.
#[test]
fn a_message_that_cannot_be_moved_does_not_fail_others() {
    let Some(database) = Database::start() else { return };
    let (running, mut client, jobs) = serve_leases(&one_lane(&database), ["bad", "good"]);
    make(&mut client, "empty", "");
    database.run(
        "INSERT INTO message (id, queue_id, receiver, sender, body) SELECT id, queue_id, receiver, sender, 'twin' FROM invisible_message
         WHERE queue_id = (SELECT id FROM queue WHERE name = 'bad')",
    );
    let together = |paths: [String; 2]| {
        one_batch(&database, running.address(), "empty", paths.map(|path| (path, ""))).map(|reply| reply.status)
    };
    let nacks = jobs.each_ref().map(|job| format!("/v1/leases/{}/nack", job.lease_token));
    assert_eq!(together(nacks), [500, 204]);
    let receives = ["bad", "good"].map(|queue| format!("/v1/queues/{queue}/messages:receive"));
    assert_eq!(together(receives), [500, 200]);
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
    // As after the visibility timeout, the last attempt has neither a backoff nor a delay.
    make(&mut client, "both", r#"{"attempts": 1, "dead_letter_queue": "dead", "backoff": "1h"}"#);
    for action in ["nack", "nack?delay=1h"] {
        client.send("/v1/queues/both/messages", action);
        let job = receive(&mut client, "both", "lease=1h");
        assert_eq!(lease_action(&mut client, &job, action), 204);
        assert_eq!(client.short("POST", "/v1/queues/dead/messages:pop?wait=20s"), (200, action.into()));
    }
    running.stop().unwrap();
}
