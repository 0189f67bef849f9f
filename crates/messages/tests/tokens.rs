//! With tokens, the token determines the sender and the permissions of a request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::serve;
use messages::{ClientLimits, Config, DispatchConfig, Permission, TokenConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{Http, HttpReply};

const ADMIN: &str = "authorization: Bearer admin-0123456789abcdef";
const ALICE: &str = "authorization: Bearer alice-0123456789abcdef";
const CAROL: &str = "authorization: Bearer carol-0123456789abcdef";
const BOB: &str = "authorization: bearer bob-0123456789abcdefg";

fn config() -> Config {
    let token = |text: &str, sender: &str, may: &[Permission], queues: Option<Vec<String>>| {
        TokenConfig::new(text.into(), sender.into(), may.to_vec(), queues).unwrap()
    };
    use Permission::{Admin, All, Receive, Send};
    Config {
        listen: "127.0.0.1:0".into(),
        dispatch: DispatchConfig::None { body_bytes: Some(10) },
        tokens: vec![
            token("admin-0123456789abcdef", "root", &[Admin, Receive, All], None),
            token("alice-0123456789abcdef", "alice", &[Send, Receive], None),
            token("carol-0123456789abcdef", "carol", &[Admin], Some(vec!["carol.".into()])),
            token("bob-0123456789abcdefg", "bob", &[Receive], Some(vec!["orders".into(), "bob.".into()])),
        ],
        metrics_need_token: true,
        ..Config::default()
    }
}

fn kind(reply: &HttpReply) -> String {
    let text = reply.text();
    let rest = text.split("urn:waystage:problem:").nth(1).unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_string()
}

#[test]
fn a_token_determines_sender_and_permissions() {
    let running = serve(&config());
    let mut http = Http::connect(running.address()).unwrap();
    let cases: &[(&str, &str, &[&str], u16)] = &[
        ("POST", "/v1/queues/orders/messages", &[], 401),
        ("POST", "/v1/queues/orders/messages", &["authorization: Bearer wrong-0123456789abcdef"], 401),
        ("POST", "/v1/queues/orders/messages", &["authorization: Basic YWxpY2U6eA=="], 401),
        ("POST", "/v1/queues/orders/messages", &[ALICE, BOB], 401),
        ("POST", "/v1/queues/orders/messages", &["authorization: Bearer"], 401),
        ("GET", "/v1/nothing", &[], 401),
        ("GET", "/v1/nothing", &[ALICE], 404),
        ("POST", "/v1/queues/orders/messages", &[ALICE], 201),
        ("POST", "/v1/queues/orders/messages", &[ALICE, "waystage-sender: alice"], 201),
        ("POST", "/v1/queues/orders/messages", &[ALICE, "waystage-sender: bob"], 403),
        ("POST", "/v1/queues/orders/messages", &[BOB], 403),
        ("POST", "/v1/queues/orders/messages:pop", &[BOB], 200),
        ("POST", "/v1/queues/orders/messages:pop?for=bob", &[BOB], 200),
        ("POST", "/v1/queues/orders/messages:pop?for=alice", &[BOB], 403),
        ("POST", "/v1/queues/orders/messages:receive?for=alice", &[BOB], 403),
        ("POST", "/v1/queues/orders/messages:pop?for=alice", &[ADMIN], 200),
        ("POST", "/v1/queues/orders.new/messages:pop", &[BOB], 200),
        ("POST", "/v1/queues/bob.own/messages:pop", &[BOB], 200),
        ("POST", "/v1/queues/other/messages:pop", &[BOB], 403),
        ("GET", "/v1/queues/other/messages/head", &[BOB], 403),
        ("GET", "/v1/messages/head?from=alice", &[BOB], 403),
        ("GET", "/v1/messages/head?from=bob", &[ALICE], 200),
        ("PUT", "/v1/queues/orders", &[BOB], 403),
        ("DELETE", "/v1/queues/orders", &[ALICE], 403),
        ("PUT", "/v1/queues/orders", &[ADMIN], 201),
        ("GET", "/v1/queues", &[BOB], 200),
        ("GET", "/v1/receivers/bob/queues", &[BOB], 200),
        ("GET", "/v1/receivers/alice/queues", &[BOB], 403),
        ("GET", "/healthz", &[], 200),
        ("GET", "/readyz", &[], 204),
        ("GET", "/metrics", &[], 401),
        ("GET", "/metrics", &[BOB], 403),
        ("GET", "/metrics", &[ADMIN], 200),
    ];
    for (method, path, headers, status) in cases {
        let reply = http.request(method, path, headers, b"").unwrap();
        assert_eq!(reply.status, *status, "{method} {path} {headers:?}: {}", reply.text());
        match status {
            401 => {
                assert_eq!(kind(&reply), "unauthorized");
                let challenge = reply.header("www-authenticate").unwrap();
                assert!(challenge.starts_with("Bearer realm="), "{challenge}");
                let is_wrong = headers.iter().any(|header| header.contains("wrong"));
                assert_eq!(challenge.contains("invalid_token"), is_wrong, "{challenge}");
            }
            403 => assert_eq!(kind(&reply), "forbidden"),
            _ => {}
        }
        assert!(!path.starts_with("/v1") || reply.header("server-timing").is_some(), "{path}");
    }
    running.stop().unwrap();
}

#[test]
fn the_sender_is_that_of_the_token() {
    let Some(database) = common::Database::start() else { return };
    let Config { database, .. } = database.config();
    let config = Config { dispatch: DispatchConfig::Fused { lanes: 2 }, database, ..config() };
    let running = serve(&config);
    let mut http = Http::connect(running.address()).unwrap();
    for queue in ["orders", "other"] {
        assert_eq!(http.request("PUT", &format!("/v1/queues/{queue}"), &[ADMIN], b"").unwrap().status, 201);
    }
    assert_eq!(http.request("POST", "/v1/queues/orders/messages?to=bob", &[ALICE], b"x").unwrap().status, 201);
    let reply = http.request("POST", "/v1/queues/orders/messages:pop?for=bob", &[BOB], b"").unwrap();
    assert_eq!((reply.status, reply.header("waystage-sender")), (200, Some("alice")));
    let all = |token: &str, http: &mut Http| http.request("GET", "/v1/queues", &[token], b"").unwrap().text();
    assert_eq!(all(ALICE, &mut http), "{\"queues\":[\"orders\",\"other\"]}");
    assert_eq!(all(BOB, &mut http), "{\"queues\":[\"orders\"]}");
    running.stop().unwrap();
}

#[test]
fn dead_letter_queues_stay_within_the_queues_of_a_token() {
    let running = serve(&config());
    let mut http = Http::connect(running.address()).unwrap();
    let headers = [CAROL, "content-type: application/json"];
    for (dead_letters, status) in [("orders", 403), ("carol.dead", 201)] {
        let body = format!("{{\"dead_letter_queue\": \"{dead_letters}\", \"attempts\": 1}}");
        let reply = http.request("PUT", "/v1/queues/carol.jobs", &headers, body.as_bytes()).unwrap();
        assert_eq!(reply.status, status, "{dead_letters}: {}", reply.text());
    }
    running.stop().unwrap();
}

#[test]
fn tokens_are_replaced_while_the_service_runs() {
    let running = serve(&config());
    let mut http = Http::connect(running.address()).unwrap();
    let mut status = |token: &str| http.request("GET", "/v1/queues", &[token], b"").unwrap().status;
    assert_eq!(status(ALICE), 200);
    let fresh =
        TokenConfig::new("fresh-0123456789abcdef".into(), "alice".into(), vec![Permission::Send], None).unwrap();
    running.reload(&Config { tokens: vec![fresh], ..config() }).unwrap();
    assert_eq!((status(ALICE), status("authorization: Bearer fresh-0123456789abcdef")), (401, 200));
    let error = running.reload(&Config { tokens: Vec::new(), ..config() }).unwrap_err().to_string();
    assert!(error.contains("restart") && !error.contains('\n'), "{error}");
    assert_eq!(status("authorization: Bearer fresh-0123456789abcdef"), 200);
    running.stop().unwrap();
}

#[test]
fn operators_can_have_an_address_of_their_own() {
    let service = Config { admin_listen: Some("127.0.0.1:0".into()), metrics_need_token: false, ..config() };
    let running = serve(&service);
    let mut clients = Http::connect(running.address()).unwrap();
    let mut operators = Http::connect(running.admin_address().unwrap()).unwrap();
    for (path, for_clients, for_operators) in [
        ("/healthz", 200, 200),
        ("/readyz", 404, 204),
        ("/metrics", 404, 200),
        ("/docs", 404, 200),
        ("/openapi.json", 404, 200),
        ("/v1/queues", 200, 404),
    ] {
        let status = |http: &mut Http| http.request("GET", path, &[ALICE], b"").unwrap().status;
        assert_eq!((status(&mut clients), status(&mut operators)), (for_clients, for_operators), "{path}");
    }
    running.stop().unwrap();
}

#[test]
fn connections_of_operators_have_a_limit_of_their_own() {
    let service = Config { admin_listen: Some("127.0.0.1:0".into()), metrics_need_token: false, ..config() };
    let running = serve(&service);
    let connect = || Http::connect(running.admin_address().unwrap()).unwrap();
    let ask = |http: &mut Http, path: &str| http.request("GET", path, &[], b"").unwrap();
    let mut operators: Vec<Http> = (0..100).map(|_| connect()).collect();
    // The reply shows that the connection has been accepted.
    operators.iter_mut().for_each(|http| assert_eq!(ask(http, "/healthz").status, 200));
    let refused = ask(&mut connect(), "/healthz");
    assert_eq!((refused.status, kind(&refused).as_str()), (503, "overloaded"));
    let page = ask(&mut operators[0], "/metrics").text();
    assert!(page.contains("\nwaystage_messages_operators_refused_total 1\n"), "{page}");
    assert!(page.contains("\nwaystage_messages_clients_refused_total 0\n"), "{page}");
    assert_eq!(ask(&mut Http::connect(running.address()).unwrap(), "/healthz").status, 200);
    drop(operators.split_off(1));
    assert!((0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        ask(&mut connect(), "/healthz").status == 200
    }));
    running.stop().unwrap();
}

/// A body occupies memory that all clients share, so a request that its head already refuses must not get that far. The service would wait
/// for the body for much longer than the clients do for the reply.
#[test]
fn a_request_that_its_head_refuses_is_answered_without_its_body() {
    let running = serve(&Config {
        clients: ClientLimits { body_timeout: Duration::from_secs(3600), ..ClientLimits::default() },
        ..config()
    });
    let nobody = "user-agent: without a token";
    for (request, token, status) in [
        ("POST /v1/queues/orders/messages:batch", "authorization: Bearer wrong-0123456789abcdef", "401"),
        ("POST /v1/queues/orders/messages:batch", nobody, "401"),
        ("POST /v1/nowhere:batch", nobody, "401"),
        ("POST /v1/queues/orders/messages", BOB, "403"),
        ("POST /v1/queues/orders/messages:batch", BOB, "403"),
        ("PUT /v1/queues/orders", ALICE, "403"),
        ("PUT /v1/queues/other", CAROL, "403"),
        ("POST /v1/leases:acknowledge", CAROL, "403"),
        ("POST /v1/queues/orders/messages:pop?for=alice", BOB, "403"),
        ("POST /v1/messages:pop?from=alice", BOB, "403"),
        ("POST /v1/nowhere:batch", ALICE, "404"),
        ("POST /nowhere:batch", nobody, "404"),
        ("POST /v1/queues/orders", ALICE, "405"),
        ("PUT /v1/queues/orders/messages:batch", ALICE, "405"),
        ("POST /healthz", nobody, "405"),
    ] {
        let mut client = TcpStream::connect(running.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!("{request} HTTP/1.1\r\nhost: localhost\r\n{token}\r\ncontent-length: 9\r\n\r\n");
        client.write_all(format!("{head}half").as_bytes()).unwrap();
        let mut reply = [0; 12];
        client.read_exact(&mut reply).unwrap_or_else(|error| panic!("{request} {token}: {error}"));
        assert_eq!(&reply[9..], status.as_bytes(), "{request} {token}");
    }
    running.stop().unwrap();
}
