//! Slow statements, floods of requests and slow readers delay only their own work, not that of other clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::make;
use common::{Client, Database, serve};
use messages::{ClientLimits, Config, DispatchConfig, Limits, Permission, TokenConfig};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::spawn;
use std::time::Duration;

/// The value of a metric.
fn metric(address: SocketAddr, name: &str) -> f64 {
    let page = Client::connect(address, "me").short("GET", "/metrics").1;
    let line = page.lines().find(|line| line.starts_with(&format!("waystage_messages_{name} ")));
    line.unwrap_or_else(|| panic!("{name}: {page}")).rsplit(' ').next().unwrap().parse().unwrap()
}

fn becomes(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}

/// A connection to the database that bypasses the service.
struct Other {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Other {
    fn connect(database: &Database) -> Other {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) =
            runtime.block_on(tokio_postgres::connect(&database.server.url(), tokio_postgres::NoTls)).unwrap();
        runtime.spawn(connection);
        Other { runtime, client }
    }

    fn run(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap();
    }
}

#[test]
fn a_slow_list_delays_no_message() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    for number in 0..8 {
        make(&mut client, &format!("q{number}"), "");
    }
    assert_eq!(client.short("GET", "/v1/queues").0, 200);
    let pid =
        database.number("SELECT pid::bigint FROM pg_stat_activity WHERE query LIKE '-- A page of the names%' LIMIT 1");
    let stopped = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let listing = spawn(move || Client::connect(address, "alice").short("GET", "/v1/queues").0);
    for number in 0..8 {
        client.send(&format!("/v1/queues/q{number}/messages"), "work");
        assert_eq!(client.short("POST", &format!("/v1/queues/q{number}/messages:pop")).0, 200);
    }
    assert!(!listing.is_finished());
    kill_process(stopped, Signal::CONT).unwrap();
    assert!(matches!(listing.join().unwrap(), 200 | 503));
    running.stop().unwrap();
}

/// Requests to `/readyz` need no token, so many of them must not reach the database.
#[test]
fn readiness_and_metrics_cause_no_transaction() {
    const REQUESTS: i64 = 5000;
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "operator");
    becomes("the service is ready", || Client::connect(running.address(), "operator").short("GET", "/readyz").0 == 204);
    let transactions = || {
        database.number("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    };
    let before = transactions();
    for _ in 0..REQUESTS / 2 {
        assert_eq!(client.short("GET", "/readyz").0, 204);
        assert_eq!(client.short("GET", "/metrics").0, 200);
    }
    // Sessions report their transactions about once per second. The background loops have a few per second.
    std::thread::sleep(Duration::from_secs(2));
    let caused = transactions() - before;
    assert!(caused < REQUESTS / 4, "{caused} transactions");
    running.stop().unwrap();
}

#[test]
fn lists_have_pages() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "z", "");
    client.send("/v1/queues/z/messages?to=bob", "work");
    database.run("INSERT INTO queue (name) SELECT 'q' || lpad(g::text, 5, '0') FROM generate_series(1, 11000) AS g");
    let (status, text) = client.short("GET", "/v1/queues");
    assert!(status == 200 && text.ends_with("\"q01000\"],\"next\":\"q01000\"}"), "{text}");
    assert_eq!(text.matches("\"q0").count(), 1001, "1000 names, and the last again");
    assert_eq!(client.short("GET", "/v1/queues?after=q10999&max=5").1, "{\"queues\":[\"q11000\",\"z\"]}");
    assert_eq!(client.short("GET", "/v1/queues?after=q10998&max=1").1, "{\"queues\":[\"q10999\"],\"next\":\"q10999\"}");
    // One request examines 10 000 queues.
    let (_, text) = client.short("GET", "/v1/receivers/bob/queues");
    assert_eq!(text, "{\"queues\":[],\"next\":\"q10000\"}");
    assert_eq!(client.short("GET", "/v1/receivers/bob/queues?after=q10000").1, "{\"queues\":[\"z\"]}");
    for wrong in ["max=0", "max=1001", "max=x", "after=-"] {
        assert!(matches!(client.short("GET", &format!("/v1/queues?{wrong}")).0, 400 | 422), "{wrong}");
    }
    running.stop().unwrap();
}

#[test]
fn a_key_that_another_transaction_holds_fails_only_its_own_send() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "jobs", "");
    let other = Other::connect(&database);
    other.run(
        "BEGIN; INSERT INTO idempotency_key (queue_id, sender, key, content_hash, ids)
         SELECT id, 'alice', 'held', '', '{1}' FROM queue WHERE name = 'jobs'",
    );
    let send = move |key: &str| {
        let path = "/v1/queues/jobs/messages";
        let reply = Client::connect(address, "alice").ask_with("POST", path, &format!("idempotency-key: {key}"), "x");
        (reply.status, reply.text())
    };
    let sends: Vec<_> = (0..6).map(|number| spawn(move || send(&format!("key{number}")))).collect();
    let held = spawn(move || send("held"));
    let more: Vec<_> = (6..12).map(|number| spawn(move || send(&format!("key{number}")))).collect();
    // Plain sends do not wait for keys.
    client.send("/v1/queues/jobs/messages", "plain");
    for sent in sends.into_iter().chain(more) {
        let (status, text) = sent.join().unwrap();
        assert_eq!(status, 201, "{text}");
    }
    let (status, text) = held.join().unwrap();
    assert!(status == 503 && text.contains("urn:waystage:problem:database-error"), "{text}");
    other.run("ROLLBACK");
    assert_eq!(send("held").0, 201);
    running.stop().unwrap();
}

#[test]
fn a_flood_of_one_sender_is_refused_and_others_are_not() {
    let Some(database) = Database::start() else { return };
    let dispatch = DispatchConfig::Fused { lanes: 1 };
    let limits = Limits { waiting_requests_of_party: 3, ..Limits::default() };
    let running = serve(&Config { dispatch, limits, ..database.config() });
    let address = running.address();
    make(&mut Client::connect(address, "alice"), "jobs", "");
    let other = Other::connect(&database);
    other.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE");
    let send = move |sender: &str| Client::connect(address, sender).short("POST", "/v1/queues/jobs/messages").0;
    let first = spawn(move || send("first"));
    becomes("no statement is stuck", || {
        database.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- %'")
            > 0
    });
    let flood: Vec<_> = (0..20).map(|_| spawn(move || send("greedy"))).collect();
    becomes("nothing is refused", || metric(address, "refused_total{limit=\"queue-per-sender\"}") >= 17.0);
    let modest = spawn(move || send("modest"));
    becomes("the other waits", || metric(address, "queue_length{queue=\"0\"}") >= 4.0);
    other.run("ROLLBACK");
    assert_eq!((first.join().unwrap(), modest.join().unwrap()), (201, 201));
    let statuses: Vec<u16> = flood.into_iter().map(|sent| sent.join().unwrap()).collect();
    let count = |status: u16| statuses.iter().filter(|other| **other == status).count();
    assert_eq!((count(201), count(503)), (3, 17), "{statuses:?}");
    running.stop().unwrap();
}

/// No client is closed because the machine is busy.
const PATIENCE: Duration = Duration::from_secs(3000);
const GREEDY: &str = "token-of-a-greedy-reader";
const MODEST: &str = "token-of-a-modest-reader";

fn two_tokens() -> Vec<TokenConfig> {
    let permissions = vec![Permission::Send, Permission::Receive, Permission::All, Permission::Admin];
    let token = |token: &str, sender: &str| TokenConfig::new(token.into(), sender.into(), permissions.clone(), None);
    vec![token(GREEDY, "greedy").unwrap(), token(MODEST, "modest").unwrap()]
}

/// The status of the reply to a request with this token.
fn ask(address: SocketAddr, token: &str, method: &str, path: &str, body: &str) -> u16 {
    let header = format!("authorization: Bearer {token}");
    testkit::Http::connect(address).unwrap().request(method, path, &[&header], body.as_bytes()).unwrap().status
}

#[test]
fn a_flood_without_sender_or_receiver_is_refused_to_its_client_only() {
    let Some(database) = Database::start() else { return };
    let dispatch = DispatchConfig::Fused { lanes: 1 };
    let limits = Limits { waiting_requests_of_party: 3, ..Limits::default() };
    let running = serve(&Config { dispatch, limits, tokens: two_tokens(), ..database.config() });
    let address = running.address();
    assert_eq!(ask(address, MODEST, "PUT", "/v1/queues/jobs", ""), 201);
    let lease = format!("/v1/leases/{}/acknowledge", "0".repeat(56));
    // One table each: a lock of several can deadlock with the service's own loops.
    for (path, table) in [("/v1/queues/jobs/messages:pop".to_string(), "message"), (lease, "invisible_message")] {
        let other = Other::connect(&database);
        other.run(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
        let request = |token: &'static str| {
            let path = path.clone();
            spawn(move || ask(address, token, "POST", &path, ""))
        };
        let refused = metric(address, "refused_total{limit=\"queue-per-sender\"}");
        let first = request(MODEST);
        becomes("no statement is stuck", || {
            database
                .number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- %'")
                > 0
        });
        let flood: Vec<_> = (0..20).map(|_| request(GREEDY)).collect();
        becomes("nothing is refused", || {
            metric(address, "refused_total{limit=\"queue-per-sender\"}") >= refused + 17.0
        });
        let modest = request(MODEST);
        becomes("the other waits", || metric(address, "queue_length{queue=\"0\"}") >= 4.0);
        other.run("ROLLBACK");
        // On a busy machine, a request can fail because it has waited for the lock for too long. No other may be refused.
        [first, modest].into_iter().chain(flood).for_each(|sent| _ = sent.join().unwrap());
        assert_eq!(metric(address, "refused_total{limit=\"queue-per-sender\"}"), refused + 17.0, "{path}");
    }
    running.stop().unwrap();
}

/// A peek at 100 messages whose reply nobody reads yet.
fn slow_reader(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = "GET /v1/queues/q/messages/head?max=100 HTTP/1.1\r\nhost: localhost";
    stream.write_all(format!("{head}\r\nauthorization: Bearer {GREEDY}\r\n\r\n").as_bytes()).unwrap();
    stream
}

#[test]
fn the_fetches_of_a_batch_together_do_not_exceed_the_memory() {
    // Larger than the kernel's buffers of a client that does not read.
    const BODY: usize = 16 << 20;
    const READERS: usize = 10;
    let Some(database) = Database::start() else { return };
    let limits = Limits {
        body_bytes: BODY,
        statement_bytes: BODY,
        memory: 4 * BODY,
        memory_per_client: READERS * BODY,
        ..Limits::default()
    };
    let clients = ClientLimits { unread_timeout: PATIENCE, ..ClientLimits::default() };
    let dispatch = DispatchConfig::Fused { lanes: 1 };
    let running = serve(&Config { dispatch, limits, clients, ..database.config() });
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "q", "");
    client.send("/v1/queues/q/messages", &"x".repeat(BODY));
    let other = Other::connect(&database);
    other.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE");
    let first = spawn(move || Client::connect(address, "alice").short("POST", "/v1/queues/q/messages").0);
    becomes("no statement is stuck", || {
        database.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- %'")
            > 0
    });
    // All of them are in the next batch.
    let peek = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /v1/queues/q/messages/head HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream
    };
    let readers: Vec<TcpStream> = (0..READERS).map(peek).collect();
    becomes("the others wait", || metric(address, "queue_length{queue=\"0\"}") >= READERS as f64);
    other.run("ROLLBACK");
    assert_eq!(first.join().unwrap(), 201);
    // Replies have three quarters of the memory: three of these bodies, and another one when they are just full.
    becomes("nothing is refused", || metric(address, "refused_total{limit=\"memory\"}") >= (READERS - 4) as f64);
    assert!(metric(address, "buffered_bytes") <= (4 * BODY) as f64);
    assert!(metric(address, "limits_reached_total{limit=\"memory\"}") > 0.0);
    drop(readers);
    becomes("memory is left", || metric(address, "buffered_bytes") == 0.0);
    running.stop().unwrap();
}

/// Many fetches of one client begin before the size of their replies is known.
#[test]
fn fetches_of_one_client_at_the_same_time_fill_only_its_share() {
    const BODY: usize = 1 << 20;
    const SHARE: usize = 16 << 20;
    const FETCH: usize = 8 * BODY;
    const READERS: usize = 40;
    for dispatch in [DispatchConfig::Fused { lanes: 4 }, DispatchConfig::Pool { connections: 10 }] {
        let Some(database) = Database::start() else { return };
        let limits = Limits { body_bytes: BODY, memory: 96 << 20, memory_per_client: SHARE, ..Limits::default() };
        let clients = ClientLimits { unread_timeout: PATIENCE, ..ClientLimits::default() };
        let running = serve(&Config { dispatch, limits, clients, tokens: two_tokens(), ..database.config() });
        let address = running.address();
        let body = "x".repeat(BODY);
        for number in 0..4 {
            assert_eq!(ask(address, MODEST, "PUT", &format!("/v1/queues/q{number}"), ""), 201);
            for _ in 0..8 {
                assert_eq!(ask(address, MODEST, "POST", &format!("/v1/queues/q{number}/messages"), &body), 201);
            }
        }
        let peek = |number: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
            let head = format!("GET /v1/queues/q{}/messages/head?max=8 HTTP/1.1\r\nhost: localhost", number % 4);
            stream.write_all(format!("{head}\r\nauthorization: Bearer {GREEDY}\r\n\r\n").as_bytes()).unwrap();
            stream
        };
        let readers: Vec<TcpStream> = (0..READERS).map(peek).collect();
        // All others are refused, at once or after two seconds.
        becomes("they are not refused", || {
            metric(address, "refused_total{limit=\"memory-per-client\"}") >= (READERS - 5) as f64
        });
        let buffered = metric(address, "buffered_bytes");
        assert!(buffered <= (SHARE + FETCH) as f64, "{dispatch:?}: {buffered}");
        assert_eq!(ask(address, MODEST, "GET", "/v1/queues/q0/messages/head", ""), 200);
        drop(readers);
        becomes("memory is left", || metric(address, "buffered_bytes") == 0.0);
        running.stop().unwrap();
    }
}

#[test]
fn a_body_that_waits_for_room_is_refused_as_that_and_not_as_incomplete() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config {
        limits: Limits { memory_per_client: 300 << 10, ..Limits::default() },
        clients: ClientLimits { body_timeout: Duration::from_secs(1), ..ClientLimits::default() },
        ..database.config()
    });
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "q", "");
    let body = "x".repeat(200 << 10);
    let other = Other::connect(&database);
    other.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE");
    let first = {
        let body = body.clone();
        spawn(move || Client::connect(address, "alice").ask("POST", "/v1/queues/q/messages", &body).status)
    };
    becomes("the first body has not arrived", || metric(address, "buffered_bytes") >= body.len() as f64);
    let reply = client.ask("POST", "/v1/queues/q/messages", &body);
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("overloaded"), "{}", reply.text());
    other.run("ROLLBACK");
    first.join().unwrap();
    becomes("memory is left", || metric(address, "buffered_bytes") == 0.0);
    assert_eq!(client.ask("POST", "/v1/queues/q/messages", &body).status, 201);
    running.stop().unwrap();
}

/// Lists of queues, and of leases that were not acknowledged, are as large as requests make them.
#[test]
fn every_unread_reply_counts_as_memory() {
    const READERS: usize = 40;
    let Some(database) = Database::start() else { return };
    let running = serve(&Config {
        limits: Limits { batch_messages: 2000, statement_bytes: 1 << 20, ..Limits::default() },
        clients: ClientLimits { unread_timeout: PATIENCE, ..ClientLimits::default() },
        ..database.config()
    });
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    assert_eq!(client.short("GET", "/v1/queues").0, 200);
    database.run(
        "INSERT INTO queue (name) SELECT lpad(g::text, 80, 'q') FROM generate_series(1, 1000) AS g;
         INSERT INTO message (id, queue_id, receiver, sender, body)
             SELECT nextval('message_id'), id, 'bob', 'alice', '' FROM queue",
    );
    // Tokens of leases that another client has.
    let tokens = vec![format!("\"{}\"", "0".repeat(56)); 2000].join(",");
    let settle = format!("{{\"lease_tokens\": [{tokens}]}}");
    let requests = [
        ("GET", "/v1/queues", ""),
        ("GET", "/v1/receivers/bob/queues", ""),
        ("POST", "/v1/leases:acknowledge", &*settle),
    ];
    for (method, path, body) in requests {
        let reply = client.ask(method, path, body);
        assert!(reply.status == 200 && reply.body.len() > 80_000, "{path}: {}", reply.text());
        // A list is smaller than what the kernels take, so it is requested several times.
        let times = if body.is_empty() { 8 } else { 1 };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        let request = format!("{head}{body}").repeat(times);
        let readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                // So that the client's kernel takes only a part of the reply.
                rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                stream
            })
            .collect();
        becomes("unread replies do not count", || metric(address, "buffered_bytes") >= (READERS * 40_000) as f64);
        drop(readers);
        becomes("memory is left", || metric(address, "buffered_bytes") == 0.0);
    }
    running.stop().unwrap();
}

#[test]
fn slow_readers_fill_only_their_share_and_release_what_they_have_read() {
    const BODY: usize = 256 << 10;
    const BUFFERED: &str = "buffered_bytes";
    let running = serve(&Config {
        listen: "127.0.0.1:0".into(),
        dispatch: DispatchConfig::None { body_bytes: Some(BODY) },
        limits: Limits { memory: 64 << 20, memory_per_client: 16 << 20, ..Limits::default() },
        clients: ClientLimits { unread_timeout: PATIENCE, ..ClientLimits::default() },
        tokens: two_tokens(),
        ..Config::default()
    });
    let address = running.address();
    let mut slow = vec![slow_reader(address)];
    becomes("nothing is buffered", || metric(address, BUFFERED) > (16 << 20) as f64);
    let before = metric(address, BUFFERED);
    slow.extend((0..7).map(|_| slow_reader(address)));
    becomes("nothing is refused", || metric(address, "refused_total{limit=\"memory-per-client\"}") >= 7.0);
    assert!(metric(address, BUFFERED) <= before, "no other reply of this client is made");
    let ask = |token: &str, method: &str, path: &str, body: &str| ask(address, token, method, path, body);
    assert_eq!(ask(MODEST, "GET", "/v1/queues/q/messages/head", ""), 200);
    assert_eq!(ask(MODEST, "POST", "/v1/queues/q/messages", "x"), 201);
    assert_eq!(ask(GREEDY, "POST", "/v1/queues/q/messages", "x"), 201, "replies leave room for bodies");
    // The memory of bytes that were read is released, while the rest of the reply remains.
    let mut half = vec![0; 16 << 20];
    slow[0].read_exact(&mut half).unwrap();
    becomes("nothing is released", || metric(address, BUFFERED) < before - (10 << 20) as f64);
    assert!(metric(address, BUFFERED) > 0.0);
    assert_eq!(ask(GREEDY, "GET", "/v1/queues/q/messages/head", ""), 200);
    // The rest of the document follows, up to its last byte.
    let mut part = vec![0; 1 << 20];
    while slow[0].read(&mut part).map(|bytes| !part[..bytes].ends_with(b"}]}")).unwrap() {}
    drop(slow);
    becomes("memory is left", || metric(address, BUFFERED) == 0.0);
    running.stop().unwrap();
}
