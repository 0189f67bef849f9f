//! Databases of other versions of the program: an older one is migrated with its content, a newer one is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, Session, serve};
use messages::migrate;

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

/// A service of an earlier version is connected: it holds the lock that docs/messages-operation.md describes. A compatible step runs beside
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
        assert_eq!((check().step, check().known), (step, 5));
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
            assert_eq!(migrate(&database.config(), false).unwrap().step, 5);
            continue;
        }
        let running = started.unwrap();
        assert_eq!(check().step, 5);
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
