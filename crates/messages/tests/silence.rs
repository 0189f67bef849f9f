//! Tests a silent network: connections to the database stay open, but no bytes pass. The service detects this and connects again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::relay::Relay;
use common::{Client, Database, Session, serve};
use messages::{Config, DispatchConfig, MessagesError, SchemaState, migrate};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::Duration;

/// From the return of the database until all delayed work is done. It takes 2 to 8 s; this machine may be busy.
const RECOVERY: Duration = Duration::from_secs(25);
const LEASE: Duration = Duration::from_secs(1);

fn pop(client: &mut Client, queue: &str) -> (u16, String) {
    client.short("POST", &format!("/v1/queues/{queue}/messages:pop"))
}

#[test]
fn everything_works_again_soon_after_connections_have_fallen_silent() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 2 }, DispatchConfig::Pool { connections: 3 }] {
        let relay = Relay::start(database.directory());
        let service = serve(&Config { dispatch, database: relay.url(), ..database.config() });
        let mut client = Client::connect(service.address(), "alice");
        for queue in ["a", "b", "c", "d"] {
            client.short("PUT", &format!("/v1/queues/{queue}"));
            while pop(&mut client, queue).0 == 200 {}
        }
        client.send("/v1/queues/a/messages", "leased");
        let lease = format!("/v1/queues/a/messages:receive?lease={}s", LEASE.as_secs());
        assert_eq!(client.short("POST", &lease).0, 200);
        // The redelivery has seen the lease, and its next statement meets the silence.
        sleep(LEASE / 2);
        relay.silence_open_connections();
        let clock = Clock::monotonic();
        let returned = clock.now();
        for queue in ["b", "c", "d"] {
            while client.ask("POST", &format!("/v1/queues/{queue}/messages"), "x").status != 201 {
                assert!(clock.now().after(returned) < RECOVERY, "{dispatch:?}: sends are still refused");
            }
        }
        let sent = clock.now().after(returned);
        while pop(&mut client, "a") != (200, "leased".into()) {
            assert!(clock.now().after(returned) < RECOVERY + LEASE, "{dispatch:?}: the lease is not over");
            sleep(Duration::from_millis(50));
        }
        eprintln!("{dispatch:?}: sends after {sent:?}, the lease after {:?}", clock.now().after(returned));
        service.stop().unwrap();
    }
}

#[test]
fn an_outage_is_reported_and_everything_works_again_soon_after_it() {
    let Some(database) = Database::start() else { return };
    let relay = Relay::start(database.directory());
    let service = serve(&Config { database: relay.url(), ..database.config() });
    let address = service.address();
    let mut client = Client::connect(address, "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    assert_eq!(client.short("GET", "/readyz").0, 204);
    relay.silence();
    let sends: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(move || Client::connect(address, "bob").ask("POST", "/v1/queues/q/messages", "x")))
        .collect();
    until("the service is not ready", || client.short("GET", "/readyz").0 == 503);
    assert_eq!(client.short("GET", "/healthz").0, 200);
    let ages = |page: &str| page.lines().filter(|line| line.starts_with("waystage_messages_loop_age_seconds{")).count();
    assert_eq!(ages(&client.short("GET", "/metrics").1), 4);
    relay.restore();
    let clock = Clock::monotonic();
    let restored = clock.now();
    let mut other = Client::connect(address, "carol");
    while other.ask("POST", "/v1/queues/q/messages", "x").status != 201 || client.short("GET", "/readyz").0 != 204 {
        assert!(clock.now().after(restored) < RECOVERY, "it does not work again");
    }
    eprintln!("recovered after {:?}", clock.now().after(restored));
    for send in sends {
        let status = send.join().unwrap().status;
        assert!(status == 201 || status == 503, "{status}");
    }
    // The connections that were given up are not left on the server.
    let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waystage'";
    // Two lanes and the seven others, all of which connect again.
    let wanted = 2 + 7;
    until("the server has no connection too many", || database.number(left) <= wanted);
    service.stop().unwrap();
}

/// Clients need no token for it, so that anyone could keep the database busy if each request asked it.
#[test]
fn readiness_is_known_without_asking_the_database() {
    const CLIENTS: usize = 100;
    const REQUESTS: usize = 40;
    let Some(database) = Database::start() else { return };
    let service = serve(&database.config());
    let address = service.address();
    until("the service is ready", || Client::connect(address, "alice").short("GET", "/readyz").0 == 204);
    // The server publishes the counts of a process at the end of a transaction, but at most once a second.
    let transactions =
        || database.number("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()");
    let before = transactions();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address, "alice");
                // On a busy machine, a check of the service itself can take too long.
                (0..REQUESTS).for_each(|_| assert!(matches!(client.short("GET", "/readyz").0, 204 | 503)));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    std::thread::sleep(Duration::from_secs(3));
    // The background loops need about twenty in a second.
    let made = transactions() - before;
    assert!(made < (CLIENTS * REQUESTS / 2) as i64, "{made} transactions");
    service.stop().unwrap();
}

/// While the database does not answer, no request for readiness waits for it.
#[test]
fn a_service_without_a_database_reports_it_at_once() {
    const REQUESTS: u32 = 60;
    let Some(database) = Database::start() else { return };
    let relay = Relay::start(database.directory());
    let service = serve(&Config { database: relay.url(), ..database.config() });
    let mut client = Client::connect(service.address(), "alice");
    until("the service is ready", || client.short("GET", "/readyz").0 == 204);
    relay.silence();
    let no_check = "limits_reached_total{limit=\"checks\"} 0\n";
    until("a check has timed out", || !client.short("GET", "/metrics").1.contains(no_check));
    until("the service is not ready", || client.short("GET", "/readyz").0 == 503);
    let (clock, mut waited) = (Clock::monotonic(), Duration::ZERO);
    for _ in 0..REQUESTS {
        let began = clock.now();
        assert_eq!(client.short("GET", "/readyz").0, 503);
        waited += clock.now().after(began);
        std::thread::sleep(Duration::from_millis(100));
    }
    // A check of the service gives up after two seconds, and the next one begins half a second later.
    assert!(waited < Duration::from_secs(12), "they waited for the database: {waited:?}");
    service.stop().unwrap();
}

/// At this rate, the statement and the reply take three seconds each. The reply, whose progress is visible, may take any time.
#[test]
fn what_passes_a_slow_network_is_not_given_up() {
    let Some(database) = Database::start() else { return };
    let relay = Relay::start(database.directory());
    let service = serve(&Config { database: relay.url(), ..database.config() });
    let mut client = Client::connect(service.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    relay.slow_down(800_000);
    let body = "x".repeat(200_000);
    let messages = vec![format!("{{\"body\": \"{body}\"}}"); 12].join(",");
    let sent = client.ask("POST", "/v1/queues/q/messages:batch", &format!("{{\"messages\": [{messages}]}}"));
    assert_eq!(sent.status, 201, "{}", sent.text());
    let reply = client.ask("POST", "/v1/queues/q/messages:receive?max=12", "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.text().matches("\"lease_token\"").count(), 12);
    service.stop().unwrap();
}

#[test]
fn a_database_that_is_read_only_is_not_ready_and_connected_again() {
    let Some(database) = Database::start() else { return };
    let service = serve(&database.config());
    let mut client = Client::connect(service.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    assert_eq!(client.short("GET", "/readyz").0, 204);
    database.run("ALTER ROLE waystage SET default_transaction_read_only = on");
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'waystage'");
    until("the service is not ready", || {
        let (status, text) = client.short("GET", "/readyz");
        status == 503 && text.contains("read-only")
    });
    let send = |client: &mut Client| client.ask("POST", "/v1/queues/q/messages", "x").status;
    assert_eq!(send(&mut client), 503);
    database.run("BEGIN READ WRITE; ALTER ROLE waystage RESET default_transaction_read_only; COMMIT");
    until("new connections are writable", || send(&mut client) == 201 && client.short("GET", "/readyz").0 == 204);
    service.stop().unwrap();
}

/// Runs in a thread, because a migration that waits for a silent connection may never end.
fn migration(config: &Config, only_check: bool) -> Receiver<Result<SchemaState, MessagesError>> {
    let (config, (sender, receiver)) = (config.clone(), channel());
    std::thread::spawn(move || sender.send(migrate(&config, only_check)));
    receiver
}

#[test]
fn a_migration_ends_if_the_database_accepts_connections_and_does_not_answer() {
    let Some(database) = Database::start() else { return };
    let relay = Relay::start(database.directory());
    let config = Config { database: relay.url(), ..database.config() };
    relay.silence();
    let migrations = [false, true].map(|only_check| migration(&config, only_check));
    for migration in migrations {
        let line = migration.recv_timeout(RECOVERY).unwrap().unwrap_err().to_string();
        assert!(line.contains("does not answer") && !line.contains('\n'), "{line}");
    }
    assert_eq!(database.number("SELECT count(*) FROM pg_class WHERE relname = 'waystage_schema'"), 0);
}

/// The connection falls silent while the migration waits for a lock of another program. When the server has the lock, its reply is lost. Its
/// process would keep the locks of the unfinished migration for ever, because this URL allows that.
#[test]
fn a_migration_ends_if_its_connection_falls_silent_and_leaves_no_process_on_the_server() {
    let Some(database) = Database::start() else { return };
    let relay = Relay::start(database.directory());
    let url = format!("{} options='-c idle_in_transaction_session_timeout=0'", relay.url());
    let config = Config { database: url, ..database.config() };
    let other = Session::connect(&database);
    other.run("CREATE TABLE waystage_schema (step integer NOT NULL)");
    // The migration waits in its transaction, and the check for the table that it reads.
    for (only_check, lock) in
        [(false, "SELECT pg_advisory_xact_lock(7294011736218)"), (true, "LOCK TABLE waystage_schema")]
    {
        other.run(&format!("BEGIN; {lock}"));
        let migration = migration(&config, only_check);
        database.becomes_zero("SELECT 1 - count(*) FROM pg_locks WHERE NOT granted");
        relay.silence_open_connections();
        other.run("ROLLBACK");
        let line = migration.recv_timeout(RECOVERY).unwrap().unwrap_err().to_string();
        assert!(line.contains("does not answer") && !line.contains('\n'), "{line}");
        database.becomes_zero("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waystage'");
    }
    let state = migration(&config, false).recv_timeout(RECOVERY).unwrap().unwrap();
    assert_eq!(state.step, state.known);
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("not in time: {what}");
}
