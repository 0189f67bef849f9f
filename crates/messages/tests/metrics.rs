//! Every metric of `/metrics` is described in docs/messages-operation.md with the right type, and no other one is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Client, serve};
use messages::{Config, DispatchConfig};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

const DOCUMENT: &str = include_str!("../../../docs/messages-operation.md");

#[test]
fn every_metric_is_described() {
    let dispatch = DispatchConfig::None { body_bytes: None };
    let running = serve(&Config { listen: "127.0.0.1:0".into(), dispatch, ..Config::default() });
    let mut client = Client::connect(running.address(), "me");
    client.send("/v1/queues/q/messages", "x");
    let page = client.short("GET", "/metrics").1;
    let exposed: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_string(), kind.to_string()))
        .collect();
    let described: BTreeSet<(String, String)> = DOCUMENT
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name.to_string(), rest.split(" | ").next()?.to_string())))
        .filter(|(name, kind)| ["counter", "gauge", "histogram"].contains(&kind.as_str()) && !name.contains(' '))
        .collect();
    assert_eq!(exposed, described);
    // The stages are those of Server-Timing, and so of the proxy.
    let timing = client.ask("POST", "/v1/queues/q/messages", "x").header("server-timing").unwrap().to_string();
    for stage in timing.split(", ").map(|part| part.split(';').next().unwrap()) {
        assert!(page.contains(&format!("operation=\"send\",stage=\"{stage}\",le=\"+Inf\"}} 1")), "{stage}: {page}");
    }
    running.stop().unwrap();
}

/// The reply to HEAD has the length of a body that does not follow.
#[test]
fn a_request_with_head_ends_with_its_reply() {
    let dispatch = DispatchConfig::None { body_bytes: Some(100_000) };
    let running = serve(&Config { listen: "127.0.0.1:0".into(), dispatch, ..Config::default() });
    let mut head = TcpStream::connect(running.address()).unwrap();
    head.write_all(b"HEAD /v1/queues/q/messages/head HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let (mut reply, mut byte) = (Vec::new(), [0]);
    while !reply.ends_with(b"\r\n\r\n") {
        head.read_exact(&mut byte).unwrap();
        reply.push(byte[0]);
    }
    let mut client = Client::connect(running.address(), "me");
    let mut tries = 0;
    let counted = "waystage_messages_requests_total{operation=\"peek\",status=\"200\"} 1\n";
    while !client.short("GET", "/metrics").1.contains(counted) {
        tries += 1;
        assert!(tries < 500, "it is not counted while its connection is open");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.stop().unwrap();
}
