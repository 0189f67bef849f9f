//! The database refuses the service until the operator changes something: the start fails with one line that states the remedy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::leases::{lease_action, make, receive};
use common::{Client, Database, serve};
use messages::{Config, start};

/// The error with which a service of this role refuses to start.
fn refusal(database: &Database, role: &str) -> String {
    let config = database.config();
    let url = config.database.replace("user=waystage", &format!("user={role}"));
    let line = start(&Config { database: url, ..config }, Clock::monotonic()).map(|_| ()).unwrap_err().to_string();
    assert!(line.starts_with("the database cannot be used: ") && !line.contains('\n'), "{line}");
    line
}

#[test]
fn a_role_without_a_schema_to_create_tables_in_is_refused() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE plain LOGIN; CREATE ROLE lost LOGIN; ALTER ROLE lost SET search_path = nowhere");
    let line = refusal(&database, "plain");
    assert!(line.contains("permission denied") && line.contains("GRANT USAGE, CREATE ON SCHEMA public"), "{line}");
    let line = refusal(&database, "lost");
    assert!(line.contains("no schema has been selected") && line.contains("search_path"), "{line}");
    // Many operators take this right from all roles.
    database.run("REVOKE ALL ON SCHEMA public FROM PUBLIC");
    let line = refusal(&database, "plain");
    assert!(line.contains("search_path") && line.contains("GRANT USAGE, CREATE ON SCHEMA public"), "{line}");
}

#[test]
fn a_role_that_does_not_own_the_tables_is_refused() {
    let Some(database) = Database::start() else { return };
    serve(&database.config()).stop().unwrap();
    database.run("CREATE ROLE plain LOGIN; GRANT USAGE, CREATE ON SCHEMA public TO plain");
    let line = refusal(&database, "plain");
    let has_remedy = line.contains("belong to another role") && !line.contains("CREATE ON SCHEMA");
    assert!(line.contains("permission denied for table waystage_schema") && has_remedy, "{line}");
    database.run("GRANT waystage TO plain");
    let config = database.config();
    let url = config.database.replace("user=waystage", "user=plain");
    serve(&Config { database: url, ..config }).stop().unwrap();
}

#[test]
fn missing_tables_are_refused() {
    let Some(database) = Database::start() else { return };
    serve(&database.config()).stop().unwrap();
    database.run("ALTER TABLE message RENAME TO elsewhere");
    let line = refusal(&database, "waystage");
    assert!(line.contains("\"message\" does not exist: another program has dropped, renamed"), "{line}");
    database.run("ALTER TABLE elsewhere RENAME TO message; DROP TABLE waystage_schema");
    let line = refusal(&database, "waystage");
    assert!(line.contains("\"queue\" already exists: another program has dropped, renamed"), "{line}");
}

/// What the page for operators says about roles after the migration.
#[test]
fn a_role_that_can_only_change_rows_is_enough_after_the_migration() {
    let Some(database) = Database::start() else { return };
    serve(&database.config()).stop().unwrap();
    database.run(
        "CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA public TO worker;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker;
         GRANT USAGE, SELECT ON SEQUENCE message_id TO worker",
    );
    let config = database.config();
    let url = config.database.replace("user=waystage", "user=worker");
    let running = serve(&Config { database: url, low_water_refresh_after: 1, ..config });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", r#"{"lease": "1h"}"#);
    client.send("/v1/queues/jobs/messages", "work");
    receive(&mut client, "jobs", "lease=20ms");
    let again = receive(&mut client, "jobs", "wait=50s");
    assert_eq!((again.attempt, lease_action(&mut client, &again, "acknowledge")), (2, 204));
    let keyed = client.ask_with("POST", "/v1/queues/jobs/messages?delay=1h", "idempotency-key: k", "x");
    assert_eq!(keyed.status, 201);
    assert_eq!(client.short("DELETE", "/v1/queues/jobs").0, 204);
    database.becomes_zero("SELECT count(*) FROM invisible_message");
    // Loops whose rounds fail are reported after five seconds.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(client.short("GET", "/readyz"), (204, String::new()));
    running.stop().unwrap();
}

#[test]
fn requests_of_a_role_that_can_no_longer_log_in_get_the_reason() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE worker LOGIN; GRANT ALL ON SCHEMA public TO worker");
    let config = database.config();
    let running = serve(&Config { database: config.database.replace("user=waystage", "user=worker"), ..config });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    database.run("ALTER ROLE worker NOLOGIN");
    database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker'");
    let mut text = String::new();
    for _ in 0..1000 {
        text = client.ask("POST", "/v1/queues/jobs/messages", "work").text();
        if text.contains("not permitted to log in") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let wanted = ["not permitted to log in", "urn:waystage:problem:database-down\""];
    assert!(wanted.iter().all(|part| text.contains(part)), "{text}");
    running.stop().unwrap();
}

#[test]
fn a_missing_or_wrong_password_is_refused() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE guarded LOGIN PASSWORD 'secret'; GRANT ALL ON SCHEMA public TO guarded");
    let rules = "local all waystage trust\nlocal all all scram-sha-256\n";
    std::fs::write(database.directory().join("data/pg_hba.conf"), rules).unwrap();
    database.run("SELECT pg_reload_conf()");
    let line = refusal(&database, "guarded password=wrong");
    assert!(line.contains("password authentication failed"), "{line}");
    let line = refusal(&database, "guarded");
    assert!(line.contains("password missing"), "{line}");
}
