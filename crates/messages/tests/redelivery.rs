//! Redelivery during other work: expired messages of another queue, a row that cannot be moved, a locked queue, too few connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::leases::{counts, make, receive};
use common::{Client, Database, Session, serve};
use std::time::Duration;

const EXPIRED: &str = "SELECT count(*) FROM message WHERE expires_at IS NOT NULL";

/// Waits until a request gets this status.
fn becomes(client: &mut Client, method: &str, path: &str, status: u16) -> String {
    for _ in 0..6000 {
        let reply = client.short(method, path);
        if reply.0 == status {
            return reply.1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{path}: {:?}", client.short(method, path));
}

#[test]
fn redelivery_does_not_wait_for_the_deletion_of_expired_messages() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    make(&mut client, "short", "");
    client.send("/v1/queues/jobs/messages", "work");
    database.run(
        "INSERT INTO message (id, queue_id, receiver, sender, body, expires_at)
         SELECT nextval('message_id'), (SELECT id FROM queue WHERE name = 'short'), '', 'x', 'x', now() - interval '1 second'
         FROM generate_series(1, 150000)",
    );
    let job = receive(&mut client, "jobs", "lease=20ms");
    assert_eq!(job.attempt, 1);
    becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
    let left = database.number(EXPIRED);
    assert!(left > 0, "all expired messages were deleted before one was redelivered");
    database.becomes_zero(EXPIRED);
    running.stop().unwrap();
}

#[test]
fn a_message_that_cannot_be_redelivered_is_set_aside_and_reported() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    for queue in ["bad", "jobs"] {
        make(&mut client, queue, "");
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
    }
    // Another program has stored a row with the id of a visible message.
    database.run(
        "INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, attempts, due_at)
         SELECT id, queue_id, receiver, sender, sent_at, body, 0, now() FROM message
         WHERE queue_id = (SELECT id FROM queue WHERE name = 'bad')",
    );
    for _ in 0..3 {
        receive(&mut client, "jobs", "lease=20ms");
        becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
    }
    assert_eq!(database.number("SELECT count(*) FROM invisible_message"), 1, "nothing is lost");
    let (_, page) = client.short("GET", "/metrics");
    assert!(page.contains("\nwaystage_messages_redelivery_failures_total 1\n"), "{page}");
    running.stop().unwrap();
}

/// Other messages wait for the attempts to redeliver them, so there must not be many.
#[test]
fn each_message_that_cannot_be_redelivered_costs_about_one_attempt() {
    const BAD: i64 = 300;
    const FAILED: &str = "SELECT xact_rollback::bigint FROM pg_stat_database WHERE datname = current_database()";
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "bad", "");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "work");
    receive(&mut client, "jobs", "lease=1h");
    let before = database.number(FAILED);
    database.run(&format!(
        "INSERT INTO message (id, queue_id, receiver, sender, body)
         SELECT -g, (SELECT id FROM queue WHERE name = 'bad'), '', 'x', 'x' FROM generate_series(1, {BAD}) AS g;
         INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, attempts, due_at)
         SELECT id, queue_id, receiver, sender, sent_at, body, 0, now() - interval '1 minute' FROM message WHERE id < 0;
         UPDATE invisible_message SET due_at = now() WHERE id > 0"
    ));
    becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
    // PostgreSQL reports the statistics of a connection after a second.
    std::thread::sleep(Duration::from_millis(2500));
    let failed = database.number(FAILED) - before;
    assert!(failed < 2 * BAD, "{failed} failed statements for {BAD} messages");
    running.stop().unwrap();
}

#[test]
fn a_locked_queue_delays_only_its_own_messages() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    for queue in ["locked", "jobs"] {
        make(&mut client, queue, "");
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
        receive(&mut client, queue, "lease=1h");
    }
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM queue WHERE name = 'locked' FOR UPDATE");
    database.run("UPDATE invisible_message SET due_at = now()");
    becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
    assert_eq!(client.short("GET", "/v1/queues/locked/messages/head").0, 204);
    other.run("ROLLBACK");
    becomes(&mut client, "GET", "/v1/queues/locked/messages/head", 200);
    running.stop().unwrap();
}

/// Scans start at the messages that have become due lately. Earlier ones are found twice a minute.
#[test]
fn a_message_returns_soon_after_a_lock_that_was_longer_than_the_scans_reach_back() {
    let Some(database) = Database::start() else { return };
    let other = Session::connect(&database);
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "work");
    running.stop().unwrap();
    for (round, locked) in ["queue", "invisible_message"].into_iter().enumerate() {
        let running = serve(&database.config());
        let mut client = Client::connect(running.address(), "alice");
        let job = receive(&mut client, "jobs", "lease=1h&wait=20s");
        assert_eq!(job.attempt, 1 + u32::try_from(round).unwrap());
        running.stop().unwrap();
        other.run("UPDATE invisible_message SET due_at = now() - interval '2 minutes'");
        other.run(&format!("BEGIN; SELECT FROM {locked} FOR UPDATE"));
        let running = serve(&database.config());
        let mut client = Client::connect(running.address(), "alice");
        becomes(&mut client, "GET", "/readyz", 204);
        // The first scan finds the lock.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(counts(&mut client, "jobs"), (0, 1));
        other.run("ROLLBACK");
        // It takes less than a second; this machine may be busy. The next scan of all messages is due in 27 s.
        let clock = Clock::monotonic();
        let ended = clock.now();
        becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
        let waited = clock.now().after(ended);
        assert!(waited < Duration::from_secs(15), "{locked}: it returned {waited:?} after the lock");
        running.stop().unwrap();
    }
}

/// More messages than a batch has wait for a dead-letter queue whose row is locked. Other messages of their queues return.
#[test]
fn a_locked_dead_letter_queue_delays_only_the_messages_for_it() {
    const DEAD: i64 = 600;
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "dead", "");
    make(&mut client, "jobs", r#"{"attempts": 2, "dead_letter_queue": "dead"}"#);
    make(&mut client, "others", "");
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM queue WHERE name = 'dead' FOR UPDATE");
    let due = |queue: &str, ids: &str, attempts: u32| {
        format!(
            "INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, attempts, due_at)
             SELECT id, (SELECT queue.id FROM queue WHERE name = '{queue}'), '', 'x', now(), 'x', {attempts}, now() - interval '2 seconds'
             FROM generate_series({ids}) AS id;"
        )
    };
    // These come last.
    let returns = [due("jobs", "-1, -1", 1), due("others", "-2, -2", 2)].concat().replace("2 seconds", "1 second");
    database.run(&[due("jobs", &format!("-{}, -1001", 1000 + DEAD), 2), returns].concat());
    let clock = Clock::monotonic();
    let began = clock.now();
    for queue in ["jobs", "others"] {
        becomes(&mut client, "GET", &format!("/v1/queues/{queue}/messages/head"), 200);
    }
    // Messages that have been due for a minute are in full scans only, so these would return then.
    let took = clock.now().after(began);
    assert!(took < Duration::from_secs(25), "{took:?}");
    assert_eq!(counts(&mut client, "dead"), (0, 0));
    assert_eq!(counts(&mut client, "jobs"), (1, DEAD));
    // A lock of the source does not delay dead letters.
    let source = Session::connect(&database);
    source.run("BEGIN; SELECT FROM queue WHERE name = 'jobs' FOR UPDATE");
    database.run(&due("jobs", "-3, -3", 1));
    other.run("ROLLBACK");
    database.becomes_zero(&format!(
        "SELECT {DEAD} - count(*) FROM message WHERE queue_id = (SELECT id FROM queue WHERE name = 'dead')"
    ));
    assert_eq!(counts(&mut client, "jobs"), (1, 1));
    source.run("ROLLBACK");
    database.becomes_zero("SELECT count(*) FROM invisible_message");
    assert_eq!(counts(&mut client, "jobs"), (2, 0));
    running.stop().unwrap();
}

/// Without a dead-letter queue, the limit of attempts does not count.
#[test]
fn a_locked_queue_whose_dead_letter_queue_was_deleted_delays_only_its_own_messages() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "dead", "");
    make(&mut client, "locked", r#"{"attempts": 1, "dead_letter_queue": "dead"}"#);
    make(&mut client, "jobs", "");
    assert_eq!(client.short("DELETE", "/v1/queues/dead").0, 204);
    for queue in ["locked", "jobs"] {
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
        receive(&mut client, queue, "lease=1h");
    }
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM queue WHERE name = 'locked' FOR UPDATE");
    database.run("UPDATE invisible_message SET due_at = now()");
    becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
    other.run("ROLLBACK");
    becomes(&mut client, "GET", "/v1/queues/locked/messages/head", 200);
    running.stop().unwrap();
}

#[test]
fn a_service_without_enough_connections_is_not_ready() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE narrow LOGIN; GRANT ALL ON SCHEMA public TO narrow");
    // The loops and the check of the database need five. Which of them have one differs.
    for limit in [2, 4] {
        database.run(&format!("ALTER ROLE narrow CONNECTION LIMIT {limit}"));
        let config = database.config();
        let url = config.database.replace("user=waystage", "user=narrow");
        let running = serve(&messages::Config { database: url, ..config });
        let mut client = Client::connect(running.address(), "alice");
        for _ in 0..8 {
            let text = becomes(&mut client, "GET", "/readyz", 503);
            let has_reason = text.contains("urn:waystage:problem:not-ready\"") && text.contains("too many connections");
            assert!(has_reason, "{limit}: {text}");
            std::thread::sleep(Duration::from_millis(250));
        }
        running.stop().unwrap();
    }
}
