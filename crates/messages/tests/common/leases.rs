//! Messages under leases, as a client sees them.

use super::Client;
use testkit::HttpReply;

/// How many messages are held.
pub const INVISIBLE: &str = "SELECT count(*) FROM invisible_message";

/// What came with a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    pub id: i64,
    pub lease_token: String,
    pub attempt: u32,
    pub body: String,
}

/// What a reply has that must hold a message under a lease.
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

/// Receives a message that must be there.
pub fn receive(client: &mut Client, queue: &str, parameters: &str) -> Received {
    received(&client.ask("POST", &format!("/v1/queues/{queue}/messages:receive?{parameters}"), ""))
}

/// The status of a request about its lease.
pub fn settle(client: &mut Client, message: &Received, how: &str) -> u16 {
    client.short("POST", &format!("/v1/leases/{}/{how}", message.lease_token)).0
}

/// Creates a queue; settings as JSON, or nothing.
pub fn make(client: &mut Client, queue: &str, settings: &str) {
    let reply = client.ask("PUT", &format!("/v1/queues/{queue}"), settings);
    assert_eq!(reply.status, 201, "{}", reply.text());
}

/// How many messages wait in a queue, and how many are held.
pub fn counts(client: &mut Client, queue: &str) -> (i64, i64) {
    let (status, text) = client.short("GET", &format!("/v1/queues/{queue}"));
    assert_eq!(status, 200, "{text}");
    let number = |name: &str| {
        let rest = text.split_once(&format!("\"{name}\":")).unwrap().1;
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    (number("visible"), number("invisible"))
}
