//! Sends with an idempotency key over a real PostgreSQL: stored once, however often and through any service they are sent.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, Session, serve};
use messages::{Config, DispatchConfig, Limits};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use testkit::HttpReply;

const STORED: &str = "SELECT count(*) FROM message";
const SEND: &str = "/v1/queues/q/messages";

fn send(client: &mut Client, path: &str, key: &str, body: &str) -> HttpReply {
    client.ask_with("POST", path, &format!("Idempotency-Key: {key}"), body)
}

/// The body of a reply, and whether the send was replayed.
fn reply_of(reply: &HttpReply) -> (String, bool) {
    assert_eq!(reply.status, 201, "{}", reply.text());
    (reply.text(), reply.header("idempotency-replayed") == Some("true"))
}

#[test]
fn a_repeated_send_stores_nothing_and_returns_the_same_ids() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 3 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let (mut alice, mut bob) =
            (Client::connect(running.address(), "alice"), Client::connect(running.address(), "bob"));
        for queue in ["q", "p"] {
            assert_eq!(alice.short("PUT", &format!("/v1/queues/{queue}")).0, 201);
        }
        let (first, is_replayed) = reply_of(&send(&mut alice, SEND, "k", "x"));
        assert!(!is_replayed);
        assert_eq!(reply_of(&send(&mut alice, SEND, "k", "x")), (first.clone(), true));
        for (path, body) in [(SEND, "y"), ("/v1/queues/q/messages?to=bob", "x")] {
            let reply = send(&mut alice, path, "k", body);
            assert_eq!(reply.status, 422);
            assert!(reply.text().contains("urn:waystage:problem:idempotency-key-reused"), "{}", reply.text());
        }
        // The key belongs to the sender and the queue.
        assert!(!reply_of(&send(&mut bob, SEND, "k", "y")).1);
        assert!(!reply_of(&send(&mut alice, "/v1/queues/p/messages", "k", "z")).1);
        assert_eq!(send(&mut alice, "/v1/queues/none/messages", "k", "x").status, 404);
        // A batch with one delayed message.
        let batch = r#"{"messages":[{"body":"1"},{"body":"2","to":"bob","delay":"1h"}]}"#;
        let path = "/v1/queues/q/messages:batch";
        let (ids, is_replayed) = reply_of(&send(&mut alice, path, "b", batch));
        assert!(!is_replayed && ids.contains("\"ids\":["), "{ids}");
        assert_eq!(reply_of(&send(&mut alice, path, "b", batch)), (ids, true));
        let other = r#"{"messages":[{"body":"2","to":"bob"},{"body":"1"}]}"#;
        assert_eq!(send(&mut alice, path, "b", other).status, 422);
        assert_eq!((database.number(STORED), database.number("SELECT count(*) FROM invisible_message")), (4, 1));
        // The key remains valid after the message was removed.
        assert_eq!(alice.short("POST", "/v1/queues/q/messages:pop").0, 200);
        assert_eq!(reply_of(&send(&mut alice, SEND, "k", "x")), (first, true));
        for key in ["", "a b", &"k".repeat(81)] {
            assert_eq!(send(&mut alice, SEND, key, "x").status, 400, "{key:?}");
        }
        for queue in ["q", "p"] {
            alice.short("DELETE", &format!("/v1/queues/{queue}"));
        }
        running.stop().unwrap();
        database.run("TRUNCATE message, invisible_message");
    }
}

/// Concurrent sends with the same keys, in one statement and in two services: each key is stored once, and all replies are equal.
#[test]
fn concurrent_sends_with_a_key_are_stored_once() {
    const KEYS: usize = 40;
    let Some(database) = Database::start() else { return };
    let services = [serve(&database.config()), serve(&database.config())];
    let addresses: Vec<SocketAddr> = services.iter().map(messages::RunningService::address).collect();
    assert_eq!(Client::connect(addresses[0], "alice").short("PUT", "/v1/queues/q").0, 201);
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let address = addresses[number % 2];
            std::thread::spawn(move || {
                let mut client = Client::connect(address, "alice");
                let one = |key: usize| {
                    // Half of the clients use the keys in reverse order, so that statements meet with the same keys in different orders.
                    let key = if number < 4 { key } else { KEYS - 1 - key };
                    let reply = send(&mut client, SEND, &format!("k{key}"), &format!("body {key}"));
                    (key, reply_of(&reply))
                };
                (0..KEYS).map(one).collect::<Vec<_>>()
            })
        })
        .collect();
    let all: Vec<(usize, (String, bool))> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    for key in 0..KEYS {
        let of_key: Vec<&(String, bool)> = all.iter().filter(|(of, _)| *of == key).map(|(_, reply)| reply).collect();
        let ids: BTreeSet<&str> = of_key.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!((ids.len(), of_key.iter().filter(|(_, is_replayed)| !is_replayed).count()), (1, 1), "{of_key:?}");
    }
    assert_eq!(database.number(STORED), KEYS as i64);
    for service in services {
        service.stop().unwrap();
    }
}

/// The delay and the expiry of the first send apply, whatever the queue's expiry and those of the repeat are.
#[test]
fn a_repeat_is_answered_after_the_expiry_was_shortened() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut alice = Client::connect(running.address(), "alice");
    assert_eq!(alice.short("PUT", "/v1/queues/q").0, 201);
    let path = "/v1/queues/q/messages?delay=10s";
    let (first, _) = reply_of(&send(&mut alice, path, "k", "x"));
    let (batch_path, batch) =
        ("/v1/queues/q/messages:batch", r#"{"messages":[{"body":"1"},{"body":"2","delay":"10s"}]}"#);
    let (ids, _) = reply_of(&send(&mut alice, batch_path, "b", batch));
    assert_eq!(alice.ask("PUT", "/v1/queues/q", r#"{"expiry": "5s"}"#).status, 204);
    assert_eq!(reply_of(&send(&mut alice, path, "k", "x")), (first.clone(), true));
    assert_eq!(reply_of(&send(&mut alice, "/v1/queues/q/messages?delay=20s", "k", "x")), (first.clone(), true));
    assert_eq!(reply_of(&send(&mut alice, SEND, "k", "x")), (first, true));
    assert_eq!(reply_of(&send(&mut alice, batch_path, "b", batch)), (ids, true));
    for (key, body, expected) in [("k", "y", "idempotency-key-reused"), ("new", "x", "never-visible")] {
        let reply = send(&mut alice, path, key, body);
        assert_eq!(reply.status, 422, "{key}");
        assert!(reply.text().contains(&format!("urn:waystage:problem:{expected}")), "{}", reply.text());
    }
    assert_eq!(alice.ask("POST", path, "x").status, 422, "without a key");
    assert_eq!((database.number(STORED), database.number("SELECT count(*) FROM invisible_message")), (1, 2));
    running.stop().unwrap();
}

/// The first send has not ended when it is repeated, and the queue's expiry has been shortened meanwhile: the repeat waits for the first
/// send, and is refused only if there is none.
#[test]
fn a_repeat_waits_for_the_end_of_the_first_send() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut alice = Client::connect(address, "alice");
    assert_eq!(alice.ask("PUT", "/v1/queues/q", r#"{"expiry": "5s"}"#).status, 201);
    let first = Session::connect(&database);
    // As the statement of another service would do it.
    let begin = |key: &str| {
        first.run(&format!(
            "BEGIN; INSERT INTO idempotency_key (queue_id, sender, key, content_hash, ids)
             SELECT id, 'alice', '{key}', sha256(sha256(''::bytea) || sha256('x'::bytea)), '{{7}}' FROM queue WHERE name = 'q'"
        ));
    };
    let in_time = |path: &'static str, key: &'static str| {
        std::thread::spawn(move || send(&mut Client::connect(address, "alice"), path, key, "x"))
    };
    for (path, key) in [("/v1/queues/q/messages?delay=10s", "hidden"), (SEND, "plain")] {
        begin(key);
        let reply = send(&mut alice, path, key, "x");
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
        assert!(reply.text().contains("database-error\"") && reply.text().contains("first send"), "{}", reply.text());
        let repeat = in_time(path, key);
        // Shorter than its limit.
        std::thread::sleep(Duration::from_millis(100));
        first.run("COMMIT");
        assert_eq!(reply_of(&repeat.join().unwrap()), ("{\"id\":7}".into(), true));
    }
    // Another body, and a first send that is rolled back.
    begin("other");
    let repeat = in_time("/v1/queues/q/messages?delay=10s", "other");
    std::thread::sleep(Duration::from_millis(100));
    first.run("ROLLBACK");
    assert!(repeat.join().unwrap().text().contains("never-visible\""));
    let reply = send(&mut alice, "/v1/queues/q/messages?delay=10s", "plain", "y");
    assert!(reply.status == 422 && reply.text().contains("idempotency-key-reused\""), "{}", reply.text());
    assert_eq!(database.number("SELECT count(*) FROM idempotency_key"), 2, "the check leaves no key behind");
    assert_eq!(database.number(STORED), 0);
    running.stop().unwrap();
}

#[test]
fn a_key_is_deleted_after_its_retention() {
    let Some(database) = Database::start() else { return };
    let limits = Limits { key_retention: Duration::from_millis(1), ..Limits::default() };
    let running = serve(&Config { limits, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    client.short("PUT", "/v1/queues/q");
    let (first, _) = reply_of(&send(&mut client, SEND, "k", "x"));
    // The cleanup runs every half minute, and when a queue is deleted.
    let mut tries = 0;
    while database.number("SELECT count(*) FROM idempotency_key") > 0 {
        client.short("PUT", "/v1/queues/wake");
        client.short("DELETE", "/v1/queues/wake");
        tries += 1;
        assert!(tries < 1000, "the key is still stored");
    }
    let (second, is_replayed) = reply_of(&send(&mut client, SEND, "k", "x"));
    assert!(!is_replayed && second != first);
    running.stop().unwrap();
}
