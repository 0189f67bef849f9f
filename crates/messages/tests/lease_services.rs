//! Leases with concurrent activity: a second service that also redelivers, and queues that are deleted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{INVISIBLE, counts, lease_action, make, receive};
use common::{Client, Database, serve};
use std::collections::BTreeSet;
use std::time::Duration;

/// Two services redeliver the same rows: each message comes back once.
#[test]
fn two_services_redeliver_each_message_once() {
    const MESSAGES: usize = 1200;
    let Some(database) = Database::start() else { return };
    let services = [serve(&database.config()), serve(&database.config())];
    let [first, second] = [services[0].address(), services[1].address()];
    let mut client = Client::connect(first, "alice");
    make(&mut client, "jobs", "");
    let all = vec![r#"{"body":"work"}"#; 100].join(",");
    let document = format!(r#"{{"messages":[{all}]}}"#);
    for _ in 0..MESSAGES / 100 {
        assert_eq!(client.ask("POST", "/v1/queues/jobs/messages:batch", &document).status, 201);
        let path = "/v1/queues/jobs/messages:receive?max=100&lease=200ms";
        let (_, text) = client.short("POST", path);
        assert!(text.contains("\"attempt\""), "{text}");
    }
    let consumers = [first, second].map(|address| {
        std::thread::spawn(move || {
            let mut client = Client::connect(address, "bob");
            let mut ids = Vec::new();
            loop {
                let (_, text) = client.short("POST", "/v1/queues/jobs/messages:pop?max=100&wait=2s");
                let found =
                    text.split("\"id\":").skip(1).map(|rest| rest.split(',').next().unwrap().parse::<i64>().unwrap());
                let before = ids.len();
                ids.extend(found);
                if ids.len() == before {
                    return ids;
                }
            }
        })
    });
    let ids: Vec<i64> = consumers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let distinct: BTreeSet<i64> = ids.iter().copied().collect();
    assert_eq!((ids.len(), distinct.len()), (MESSAGES, MESSAGES));
    assert_eq!(database.number(INVISIBLE), 0);
    for service in services {
        service.stop().unwrap();
    }
}

/// Deleting a queue deletes its messages, leases and keys from the tables; a new queue of the same name is empty.
#[test]
fn a_deleted_queue_leaves_nothing_behind() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    make(&mut client, "other", "");
    client.send("/v1/queues/other/messages", "stays");
    for _ in 0..3 {
        client.send("/v1/queues/jobs/messages?to=bob", "work");
    }
    client.send("/v1/queues/jobs/messages?delay=1h", "later");
    let keyed = client.ask_with("POST", "/v1/queues/jobs/messages?to=bob", "idempotency-key: k", "work");
    assert_eq!(keyed.status, 201);
    let job = receive(&mut client, "jobs", "for=bob&lease=1h");
    let poll = std::thread::spawn(move || {
        Client::connect(address, "carol").short("POST", "/v1/queues/jobs/messages:receive?wait=50s").0
    });
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 1") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.short("DELETE", "/v1/queues/jobs").0, 204);
    assert_eq!(poll.join().unwrap(), 404);
    for (how, status) in [("extend", 410), ("nack", 410), ("acknowledge", 204)] {
        assert_eq!(lease_action(&mut client, &job, how), status, "{how}");
    }
    make(&mut client, "jobs", "");
    assert_eq!(counts(&mut client, "jobs"), (0, 0));
    let again = client.ask_with("POST", "/v1/queues/jobs/messages", "idempotency-key: k", "other work");
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, None));
    for table in ["message", "invisible_message", "idempotency_key"] {
        let statement = format!(
            "SELECT count(*) FROM {table} WHERE queue_id IN (SELECT id FROM queue WHERE deleted_at IS NOT NULL)"
        );
        database.becomes_zero(&statement);
    }
    assert_eq!(database.number("SELECT count(*) FROM message"), 2, "messages in other queues remain");
    running.stop().unwrap();
}
