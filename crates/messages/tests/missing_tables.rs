//! Another program revokes privileges, or renames, drops or restores tables, while the service runs. Requests and `/readyz` state what is
//! missing, and everything works again when it is back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::batch::lanes_connect;
use common::leases::{counts, make, receive};
use common::{Client, Database, serve};
use messages::{Config, migrate};
use std::thread::sleep;
use std::time::Duration;

const SEND: &str = "/v1/queues/q/messages";
const POP: &str = "/v1/queues/q/messages:pop";
/// A role with exactly the privileges that the page for operators names.
const WORKER: &str = "CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA public TO worker;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker;
    GRANT USAGE, SELECT ON SEQUENCE message_id TO worker";

/// A database whose tables belong to one role, and the configuration of a service with another one.
fn database_with_worker() -> Option<(Database, Config)> {
    let database = Database::start()?;
    migrate(&database.config(), false).unwrap();
    database.run(WORKER);
    let config = database.config();
    let url = config.database.replace("user=waystage", "user=worker");
    Some((database, Config { database: url, ..config }))
}

/// Waits until `/readyz` replies with this status and a detail that contains all these words.
fn ready_becomes(client: &mut Client, status: u16, words: &[&str]) {
    let mut last = (0, String::new());
    for _ in 0..1500 {
        last = client.short("GET", "/readyz");
        if last.0 == status && words.iter().all(|word| last.1.contains(word)) {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("/readyz does not reply {status} with {words:?}: {last:?}");
}

fn assert_refused(client: &mut Client, method: &str, path: &str, words: &str) {
    let (status, text) = client.short(method, path);
    let is_clear = text.contains("urn:waystage:problem:database-error\"") && text.contains(words);
    assert!(status == 503 && is_clear && !text.contains("temporary"), "{path}: {status} {text}");
}

fn table_errors(client: &mut Client) -> u64 {
    let page = client.short("GET", "/metrics").1;
    let line = page.lines().find(|line| line.starts_with("waystage_messages_table_errors_total")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_privilege_that_is_revoked_is_reported_until_it_is_granted_again() {
    let Some((database, config)) = database_with_worker() else { return };
    let running = serve(&config);
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    client.send(SEND, "first");
    client.send(SEND, "second");
    receive(&mut client, "q", "lease=1s");
    assert_eq!(table_errors(&mut client), 0);
    database.run("REVOKE INSERT ON message FROM worker");
    assert_refused(&mut client, "POST", SEND, "permission denied for table message");
    ready_becomes(&mut client, 503, &["not-ready\"", "GRANT it INSERT on message"]);
    assert_eq!(client.short("POST", POP), (200, "second".into()), "a pop needs no such privilege");
    // The lease ends meanwhile.
    sleep(Duration::from_millis(2500));
    assert!(table_errors(&mut client) > 1, "requests and the redelivery");
    database.run("GRANT INSERT ON message TO worker");
    let clock = Clock::monotonic();
    let began = clock.now();
    ready_becomes(&mut client, 204, &[]);
    client.send("/v1/queues/q/messages?to=bob", "third");
    assert_eq!(client.short("POST", &format!("{POP}?wait=50s")), (200, "first".into()));
    // Messages that cannot be redelivered themselves would be skipped for a minute.
    let pause = clock.now().after(began);
    assert!(pause < Duration::from_secs(20), "{pause:?}");
    running.stop().unwrap();
}

/// A load balancer sends no requests to a service that is not ready.
#[test]
fn the_service_is_ready_without_a_request_soon_after_a_privilege_is_back() {
    let Some((database, config)) = database_with_worker() else { return };
    let running = serve(&config);
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    database.run("REVOKE INSERT ON message FROM worker");
    ready_becomes(&mut client, 503, &["GRANT it INSERT on message"]);
    let clock = Clock::monotonic();
    let began = clock.now();
    assert_refused(&mut client, "POST", SEND, "permission denied for table message");
    database.run("GRANT INSERT ON message TO worker");
    ready_becomes(&mut client, 204, &[]);
    // The failed request alone would be reported for 10 s.
    let pause = clock.now().after(began);
    assert!(pause < Duration::from_secs(8), "{pause:?}");
    running.stop().unwrap();
}

#[test]
fn each_object_that_the_role_cannot_use_is_named() {
    let Some((database, config)) = database_with_worker() else { return };
    let running = serve(&config);
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    for (privilege, words) in [
        ("DELETE ON queue", &["GRANT it DELETE on queue"][..]),
        ("SELECT, UPDATE ON lost_lease", &["SELECT on lost_lease", "UPDATE on lost_lease"]),
        ("USAGE ON SEQUENCE message_id", &["GRANT it USAGE on message_id"]),
        ("USAGE ON SCHEMA public", &["the search_path of the role has no ", "message", "USAGE on the schema"]),
    ] {
        // Others have the privilege for the schema, too.
        database.run(&format!("REVOKE {privilege} FROM worker; REVOKE USAGE ON SCHEMA public FROM PUBLIC"));
        ready_becomes(&mut client, 503, words);
        database.run(&format!("GRANT {privilege} TO worker"));
        ready_becomes(&mut client, 204, &[]);
        client.send(SEND, "x");
    }
    running.stop().unwrap();
}

#[test]
fn a_table_that_is_renamed_is_reported_until_it_is_back() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    client.send(SEND, "x");
    lanes_connect(&mut client);
    database.run("ALTER TABLE message RENAME TO elsewhere");
    for (method, path) in
        [("POST", SEND), ("POST", POP), ("GET", "/v1/queues/q/messages/head"), ("GET", "/v1/queues/q")]
    {
        assert_refused(&mut client, method, path, "relation \\\"message\\\" does not exist");
    }
    ready_becomes(&mut client, 503, &["not-ready\"", "has no message: ", "undo it"]);
    // A lane that connects now cannot prepare its statements.
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    sleep(Duration::from_secs(2));
    assert_refused(&mut client, "POST", SEND, "undo it");
    database.run("ALTER TABLE elsewhere RENAME TO message");
    lanes_connect(&mut client);
    ready_becomes(&mut client, 204, &[]);
    assert_eq!(client.short("POST", POP), (200, "x".into()));
    running.stop().unwrap();
}

/// A column has another type. The statement has to be prepared again.
#[test]
fn a_changed_column_fails_no_request_for_long() {
    let Some(database) = Database::start() else { return };
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    database.run("ALTER TABLE message ADD COLUMN note text");
    client.send(SEND, "x");
    assert_eq!(client.short("POST", POP), (200, "x".into()));
    database.run("ALTER TABLE message DROP COLUMN body");
    assert_refused(&mut client, "POST", SEND, "body");
    ready_becomes(&mut client, 503, &["refuses a statement of lane ", "undo it"]);
    database.run("ALTER TABLE message ADD COLUMN body bytea");
    client.send(SEND, "y");
    assert_eq!(client.short("POST", POP), (200, "y".into()));
    running.stop().unwrap();
}

/// The ids of the new tables start again. With the low-water mark of the old ones, pops would find no message.
#[test]
fn pops_find_messages_in_tables_that_were_created_again() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { low_water_refresh_after: 1, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "q", "");
    for _ in 0..20 {
        client.send(SEND, "old");
        assert_eq!(client.short("POST", POP).0, 200);
        sleep(Duration::from_millis(20));
    }
    lanes_connect(&mut client);
    sleep(Duration::from_millis(1500));
    database.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    assert_refused(&mut client, "POST", SEND, "does not exist");
    ready_becomes(&mut client, 503, &["not-ready\""]);
    migrate(&database.config(), false).unwrap();
    ready_becomes(&mut client, 204, &[]);
    make(&mut client, "q", "");
    client.send(SEND, "new");
    assert_eq!(client.short("POST", POP), (200, "new".into()));
    // The same if only the ids start again.
    sleep(Duration::from_millis(200));
    database.run("TRUNCATE message RESTART IDENTITY");
    sleep(Duration::from_secs(3));
    client.send(SEND, "newer");
    assert_eq!(client.short("POST", POP), (200, "newer".into()));
    assert_eq!(counts(&mut client, "q"), (0, 0));
    running.stop().unwrap();
}
