//! Every operation over a real PostgreSQL, with both disciplines, which must give the same answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Requests and replies, without the parts that differ between runs.
type Transcript = Vec<String>;

#[test]
fn both_disciplines_give_the_right_answers() {
    let Some(database) = Database::start() else { return };
    let dispatches = [DispatchConfig::Fused { lanes: 3 }, DispatchConfig::Pool { connections: 4 }];
    let transcripts = dispatches.map(|dispatch| {
        let running = serve(&Config { dispatch, ..database.config() });
        assert!(running.is_database_reachable());
        let mut transcript = Transcript::new();
        queues(running.address(), &mut transcript);
        addressed(running.address());
        by_sender(running.address());
        batches(running.address());
        long_polls(running.address());
        concurrent(running.address(), matches!(dispatch, DispatchConfig::Fused { .. }));
        stages(running.address());
        running.stop().unwrap();
        transcript
    });
    assert_eq!(transcripts[0], transcripts[1]);
}

/// A queue's number has 32 bits. Clients that create their queues at every start would use up the numbers of many years in days.
#[test]
fn a_repeated_creation_uses_no_number_up_and_applies_its_settings() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/dead").0, 201);
    let last = 2_147_483_647;
    database.run(&format!("ALTER TABLE queue ALTER id RESTART {last}"));
    let settings = [
        ("", "null"),
        (r#"{"expiry": "1h"}"#, "null"),
        (r#"{"attempts": 3, "dead_letter_queue": "dead"}"#, "3"),
        (r#"{"attempts": 4, "dead_letter_queue": "dead"}"#, "4"),
        ("", "4"),
        ("{}", "null"),
    ];
    for (round, (settings, attempts)) in settings.into_iter().enumerate() {
        let reply = client.ask("PUT", "/v1/queues/q", settings);
        assert_eq!(reply.status, if round == 0 { 201 } else { 204 }, "{settings}: {}", reply.text());
        let shown = client.short("GET", "/v1/queues/q").1;
        assert!(shown.contains(&format!("\"attempts\":{attempts},")), "{settings}: {shown}");
    }
    assert_eq!(database.number("SELECT id::bigint FROM queue WHERE name = 'q'"), last);
    let unknown = client.ask("PUT", "/v1/queues/q", r#"{"dead_letter_queue": "nowhere"}"#);
    assert_eq!(unknown.status, 422, "{}", unknown.text());
    running.stop().unwrap();
}

fn queues(address: SocketAddr, transcript: &mut Transcript) {
    let mut client = Client::connect(address, "alice");
    let script = [
        ("GET", "/readyz", 204),
        ("GET", "/v1/queues/one", 404),
        ("PUT", "/v1/queues/one", 201),
        ("PUT", "/v1/queues/one", 204),
        ("GET", "/v1/queues/one", 200),
        ("PUT", "/v1/queues/two", 201),
        ("GET", "/v1/queues", 200),
        ("POST", "/v1/queues/one/messages:pop", 204),
        ("GET", "/v1/queues/one/messages/head", 204),
        ("POST", "/v1/queues/none/messages:pop", 404),
        ("GET", "/v1/queues/none/messages/head", 404),
        ("POST", "/v1/queues/none/messages", 404),
        ("DELETE", "/v1/queues/two", 204),
        ("DELETE", "/v1/queues/two", 404),
        ("POST", "/v1/queues/two/messages", 404),
        ("GET", "/v1/queues", 200),
        ("DELETE", "/v1/queues/one", 204),
        ("GET", "/v1/queues", 200),
    ];
    for (method, path, status) in script {
        let (found, body) = client.short(method, path);
        assert_eq!(found, status, "{method} {path}: {body}");
        transcript.push(format!("{method} {path} {found} {body}"));
    }
    assert!(transcript.iter().any(|line| line.ends_with("{\"queues\":[\"one\",\"two\"]}")), "{transcript:?}");
}

/// Messages to one receiver and to anyone: each receiver gets the oldest that it may have.
fn addressed(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/orders");
    let first = client.send("/v1/queues/orders/messages", "for anyone");
    let second = client.send("/v1/queues/orders/messages?to=bob", "for bob");
    assert!(first < second);
    client.send("/v1/queues/orders/messages?to=carol", "");
    let head = client.ask("GET", "/v1/queues/orders/messages/head?for=bob", "");
    assert_eq!((head.status, head.text().as_str()), (200, "for anyone"));
    assert_eq!(head.header("waystage-message"), Some(first.to_string().as_str()));
    assert_eq!(head.header("waystage-sender"), Some("alice"));
    assert_eq!(head.header("waystage-queue"), Some("orders"));
    assert_eq!(head.header("waystage-receiver"), None);
    assert!(head.header("waystage-sent-unix-us").unwrap().parse::<u64>().unwrap() > 1_600_000_000_000_000);
    assert_eq!(client.short("GET", "/v1/receivers/bob/queues"), (200, "{\"queues\":[\"orders\"]}".into()));
    assert_eq!(client.short("GET", "/v1/receivers/dave/queues"), (200, "{\"queues\":[]}".into()));
    assert_eq!(client.short("POST", "/v1/queues/orders/messages:pop?for=bob"), (200, "for anyone".into()));
    let popped = client.ask("POST", "/v1/queues/orders/messages:pop?for=bob", "");
    assert_eq!((popped.text().as_str(), popped.header("waystage-receiver")), ("for bob", Some("bob")));
    assert_eq!(client.short("POST", "/v1/queues/orders/messages:pop?for=bob").0, 204);
    assert_eq!(client.short("POST", "/v1/queues/orders/messages:pop").0, 204, "carol's message is not for anyone");
    assert_eq!(client.short("POST", "/v1/queues/orders/messages:pop?for=carol"), (200, String::new()));
    client.short("DELETE", "/v1/queues/orders");
}

fn by_sender(address: SocketAddr) {
    let (mut alice, mut bob) = (Client::connect(address, "alice"), Client::connect(address, "bob"));
    for queue in ["north", "south"] {
        alice.short("PUT", &format!("/v1/queues/{queue}"));
        alice.send(&format!("/v1/queues/{queue}/messages"), &format!("alice {queue}"));
        bob.send(&format!("/v1/queues/{queue}/messages?to=me"), &format!("bob {queue}"));
    }
    let pop = |client: &mut Client, path: &str| client.short("POST", path);
    assert_eq!(bob.short("GET", "/v1/queues/north/messages/head?for=me&from=bob"), (200, "bob north".into()));
    assert_eq!(pop(&mut bob, "/v1/queues/south/messages:pop?for=me&from=bob"), (200, "bob south".into()));
    assert_eq!(bob.short("GET", "/v1/messages/head?for=me&from=alice"), (200, "alice north".into()));
    assert_eq!(pop(&mut bob, "/v1/messages:pop?for=me&from=alice"), (200, "alice north".into()));
    assert_eq!(pop(&mut bob, "/v1/messages:pop?from=alice"), (200, "alice south".into()));
    assert_eq!(pop(&mut bob, "/v1/messages:pop?from=bob").0, 204, "it is for me");
    bob.short("DELETE", "/v1/queues/north");
    assert_eq!(pop(&mut bob, "/v1/messages:pop?from=bob&for=me").0, 204, "its queue is deleted");
    bob.short("DELETE", "/v1/queues/south");
}

fn batches(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/batches");
    let document = r#"{"messages":[{"body":"one"},{"to":"bob","body_base64":"AP8="},{"body":"three"}]}"#;
    let reply = client.ask("POST", "/v1/queues/batches/messages:batch", document);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let text = reply.text();
    let ids: Vec<i64> =
        text.trim_start_matches("{\"ids\":[").trim_end_matches("]}").split(',').map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 3 && ids.is_sorted(), "{text}");
    let (status, text) = client.short("POST", "/v1/queues/batches/messages:pop?for=bob&max=2");
    assert_eq!(status, 200);
    let places = [text.find("\"b25l\"").unwrap(), text.find("\"AP8=\"").unwrap()];
    assert!(places.is_sorted() && !text.contains("dGhyZWU="), "{text}");
    assert!(text.contains("\"receiver\":\"bob\"") && text.contains("\"receiver\":null"), "{text}");
    let (_, text) = client.short("POST", "/v1/queues/batches/messages:pop?max=100");
    assert_eq!(text.matches("\"id\"").count(), 1);
    assert_eq!(client.short("POST", "/v1/queues/batches/messages:pop?max=1"), (200, "{\"messages\":[]}".into()));
    client.short("DELETE", "/v1/queues/batches");
}

fn long_polls(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    client.short("PUT", "/v1/queues/polled");
    assert_eq!(client.short("POST", "/v1/queues/polled/messages:pop?wait=20ms").0, 204);
    let poll = |path: &'static str| std::thread::spawn(move || Client::connect(address, "bob").short("POST", path));
    let (first, second) =
        (poll("/v1/queues/polled/messages:pop?wait=50s"), poll("/v1/queues/polled/messages:pop?wait=50s"));
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 2") {
        std::thread::sleep(Duration::from_millis(5));
    }
    client.send("/v1/queues/polled/messages", "a");
    client.send("/v1/queues/polled/messages", "b");
    let mut bodies = [first.join().unwrap().1, second.join().unwrap().1];
    bodies.sort();
    assert_eq!(bodies, ["a", "b"]);
    let poll = poll("/v1/queues/polled/messages:pop?wait=50s");
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 1") {
        std::thread::sleep(Duration::from_millis(5));
    }
    client.short("DELETE", "/v1/queues/polled");
    assert_eq!(poll.join().unwrap().0, 404, "a poll of a deleted queue gets 404");
}

/// Concurrent clients: no message is lost or returned twice, and with lanes each receiver sees each sender's messages in order.
fn concurrent(address: SocketAddr, is_ordered: bool) {
    const EACH: usize = 40;
    Client::connect(address, "x").short("PUT", "/v1/queues/busy");
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address, &format!("s{sender}"));
                for number in 0..EACH {
                    let to = ["", "?to=r0", "?to=r1"][number % 3];
                    client.send(&format!("/v1/queues/busy/messages{to}"), &format!("s{sender} {number:04}"));
                }
            })
        })
        .collect();
    let is_sent = Arc::new(AtomicBool::new(false));
    let receivers: Vec<_> = (0..4)
        .map(|receiver| {
            let is_sent = is_sent.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(address, "x");
                let path = format!("/v1/queues/busy/messages:pop?for=r{}&wait=20ms", receiver % 2);
                let mut got = Vec::new();
                loop {
                    let is_last = is_sent.load(Ordering::SeqCst);
                    match client.short("POST", &path) {
                        (200, body) => got.push(body),
                        (204, _) if is_last => return got,
                        (204, _) => {}
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|thread| thread.join().unwrap());
    is_sent.store(true, Ordering::SeqCst);
    let received: Vec<Vec<String>> = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();
    for got in &received {
        for sender in 0..4 {
            let prefix = format!("s{sender} ");
            assert!(!is_ordered || got.iter().filter(|body| body.starts_with(&prefix)).is_sorted(), "{got:?}");
        }
    }
    let mut all: Vec<String> = received.into_iter().flatten().collect();
    all.sort();
    let expected: Vec<String> =
        (0..4).flat_map(|sender| (0..EACH).map(move |number| format!("s{sender} {number:04}"))).collect();
    assert_eq!(all, expected);
    Client::connect(address, "x").short("DELETE", "/v1/queues/busy");
}

/// The times of a reply add up, and the metrics count the request.
fn stages(address: SocketAddr) {
    let mut client = Client::connect(address, "alice");
    let reply = client.ask("GET", "/v1/queues", "");
    let header = reply.header("server-timing").unwrap();
    let times: Vec<(&str, f64)> = header
        .split(", ")
        .map(|part| part.split_once(";dur=").map(|(name, time)| (name, time.parse().unwrap())).unwrap())
        .collect();
    let names: Vec<&str> = times.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["parse", "admit", "queue", "send", "backend", "reply", "total"]);
    let sum: f64 = times[..6].iter().map(|(_, time)| time).sum();
    assert!((sum - times[6].1).abs() < 0.01 && times[4].1 > 0.0, "{header}");
    assert_eq!(client.ask("GET", "/nowhere", "").header("server-timing").map(str::is_empty), Some(false));
    let (_, page) = client.short("GET", "/metrics");
    assert!(page.contains("waystage_messages_requests_total{operation=\"send\",status=\"201\"}"), "{page}");
    assert!(page.contains("waystage_messages_stage_seconds_count{operation=\"pop\",stage=\"backend\"}"), "{page}");
}
