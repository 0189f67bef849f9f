//! Delayed and expiring messages over a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use std::net::SocketAddr;
use std::time::Duration;

#[test]
fn delayed_and_expiring_messages() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    delayed(address);
    delayed_in_a_batch(address);
    expired(&database, address);
    expired_while_invisible(&database, address);
    the_queues_expiry(&database, address);
    refused(address);
    running.stop().unwrap();
}

fn delayed(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/later");
    let poll = std::thread::spawn(move || {
        Client::connect(address, "bob").ask("POST", "/v1/queues/later/messages:pop?wait=50s", "")
    });
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 1") {
        std::thread::sleep(Duration::from_millis(5));
    }
    client.send("/v1/queues/later/messages?delay=1h", "much later");
    let id = client.send("/v1/queues/later/messages?delay=100ms", "later");
    let got = poll.join().unwrap();
    assert_eq!((got.text().as_str(), got.header("waystage-message").unwrap()), ("later", id.to_string().as_str()));
    let took = |name: &str| got.header(name).unwrap().to_string();
    assert_eq!((took("waystage-sender").as_str(), got.header("waystage-lease-token")), ("alice", None));
    for (method, path) in [
        ("POST", "/v1/queues/later/messages:pop"),
        ("POST", "/v1/queues/later/messages:receive"),
        ("GET", "/v1/queues/later/messages/head"),
    ] {
        assert_eq!(client.short(method, path).0, 204, "{path}");
    }
    let (_, text) = client.short("GET", "/v1/queues/later");
    assert!(text.contains("\"visible\":0") && text.contains("\"invisible\":1"), "{text}");
    client.short("DELETE", "/v1/queues/later");
}

fn delayed_in_a_batch(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/later");
    let document = r#"{"messages":[{"body":"late","delay":"50ms"},{"body":"now","delay":"0s"},{"body":"soon"}]}"#;
    let reply = client.ask("POST", "/v1/queues/later/messages:batch", document);
    assert_eq!((reply.status, reply.text().matches(',').count()), (201, 2), "{}", reply.text());
    let mut bodies: Vec<String> =
        (0..3).map(|_| client.short("POST", "/v1/queues/later/messages:pop?wait=50s").1).collect();
    // On a slow machine, the delayed message may be visible before the first fetch, and it has the lowest id.
    bodies.sort();
    assert_eq!(bodies, ["late", "now", "soon"]);
    client.short("DELETE", "/v1/queues/later");
}

/// Waits until the database's clock has passed this time.
fn let_pass(database: &Database, ms: i64) {
    let now = || database.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    let begin = now();
    while now() <= begin + ms {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn expired(database: &Database, address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/brief");
    let last = client.send("/v1/queues/brief/messages?to=bob&expiry=1h", "lasts");
    client.send("/v1/queues/brief/messages?to=carol&expiry=30ms", "brief");
    client.send("/v1/queues/brief/messages?expiry=30ms", "brief");
    let_pass(database, 30);
    // The rows may or may not be deleted yet; either way no operation returns them.
    for (method, path) in [
        ("POST", "/v1/queues/brief/messages:pop?for=carol"),
        ("POST", "/v1/queues/brief/messages:receive?for=carol"),
        ("GET", "/v1/queues/brief/messages/head?for=carol"),
        ("POST", "/v1/queues/brief/messages:pop?for=carol&from=alice"),
        ("POST", "/v1/messages:pop?for=carol&from=alice"),
        ("GET", "/v1/messages/head?for=carol&from=alice"),
    ] {
        assert_eq!(client.short(method, path).0, 204, "{path}");
    }
    assert_eq!(client.short("GET", "/v1/receivers/carol/queues").1, "{\"queues\":[]}");
    let kept = client.ask("POST", "/v1/queues/brief/messages:pop?for=bob", "");
    assert_eq!(kept.header("waystage-message"), Some(last.to_string().as_str()));
    database.becomes_zero("SELECT count(*) FROM message");
    client.short("DELETE", "/v1/queues/brief");
}

/// A message that expires in flight can still be acknowledged, and is not redelivered.
fn expired_while_invisible(database: &Database, address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/brief");
    let mut receive = |lease: &str| loop {
        client.send("/v1/queues/brief/messages?expiry=100ms", "brief");
        let reply = client.ask("POST", &format!("/v1/queues/brief/messages:receive?lease={lease}"), "");
        // On a slow machine it may have expired before.
        if reply.status == 200 {
            return reply.header("waystage-lease-token").unwrap().to_string();
        }
    };
    let lease = receive("1h");
    receive("50ms");
    let_pass(database, 150);
    let mut client = Client::connect(address, "bob");
    assert_eq!(client.short("POST", &format!("/v1/leases/{lease}/acknowledge")).0, 204);
    database.becomes_zero("SELECT count(*) FROM invisible_message");
    assert_eq!(client.short("POST", "/v1/queues/brief/messages:pop").0, 204);
    client.short("DELETE", "/v1/queues/brief");
}

/// The queue's expiry applies to messages without one; in a dead-letter queue, that queue's expiry applies.
fn the_queues_expiry(database: &Database, address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    let make = |client: &mut Client, name: &str, settings: &str| {
        assert_eq!(client.ask("PUT", &format!("/v1/queues/{name}"), settings).status, 201);
    };
    make(&mut client, "dead", "");
    make(&mut client, "brief", r#"{"expiry":"50ms"}"#);
    make(&mut client, "jobs", r#"{"attempts":1,"dead_letter_queue":"dead","expiry":"1h"}"#);
    client.send("/v1/queues/brief/messages?expiry=1h", "lasts");
    client.send("/v1/queues/brief/messages", "brief");
    client.ask("POST", "/v1/queues/brief/messages:batch", r#"{"messages":[{"body":"brief","delay":"40ms"}]}"#);
    let_pass(database, 50);
    let (_, text) = client.short("POST", "/v1/queues/brief/messages:pop?max=10");
    assert_eq!(text.matches("\"id\"").count(), 1, "{text}");
    client.send("/v1/queues/jobs/messages", "work");
    assert_eq!(client.short("POST", "/v1/queues/jobs/messages:receive?lease=20ms").0, 200);
    database.becomes_zero("SELECT count(*) FROM invisible_message");
    assert_eq!(
        database.number("SELECT count(*) FROM message WHERE expires_at IS NULL"),
        1,
        "the message in the dead-letter queue"
    );
    assert_eq!(client.short("POST", "/v1/queues/dead/messages:pop?wait=50s"), (200, "work".into()));
    for queue in ["dead", "brief", "jobs"] {
        client.short("DELETE", &format!("/v1/queues/{queue}"));
    }
}

fn refused(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/q");
    for parameters in ["delay=361h", "delay=-1s", "delay=soon", "expiry=0s", "expiry=9601h"] {
        let reply = client.ask("POST", &format!("/v1/queues/q/messages?{parameters}"), "x");
        assert_eq!(reply.status, 400, "{parameters}");
        let name = if parameters.contains("expiry") { "expiry: " } else { "delay: " };
        assert!(reply.text().contains(name), "{}", reply.text());
    }
    let document = r#"{"messages":[{"body":"x"},{"body":"x","delay":"400h"}]}"#;
    let reply = client.ask("POST", "/v1/queues/q/messages:batch", document);
    assert!(reply.status == 400 && reply.text().contains("messages[1].delay: "), "{}", reply.text());
    for path in ["/v1/queues/q/messages:receive?lease=13h", "/v1/queues/q/messages:receive?lease=0s"] {
        assert_eq!(client.short("POST", path).0, 400, "{path}");
    }
    assert_eq!(client.short("POST", "/v1/leases/x/nack?delay=361h").0, 400);
    assert_eq!(client.short("POST", "/v1/leases/x/extend?lease=13h").0, 400);
    assert_eq!(client.short("POST", "/v1/leases/x/acknowledge").0, 410);
    // The queue's expiry would end before the delay.
    assert_eq!(client.ask("PUT", "/v1/queues/brief", r#"{"expiry":"1h"}"#).status, 201);
    for (parameters, status) in [
        ("delay=1h", 422),
        ("delay=2h", 422),
        ("delay=1h&expiry=1h", 422),
        ("delay=59m", 201),
        ("delay=2h&expiry=3h", 201),
    ] {
        let reply = client.ask("POST", &format!("/v1/queues/brief/messages?{parameters}"), "x");
        assert_eq!(reply.status, status, "{parameters}: {}", reply.text());
    }
    let batch = r#"{"messages":[{"body":"1"},{"body":"2","delay":"2h"}]}"#;
    let keyed = client.ask_with("POST", "/v1/queues/brief/messages:batch", "idempotency-key: k", batch);
    assert!(keyed.status == 422 && keyed.text().contains("urn:waystage:problem:never-visible"), "{}", keyed.text());
    assert!(
        client.short("GET", "/v1/queues/brief").1.contains("\"visible\":0"),
        "a batch is stored as a whole or not at all"
    );
    assert_eq!(client.ask("POST", "/v1/leases:acknowledge", r#"{"lease_tokens":[]}"#).status, 400);
    let (_, text) = client.short("GET", "/v1/queues/q");
    assert!(text.contains("\"visible\":0") && text.contains("\"invisible\":0"), "{text}");
    client.short("DELETE", "/v1/queues/q");
}
