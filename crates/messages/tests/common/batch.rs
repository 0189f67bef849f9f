//! Requests that wait for the service's only lane together, so that it takes them as one batch.

use super::{Client, Database, Session};
use std::net::SocketAddr;
use std::thread::{sleep, spawn};
use std::time::Duration;
use testkit::HttpReply;

/// Pops of one message that wait for a lock.
const WAITING_POPS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- Pops the oldest%'";

/// Waits until every lane has a connection. A lane cannot connect while a table is locked.
pub fn lanes_connect(client: &mut Client) {
    for _ in 0..3000 {
        let page = client.short("GET", "/metrics").1;
        let mut lines = page.lines().filter(|line| line.starts_with("waystage_messages_lane_connections{"));
        if lines.all(|line| !line.ends_with(" 0")) {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("not all lanes have connected");
}

/// Sends requests with these paths and bodies, which the lane of a service with one lane takes as one batch and in this order. `idle` is a
/// queue without a message to anyone. Returns the replies.
pub fn one_batch<const N: usize>(
    database: &Database,
    address: SocketAddr,
    idle: &str,
    requests: [(String, &'static str); N],
) -> [HttpReply; N] {
    let mut client = Client::connect(address, "alice");
    lanes_connect(&mut client);
    let [blocker, observer] = [(); 2].map(|()| Session::connect(database));
    // A pop waits for this lock, so the requests that follow wait for the lane.
    blocker.run("BEGIN; LOCK TABLE message");
    let ask =
        |path: String, body: &'static str| spawn(move || Client::connect(address, "alice").ask("POST", &path, body));
    let pop = ask(format!("/v1/queues/{idle}/messages:pop"), "");
    until("the pop waits", || observer.number(WAITING_POPS) > 0);
    let mut waiting = 0;
    let asked = requests.map(|(path, body)| {
        let request = ask(path, body);
        waiting += 1;
        let line = format!("\nwaystage_messages_queue_length{{queue=\"0\"}} {waiting}\n");
        until("the request waits", || client.short("GET", "/metrics").1.contains(&line));
        request
    });
    blocker.run("ROLLBACK");
    let pop = pop.join().unwrap();
    assert_eq!(pop.status, 204, "{}", pop.text());
    asked.map(|request| request.join().unwrap())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("it does not come true that {what}");
}
