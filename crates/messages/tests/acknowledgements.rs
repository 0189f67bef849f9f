//! Repeated and late acknowledgements, backoff, and the origin that a dead letter reports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{INVISIBLE, Received, counts, lease_action, make, receive};
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::net::SocketAddr;
use std::time::Duration;

const LOST: &str = "SELECT count(*) FROM lost_lease";

#[test]
fn acknowledgements_with_both_disciplines() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 4 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let address = running.address();
        repeated(address);
        late(&database, address);
        lost(address);
        batch(address);
        running.stop().unwrap();
    }
}

/// A client whose reply was lost repeats the acknowledgement.
fn repeated(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages?to=bob", "work");
    let job = receive(&mut client, "jobs", "for=bob&lease=1h");
    for _ in 0..3 {
        assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204);
    }
    assert_eq!(lease_action(&mut client, &job, "extend"), 410);
    client.short("DELETE", "/v1/queues/jobs");
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204, "even after its queue was deleted");
}

/// The lease has expired, and no other client has taken the message.
fn late(database: &Database, address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    for receiver in ["", "?to=bob"] {
        client.send(&format!("/v1/queues/jobs/messages{receiver}"), "work");
        let job = receive(&mut client, "jobs", "for=bob&lease=1ms");
        database.becomes_zero(INVISIBLE);
        assert_eq!(counts(&mut client, "jobs"), (1, 0));
        assert_eq!(lease_action(&mut client, &job, "extend"), 410, "it is visible to others");
        assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204);
        assert_eq!(counts(&mut client, "jobs"), (0, 0), "it is gone");
        assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204);
    }
    client.short("DELETE", "/v1/queues/jobs");
}

/// Another client has taken the message: with a lease, with a pop, or it was nacked, or it is a dead letter.
fn lost(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "dead", "");
    make(&mut client, "jobs", r#"{"attempts":1,"dead_letter_queue":"dead"}"#);
    make(&mut client, "work", "");
    make(&mut client, "pops", "");
    let mut expired = |queue: &str| {
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
        receive(&mut client, queue, "lease=1ms")
    };
    let (leased, popped, dead) = (expired("work"), expired("pops"), expired("jobs"));
    let mut other = Client::connect(address, "bob");
    let again = receive(&mut other, "work", "lease=1h&wait=50s");
    assert_eq!((again.id, again.attempt), (leased.id, 2));
    assert_eq!(other.short("POST", "/v1/queues/pops/messages:pop?wait=50s").0, 200);
    assert_eq!(other.short("POST", "/v1/queues/dead/messages:pop?wait=50s").0, 200);
    other.send("/v1/queues/work/messages", "work");
    let nacked = receive(&mut other, "work", "lease=1h");
    assert_eq!(lease_action(&mut other, &nacked, "nack"), 204);
    for job in [&leased, &popped, &dead, &nacked] {
        assert_eq!(lease_action(&mut client, job, "acknowledge"), 410, "{job:?}");
    }
    assert_eq!(lease_action(&mut other, &again, "acknowledge"), 204);
    assert_eq!(lease_action(&mut client, &leased, "acknowledge"), 410, "the other client has finished it");
    assert_eq!(lease_action(&mut other, &again, "acknowledge"), 204);
    let unknown = Received { lease_token: "nonsense".into(), ..again };
    assert_eq!(lease_action(&mut client, &unknown, "acknowledge"), 410);
    for queue in ["dead", "jobs", "pops", "work"] {
        client.short("DELETE", &format!("/v1/queues/{queue}"));
    }
}

fn batch(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    let jobs: Vec<Received> = ["a", "b"]
        .iter()
        .map(|body| {
            client.send("/v1/queues/jobs/messages", body);
            receive(&mut client, "jobs", "lease=1h")
        })
        .collect();
    let document = format!(r#"{{"lease_tokens":["{}","{}","none"]}}"#, jobs[0].lease_token, jobs[1].lease_token);
    for _ in 0..2 {
        let reply = client.ask("POST", "/v1/leases:acknowledge", &document);
        assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"not_acknowledged":["none"]}"#));
    }
    client.short("DELETE", "/v1/queues/jobs");
}

/// An acknowledgement takes several statements. If a later one fails, the first has deleted messages, and the reply does not deny it.
#[test]
fn a_batch_that_was_applied_in_part_is_in_doubt() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE narrow LOGIN; GRANT ALL ON SCHEMA public TO narrow");
    let config = database.config();
    let running = serve(&Config { database: config.database.replace("user=waystage", "user=narrow"), ..config });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    let jobs = ["a", "b"].map(|body| {
        client.send("/v1/queues/jobs/messages", body);
        receive(&mut client, "jobs", "lease=1h")
    });
    assert_eq!(lease_action(&mut client, &jobs[0], "acknowledge"), 204);
    database.run("REVOKE SELECT ON lost_lease FROM narrow");
    let document = format!(r#"{{"lease_tokens":["{}","{}"]}}"#, jobs[0].lease_token, jobs[1].lease_token);
    let reply = client.ask("POST", "/v1/leases:acknowledge", &document);
    assert!(reply.status == 503 && reply.text().contains("in-doubt\""), "{}", reply.text());
    assert_eq!(counts(&mut client, "jobs"), (0, 0));
    let reply = client.ask("POST", &format!("/v1/leases/{}/acknowledge", jobs[0].lease_token), "");
    assert!(reply.status == 503 && reply.text().contains("database-error\""), "nothing was done: {}", reply.text());
    database.run("GRANT SELECT ON lost_lease TO narrow");
    let reply = client.ask("POST", "/v1/leases:acknowledge", &document);
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"not_acknowledged":[]}"#));
    running.stop().unwrap();
}

/// A message that expires during its last attempt is deleted. It does not move to the dead-letter queue, so its lease is not lost.
#[test]
fn a_late_acknowledgement_of_an_expired_message_succeeds() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "dead", "");
    make(&mut client, "jobs", r#"{"attempts":1,"dead_letter_queue":"dead"}"#);
    client.send("/v1/queues/jobs/messages?expiry=1h", "work");
    let job = receive(&mut client, "jobs", "lease=1h");
    database.run("UPDATE invisible_message SET expires_at = now() - interval '1 second', due_at = now()");
    database.becomes_zero(INVISIBLE);
    assert_eq!(counts(&mut client, "dead"), (0, 0));
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204);
    running.stop().unwrap();
}

#[test]
fn lost_leases_are_deleted_with_their_queue_or_after_their_retention() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    for queue in ["jobs", "kept"] {
        make(&mut client, queue, "");
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
        let job = receive(&mut client, queue, "lease=1h");
        assert_eq!(lease_action(&mut client, &job, "nack"), 204);
    }
    assert_eq!(database.number(LOST), 2);
    database.run("UPDATE lost_lease SET lost_at = now() - interval '2 days' WHERE queue_id = (SELECT id FROM queue WHERE name = 'kept')");
    client.short("DELETE", "/v1/queues/jobs");
    database.becomes_zero(LOST);
    running.stop().unwrap();
}

#[test]
fn redelivery_waits_for_the_backoff_of_the_queue() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", r#"{"backoff":"30m"}"#);
    assert!(client.short("GET", "/v1/queues/jobs").1.contains(r#""backoff":"30m""#));
    // Minutes until the message is due, rounded.
    const DUE: &str = "SELECT round(extract(epoch FROM max(due_at) - now()) / 60)::bigint FROM invisible_message";
    let pauses = |client: &mut Client| {
        let (_, page) = client.short("GET", "/metrics");
        page.lines()
            .find_map(|line| line.strip_prefix("waystage_messages_due_total{outcome=\"postponed\"} "))
            .map(str::to_string)
    };
    client.send("/v1/queues/jobs/messages", "poison");
    let job = receive(&mut client, "jobs", "lease=1ms");
    while pauses(&mut client).as_deref() != Some("1") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(database.number(DUE), 30);
    assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop").0, 204);
    for how in ["extend", "nack"] {
        assert_eq!(lease_action(&mut client, &job, how), 410, "the lease has expired: {how}");
    }
    // When the pause is over, the message is visible, and its second pause is twice as long.
    database.run("UPDATE invisible_message SET due_at = now()");
    let again = receive(&mut client, "jobs", "lease=1h&wait=50s");
    assert_eq!((again.id, again.attempt), (job.id, 2));
    assert_eq!(lease_action(&mut client, &again, "nack"), 204);
    assert_eq!(database.number(DUE), 60);
    database.run("UPDATE invisible_message SET due_at = now()");
    let third = receive(&mut client, "jobs", "lease=1h&wait=50s");
    assert_eq!(lease_action(&mut client, &third, "nack?delay=0s"), 204);
    assert_eq!(receive(&mut client, "jobs", "lease=1h&wait=50s").attempt, 4, "a delay replaces the backoff");
    client.short("DELETE", "/v1/queues/jobs");
    database.becomes_zero("SELECT count(*) FROM invisible_message");
    // Without settings, a message waits, too, after many attempts.
    make(&mut client, "plain", "");
    client.send("/v1/queues/plain/messages", "poison");
    receive(&mut client, "plain", "lease=1h");
    database.run("UPDATE invisible_message SET attempts = 29, due_at = now()");
    while pauses(&mut client).as_deref() != Some("2") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(database.number(DUE), 9, "512 s");
    running.stop().unwrap();
}

#[test]
fn a_dead_letter_says_where_it_comes_from_and_why() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "dead", "");
    make(&mut client, "jobs", r#"{"dead_letter_queue":"dead"}"#);
    assert!(client.short("GET", "/v1/queues/jobs").1.contains(r#""attempts":20"#), "a default of 20 attempts");
    make(&mut client, "twice", r#"{"dead_letter_queue":"dead","attempts":2}"#);
    for (how, reason) in [("nack", "nacked"), ("", "lease-expired")] {
        client.send("/v1/queues/twice/messages?to=bob", "poison");
        let first = receive(&mut client, "twice", "for=bob&lease=1h");
        assert_eq!(lease_action(&mut client, &first, "nack"), 204);
        let lease = if how.is_empty() { "1ms" } else { "1h" };
        let second = receive(&mut client, "twice", &format!("for=bob&wait=50s&lease={lease}"));
        if !how.is_empty() {
            assert_eq!(lease_action(&mut client, &second, how), 204);
        }
        while counts(&mut client, "dead").0 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let peeked = client.ask("GET", "/v1/queues/dead/messages/head?for=bob", "");
        let header = peeked.header("waystage-dead-letter").unwrap().to_string();
        let (_, listed) = client.short("POST", "/v1/queues/dead/messages:pop?for=bob&max=5");
        assert!(listed.contains(&format!(r#""dead_letter":{header}"#)), "{listed}");
        let expected = [r#""queue":"twice""#.into(), r#""attempts":2"#.into(), format!(r#""reason":"{reason}""#)];
        assert!(expected.iter().all(|part: &String| header.contains(part)), "{header}");
        let time = |name: &str| {
            let rest = header.split_once(&format!("\"{name}_received_unix_us\":")).unwrap().1;
            rest.split(',').next().unwrap().parse::<i64>().unwrap()
        };
        assert!(0 < time("first") && time("first") < time("last"), "{header}");
    }
    running.stop().unwrap();
}
