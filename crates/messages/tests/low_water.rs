//! Pops that start at a low-water mark skip dead rows and nothing else, despite late commits, redeliveries, killed connections and
//! concurrent services.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use messages::Config;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::Http;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

/// Longer than several rounds of the reader, and than the shortest era.
const A_WHILE: Duration = Duration::from_millis(1200);
const BUFFERS: &str = "SELECT (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
    FROM pg_statio_user_tables WHERE relname = 'message'";
const LEFT: &str = "SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM invisible_message)";

/// A service that reads the mark after every message.
fn eager(database: &Database) -> Config {
    Config { low_water_refresh_after: 1, ..database.config() }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A connection that bypasses the service.
fn beside(runtime: &Runtime, database: &Database) -> tokio_postgres::Client {
    let (client, connection) = runtime.block_on(tokio_postgres::connect(&database.server.url(), NoTls)).unwrap();
    runtime.spawn(connection);
    client
}

/// Sends and pops this many messages one by one, for longer than the reader needs.
fn busy(client: &mut Client, queue: &str, number: usize) {
    for index in 0..number {
        client.send(&format!("/v1/queues/{queue}/messages"), &index.to_string());
        let (status, text) = client.short("POST", &format!("/v1/queues/{queue}/messages:pop"));
        assert_eq!((status, text), (200, index.to_string()));
        if index % 16 == 15 {
            std::thread::sleep(Duration::from_millis(60));
        }
    }
}

#[test]
fn a_message_that_is_committed_late_is_found() {
    let Some(database) = Database::start() else { return };
    let service = serve(&eager(&database));
    let mut client = Client::connect(service.address(), "s");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    busy(&mut client, "q", 32);
    let runtime = runtime();
    let late = beside(&runtime, &database);
    runtime.block_on(async {
        // As the service does it: first the transaction id, then the message id.
        late.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let text = "INSERT INTO message (id, queue_id, receiver, sender, body)
            SELECT nextval('message_id'), id, '', 'late', 'late' FROM queue";
        late.batch_execute(text).await.unwrap();
    });
    busy(&mut client, "q", 64);
    runtime.block_on(late.batch_execute("COMMIT")).unwrap();
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop"), (200, "late".into()));
    service.stop().unwrap();
}

#[test]
fn a_redelivered_message_is_found_in_its_old_place() {
    let Some(database) = Database::start() else { return };
    let service = serve(&eager(&database));
    let mut client = Client::connect(service.address(), "s");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    for round in 0..3 {
        client.send("/v1/queues/q/messages", "old");
        let reply = client.ask("POST", "/v1/queues/q/messages:receive?lease=1h", "");
        let lease = reply.header("waystage-lease-token").unwrap().to_string();
        busy(&mut client, "q", 64);
        client.send("/v1/queues/q/messages", "new");
        assert_eq!(client.short("POST", &format!("/v1/leases/{lease}/nack")).0, 204);
        database.becomes_zero("SELECT count(*) FROM invisible_message");
        for expected in ["old", "new"] {
            let found = client.short("POST", "/v1/queues/q/messages:pop");
            assert_eq!(found, (200, expected.into()), "round {round}");
        }
        // The next round is in another era.
        std::thread::sleep(A_WHILE);
        busy(&mut client, "q", 16);
    }
    let eras = database.number("SELECT era::bigint FROM queue");
    assert!(eras >= 2, "the queue is in era {eras}");
    service.stop().unwrap();
}

#[test]
fn a_queue_that_is_created_again_starts_empty() {
    let Some(database) = Database::start() else { return };
    let service = serve(&eager(&database));
    let mut client = Client::connect(service.address(), "s");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    busy(&mut client, "q", 32);
    assert_eq!(client.short("DELETE", "/v1/queues/q").0, 204);
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    // As in a queue restored from a backup.
    let runtime = runtime();
    let text = "INSERT INTO message (id, queue_id, receiver, sender, body)
        SELECT 0, id, '', 's', 'first' FROM queue WHERE deleted_at IS NULL";
    runtime.block_on(beside(&runtime, &database).batch_execute(text)).unwrap();
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop"), (200, "first".into()));
    service.stop().unwrap();
}

/// A transaction that keeps dead rows alive with its snapshot, and one with its transaction id.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue";
const TRANSACTION_ID: &str = "BEGIN; SELECT pg_current_xact_id()";

/// Pages of the table and its indexes that a pop reads after many messages were removed while this transaction was open.
fn buffers_of_a_pop(low_water_refresh_after: usize, open: &str) -> i64 {
    const MEASURED: usize = 40;
    let Some(database) = Database::start() else { return 0 };
    let service = serve(&Config { low_water_refresh_after, ..database.config() });
    let mut client = Client::connect(service.address(), "s");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    let runtime = runtime();
    let (old, other) = (beside(&runtime, &database), beside(&runtime, &database));
    let fill = "INSERT INTO message (id, queue_id, receiver, sender, body)
        SELECT nextval('message_id'), id, '', 's', repeat('x', 200)::bytea FROM queue, generate_series(1, 20000)";
    runtime.block_on(other.batch_execute(fill)).unwrap();
    let mut pops = |number: usize| {
        (0..number).for_each(|_| assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 200));
        std::thread::sleep(Duration::from_millis(100));
    };
    // The marks that the service reads now are useless later.
    (0..5).for_each(|_| pops(4));
    runtime.block_on(old.batch_execute(open)).unwrap();
    runtime.block_on(other.batch_execute("DELETE FROM message WHERE id <= 19000")).unwrap();
    (0..5).for_each(|_| pops(4));
    // PostgreSQL reports the statistics of a connection after a second.
    let mut buffers_after = |number: usize| {
        pops(number);
        std::thread::sleep(A_WHILE);
        pops(1);
        database.number(BUFFERS)
    };
    let before = buffers_after(1);
    let buffers = (buffers_after(MEASURED - 1) - before) / i64::try_from(MEASURED).unwrap();
    runtime.block_on(old.batch_execute("COMMIT")).unwrap();
    service.stop().unwrap();
    buffers
}

#[test]
fn an_old_snapshot_makes_pops_no_more_expensive() {
    let without = std::thread::spawn(|| buffers_of_a_pop(usize::MAX, SNAPSHOT));
    let (with, without) = (buffers_of_a_pop(250, SNAPSHOT), without.join().unwrap());
    println!("buffers of a pop: {with}, without a low-water {without}");
    assert!(with <= 60, "a pop touches {with} buffers");
    assert!(without == 0 || without > 4 * with, "without a low-water a pop touches {without} buffers, with one {with}");
}

#[test]
fn an_open_transaction_with_an_id_makes_pops_no_more_expensive() {
    let buffers = buffers_of_a_pop(250, TRANSACTION_ID);
    assert!(buffers <= 60, "a pop touches {buffers} buffers");
}

/// Repeats a request until it is answered, because connections to the database break meanwhile.
fn patiently(http: &mut Http, path: &str, body: &str) -> (u16, Option<String>) {
    let header = "waystage-sender: s";
    let reply = http.request("POST", path, &[header], body.as_bytes()).unwrap();
    (reply.status, reply.header("waystage-lease-token").map(str::to_string))
}

fn take_part(address: SocketAddr, number: usize, is_over: &AtomicBool, sent: &AtomicUsize) {
    let mut http = Http::connect(address).unwrap();
    let mut round = number;
    let mut empty = 0;
    // The consumers stop when they have found nothing for a while, so that nothing is left.
    while !is_over.load(Ordering::Relaxed) || empty < 60 {
        round += 1;
        let queue = format!("/v1/queues/q{}", round % 2);
        let to = ["", "?to=a", "?delay=30ms", ""][round / 2 % 4];
        let of = ["", "?for=a", "?for=b"][round % 3];
        let is_sender = number.is_multiple_of(2) && !is_over.load(Ordering::Relaxed);
        let (status, _) = match (is_sender, round % 5) {
            (true, _) => patiently(&mut http, &format!("{queue}/messages{to}"), "x"),
            (false, 0) if !is_over.load(Ordering::Relaxed) => {
                let separator = if of.is_empty() { "?" } else { "&" };
                let (status, lease) =
                    patiently(&mut http, &format!("{queue}/messages:receive{of}{separator}lease=50ms"), "");
                if let Some(lease) = lease
                    && round.is_multiple_of(2)
                {
                    patiently(&mut http, &format!("/v1/leases/{lease}/nack?delay=10ms"), "");
                }
                (status, None)
            }
            _ => patiently(&mut http, &format!("{queue}/messages:pop{of}"), ""),
        };
        match status {
            201 => drop(sent.fetch_add(1, Ordering::Relaxed)),
            204 => {
                empty += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => empty = 0,
        }
    }
}

#[test]
fn several_services_with_killed_connections_leave_nothing_behind() {
    let seconds: f64 = std::env::var("WAYSTAGE_LOW_WATER_S").map_or(3.0, |text| text.parse().unwrap());
    let Some(database) = Database::start() else { return };
    let services = [serve(&eager(&database)), serve(&eager(&database))];
    let mut client = Client::connect(services[0].address(), "s");
    (0..2).for_each(|number| assert_eq!(client.short("PUT", &format!("/v1/queues/q{number}")).0, 201));
    let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..10)
        .map(|number| {
            let (address, is_over, sent) = (services[number / 2 % 2].address(), is_over.clone(), sent.clone());
            std::thread::spawn(move || take_part(address, number, &is_over, &sent))
        })
        .collect();
    let runtime = runtime();
    let killer = beside(&runtime, &database);
    let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'waystage' ORDER BY random() LIMIT 1";
    for _ in 0..(seconds * 10.0) as usize {
        std::thread::sleep(Duration::from_millis(100));
        runtime.block_on(killer.batch_execute(text)).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (sent, left) = (sent.load(Ordering::Relaxed), database.number(LEFT));
    println!("sent {sent}, left {left}");
    assert!(sent > 50, "hardly anything was sent: {sent}");
    assert_eq!(left, 0, "messages are stored and no pop finds them");
    for service in services {
        service.stop().unwrap();
    }
}
