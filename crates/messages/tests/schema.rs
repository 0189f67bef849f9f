//! Databases of other versions of the program: an older one is migrated with its content, a newer one is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, Session, serve};
use messages::{Config, migrate};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::Duration;

const FIRST_STEP: &str = STEPS[0];
/// The steps of earlier versions.
const STEPS: [&str; 4] = [
    include_str!("../src/database/migrations/0001_queues_and_messages.sql"),
    include_str!("../src/database/migrations/0002_leases_delays_and_keys.sql"),
    include_str!("../src/database/migrations/0003_low_water_marks.sql"),
    include_str!("../src/database/migrations/0004_lost_leases_and_dead_letters.sql"),
];

/// The content of a database of the first version.
const LEFT: &str = "CREATE TABLE waystage_schema (step integer NOT NULL);
    INSERT INTO waystage_schema VALUES (1);
    INSERT INTO queue (name) VALUES ('orders');
    INSERT INTO message (id, queue_id, receiver, sender, body)
        SELECT nextval('message_id'), id, 'bob', 'alice', 'two apples' FROM queue;";

#[test]
fn an_older_database_is_migrated_and_a_newer_one_is_refused() {
    let Some(database) = Database::start() else { return };
    database.run(FIRST_STEP);
    database.run(LEFT);
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    let received = client.ask("POST", "/v1/queues/orders/messages:receive?for=bob&lease=1h", "");
    assert_eq!((received.status, received.text().as_str()), (200, "two apples"));
    assert_eq!(received.header("waystage-attempt"), Some("1"));
    let (_, text) = client.short("GET", "/v1/queues/orders");
    assert!(text.contains("\"attempts\":null") && text.contains("\"invisible\":1"), "{text}");
    running.stop().unwrap();
    database.run("INSERT INTO waystage_schema VALUES (1000)");
    let error = messages::start(&database.config(), clock::Clock::monotonic()).unwrap_err().to_string();
    assert!(error.contains("step 1000 of the schema") && !error.contains('\n'), "{error}");
}

/// A service of an earlier version is connected: it holds the lock that docs/messages-database.md describes. A compatible step runs beside
/// it, and an incompatible one is refused until it has gone. `migrate` does the same, and its check changes nothing.
#[test]
fn an_upgrade_waits_for_older_services_only_if_a_step_would_break_them() {
    for (step, is_compatible) in [(4, true), (3, false)] {
        let Some(database) = Database::start() else { return };
        database.run(&STEPS[..step].concat());
        database.run(&format!(
            "CREATE TABLE waystage_schema (step integer NOT NULL, oldest_program integer);
             INSERT INTO waystage_schema SELECT g, g FROM generate_series(1, {step}) AS g"
        ));
        let older = Session::connect(&database);
        older
            .run(&format!("SELECT pg_advisory_lock_shared(1463877632 + {step}, 'public'::regnamespace::oid::integer)"));
        let check = || migrate(&database.config(), true).unwrap();
        assert_eq!((check().step, check().known), (step, 6));
        let started = messages::start(&database.config(), clock::Clock::monotonic());
        if !is_compatible {
            let line = started.map(drop).unwrap_err().to_string();
            let words = format!("a connected service knows only {step} steps of the schema");
            assert!(line.contains(&words) && line.contains("stop all older services first"), "{line}");
            let line = migrate(&database.config(), false).unwrap_err().to_string();
            assert!(line.contains(&words), "{line}");
            assert_eq!(check().step, step, "nothing was changed");
            drop(older);
            database.becomes_zero("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
            assert_eq!(migrate(&database.config(), false).unwrap().step, 6);
            continue;
        }
        let running = started.unwrap();
        assert_eq!(check().step, 6);
        // The old service stores a message in the tables as it knows them.
        older.run(
            "INSERT INTO queue (name) VALUES ('orders');
             INSERT INTO message (id, queue_id, receiver, sender, body)
             SELECT nextval('message_id'), id, '', 'alice', 'two apples' FROM queue",
        );
        let mut client = Client::connect(running.address(), "alice");
        assert_eq!(client.short("POST", "/v1/queues/orders/messages:pop"), (200, "two apples".into()));
        running.stop().unwrap();
    }
}

/// The role's search path begins with a schema of the role's name, which was created after the tables.
#[test]
fn an_upgrade_changes_the_tables_where_they_are() {
    let Some(database) = Database::start() else { return };
    database.run(FIRST_STEP);
    database.run(LEFT);
    database.run("CREATE SCHEMA waystage");
    let running = serve(&database.config());
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("POST", "/v1/queues/orders/messages:pop?for=bob"), (200, "two apples".into()));
    running.stop().unwrap();
    assert_eq!(database.number("SELECT count(*) FROM pg_class WHERE relnamespace = 'waystage'::regnamespace"), 0);
}

/// Another program changes the schema for longer than the timeouts of other statements. The URL and the database have shorter ones than the
/// service's 30 s, so that the test is short.
#[test]
fn an_upgrade_waits_for_another_one_as_long_as_it_takes() {
    let Some(database) = Database::start() else { return };
    let config = Config {
        database: format!("{} options='-c statement_timeout=100ms'", database.server.url()),
        ..database.config()
    };
    database.run("ALTER DATABASE postgres SET lock_timeout = '100ms'");
    let other = Session::connect(&database);
    let locks = [
        "SELECT pg_advisory_xact_lock(7294011736218)",
        "LOCK TABLE waystage_schema",
        "SELECT pg_advisory_xact_lock(1463877632 + 6, 'public'::regnamespace::oid::integer)",
    ];
    for lock in locks {
        other.run(&format!("BEGIN; {lock}"));
        let config = config.clone();
        let migration = std::thread::spawn(move || migrate(&config, false));
        while !migration.is_finished() && other.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0 {
            sleep(Duration::from_millis(10));
        }
        sleep(Duration::from_secs(1));
        other.run("ROLLBACK");
        assert_eq!(migration.join().unwrap().unwrap().step, 6, "{lock}");
    }
    // A check gives up, and states the reason.
    other.run("BEGIN; LOCK TABLE waystage_schema");
    let line = migrate(&config, true).unwrap_err().to_string();
    assert!(line.contains("canceling statement due to statement timeout"), "{line}");
}

/// Otherwise SIGTERM would not stop a service that waits.
#[test]
fn a_service_starts_and_can_be_stopped_while_another_program_updates_the_schema() {
    let Some(database) = Database::start() else { return };
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT pg_advisory_xact_lock(7294011736218)");
    let (sender, receiver) = channel();
    for _ in 0..2 {
        let (config, sender) = (database.config(), sender.clone());
        std::thread::spawn(move || sender.send(messages::start(&config, clock::Clock::monotonic())).is_ok());
    }
    let started = || receiver.recv_timeout(Duration::from_secs(120)).expect("it waits for the lock").unwrap();
    let [stopped, running] = [started(), started()];
    let [mut of_stopped, mut client] = [&stopped, &running].map(|service| Client::connect(service.address(), "alice"));
    assert_eq!((of_stopped.short("GET", "/readyz").0, client.short("GET", "/readyz").0), (503, 503));
    stopped.stop().unwrap();
    other.run("ROLLBACK");
    while client.short("GET", "/readyz").0 != 204 {
        sleep(Duration::from_millis(50));
    }
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    running.stop().unwrap();
}

/// Truncation would lock a table, and dead rows would stay until a part of a large table has changed.
#[test]
fn every_table_that_changes_is_vacuumed_soon_and_never_truncated() {
    let Some(database) = Database::start() else { return };
    serve(&database.config()).stop().unwrap();
    let without = |option: &str| {
        format!(
            "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
             AND relname <> 'waystage_schema' AND NOT coalesce(reloptions, '{{}}') @> '{{{option}}}'"
        )
    };
    assert_eq!(database.number(&without("no_such_option=1")), 6, "the tables of the service");
    for option in ["vacuum_truncate=off", "autovacuum_vacuum_scale_factor=0.01", "autovacuum_vacuum_cost_delay=0"] {
        assert_eq!(database.number(&without(option)), 0, "{option}");
    }
}
