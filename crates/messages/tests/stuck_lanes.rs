//! Another program holds a lock that statements of the service need. A lane that is stuck is reported, requests that need no such lock are
//! served, and a lock of single rows fails only the requests for these rows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::batch::{lanes_connect, one_batch};
use common::leases::{lease_action, make, serve_leases};
use common::{Client, Database, Session, serve};
use messages::{Config, DispatchConfig};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

const SEND: &str = "/v1/queues/q/messages";
const WAITERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

/// Waits until `/readyz` replies with this status, and returns the reply's body.
fn ready_becomes(client: &mut Client, status: u16) -> String {
    let mut last = String::new();
    for _ in 0..3000 {
        let reply = client.short("GET", "/readyz");
        if reply.0 == status {
            return reply.1;
        }
        last = reply.1;
        sleep(Duration::from_millis(20));
    }
    panic!("/readyz did not reply {status}: {last}");
}

/// The longest time that a lane is stuck for, in seconds.
fn stuck_for(client: &mut Client) -> f64 {
    let page = client.short("GET", "/metrics").1;
    let lines = page.lines().filter(|line| line.starts_with("waystage_messages_lane_stuck_seconds{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).fold(0.0, f64::max)
}

#[test]
fn lanes_that_wait_for_the_lock_of_a_table_are_reported() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 1 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let address = running.address();
        let mut client = Client::connect(address, "alice");
        client.short("PUT", "/v1/queues/q");
        client.send(SEND, "x");
        lanes_connect(&mut client);
        assert!(stuck_for(&mut client) < 1.0);
        // As `CREATE INDEX` does. The table can be read.
        let other = Session::connect(&database);
        other.run("BEGIN; LOCK TABLE message IN SHARE MODE");
        let is_over = Arc::new(AtomicBool::new(false));
        let sender = spawn({
            let is_over = is_over.clone();
            move || {
                let mut client = Client::connect(address, "bob");
                let mut replies = BTreeSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    let (status, text) = client.short("POST", SEND);
                    replies.insert((status, text.contains("database-error\"") && text.contains("lock timeout")));
                }
                replies
            }
        });
        let text = ready_becomes(&mut client, 503);
        for part in ["urn:waystage:problem:not-ready\"", "lane ", "(relation)", "server process "] {
            assert!(text.contains(part), "{dispatch:?}: {text}");
        }
        assert!(stuck_for(&mut client) > 5.0, "{dispatch:?}");
        assert_eq!(client.short("GET", "/v1/queues/q").0, 200);
        assert_eq!(client.short("GET", "/v1/queues/q/messages/head?from=alice"), (200, "x".into()));
        other.run("ROLLBACK");
        ready_becomes(&mut client, 204);
        is_over.store(true, Ordering::Relaxed);
        let replies = sender.join().unwrap();
        assert!(replies.contains(&(503, true)), "{replies:?}");
        assert!(replies.iter().all(|reply| [(503, true), (201, false)].contains(reply)), "{replies:?}");
        client.send(SEND, "x");
        assert!(stuck_for(&mut client) < 1.0);
        running.stop().unwrap();
    }
}

/// Only a request can find out whether a lane is still stuck. Without requests, the lane counts as ready after a while.
#[test]
fn a_lane_without_requests_is_not_stuck_for_ever() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "q", "");
    lanes_connect(&mut client);
    let other = Session::connect(&database);
    other.run("BEGIN; LOCK TABLE message IN SHARE MODE");
    let send = || spawn(move || Client::connect(address, "bob").short("POST", SEND).0);
    let first = send();
    while database.number(WAITERS) == 0 {
        sleep(Duration::from_millis(10));
    }
    let second = send();
    ready_becomes(&mut client, 503);
    assert_eq!([first, second].map(|send| send.join().unwrap()), [503, 503]);
    ready_becomes(&mut client, 204);
    drop(other);
    running.stop().unwrap();
}

#[test]
fn a_locked_message_fails_only_its_own_acknowledgement() {
    let Some(database) = Database::start() else { return };
    let config = Config { dispatch: DispatchConfig::Fused { lanes: 1 }, ..database.config() };
    let (running, mut client, jobs) = serve_leases(&config, ["locked", "free"]);
    let holder = Session::connect(&database);
    let rows = "queue_id = (SELECT id FROM queue WHERE name = 'locked')";
    holder.run(&format!("BEGIN; SELECT FROM invisible_message WHERE {rows} FOR UPDATE"));
    let acknowledgements = jobs.each_ref().map(|job| (format!("/v1/leases/{}/acknowledge", job.lease_token), ""));
    let clock = Clock::monotonic();
    let began = clock.now();
    let [locked, free] = one_batch(&database, running.address(), "free", acknowledgements);
    let took = clock.now().after(began);
    assert!(locked.status == 503 && locked.text().contains("database-error\""), "{}", locked.text());
    assert!(locked.text().contains("lock timeout"), "{}", locked.text());
    // The batch has waited for the lock, then the first request alone. After another eight seconds the others would fail as well.
    assert!(free.status == 204 || took > Duration::from_secs(13), "{} after {took:?}", free.text());
    ready_becomes(&mut client, 204);
    assert!(stuck_for(&mut client) < 1.0, "the other messages are served");
    holder.run("ROLLBACK");
    assert_eq!(lease_action(&mut client, &jobs[0], "acknowledge"), 204);
    running.stop().unwrap();
}

/// A queue whose row is locked delays the lists of others only briefly.
#[test]
fn a_locked_queue_fails_its_own_change() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM queue WHERE name = 'q' FOR UPDATE");
    let reply = client.ask("PUT", "/v1/queues/q", r#"{"lease": "1m"}"#);
    assert!(reply.status == 503 && reply.text().contains("lock timeout"), "{}", reply.text());
    assert_eq!(client.short("GET", "/v1/queues").0, 200);
    client.send(SEND, "x");
    other.run("ROLLBACK");
    assert_eq!(client.ask("PUT", "/v1/queues/q", r#"{"lease": "1m"}"#).status, 204);
    running.stop().unwrap();
}

/// Each send alone would wait for the lock. The service gives up the connection of a lane whose batch takes too long, and then all of them
/// would be in doubt.
#[test]
fn many_sends_with_keys_do_not_wait_one_after_the_other() {
    const SENDS: usize = 150;
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "q", "");
    lanes_connect(&mut client);
    let other = Session::connect(&database);
    other.run("BEGIN; LOCK TABLE idempotency_key IN SHARE MODE");
    let send = |number: usize| {
        let key = format!("Idempotency-Key: {number}");
        spawn(move || Client::connect(address, "alice").ask_with("POST", SEND, &key, "x"))
    };
    for reply in (0..SENDS).map(send).collect::<Vec<_>>() {
        let reply = reply.join().unwrap();
        assert!(reply.status == 503 && reply.text().contains("database-error\""), "{}", reply.text());
    }
    other.run("ROLLBACK");
    assert_eq!(client.ask_with("POST", SEND, "Idempotency-Key: 1", "x").status, 201);
    assert_eq!(database.number("SELECT count(*) FROM message"), 1);
    running.stop().unwrap();
}

/// A send with a key waits for half a second at most, so no check of running statements sees what it waits for.
#[test]
fn sends_with_keys_that_wait_for_the_lock_of_a_table_are_reported() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    lanes_connect(&mut client);
    for table in ["idempotency_key", "message"] {
        let other = Session::connect(&database);
        other.run(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE"));
        let reason = (0..100).find_map(|number| {
            let reply = client.ask_with("POST", SEND, &format!("Idempotency-Key: {table}-{number}"), "x");
            let text = reply.text();
            assert!(
                reply.status == 503 && text.contains("database-error\"") && text.contains("lock timeout"),
                "{text}"
            );
            let (status, text) = client.short("GET", "/readyz");
            (status == 503).then_some(text)
        });
        let reason = reason.unwrap();
        for part in ["lane keyed ", "(relation)", "server process "] {
            assert!(reason.contains(part), "{table}: {reason}");
        }
        assert!(stuck_for(&mut client) > 5.0, "{table}");
        other.run("ROLLBACK");
        assert_eq!(client.ask_with("POST", SEND, &format!("Idempotency-Key: {table}"), "x").status, 201);
        ready_becomes(&mut client, 204);
    }
    running.stop().unwrap();
}

/// A connection prepares its statements first, which waits for the locks of their tables.
#[test]
fn a_lane_that_connects_waits_briefly_for_the_lock_of_a_table() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    lanes_connect(&mut client);
    let other = Session::connect(&database);
    other.run(
        "BEGIN; LOCK TABLE message IN SHARE MODE; SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    let clock = Clock::monotonic();
    let began = clock.now();
    while !ready_becomes(&mut client, 503).contains("lock timeout") {
        assert!(clock.now().after(began) < Duration::from_secs(20));
        sleep(Duration::from_millis(20));
    }
    let asked = clock.now();
    let (status, text) = client.short("POST", SEND);
    assert!(status == 503 && text.contains("database-down\""), "{text}");
    let waited = clock.now().after(asked);
    assert!(waited < Duration::from_secs(12), "{waited:?}");
    other.run("ROLLBACK");
    lanes_connect(&mut client);
    client.send(SEND, "x");
    running.stop().unwrap();
}
