//! Interrupted statements, and a database that makes no progress: the service reports the possible outcomes, and stops on request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig, Limits};
use std::net::SocketAddr;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

/// Statements of requests that wait for a lock, recognised by their comments. Redelivery and cleanup have other statements.
const STUCK: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waystage'
    AND wait_event_type = 'Lock' AND query ~ '^-- (Ids|Stores one message|Each fetch|Pops the oldest|Reads the oldest)'";

/// Locks the table of messages.
struct Locked {
    runtime: Runtime,
    client: tokio_postgres::Client,
}

impl Locked {
    fn take(database: &Database) -> Locked {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&database.server.url(), NoTls)).unwrap();
        runtime.spawn(connection);
        let locked = Locked { runtime, client };
        locked.run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE");
        locked
    }

    fn run(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap();
    }
}

/// Starts a request that is not answered soon.
fn in_background(address: SocketAddr, method: &'static str, path: &'static str) -> JoinHandle<(u16, String)> {
    spawn(move || Client::connect(address, "alice").short(method, path))
}

/// Creates the queue. Afterwards its lane is connected and every statement prepared; the lane for operations on queues is another one.
fn create_queue(client: &mut Client) {
    assert!(matches!(client.short("PUT", "/v1/queues/q").0, 201 | 204));
    assert_eq!(client.short("GET", "/v1/queues/q/messages/head").0, 204);
}

fn becomes_stuck(database: &Database) {
    for _ in 0..4000 {
        if database.number(STUCK) > 0 {
            return;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("no statement waits for the lock");
}

#[test]
fn killed_statements_are_in_doubt_unless_they_only_read() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 1 }, DispatchConfig::Pool { connections: 1 }] {
        for (method, path, problem) in [
            ("POST", "/v1/queues/q/messages", "in-doubt"),
            ("POST", "/v1/queues/q/messages:pop", "in-doubt"),
            ("POST", "/v1/queues/q/messages:receive", "in-doubt"),
            ("GET", "/v1/queues/q/messages/head", "database-down"),
        ] {
            let service = serve(&Config { dispatch, ..database.config() });
            let mut client = Client::connect(service.address(), "alice");
            create_queue(&mut client);
            let locked = Locked::take(&database);
            let asked = in_background(service.address(), method, path);
            becomes_stuck(&database);
            // The server reports FATAL, which is not the error of a statement that was only rolled back.
            database.run(&STUCK.replace("count(*)", "pg_terminate_backend(pid)"));
            let (status, text) = asked.join().unwrap();
            assert!(status == 503 && text.contains(&format!("urn:waystage:problem:{problem}\"")), "{path}: {text}");
            locked.run("ROLLBACK");
            // The service works again, and has not applied a request that it reported as not applied.
            client.send("/v1/queues/q/messages", "x");
            assert_eq!(client.short("POST", "/v1/queues/q/messages:pop"), (200, "x".into()));
            assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 204);
            service.stop().unwrap();
        }
    }
}

#[test]
fn a_service_stops_although_its_database_makes_no_progress() {
    let Some(database) = Database::start() else { return };
    let service = serve(&Config { shutdown_timeout: Duration::from_millis(300), ..database.config() });
    let mut client = Client::connect(service.address(), "alice");
    create_queue(&mut client);
    let locked = Locked::take(&database);
    let address = service.address();
    let asked = spawn(move || {
        // A reply is not guaranteed here, but the end of the connection is.
        testkit::Http::connect(address).unwrap().request("POST", "/v1/queues/q/messages:pop", &[], b"").is_ok()
    });
    becomes_stuck(&database);
    let clock = Clock::monotonic();
    let began = clock.now();
    service.stop().unwrap();
    assert!(clock.now().after(began) < Duration::from_secs(10), "statements may take 30 s");
    asked.join().unwrap();
    locked.run("ROLLBACK");
}

#[test]
fn polls_that_are_refused_after_their_first_attempt_keep_waiting() {
    const POLLS: usize = 4;
    let Some(database) = Database::start() else { return };
    // One request runs, one waits, and there is no room for more.
    let limits = Limits { waiting_requests: 1, ..Limits::default() };
    let dispatch = DispatchConfig::Fused { lanes: 1 };
    let poll_interval = Duration::from_secs(1);
    let service = serve(&Config { dispatch, limits, poll_interval, ..database.config() });
    let mut client = Client::connect(service.address(), "alice");
    create_queue(&mut client);
    let polls: Vec<_> = (0..POLLS)
        .map(|_| {
            let poll = in_background(service.address(), "POST", "/v1/queues/q/messages:pop?wait=60s");
            // The first attempt of each poll must be admitted.
            sleep(Duration::from_millis(100));
            poll
        })
        .collect();
    let locked = Locked::take(&database);
    becomes_stuck(&database);
    sleep(3 * poll_interval);
    assert_eq!(client.short("GET", "/v1/queues/q/messages/head").0, 503, "the queue is full");
    locked.run("ROLLBACK");
    for _ in 0..POLLS {
        // The polls may fill the queue.
        while client.short("POST", "/v1/queues/q/messages").0 != 201 {
            sleep(Duration::from_millis(5));
        }
    }
    assert!(polls.into_iter().all(|poll| poll.join().unwrap().0 == 200));
    service.stop().unwrap();
}
