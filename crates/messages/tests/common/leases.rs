//! Leases, as a client sees them.

use super::{Client, Database, serve};
use messages::{Config, RunningService};
use testkit::HttpReply;

/// Counts messages in flight or delayed.
pub const INVISIBLE: &str = "SELECT count(*) FROM invisible_message";

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    pub id: i64,
    pub lease_token: String,
    pub attempt: u32,
    pub body: String,
}

/// The message in a reply, which must have one with a lease.
pub fn received(reply: &HttpReply) -> Received {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let header = |name| reply.header(name).unwrap_or_else(|| panic!("no {name}")).to_string();
    Received {
        id: header("waystage-message").parse().unwrap(),
        lease_token: header("waystage-lease-token"),
        attempt: header("waystage-attempt").parse().unwrap(),
        body: reply.text(),
    }
}

/// Receives a message, which must exist.
pub fn receive(client: &mut Client, queue: &str, parameters: &str) -> Received {
    received(&client.ask("POST", &format!("/v1/queues/{queue}/messages:receive?{parameters}"), ""))
}

/// Runs an action on the message's lease, and returns the status.
pub fn lease_action(client: &mut Client, message: &Received, action: &str) -> u16 {
    client.short("POST", &format!("/v1/leases/{}/{action}", message.lease_token)).0
}

/// Creates a queue, with settings as JSON or without.
pub fn make(client: &mut Client, queue: &str, settings: &str) {
    let reply = client.ask("PUT", &format!("/v1/queues/{queue}"), settings);
    assert_eq!(reply.status, 201, "{}", reply.text());
}

/// A service, a client of it, and a message that the client has received from the queue `jobs` for an hour.
pub fn serve_a_lease(database: &Database) -> (RunningService, Client, Received) {
    let (running, client, [job]) = serve_leases(&database.config(), ["jobs"]);
    (running, client, job)
}

/// The same with a message from each of these queues.
pub fn serve_leases<const N: usize>(config: &Config, queues: [&str; N]) -> (RunningService, Client, [Received; N]) {
    let running = serve(config);
    let mut client = Client::connect(running.address(), "alice");
    let jobs = queues.map(|queue| {
        make(&mut client, queue, "");
        client.send(&format!("/v1/queues/{queue}/messages"), "work");
        receive(&mut client, queue, "lease=1h")
    });
    (running, client, jobs)
}

/// The counts of visible and invisible messages in a queue.
pub fn counts(client: &mut Client, queue: &str) -> (i64, i64) {
    let (status, text) = client.short("GET", &format!("/v1/queues/{queue}"));
    assert_eq!(status, 200, "{text}");
    let number = |name: &str| {
        let rest = text.split_once(&format!("\"{name}\":")).unwrap().1;
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    (number("visible"), number("invisible"))
}
