//! Web pages in browsers: pages of other origins are refused without tokens, and allowed where the configuration says so. Bodies that no
//! operation wants are not read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::serve;
use messages::{BrowserConfig, Config, DispatchConfig, Limits};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testkit::Http;

fn config() -> Config {
    let dispatch = DispatchConfig::None { body_bytes: Some(3) };
    Config { listen: "127.0.0.1:0".into(), dispatch, ..Config::default() }
}

fn status(address: SocketAddr, method: &str, headers: &[&str]) -> u16 {
    Http::connect(address).unwrap().request(method, "/v1/queues/q/messages:pop", headers, b"").unwrap().status
}

#[test]
fn a_page_of_another_origin_cannot_pop() {
    let service = serve(&config());
    let address = service.address();
    let evil = ["origin: https://evil.example", "sec-fetch-site: cross-site"];
    assert_eq!(status(address, "POST", &evil), 403);
    assert_eq!(status(address, "POST", &["origin: http://localhost", "sec-fetch-site: same-origin"]), 200);
    assert_eq!(status(address, "POST", &[]), 200);
    // The request that a browser sends before one with a header of its own.
    assert_eq!(status(address, "OPTIONS", &[evil[0], "access-control-request-method: POST"]), 403);
    service.stop().unwrap();
}

#[test]
fn a_page_of_an_allowed_origin_can() {
    let browsers = BrowserConfig { cors_origins: vec!["https://app.example".into()], ..BrowserConfig::default() };
    let service = serve(&Config { browsers, ..config() });
    let mut http = Http::connect(service.address()).unwrap();
    let path = "/v1/queues/q/messages:pop";
    let preflight = [
        "origin: https://app.example",
        "access-control-request-method: POST",
        "access-control-request-headers: waystage-sender",
    ];
    let reply = http.request("OPTIONS", path, &preflight, b"").unwrap();
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://app.example")));
    assert!(reply.header("access-control-allow-headers").unwrap().contains("waystage-sender"));
    let reply = http.request("POST", path, &[preflight[0], "sec-fetch-site: cross-site"], b"").unwrap();
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://app.example")));
    assert_eq!(reply.header("access-control-expose-headers"), Some("*"));
    let reply = http.request("POST", path, &["origin: https://evil.example"], b"").unwrap();
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None));
    service.stop().unwrap();
}

#[test]
fn bodies_that_no_operation_wants_occupy_no_memory() {
    const BODY: usize = 4 << 20;
    let limits = Limits { memory: BODY, ..Limits::default() };
    let service = serve(&Config { limits, ..config() });
    let address = service.address();
    let stuck: Vec<TcpStream> = ["POST /nowhere:batch", "PATCH /v1/queues/q:batch"]
        .iter()
        .map(|line| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream
                .write_all(format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BODY}\r\n\r\n").as_bytes())
                .unwrap();
            // The service may close the connection before it has read everything.
            let _ = stream.write_all(&vec![b'x'; BODY - 1]);
            stream
        })
        .collect();
    for mut stream in stuck {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert!(head == *b"HTTP/1.1 404" || head == *b"HTTP/1.1 405", "{}", String::from_utf8_lossy(&head));
    }
    let page = Http::connect(address).unwrap().request("GET", "/metrics", &[], b"").unwrap().text();
    assert!(page.contains("waystage_messages_buffered_bytes 0\n"), "{page}");
    service.stop().unwrap();
}
