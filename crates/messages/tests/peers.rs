//! Several services at one database: a poll at one service is woken by a send or a redelivery through another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::net::SocketAddr;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Longer than any test, so that a poll's own attempts would come too late.
const NEVER: Duration = Duration::from_secs(3000);
const LISTENING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'pg_notify|LISTEN waystage'";
const KILL_ANNOUNCING: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ 'pg_notify|LISTEN waystage' \
    AND pid <> pg_backend_pid()";

fn poll(address: SocketAddr) -> JoinHandle<(u16, String)> {
    spawn(move || Client::connect(address, "bob").short("POST", "/v1/queues/q/messages:pop?wait=50s"))
}

/// The reply to a poll, which must come soon.
fn soon(poll: JoinHandle<(u16, String)>, send: impl FnOnce() -> i64) -> (u16, String) {
    let clock = Clock::monotonic();
    let began = clock.now();
    send();
    let got = poll.join().unwrap();
    assert!(clock.now().after(began) < Duration::from_secs(30), "the poll waited until its timeout");
    got
}

#[test]
fn a_poll_is_woken_by_a_send_through_another_service() {
    let Some(database) = Database::start() else { return };
    let config = Config { poll_interval: NEVER, ..database.config() };
    let pool = Config { dispatch: DispatchConfig::Pool { connections: 2 }, ..config.clone() };
    let (here, there) = (serve(&config), serve(&pool));
    let mut client = Client::connect(there.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    while database.number(LISTENING) < 3 {
        // The third connection is the one that runs this query.
        sleep(Duration::from_millis(20));
    }
    let waits = || {
        let waiting = poll(here.address());
        // Long enough for the poll to find nothing and be announced.
        sleep(Duration::from_millis(700));
        waiting
    };
    let waiting = waits();
    assert_eq!(soon(waiting, || client.send("/v1/queues/q/messages", "sent")), (200, "sent".into()));

    let waiting = waits();
    let delayed = || client.send("/v1/queues/q/messages?delay=1s", "due");
    assert_eq!(soon(waiting, delayed), (200, "due".into()));

    // Announcements are repeated after the connections were killed.
    database.run(KILL_ANNOUNCING);
    let waiting = poll(here.address());
    sleep(Duration::from_secs(4));
    assert_eq!(soon(waiting, || client.send("/v1/queues/q/messages", "again")), (200, "again".into()));
    here.stop().unwrap();
    there.stop().unwrap();
}

/// A poll belongs to the queue that it began to wait for, not to a new one of the same name.
#[test]
fn a_poll_ends_when_its_queue_is_deleted_and_created_again() {
    let Some(database) = Database::start() else { return };
    let config = Config { poll_interval: NEVER, ..database.config() };
    let (here, there) = (serve(&config), serve(&config));
    let mut client = Client::connect(there.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    while database.number(LISTENING) < 3 {
        sleep(Duration::from_millis(20));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connected = runtime.block_on(tokio_postgres::connect(&database.server.url(), tokio_postgres::NoTls));
    let (other, connection) = connected.unwrap();
    runtime.spawn(connection);
    let run = |statements: &str| runtime.block_on(other.batch_execute(statements)).unwrap();
    for _ in 0..3 {
        let waiting = [poll(here.address()), poll(there.address())];
        // Long enough for the polls to find nothing and be announced.
        sleep(Duration::from_millis(700));
        // A poll that tries again now finds the new queue.
        run("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE");
        assert_eq!(client.short("DELETE", "/v1/queues/q").0, 204);
        assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
        run("COMMIT");
        for waiting in waiting {
            let (status, text) = soon(waiting, || 0);
            assert!(status == 404 && text.contains("unknown-queue"), "{status} {text}");
        }
        let later = poll(there.address());
        sleep(Duration::from_millis(300));
        assert_eq!(soon(later, || client.send("/v1/queues/q/messages", "new")), (200, "new".into()));
    }
    here.stop().unwrap();
    there.stop().unwrap();
}

/// Services in different schemas of one database have different queues, which can have the same name.
#[test]
fn a_deletion_in_another_schema_does_not_end_a_poll() {
    let Some(database) = Database::start() else { return };
    database
        .run("CREATE ROLE other LOGIN; CREATE SCHEMA AUTHORIZATION other; ALTER ROLE other SET search_path = other");
    let config = database.config();
    let other = Config { database: config.database.replace("user=waystage", "user=other"), ..config.clone() };
    let (here, there) = (serve(&config), serve(&other));
    let [mut client, mut stranger] = [&here, &there].map(|service| Client::connect(service.address(), "alice"));
    for client in [&mut client, &mut stranger] {
        assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    }
    while database.number(LISTENING) < 3 {
        sleep(Duration::from_millis(20));
    }
    let waiting = poll(here.address());
    // Long enough for the poll to be announced, and for the notification of the deletion.
    sleep(Duration::from_millis(700));
    assert_eq!(stranger.short("DELETE", "/v1/queues/q").0, 204);
    sleep(Duration::from_millis(700));
    assert_eq!(soon(waiting, || client.send("/v1/queues/q/messages", "here")), (200, "here".into()));
    here.stop().unwrap();
    there.stop().unwrap();
}
