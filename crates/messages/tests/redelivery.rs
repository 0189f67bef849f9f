//! Redelivery during other work: expired messages of another queue, a row that cannot be moved, a locked queue, too few connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{make, receive};
use common::{Client, Database, serve};
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
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (other, connection) =
        runtime.block_on(tokio_postgres::connect(&database.server.url(), tokio_postgres::NoTls)).unwrap();
    runtime.spawn(connection);
    let run = |statements: &str| runtime.block_on(other.batch_execute(statements)).unwrap();
    run("BEGIN; SELECT FROM queue WHERE name = 'locked' FOR UPDATE");
    database.run("UPDATE invisible_message SET due_at = now()");
    becomes(&mut client, "GET", "/v1/queues/jobs/messages/head", 200);
    assert_eq!(client.short("GET", "/v1/queues/locked/messages/head").0, 204);
    run("ROLLBACK");
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
