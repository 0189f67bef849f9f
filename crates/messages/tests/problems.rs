//! Errors are problem documents with the right status, and do not affect other requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, Database, serve};
use messages::{Config, DispatchConfig, Limits};
use std::time::Duration;
use testkit::HttpReply;

fn assert_problem(reply: &HttpReply, status: u16, kind: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    let text = reply.text();
    assert!(text.contains(&format!("\"type\":\"urn:waystage:problem:{kind}\"")), "{text}");
    assert!(text.contains(&format!("\"status\":{status}")), "{text}");
    assert_eq!(reply.header("retry-after").is_some(), status == 503);
    assert!(reply.header("server-timing").is_some());
}

#[test]
fn times_beyond_the_limits_are_refused() {
    let [delay, expiry, lease] = [1, 2, 3].map(Duration::from_secs);
    let limits = Limits { delay, expiry, lease, long_poll: Duration::from_secs(4), ..Limits::default() };
    let dispatch = DispatchConfig::None { body_bytes: None };
    let running = serve(&Config { limits, dispatch, listen: "127.0.0.1:0".into(), ..Config::default() });
    let mut client = Client::connect(running.address(), "alice");
    for (path, at_limit, beyond) in [
        ("messages?delay", "1s", "1001ms"),
        ("messages?expiry", "2s", "2001ms"),
        ("messages:receive?lease", "3s", "3001ms"),
        ("messages:pop?wait", "4s", "4001ms"),
    ] {
        let mut ask = |time: &str| client.ask("POST", &format!("/v1/queues/q/{path}={time}"), "");
        let refused = ask(beyond);
        assert!(matches!(refused.status, 400 | 422), "{path}={beyond}: {}", refused.text());
        if !path.ends_with("wait") {
            assert!(matches!(ask(at_limit).status, 201 | 204), "{path}={at_limit}");
        }
    }
    running.stop().unwrap();
}

#[test]
fn bad_requests_are_problems() {
    let Some(database) = Database::start() else { return };
    let limits = Limits { body_bytes: 100, batch_messages: 3, statement_bytes: 400, ..Limits::default() };
    let running = serve(&Config { limits, ..database.config() });
    let mut client = Client::connect(running.address(), "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    let long = "x".repeat(101);
    let longer = "x".repeat(500);
    let cases = [
        ("GET", "/v2", "", 404, "unknown-path"),
        ("POST", "/v1/queues", "", 405, "method-not-allowed"),
        ("PUT", "/v1/queues/-q", "", 422, "invalid-name"),
        ("PUT", "/v1/queues/a%2Fb", "", 422, "invalid-name"),
        ("PUT", "/v1/queues/%ff", "", 422, "invalid-name"),
        ("PUT", "/v1/queues/a%00", "", 422, "invalid-name"),
        ("PUT", "/v1/queues/q?x=1", "", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages?to=", "", 422, "invalid-name"),
        ("POST", "/v1/queues/q/messages?to=a&to=b", "", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages", long.as_str(), 413, "body-too-large"),
        ("POST", "/v1/queues/q/messages:batch", longer.as_str(), 413, "body-too-large"),
        ("POST", "/v1/queues/q/messages:batch", "{", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:batch", "{\"messages\":[]}", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:batch", "{\"messages\":[{\"to\":\"x\"}]}", 400, "invalid-request"),
        // Arrays with the values of the fields are no documents.
        ("POST", "/v1/queues/q/messages:batch", "[[{\"body\":\"x\"}]]", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:batch", "{\"messages\":[[null,\"x\",\"\",null,null]]}", 400, "invalid-request"),
        ("POST", "/v1/leases:acknowledge", "[[\"x\"]]", 400, "invalid-request"),
        ("PUT", "/v1/queues/q", "[null,null,null,null,null]", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:batch", "{\"messages\":[{\"body_base64\":\"!\"}]}", 400, "invalid-request"),
        ("POST", "/v1/queues/none/messages:batch", "{\"messages\":[{\"body\":\"x\"}]}", 404, "unknown-queue"),
        ("POST", "/v1/queues/q/messages:pop?max=0", "", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:pop?max=4", "", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:pop?wait=1h", "", 400, "invalid-request"),
        ("POST", "/v1/queues/q/messages:pop?wait=soon", "", 400, "invalid-request"),
        ("POST", "/v1/messages:pop?for=me", "", 400, "invalid-request"),
        ("GET", "/v1/queues/none", "", 404, "unknown-queue"),
    ];
    for (method, path, body, status, kind) in cases {
        let mut client = Client::connect(running.address(), "alice");
        assert_problem(&client.ask(method, path, body), status, kind);
    }
    let anonymous = Client::connect(running.address(), "").ask("POST", "/v1/queues/q/messages", "x");
    assert_problem(&anonymous, 422, "invalid-name");
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop").0, 204, "no bad request stored a message");
    running.stop().unwrap();
}

#[test]
fn limits_are_enforced_and_the_database_can_come_back() {
    let Some(mut database) = Database::start() else { return };
    let limits = Limits { long_polls: 1, ..Limits::default() };
    let running = serve(&Config { limits, ..database.config() });
    let address = running.address();
    let mut client = Client::connect(address, "alice");
    assert_eq!(client.short("PUT", "/v1/queues/q").0, 201);
    let poll = std::thread::spawn(move || {
        Client::connect(address, "bob").ask("POST", "/v1/queues/q/messages:pop?wait=50s", "")
    });
    while !client.short("GET", "/metrics").1.contains("waystage_messages_long_polls 1") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_problem(&client.ask("POST", "/v1/queues/q/messages:pop?wait=50s", ""), 503, "overloaded");
    database.server.kill();
    // The poll tries again and finds the database gone.
    assert_eq!(poll.join().unwrap().status, 503);
    assert_problem(&client.ask("POST", "/v1/queues/q/messages", "x"), 503, "database-down");
    while client.short("GET", "/readyz").0 == 204 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, problem) = client.short("GET", "/readyz");
    assert!(status == 503 && problem.contains("urn:waystage:problem:database-down\""), "{problem}");
    assert_eq!(client.short("GET", "/healthz").0, 200, "the service itself is healthy");
    database.server.restart().unwrap();
    // The service recovers by itself.
    while client.short("GET", "/readyz").0 != 204 {
        std::thread::sleep(Duration::from_millis(20));
    }
    while client.ask("POST", "/v1/queues/q/messages", "x").status != 201 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.short("POST", "/v1/queues/q/messages:pop"), (200, "x".into()));
    running.stop().unwrap();
}

#[test]
fn a_service_that_cannot_start_reports_the_reason() {
    let start = |config: &Config| messages::start(config, clock::Clock::monotonic()).unwrap_err().to_string();
    let nonsense = Config { database: "nonsense".into(), ..Config::default() };
    assert!(start(&nonsense).starts_with("--database: "), "{}", start(&nonsense));
    let dispatch = messages::DispatchConfig::Fused { lanes: 0 };
    let lanes = Config { database: "host=/nowhere".into(), dispatch, ..Config::default() };
    assert_eq!(start(&lanes), "--lanes: 0 is not a number from 1 to 1000");
    let Some(database) = Database::start() else { return };
    let other = database.server.url().replace("dbname=postgres", "dbname=other");
    let line = start(&Config { database: other, listen: "127.0.0.1:0".into(), ..Config::default() });
    assert!(line.contains("\"other\" does not exist") && !line.contains('\n'), "{line}");
    database.run("CREATE ROLE poor LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let poor = database.server.url().replace("user=waystage", "user=poor");
    let line = start(&Config { database: poor, listen: "127.0.0.1:0".into(), ..Config::default() });
    assert!(line.contains("permission denied for schema public") && !line.contains('\n'), "{line}");
    assert!(line.contains("GRANT USAGE, CREATE ON SCHEMA public TO"), "{line}");
}
