//! docs/messages-limits.md lists every limit, with its setting and its counter, and each of these counters counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{lease_action, make, receive, serve_a_lease};
use common::{Client, Database, Session, serve};
use messages::{ClientLimits, Config, DispatchConfig, Limits, RunningService};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::thread::spawn;
use std::time::Duration;
use toml::Table;

const DOCUMENT: &str = include_str!("../../../docs/messages-limits.md");
const REFERENCE: &str = include_str!("../../../examples/messages/reference.toml");
/// Keys that limit nothing.
const OTHER_KEYS: [&str; 9] = [
    "listen",
    "dispatch",
    "lanes",
    "poll-interval",
    "key-retention",
    "allowed-hosts",
    "cors-origins",
    "insecure",
    "metrics-need-token",
];
/// The labels of these counters are limits.
const COUNTERS_OF_LIMITS: [&str; 3] = ["refused_total", "limits_reached_total", "clients_timed_out_total"];

fn without_database(limits: Limits, clients: ClientLimits) -> RunningService {
    let dispatch = DispatchConfig::None { body_bytes: None };
    serve(&Config { listen: "127.0.0.1:0".into(), dispatch, limits, clients, ..Config::default() })
}

/// The value of a counter with labels.
fn counted(address: SocketAddr, series: &str) -> u64 {
    let page = Client::connect(address, "operator").short("GET", "/metrics").1;
    let value = page.lines().find_map(|line| line.strip_prefix(&format!("waystage_messages_{series} ")));
    value.unwrap_or_else(|| panic!("{series}: {page}")).parse().unwrap()
}

fn reached(address: SocketAddr, limit: &str) -> u64 {
    counted(address, &format!("limits_reached_total{{limit=\"{limit}\"}}"))
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

/// The texts in backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_limit_has_a_counter_and_a_setting_or_a_reason() {
    let running = without_database(Limits::default(), ClientLimits::default());
    let page = Client::connect(running.address(), "operator").short("GET", "/metrics").1;
    running.stop().unwrap();
    let reference: Table = REFERENCE.parse().unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| limit |");
    let (mut settings, mut counters) = (BTreeSet::new(), BTreeSet::new());
    for row in DOCUMENT.lines().filter(is_row) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, default, setting, _, counter] = cells[..] else { panic!("five cells: {row}") };
        match quoted(setting)[..] {
            [key] if setting == format!("`{key}`") => {
                let optional = ["sample"].contains(&key);
                assert!(optional || reference.contains_key(key), "no setting: {row}");
                let value = reference.get(key).map(|value| value.to_string().trim_matches('"').to_string());
                if let (Some(value), Some(shown)) =
                    (value, quoted(default).first().filter(|_| default.starts_with('`')))
                {
                    assert_eq!(&value, shown, "{row}");
                    settings.insert(key.to_string());
                }
            }
            _ => assert!(setting.starts_with("fixed"), "neither a setting nor a reason: {row}"),
        }
        assert!(!quoted(counter).is_empty() || counter == "none: the process exits", "no counter: {row}");
        for series in quoted(counter) {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            assert!(page.contains(&format!("# TYPE waystage_messages_{name} ")), "no metric: {row}");
            // A status is counted when it first occurs.
            let is_there = labels.starts_with("status=") || page.contains(&format!("waystage_messages_{series} "));
            assert!(is_there || name == "lane_connections", "no series: {row}");
            counters.insert(series.to_string());
        }
    }
    let expected = reference.keys().filter(|key| !OTHER_KEYS.contains(&key.as_str()));
    assert_eq!(settings, expected.cloned().collect());
    let series = page.lines().filter_map(|line| line.strip_prefix("waystage_messages_")?.split_once(' '));
    for (series, _) in series.filter(|(series, _)| COUNTERS_OF_LIMITS.iter().any(|name| series.starts_with(name))) {
        assert!(counters.contains(series), "{series} has no row");
    }
}

#[test]
fn a_request_beyond_a_limit_is_counted_by_its_setting() {
    let [delay, expiry, lease, long_poll] = [1, 2, 3, 4].map(Duration::from_secs);
    let limits = Limits { delay, expiry, lease, long_poll, batch_messages: 2, body_bytes: 400, ..Limits::default() };
    let running = without_database(limits, ClientLimits::default());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    let long = "k".repeat(81);
    for (limit, method, path, header, body) in [
        ("batch-limit", "GET", "queues/q/messages/head?max=3", "", ""),
        ("batch-limit", "POST", "leases:acknowledge", "", r#"{"lease_tokens": ["a", "b", "c"]}"#),
        (
            "batch-limit",
            "POST",
            "queues/q/messages:batch",
            "",
            r#"{"messages": [{"body": ""}, {"body": ""}, {"body": ""}]}"#,
        ),
        ("long-poll-limit", "POST", "queues/q/messages:pop?wait=5s", "", ""),
        ("delay-limit", "POST", "queues/q/messages?delay=2s", "", ""),
        ("delay-limit", "POST", "queues/q/messages:batch", "", r#"{"messages": [{"body": "", "delay": "2s"}]}"#),
        ("delay-limit", "POST", "leases/a/nack?delay=2s", "", ""),
        ("expiry-limit", "POST", "queues/q/messages?expiry=3s", "", ""),
        ("expiry-limit", "PUT", "queues/q", "", r#"{"expiry": "3s"}"#),
        ("lease-limit", "POST", "queues/q/messages:receive?lease=4s", "", ""),
        ("lease-limit", "PUT", "queues/q", "", r#"{"lease": "4s"}"#),
        ("interface", "GET", "queues?max=1001", "", ""),
        ("interface", "PUT", "queues/q", "", r#"{"backoff": "2h"}"#),
        ("interface", "PUT", "queues/q", "", r#"{"attempts": 1001, "dead_letter_queue": "d"}"#),
        ("interface", "POST", "queues/q/messages", long.as_str(), ""),
    ] {
        let series = format!("refused_total{{limit=\"{limit}\"}}");
        let before = counted(address, &series);
        let header = if header.is_empty() { "accept: */*".to_string() } else { format!("idempotency-key: {header}") };
        let reply = client.ask_with(method, &format!("/v1/{path}"), &header, body);
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert_eq!(counted(address, &series), before + 1, "{path}: {limit}");
    }
    // Mistakes are no limits.
    let all = || Client::connect(address, "operator").short("GET", "/metrics").1;
    let refused = |page: &str| page.lines().filter(|line| line.contains("_refused_total{")).map(String::from).collect();
    let before: Vec<String> = refused(&all());
    for path in ["queues/q/messages:pop?max=0", "queues/q/messages:pop?wait=soon", "queues/q/messages:pop?max=x"] {
        assert_eq!(client.short("POST", &format!("/v1/{path}")).0, 400);
    }
    assert_eq!(client.ask("POST", "/v1/queues/q/messages:batch", r#"{"messages": []}"#).status, 400);
    assert_eq!(refused(&all()), before);
    running.stop().unwrap();
}

#[test]
fn connections_over_the_limit_that_get_no_reply_in_time_are_counted() {
    let clients = ClientLimits { connections_max: 1, ..ClientLimits::default() };
    let running = without_database(Limits::default(), clients);
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    assert_eq!(client.short("GET", "/healthz").0, 200);
    let refused: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
    let line = "waystage_messages_limits_reached_total{limit=\"refusal-replies\"} 5\n";
    for _ in 0..6000 {
        if client.short("GET", "/metrics").1.contains(line) {
            drop((refused, client));
            return running.stop().map(drop).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("connections that stay open for longer than a second do not count");
}

#[test]
fn statements_that_are_cancelled_are_counted_by_their_timeout() {
    const SENDS: usize = 60;
    let Some(database) = Database::start() else { return };
    let (running, mut client, job) = serve_a_lease(&database);
    let address = running.address();
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM invisible_message FOR UPDATE");
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 503);
    assert_eq!((reached(address, "lock-timeout"), reached(address, "key-lock-timeout")), (1, 0));
    other.run("ROLLBACK");
    // Each send waits for its own key, so that they are tried one by one.
    other.run(&format!(
        "BEGIN; INSERT INTO idempotency_key (queue_id, sender, key, content_hash, ids)
             SELECT id, 'alice', 'k' || g, '', '{{1}}' FROM queue, generate_series(1, {SENDS}) AS g"
    ));
    let send = |number: usize| {
        let key = format!("Idempotency-Key: k{number}");
        spawn(move || Client::connect(address, "alice").ask_with("POST", "/v1/queues/jobs/messages", &key, "x").status)
    };
    for sent in (1..=SENDS).map(send).collect::<Vec<_>>() {
        assert_eq!(sent.join().unwrap(), 503);
    }
    assert!(reached(address, "key-lock-timeout") > 1 && reached(address, "lock-waits") > 0);
    assert_eq!((reached(address, "lock-timeout"), reached(address, "statement-timeout")), (1, 0));
    other.run("ROLLBACK");
    running.stop().unwrap();
    // PostgreSQL cancels a statement after 30 s.
    let url = format!("{} options='-c statement_timeout=1s'", database.server.url());
    let running = serve(&Config { database: url, ..database.config() });
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    becomes("the service is ready", || Client::connect(address, "alice").short("GET", "/readyz").0 == 204);
    other.run("BEGIN; SELECT FROM invisible_message FOR UPDATE");
    assert_eq!(lease_action(&mut client, &job, "acknowledge"), 503);
    assert!(reached(address, "statement-timeout") > 0);
    other.run("ROLLBACK");
    running.stop().unwrap();
}

#[test]
fn statements_that_find_only_locked_rows_are_counted() {
    let Some(database) = Database::start() else { return };
    let (running, mut client, job) = serve_a_lease(&database);
    let address = running.address();
    make(&mut client, "q", "");
    client.send("/v1/queues/q/messages", "x");
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM message FOR UPDATE");
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 204);
    assert_eq!((reached(address, "fetch-tries"), reached(address, "nack-tries")), (1, 0));
    other.run("ROLLBACK; BEGIN; SELECT FROM queue WHERE name = 'jobs' FOR UPDATE");
    assert_eq!(lease_action(&mut client, &job, "nack"), 204);
    assert_eq!((reached(address, "fetch-tries"), reached(address, "nack-tries")), (1, 1));
    other.run("ROLLBACK");
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 200);
    let again = receive(&mut client, "jobs", "wait=50s&lease=1h");
    assert_eq!(lease_action(&mut client, &again, "nack"), 204);
    assert_eq!((reached(address, "fetch-tries"), reached(address, "nack-tries")), (1, 1), "nothing is locked");
    running.stop().unwrap();
}

#[test]
fn counts_and_lists_that_end_at_a_limit_are_counted() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    make(&mut client, "q", "");
    let fill = |messages: u32| {
        database.run(&format!(
            "INSERT INTO message (id, queue_id, receiver, sender, body)
                 SELECT nextval('message_id'), id, 'bob', 'alice', '' FROM queue, generate_series(1, {messages})"
        ));
    };
    fill(9999);
    assert_eq!(client.short("GET", "/v1/queues/q").0, 200);
    assert_eq!(reached(address, "queue-count"), 0);
    fill(1);
    assert!(client.short("GET", "/v1/queues/q").1.contains("\"visible\":10000"));
    assert_eq!(reached(address, "queue-count"), 1);
    let list = "/v1/receivers/bob/queues";
    assert!(!client.short("GET", list).1.contains("\"next\":\""));
    assert_eq!(reached(address, "queue-lookups"), 0);
    database.run("INSERT INTO queue (name) SELECT 'r' || g FROM generate_series(1, 10000) AS g");
    assert!(client.short("GET", list).1.contains("\"next\":\"r"));
    assert_eq!(reached(address, "queue-lookups"), 1);
    running.stop().unwrap();
}

/// The notifications of one transaction arrive together. The service has one thread, which reads them before it handles them.
#[test]
fn notifications_that_are_dropped_are_counted() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { threads: Some(1), ..database.config() });
    let address = running.address();
    becomes("it does not listen", || {
        database.number("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'") > 0
    });
    let notify = "SELECT pg_notify('waystage_messages_' || relnamespace, 'x changed q' || g)
        FROM pg_class, generate_series(1, 100000) AS g WHERE pg_class.oid = to_regclass('queue')";
    becomes("none is dropped", || {
        database.run(notify);
        reached(address, "notifications") > 0
    });
    running.stop().unwrap();
}
