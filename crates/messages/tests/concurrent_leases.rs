//! Two services act on the same lease at the same time: an extension, a nack or an acknowledgement that waited for an extension is applied.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{INVISIBLE, Received, counts, serve_a_lease};
use common::{Client, Database, Session};
use std::net::SocketAddr;
use std::thread::{JoinHandle, spawn};

/// What the extension of another service does.
const EXTEND: &str = "BEGIN; UPDATE invisible_message SET due_at = due_at + interval '1 hour'";

/// Waits until a statement that begins like this waits for a lock.
fn waits(database: &Database, text: &str) {
    database.becomes_zero(&format!(
        "SELECT 1 - count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '{text}%'"
    ));
}

/// Acts on the lease, and returns the status.
fn act(address: SocketAddr, job: &Received, action: &str) -> JoinHandle<u16> {
    let path = format!("/v1/leases/{}/{action}", job.lease_token);
    spawn(move || Client::connect(address, "alice").short("POST", &path).0)
}

#[test]
fn an_extension_or_a_nack_that_waited_for_an_extension_is_applied() {
    let Some(database) = Database::start() else { return };
    let (running, mut client, job) = serve_a_lease(&database);
    let other = Session::connect(&database);
    for (action, text) in [("extend", "-- Extends leases"), ("nack", "-- Nacks leases")] {
        other.run(EXTEND);
        let acting = act(running.address(), &job, action);
        waits(&database, text);
        other.run("COMMIT");
        assert_eq!(acting.join().unwrap(), 204, "the lease has not expired: {action}");
    }
    assert_eq!(counts(&mut client, "jobs"), (1, 0), "it was nacked");
    running.stop().unwrap();
}

/// After a successful acknowledgement, the message never comes back.
#[test]
fn an_acknowledgement_that_waited_for_two_extensions_deletes_the_message() {
    let Some(database) = Database::start() else { return };
    let (running, _, job) = serve_a_lease(&database);
    let [first, second, gate] = [(); 3].map(|()| Session::connect(&database));
    first.run(EXTEND);
    let acknowledging = act(running.address(), &job, "acknowledge");
    let text = "-- Deletes messages of leases";
    waits(&database, text);
    // The next statement of the acknowledgement waits here until the second extension is under way.
    let closing = spawn(move || {
        gate.run("BEGIN; LOCK TABLE message");
        gate
    });
    waits(&database, "BEGIN; LOCK TABLE message");
    first.run("COMMIT");
    let gate = closing.join().unwrap();
    second.run(EXTEND);
    gate.run("COMMIT");
    waits(&database, text);
    second.run("COMMIT");
    assert_eq!(acknowledging.join().unwrap(), 204);
    assert_eq!(database.number(INVISIBLE), 0, "it was acknowledged");
    running.stop().unwrap();
}
