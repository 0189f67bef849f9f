//! Databases of other versions of the program: an older one is migrated with its content, a newer one is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};

const FIRST_STEP: &str = include_str!("../src/database/migrations/0001_queues_and_messages.sql");

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
