//! Every request leaves one record with all its stamps, however it ended; also, how the service behaves without a database.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use messages::{Config, DispatchConfig, Limits, RecordsConfig};
use records::{NO_BACKEND, Outcome, Reader, Row};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(5);

/// The rows of the only record file in a directory.
fn rows(directory: &Path) -> Vec<(Row, Vec<u64>)> {
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let reader = Reader::open(file, false).unwrap();
    assert_eq!((reader.dropped, reader.lost), (0, 0));
    reader.rows().map(|(row, stamps)| (row, stamps.to_vec())).collect()
}

fn with_records(config: Config, directory: &Path, sample: u32) -> Config {
    Config { records: Some(RecordsConfig { directory: directory.to_owned(), sample }), ..config }
}

/// A service without a database.
fn null(body_bytes: Option<usize>) -> Config {
    Config { listen: "127.0.0.1:0".into(), dispatch: DispatchConfig::None { body_bytes }, ..Config::default() }
}

#[test]
fn every_request_leaves_its_record() {
    let Some(database) = Database::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { body_bytes: 1000, ..Limits::default() };
    let running = serve(&with_records(Config { limits, ..database.config() }, directory.path(), 1));
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    client.send("/v1/queues/q/messages", &"x".repeat(500));
    assert_eq!(client.short("POST", "/v1/queues/none/messages").0, 404);
    assert_eq!(client.short("GET", "/v1/queues/q/messages/head?max=7").0, 200);
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 200);
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop?wait=100ms").0, 204);
    assert_eq!(client.short("GET", "/v1/nothing").0, 404);
    assert_eq!(client.ask("POST", "/v1/queues/q/messages", &"x".repeat(2000)).status, 413);
    running.stop().unwrap();
    let rows = rows(directory.path());
    let recorded: Vec<_> = rows.iter().map(|(row, _)| (row.operation, row.outcome, row.keys, row.hits)).collect();
    let expected = [
        (31, 0, 1, 0),
        (27, 0, 1, 1),
        (27, 1, 1, 0),
        (29, 0, 7, 1),
        (28, 0, 1, 1),
        (28, 0, 1, 0),
        (0, 1, 0, 0),
        (0, 1, 0, 0),
    ];
    assert_eq!(recorded, expected);
    for (sequence, (row, stamps)) in rows.iter().enumerate() {
        assert_eq!(row.sequence as usize, sequence);
        assert_ne!(row.port, 0);
        assert!(row.reply_bytes > 100, "a reply has a head: {row:?}");
        let is_done = row.operation != 0;
        assert_eq!(row.backend == NO_BACKEND, !is_done);
        // Sent before answered, and answered before the kernel has the reply.
        assert!(!is_done || (stamps[5] < stamps[6] && stamps[6] < stamps[7]), "{stamps:?}");
    }
    assert!(rows[1].0.request_bytes > 500 && rows[1].0.request_bytes < 1000, "{:?}", rows[1].0);
    assert!(rows[4].0.reply_bytes > 500, "{:?}", rows[4].0);
    let polled = &rows[5].1;
    assert!(polled[3] - polled[2] >= 100_000_000, "the wait of a poll is before the queue: {polled:?}");
}

#[test]
fn a_client_that_disconnects_leaves_a_record() {
    let Some(database) = Database::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let running = serve(&with_records(database.config(), directory.path(), 1));
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    let mut gone = TcpStream::connect(running.address()).unwrap();
    gone.write_all(b"POST /v1/queues/q/messages:pop?wait=50s HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 1") {
        std::thread::sleep(PATIENCE);
    }
    drop(gone);
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 0") {
        std::thread::sleep(PATIENCE);
    }
    // The request ends when its reply has been written, although the client does not read it.
    while !client.short("GET", "/metrics").1.contains("requests_total{operation=\"pop\",status=\"499\"} 1") {
        std::thread::sleep(PATIENCE);
    }
    client.send("/v1/queues/q/messages", "still there");
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop"), (200, "still there".into()));
    running.stop().unwrap();
    let rows = rows(directory.path());
    let gone: Vec<_> = rows.iter().filter(|(row, _)| row.outcome == Outcome::ClientGone as u8).collect();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].0.operation, 28);
}

#[test]
fn without_a_database_requests_are_answered_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let running = serve(&with_records(null(None), directory.path(), 4));
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("GET", "/readyz").0, 204);
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    let ids: Vec<i64> = (0..400).map(|_| client.send("/v1/queues/q/messages", "x")).collect();
    assert_eq!(ids, (1..=400).collect::<Vec<i64>>());
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 204, "no message is stored");
    let timing = client.ask("POST", "/v1/queues/q/messages", "x").header("server-timing").unwrap().to_string();
    assert!(timing.contains("backend;dur=0.000"), "{timing}");
    let totals = running.stop().unwrap().unwrap();
    let rows = rows(directory.path());
    assert_eq!(totals.written, rows.len() as u64);
    assert!((60..150).contains(&rows.len()), "one in four of 404: {}", rows.len());
}

#[test]
fn without_a_database_every_pop_can_return_a_message() {
    let running = serve(&null(Some(300)));
    let mut client = Client::connect(running.address(), "alice");
    let reply = client.ask("POST", "/v1/queues/q/messages:pop?for=bob&from=carol", "");
    assert_eq!((reply.status, reply.body.len()), (200, 300));
    assert_eq!(reply.header("waystage-sender"), Some("carol"));
    assert!(client.short("GET", "/v1/queues/q/messages/head?max=3").1.matches("body_base64").count() == 3);
    assert!(running.stop().unwrap().is_none(), "no records are configured");
}
