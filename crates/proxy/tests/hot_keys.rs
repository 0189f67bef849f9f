//! The most requested keys in `stats hotkeys` and in the metrics.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, servers};
use std::time::Duration;
use testkit::Client;

/// The names and values in the reply to `stats hotkeys`.
fn hot_keys(client: &mut Client) -> Vec<(String, String)> {
    client.send("stats hotkeys\r\n");
    let mut lines = Vec::new();
    loop {
        let line = client.line();
        if line == "END\r\n" {
            return lines;
        }
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        assert_eq!((words.len(), words[0]), (3, "STAT"), "{line:?}");
        lines.push((words[1].into(), words[2].into()));
    }
}

/// Waits until these keys are among them, because sketches are published with a short delay.
fn until_hot(client: &mut Client, names: &[&str]) -> Vec<(String, String)> {
    for _ in 0..200 {
        let lines = hot_keys(client);
        if names.iter().all(|name| lines.iter().any(|(key, _)| key == name)) {
            return lines;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{names:?} are never hot: {:?}", hot_keys(client));
}

#[test]
fn the_most_requested_keys_are_shown_over_all_loops_and_commands() {
    let proxy = Proxy::before(servers(2), |config| {
        config.loops = 2;
        config.metrics = Some("127.0.0.1:0".into());
        config.operations.hot_keys = 3;
        config.operations.hot_keys_metrics = true;
    });
    let mut clients = [proxy.client(), proxy.client()];
    for client in &mut clients {
        for index in 0..200 {
            // The same key in base64 and as it is; a key with a quote and bytes that are not ASCII.
            client.ask("get popular\r\nmg cG9wdWxhcg== b\r\n".repeat(4), "END\r\nEN\r\n".repeat(4));
            client.ask("get popular b\"\u{e9}\\\r\n", "END\r\n");
            client.ask(format!("get cold{index}\r\n"), "END\r\n");
            client.ask("delete b\"\u{e9}\\\r\n", "NOT_FOUND\r\n");
        }
    }
    let lines = until_hot(&mut clients[0], &["popular", "b\"\\xc3\\xa9\\x5c"]);
    assert_eq!(lines[0], ("hotkeys:sampled_one_in".into(), "16".into()));
    assert_eq!(lines[3].0, "popular", "{lines:?}");
    for (key, value) in &lines[3..] {
        assert!(!key.starts_with("cold"), "{lines:?}");
        let fields: Vec<(&str, f64)> =
            value.split(',').filter_map(|field| field.split_once('=')).map(|(n, v)| (n, v.parse().unwrap())).collect();
        assert_eq!(fields.iter().map(|field| field.0).collect::<Vec<_>>(), ["per_second", "error", "share"]);
        assert!(fields[1].1 < fields[0].1 && fields[2].1 <= 1.0, "{value}");
    }
    let metrics = proxy.metrics();
    assert!(metrics.contains("waystage_hot_key_requests_per_second{key=\"popular\"} "), "{metrics}");
    assert!(metrics.contains(r#"waystage_hot_key_requests_per_second{key="b\"\\xc3\\xa9\\x5c"} "#), "{metrics}");
}

#[test]
fn when_disabled_no_key_is_shown_and_the_reply_is_complete() {
    let proxy = Proxy::before(servers(1), |config| {
        config.metrics = Some("127.0.0.1:0".into());
        config.operations.hot_keys = 0;
    });
    let mut client = proxy.client();
    (0..200).for_each(|_| client.ask("get k\r\n", "END\r\n"));
    client.ask("stats hotkeys\r\nget k\r\n", "END\r\nEND\r\n");
    assert!(!proxy.metrics().contains("hot_key"));
}
