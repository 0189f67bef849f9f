//! The host of a service vanishes: its connections stay open, and no packet passes. The server ends their processes, which hold locks.
//!
//! The test runs in a network namespace, whose loopback interface it can switch off. The server stays reachable over its unix socket.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, Session, serve};
use messages::{Config, migrate};
use std::process::{Command, Stdio};
use std::time::Duration;

/// It takes 20 to 30 s; this machine may be busy. Without the settings of its sessions, it would take two hours.
const RECOVERY: Duration = Duration::from_secs(120);
const OVER_TCP: &str = "host=127.0.0.1 port=5432 user=waystage dbname=postgres";
/// The server's processes for connections over the network.
const PROCESSES: &str = "SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NOT NULL";
/// The one of a migration that waits for a lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NOT NULL AND wait_event_type = 'Lock'";

fn in_a_namespace(arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).args(arguments);
    command
}

fn switch_loopback(state: &str) {
    assert!(Command::new("ip").args(["link", "set", "lo", state]).status().unwrap().success());
}

#[test]
fn a_server_ends_the_processes_of_a_service_whose_host_has_vanished() {
    let probe = in_a_namespace(&["ip", "link", "set", "lo", "up"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this user cannot create a network namespace");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "--nocapture", "in_a_namespace_of_its_own"];
    let ended = in_a_namespace(&[program.to_str().unwrap()]).args(arguments).status().unwrap();
    assert!(ended.success());
}

#[test]
#[ignore = "another test runs it in a network namespace"]
fn in_a_namespace_of_its_own() {
    switch_loopback("up");
    let Some(database) = Database::start_in(tempfile::tempdir().unwrap(), &["listen_addresses=127.0.0.1"]) else {
        return;
    };
    let config = Config { database: OVER_TCP.into(), ..database.config() };
    let service = serve(&config);
    let mut client = Client::connect(service.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    client.send("/v1/queues/q/messages", "x");
    // A session of another program, over the unix socket, keeps a table locked to the end.
    let other = Session::connect(&database);
    other.run("CREATE SCHEMA other; CREATE TABLE other.waystage_schema (step integer NOT NULL)");
    other.run("BEGIN; LOCK TABLE other.waystage_schema");
    let elsewhere = Config { database: format!("{OVER_TCP} options='-c search_path=other'"), ..config };
    std::thread::spawn(move || migrate(&elsewhere, false));
    database.becomes_zero(&format!("SELECT 1 - ({WAITING})"));
    assert!(database.number(PROCESSES) > 1);
    switch_loopback("down");
    let clock = clock::Clock::monotonic();
    let began = clock.now();
    for statement in [WAITING, PROCESSES, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"] {
        while database.number(statement) > 0 {
            assert!(clock.now().after(began) < RECOVERY, "not in time: 0 = {statement}");
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("after {:?}: 0 = {statement}", clock.now().after(began));
    }
    // The process of the migration is not there because of the lock.
    other.run("COMMIT");
    // The threads of the service end with the process.
    std::mem::forget(service);
}
