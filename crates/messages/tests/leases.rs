//! Leases over a real PostgreSQL: which consumer has a message, when its lease expires, redelivery, and the dead-letter queue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{INVISIBLE, Received, counts, lease_action, make, receive, received};
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

#[test]
fn leases_with_both_disciplines() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 4 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let address = running.address();
        acknowledged(address);
        expired(address);
        over_at_once(address);
        nacked(address);
        extended(address);
        addressed(address);
        batches(address);
        at_the_same_time(address);
        dead_letter_queue(address);
        settings(address);
        let (_, page) = Client::connect(address, "x").short("GET", "/metrics");
        for expected in
            ["due_total{outcome=\"dead_lettered\"} 1", "requests_total{operation=\"receive\",status=\"200\"}"]
        {
            assert!(page.contains(&format!("waystage_messages_{expected}")), "{page}");
        }
        running.stop().unwrap();
        assert_eq!(database.number(INVISIBLE), 0);
    }
}

/// A leased message is invisible to others. An acknowledgement deletes it, once.
fn acknowledged(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    let id = client.send("/v1/queues/jobs/messages?to=bob", "work");
    let job = receive(&mut client, "jobs", "for=bob&lease=1h");
    assert_eq!((job.id, job.attempt, job.body.as_str()), (id, 1, "work"));
    assert_eq!(counts(&mut client, "jobs"), (0, 1));
    for (method, path) in [
        ("POST", "/v1/queues/jobs/messages:receive?for=bob"),
        ("POST", "/v1/queues/jobs/messages:pop?for=bob"),
        ("GET", "/v1/queues/jobs/messages/head?for=bob"),
        ("POST", "/v1/messages:pop?for=bob&from=alice"),
    ] {
        assert_eq!(client.short(method, path).0, 204, "{path}");
    }
    assert_eq!(client.short("GET", "/v1/receivers/bob/queues").1, "{\"queues\":[]}");
    let guess = Received { lease_token: job.lease_token.replace(['0', '1', '2'], "3"), ..receive_none() };
    assert_eq!(lease_action(&mut client, &guess, "acknowledge"), 410);
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204);
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 204, "a repeated acknowledgement succeeds");
    let extended = client.ask("POST", &format!("/v1/leases/{}/extend", job.lease_token), "");
    assert_eq!(extended.status, 410);
    assert!(extended.text().contains("urn:waystage:problem:lease-expired"), "{}", extended.text());
    assert_eq!(counts(&mut client, "jobs"), (0, 0));
    client.short("DELETE", "/v1/queues/jobs");
}

fn receive_none() -> Received {
    Received { id: 0, lease_token: String::new(), attempt: 0, body: String::new() }
}

/// After its visibility timeout, a message is the oldest again, with the next attempt, and the old lease token is invalid.
fn expired(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "first");
    client.send("/v1/queues/jobs/messages", "second");
    let first = receive(&mut client, "jobs", "lease=50ms");
    let second = receive(&mut client, "jobs", "lease=1h");
    assert_eq!((first.body.as_str(), second.body.as_str()), ("first", "second"));
    client.send("/v1/queues/jobs/messages", "third");
    while counts(&mut client, "jobs").0 < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let again = receive(&mut client, "jobs", "lease=1h&wait=50s");
    assert_eq!((again.id, again.attempt, again.body.as_str()), (first.id, 2, "first"));
    assert_ne!(again.lease_token, first.lease_token);
    for how in ["acknowledge", "extend", "nack"] {
        assert_eq!(lease_action(&mut client, &first, how), 410, "another has it now: {how}");
    }
    for message in [&again, &second] {
        assert_eq!(lease_action(&mut client, message, "acknowledge"), 204);
    }
    assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop"), (200, "third".into()));
    client.short("DELETE", "/v1/queues/jobs");
}

/// An expired lease cannot be extended or nacked, whether or not its message has been redelivered already.
fn over_at_once(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "work");
    for attempt in 1..=20 {
        let job = receive(&mut client, "jobs", "lease=1ms&wait=50s");
        assert_eq!(job.attempt, attempt);
        std::thread::sleep(Duration::from_millis(1));
        let how = if attempt % 2 == 0 { "extend" } else { "nack" };
        assert_eq!(lease_action(&mut client, &job, how), 410);
    }
    client.short("DELETE", "/v1/queues/jobs");
}

fn nacked(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "work");
    let job = receive(&mut client, "jobs", "lease=1h");
    let poll = std::thread::spawn(move || {
        received(&Client::connect(address, "bob").ask("POST", "/v1/queues/jobs/messages:receive?wait=50s&lease=1h", ""))
    });
    assert_eq!(lease_action(&mut client, &job, "nack"), 204);
    let again = poll.join().unwrap();
    assert_eq!((again.id, again.attempt), (job.id, 2));
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 410);
    assert_eq!(lease_action(&mut client, &again, "nack?delay=100ms"), 204);
    assert_eq!(lease_action(&mut client, &again, "acknowledge"), 410, "it was nacked");
    let third = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!(third.attempt, 3);
    assert_eq!(lease_action(&mut client, &third, "nack?delay=1h"), 204);
    assert_eq!(counts(&mut client, "jobs"), (0, 1));
    client.short("DELETE", "/v1/queues/jobs");
}

fn extended(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    client.send("/v1/queues/jobs/messages", "work");
    // On a slow machine the lease may expire before it is extended.
    let job = loop {
        let job = receive(&mut client, "jobs", "lease=300ms&wait=50s");
        if lease_action(&mut client, &job, "extend?lease=1h") == 204 {
            break job;
        }
    };
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop").0, 204);
    assert_eq!(lease_action(&mut client, &job, "extend?lease=20ms"), 204, "from now on");
    let again = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!((again.id, again.attempt), (job.id, job.attempt + 1));
    assert_eq!(lease_action(&mut client, &again, "extend"), 204);
    assert_eq!(lease_action(&mut client, &again, "acknowledge"), 204);
    client.short("DELETE", "/v1/queues/jobs");
}

/// A receive shares messages to anyone as a pop does, and can select one sender.
fn addressed(address: SocketAddr) {
    let (mut alice, mut bob) = (Client::connect(address, "alice"), Client::connect(address, "bob"));
    make(&mut alice, "jobs", "");
    alice.send("/v1/queues/jobs/messages?to=carol", "1");
    bob.send("/v1/queues/jobs/messages", "2");
    alice.send("/v1/queues/jobs/messages", "3");
    assert_eq!(receive(&mut alice, "jobs", "").body, "2", "the first is for carol");
    assert_eq!(receive(&mut alice, "jobs", "from=alice").body, "3");
    assert_eq!(alice.short("POST", "/v1/queues/jobs/messages:receive?from=alice").0, 204);
    assert_eq!(receive(&mut alice, "jobs", "for=carol&from=alice").body, "1");
    assert_eq!(alice.short("POST", "/v1/queues/none/messages:receive").0, 404);
    alice.short("DELETE", "/v1/queues/jobs");
}

fn batches(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    for body in ["a", "b", "c"] {
        client.send("/v1/queues/jobs/messages", body);
    }
    let (status, text) = client.short("POST", "/v1/queues/jobs/messages:receive?max=10&lease=1h");
    assert_eq!((status, text.matches("\"attempt\":1").count()), (200, 3), "{text}");
    let leases: Vec<&str> =
        text.split("\"lease_token\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(leases.len(), 3);
    let document = format!(r#"{{"lease_tokens":["{}","{}","{}","none"]}}"#, leases[0], leases[1], leases[1]);
    let reply = client.ask("POST", "/v1/leases:acknowledge", &document);
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"not_acknowledged":["none"]}"#));
    let document = format!(r#"{{"lease_tokens":["{}","{}"]}}"#, leases[2], leases[0]);
    let reply = client.ask("POST", "/v1/leases:acknowledge", &document);
    assert_eq!(reply.text(), r#"{"not_acknowledged":[]}"#);
    assert_eq!(counts(&mut client, "jobs"), (0, 0));
    client.short("DELETE", "/v1/queues/jobs");
}

/// Fused receives keep their own visibility timeouts, and no message is returned twice.
fn at_the_same_time(address: SocketAddr) {
    const CLIENTS: usize = 12;
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    // Longer than it can take until all polls have their message; otherwise another poll receives a message that is due again.
    let times = ["2s", "1h", "2h"];
    let threads: Vec<_> = (0..CLIENTS)
        .map(|number| {
            std::thread::spawn(move || {
                let parameters = format!("wait=50s&lease={}", times[number % 3]);
                (number % 3 == 0, receive(&mut Client::connect(address, "x"), "jobs", &parameters))
            })
        })
        .collect();
    let polls = format!("waystage_messages_long_polls {CLIENTS}");
    while !client.short("GET", "/metrics").1.contains(&polls) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let all = [r#"{"body":"work"}"#; CLIENTS].join(",");
    let reply = client.ask("POST", "/v1/queues/jobs/messages:batch", &format!(r#"{{"messages":[{all}]}}"#));
    assert_eq!(reply.status, 201);
    let got: Vec<(bool, Received)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let short: BTreeSet<i64> = got.iter().filter(|(is_short, _)| *is_short).map(|(_, message)| message.id).collect();
    let again: BTreeSet<i64> = short
        .iter()
        .map(|_| {
            let message = receive(&mut client, "jobs", "wait=50s&lease=1h");
            assert_eq!((message.attempt, lease_action(&mut client, &message, "acknowledge")), (2, 204));
            message.id
        })
        .collect();
    assert_eq!(again, short);
    for (_, message) in got.iter().filter(|(is_short, _)| !*is_short) {
        assert_eq!(lease_action(&mut client, message, "acknowledge"), 204);
    }
    assert_eq!(counts(&mut client, "jobs"), (0, 0));
    client.short("DELETE", "/v1/queues/jobs");
}

fn dead_letter_queue(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "dead", "");
    make(&mut client, "jobs", r#"{"attempts":2,"dead_letter_queue":"dead"}"#);
    client.send("/v1/queues/jobs/messages?to=bob", "work");
    let first = receive(&mut client, "jobs", "for=bob&lease=20ms");
    let second = receive(&mut client, "jobs", "for=bob&lease=1h&wait=50s");
    assert_eq!((second.id, second.attempt), (first.id, 2));
    let poll = std::thread::spawn(move || {
        let path = "/v1/queues/dead/messages:receive?for=bob&wait=50s&lease=1h";
        received(&Client::connect(address, "bob").ask("POST", path, ""))
    });
    assert_eq!(lease_action(&mut client, &second, "nack?delay=1ms"), 204);
    let dead = poll.join().unwrap();
    assert_eq!((dead.id, dead.attempt, dead.body.as_str()), (first.id, 1, "work"));
    assert_eq!(counts(&mut client, "jobs"), (0, 0));
    assert_eq!(lease_action(&mut client, &dead, "acknowledge"), 204);
    // Without a dead-letter queue the number of attempts is unlimited.
    client.short("DELETE", "/v1/queues/dead");
    client.send("/v1/queues/jobs/messages", "work");
    for attempt in 1..=4 {
        let message = receive(&mut client, "jobs", "lease=1h&wait=50s");
        assert_eq!(message.attempt, attempt);
        assert_eq!(lease_action(&mut client, &message, "nack"), 204);
    }
    client.short("DELETE", "/v1/queues/jobs");
}

fn settings(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    make(&mut client, "dead", "");
    make(&mut client, "jobs", r#"{"attempts":3,"dead_letter_queue":"dead","expiry":"90m","lease":"30ms"}"#);
    let shown = |client: &mut Client| client.short("GET", "/v1/queues/jobs").1;
    let is_set = |text: &str| {
        [r#""attempts":3"#, r#""dead_letter_queue":"dead""#, r#""expiry":"90m""#, r#""lease":"30ms""#]
            .iter()
            .all(|part| text.contains(part))
    };
    assert!(is_set(&shown(&mut client)), "{}", shown(&mut client));
    assert_eq!(client.short("PUT", "/v1/queues/jobs").0, 204);
    assert!(is_set(&shown(&mut client)), "a request without a body changes nothing");
    let refused = client.ask("PUT", "/v1/queues/jobs", r#"{"dead_letter_queue":"unknown"}"#);
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("urn:waystage:problem:unknown-dead-letter-queue"), "{}", refused.text());
    assert!(is_set(&shown(&mut client)), "a refused request changes nothing");
    client.send("/v1/queues/jobs/messages", "work");
    let job = receive(&mut client, "jobs", "");
    let again = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!((again.id, again.attempt), (job.id, 2), "the queue's own time was short");
    assert_eq!(lease_action(&mut client, &again, "extend"), 204);
    let third = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!((third.attempt, lease_action(&mut client, &third, "acknowledge")), (3, 204));
    assert_eq!(client.ask("PUT", "/v1/queues/jobs", "{}").status, 204);
    let text = shown(&mut client);
    assert!(text.contains(r#""attempts":null"#) && text.contains(r#""lease":null"#), "{text}");
    client.short("DELETE", "/v1/queues/jobs");
    client.short("DELETE", "/v1/queues/dead");
}
