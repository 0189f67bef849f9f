//! The loop that reads low-water marks: `/readyz` reports its failures, and a queue that another program has locked does not stop it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::leases::{lease_action, make, receive};
use common::{Client, Database, Session, serve};
use messages::Config;
use std::thread::sleep;
use std::time::Duration;

const FAILURES: &str = "waystage_messages_table_errors_total ";
/// Longer than the shortest era and several rounds of the loop.
const A_WHILE: Duration = Duration::from_millis(1500);

/// Waits for this status, and returns the reply's body.
fn becomes(client: &mut Client, path: &str, status: u16) -> String {
    for _ in 0..1500 {
        let reply = client.short("GET", path);
        if reply.0 == status {
            return reply.1;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("{path}: {:?}", client.short("GET", path));
}

fn failures(client: &mut Client) -> u64 {
    let (_, page) = client.short("GET", "/metrics");
    page.lines().find_map(|line| line.strip_prefix(FAILURES)).unwrap().parse().unwrap()
}

#[test]
fn a_failure_is_reported_and_the_next_attempt_waits() {
    let Some(database) = Database::start() else { return };
    database.run("CREATE ROLE narrow LOGIN; GRANT ALL ON SCHEMA public TO narrow");
    let config = database.config();
    let url = config.database.replace("user=waystage", "user=narrow");
    let running = serve(&Config { database: url, low_water_refresh_after: 1, ..config });
    let mut client = Client::connect(running.address(), "alice");
    make(&mut client, "jobs", "");
    // No other part of the service calls this function, and no check of privileges looks at it.
    database.run("REVOKE EXECUTE ON FUNCTION pg_current_snapshot() FROM PUBLIC");
    client.send("/v1/queues/jobs/messages", "work");
    assert_eq!(client.short("POST", "/v1/queues/jobs/messages:pop").0, 200);
    let text = becomes(&mut client, "/readyz", 503);
    assert!(text.contains("low_water") && text.contains("permission denied for function"), "{text}");
    let before = failures(&mut client);
    sleep(Duration::from_secs(3));
    let attempts = failures(&mut client) - before;
    assert!(attempts <= 6, "{attempts} attempts in three seconds");
    database.run("GRANT EXECUTE ON FUNCTION pg_current_snapshot() TO PUBLIC");
    becomes(&mut client, "/readyz", 204);
    running.stop().unwrap();
}

#[test]
fn a_locked_queue_does_not_delay_messages_of_another() {
    let Some(database) = Database::start() else { return };
    let running = serve(&Config { low_water_refresh_after: 1, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    let jobs = ["jobs", "locked"].map(|queue| {
        make(&mut client, queue, "");
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
        receive(&mut client, queue, "lease=1h")
    });
    make(&mut client, "other", "");
    client.send("/v1/queues/other/messages", "work");
    sleep(A_WHILE);
    // Now the era of both queues can end. The next pops make the loop end both in one statement, in the round after that of the first pop.
    for job in &jobs {
        assert_eq!(lease_action(&mut client, job, "nack"), 204);
    }
    let other = Session::connect(&database);
    other.run("BEGIN; SELECT FROM queue WHERE name = 'locked' FOR UPDATE");
    for queue in ["other", "locked", "jobs"] {
        assert_eq!(client.short("POST", &format!("/v1/queues/{queue}/messages:pop")).0, 200);
    }
    sleep(A_WHILE);
    client.send("/v1/queues/jobs/messages", "work");
    assert_eq!(receive(&mut client, "jobs", "lease=20ms").attempt, 1);
    becomes(&mut client, "/v1/queues/jobs/messages/head", 200);
    assert!(database.number("SELECT era::bigint FROM queue WHERE name = 'jobs'") > 0);
    other.run("ROLLBACK");
    running.stop().unwrap();
}
