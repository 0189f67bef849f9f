//! Lanes that lost their connection while the others have theirs: `/readyz` and the metrics report them, and they connect again without a
//! request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::make;
use common::{Client, Database, serve};
use messages::{Config, DispatchConfig};
use std::time::Duration;

/// Refuses further connections. Those that are open stay open.
const REFUSE: &str = "ALTER ROLE narrow CONNECTION LIMIT 1";
/// Ends the connection of the lane that has sent a message with a key.
const END_KEYED: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE query LIKE '%Sends with an idempotency key%' AND usename = 'narrow'";
/// Ends three of the connections that have sent a message.
const END_THREE: &str = "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
    WHERE query LIKE '%INSERT INTO message (id, queue_id, receiver, sender, body, expires_at)%' AND usename = 'narrow' LIMIT 3) AS lane";

/// A service whose role can be refused further connections.
fn narrow(database: &Database, dispatch: DispatchConfig) -> Config {
    let config = database.config();
    Config { database: config.database.replace("user=waystage", "user=narrow"), dispatch, ..config }
}

/// Waits until `/readyz` replies with this status, and returns the reply's body.
fn ready_becomes(client: &mut Client, status: u16) -> String {
    for _ in 0..2000 {
        let reply = client.short("GET", "/readyz");
        if reply.0 == status {
            return reply.1;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("/readyz did not reply {status}");
}

fn metric(client: &mut Client, line: &str) -> bool {
    client.short("GET", "/metrics").1.lines().any(|other| other == line)
}

#[test]
fn a_single_lane_without_a_connection_makes_the_service_not_ready() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE narrow LOGIN; GRANT ALL ON SCHEMA public TO narrow");
    let running = serve(&narrow(&database, DispatchConfig::Fused { lanes: 2 }));
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    let keyed = client.ask_with("POST", "/v1/queues/q/messages", "Idempotency-Key: k", "x");
    assert_eq!(keyed.status, 201);
    ready_becomes(&mut client, 204);
    assert!(metric(&mut client, "waystage_messages_lane_connections{queue=\"keyed\"} 1"));
    database.run(REFUSE);
    database.run(END_KEYED);
    let text = ready_becomes(&mut client, 503);
    assert!(text.contains("urn:waystage:problem:not-ready\""), "{text}");
    assert!(text.contains("lane keyed has no connection") && text.contains("too many connections"), "{text}");
    assert!(metric(&mut client, "waystage_messages_lane_connections{queue=\"keyed\"} 0"));
    assert!(metric(&mut client, "waystage_messages_lane_connections{queue=\"1\"} 1"));
    client.send("/v1/queues/q/messages", "the other lanes work");
    let refused = client.ask_with("POST", "/v1/queues/q/messages", "Idempotency-Key: k", "x");
    let text = refused.text();
    assert!(refused.status == 503 && text.contains("urn:waystage:problem:database-down\""), "{text}");
    assert!(text.contains("too many connections"), "{text}");
    database.run("ALTER ROLE narrow CONNECTION LIMIT -1");
    // No request needs the lane.
    ready_becomes(&mut client, 204);
    assert!(metric(&mut client, "waystage_messages_lane_connections{queue=\"keyed\"} 1"));
    running.stop().unwrap();
}

/// The private PostgreSQL accepts as many as docs/messages-embedded.md states.
#[test]
fn the_connections_of_a_service_are_those_that_its_database_must_accept() {
    let Some(database) = Database::start() else { return };
    for dispatch in [DispatchConfig::Fused { lanes: 3 }, DispatchConfig::Pool { connections: 5 }] {
        let running = serve(&Config { dispatch, ..database.config() });
        let mut client = Client::connect(running.address(), "alice");
        assert!([201, 204].contains(&client.short("PUT", "/v1/queues/q").0));
        let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waystage'";
        let expected = dispatch.request_connections() + 7;
        let mut most = 0;
        // Low-water marks are read only after messages were taken out.
        for _ in 0..1000 {
            client.send("/v1/queues/q/messages", "x");
            assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 200);
            most = usize::try_from(database.number(open)).unwrap();
            if most >= expected {
                break;
            }
        }
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!((most, database.number(open)), (expected, expected as i64), "{dispatch:?}");
        assert_eq!(dispatch.accepted_connections(), 2 * expected + 10);
        running.stop().unwrap();
        database.becomes_zero(open);
    }
}

/// A connection of the pool that ended takes no requests from those that work.
#[test]
fn the_rest_of_a_pool_serves_all_requests() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE narrow LOGIN; GRANT ALL ON SCHEMA public TO narrow");
    let running = serve(&narrow(&database, DispatchConfig::Pool { connections: 4 }));
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    let mut tries = 0;
    while !metric(&mut client, "waystage_messages_lane_connections{queue=\"0\"} 4") {
        tries += 1;
        assert!(tries < 1000, "not all connections were made");
        std::thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..20 {
        client.send("/v1/queues/q/messages", "x");
    }
    database.run(REFUSE);
    database.run(END_THREE);
    let mut tries = 0;
    while metric(&mut client, "waystage_messages_lane_connections{queue=\"0\"} 4") {
        tries += 1;
        assert!(tries < 1000, "no connection ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..200 {
        client.send("/v1/queues/q/messages", "x");
    }
    assert_eq!(client.short("GET", "/readyz").0, 204);
    running.stop().unwrap();
}

/// Such a setting of the role, the database or the server is meant for people.
#[test]
fn a_limit_for_idle_sessions_ends_no_connection() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE narrow LOGIN; GRANT ALL ON SCHEMA public TO narrow");
    database.run("ALTER ROLE narrow SET idle_session_timeout = '500ms'");
    let running = serve(&narrow(&database, DispatchConfig::Fused { lanes: 2 }));
    let mut client = Client::connect(running.address(), "alice");
    ready_becomes(&mut client, 204);
    std::thread::sleep(Duration::from_secs(2));
    assert!(metric(&mut client, "waystage_messages_reconnects_total 0"));
    running.stop().unwrap();
}

/// A sequential scan would read all messages of all queues, dead rows included.
#[test]
fn statements_use_indexes_whatever_the_role_sets() {
    let Some(database) = Database::start() else { return };
    // Creates the tables, which reads them.
    serve(&database.config()).stop().unwrap();
    let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waystage'";
    database.becomes_zero(gone);
    for setting in ["enable_indexscan", "enable_indexonlyscan", "enable_nestloop", "enable_tidscan"] {
        database.run(&format!("ALTER DATABASE postgres SET {setting} = off"));
    }
    database.run("SELECT pg_stat_reset()");
    let service = serve(&database.config());
    let mut client = Client::connect(service.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    for _ in 0..3 {
        client.send("/v1/queues/q/messages", "x");
        assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 200);
    }
    service.stop().unwrap();
    // The statistics of a session are complete when it has ended.
    database.becomes_zero(gone);
    let sum = |column| {
        let tables = "FROM pg_stat_user_tables WHERE relname IN ('message', 'queue')";
        database.number(&format!("SELECT sum({column})::bigint {tables}"))
    };
    assert!(sum("idx_scan") > 0);
    assert_eq!(sum("seq_scan"), 0);
}
