//! Servers whose replies belong to other requests: no client receives a value under a key, or a reply with an opaque, that it has not
//! requested.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Proxy, disciplines, until};
use proxy::{Config, PoolConfig, Reads, Shadow, WarmUp};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::{Client, Peer, Scripted};

const TWICE: &str = "VALUE twice 0 6\r\nsecret\r\nEND\r\n";

/// Answers each line as `reply` says.
fn answering(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |peer: &mut Peer, _| {
        while let Some(line) = peer.line() {
            peer.send(reply(line.trim_end()));
        }
    })
}

fn proxy(server: &Scripted, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(&[server.address()], |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        change(config);
    })
}

/// The number of connections that were closed because a reply did not fit its request.
fn out_of_step(proxy: &Proxy) -> u64 {
    let metrics = proxy.metrics();
    let lines = metrics.lines().filter(|line| {
        line.starts_with("waystage_backend_connections_lost_total") && line.contains("reason=\"out_of_step\"")
    });
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

fn lost(server: &Scripted) -> String {
    format!("SERVER_ERROR backend {} lost the connection\r\n", server.address())
}

/// Waits until the server answers this request as it should.
fn until_answered(client: &mut Client, request: &str, reply: &str) {
    until("the connection is open again", || {
        client.send(request);
        let line = client.line();
        line == reply.split_inclusive('\n').next().unwrap() && {
            client.expect(&reply[line.len()..]);
            true
        }
    });
}

#[test]
fn a_server_that_answers_twice_gives_nobody_a_value_under_another_key() {
    let (received, on_twice) = channel();
    let received = Mutex::new(received);
    let server = Scripted::start(move |peer, _| {
        while let Some(line) = peer.line() {
            match line.trim_end() {
                "get twice" => {
                    received.lock().unwrap().send(()).unwrap();
                    // The other client's request is in flight when the second reply arrives.
                    let next = peer.line();
                    peer.send(format!("{TWICE}{TWICE}"));
                    if next.as_deref() == Some("get mine\r\n") {
                        peer.send("VALUE mine 0 4\r\nmine\r\nEND\r\n");
                    }
                }
                "get mine" => peer.send("VALUE mine 0 4\r\nmine\r\nEND\r\n"),
                _ => peer.send("END\r\n"),
            }
        }
    });
    let proxy = proxy(&server, |_| {});
    let (mut first, mut second) = (proxy.client(), proxy.client());
    first.ask("get other\r\n", "END\r\n");
    first.send("get twice\r\n");
    on_twice.recv().unwrap();
    second.send("get mine\r\n");
    first.expect(TWICE);
    second.expect(lost(&server));
    assert_eq!(out_of_step(&proxy), 1);
    until_answered(&mut second, "get mine\r\n", "VALUE mine 0 4\r\nmine\r\nEND\r\n");
}

#[test]
fn values_under_other_keys_or_in_another_order_close_the_connection() {
    let value = |key: &str| format!("VALUE {key} 0 1\r\nx\r\n");
    let wrong = [
        ("get a", value("b")),
        ("get a", value("a") + &value("a")),
        ("get a b", value("b") + &value("a")),
        ("get a b", value("a") + &value("c")),
        ("gets a", "VALUE b 0 1 7\r\nx\r\n".into()),
        ("gat 30 a", value("30")),
        ("gat 30 a b", value("b") + &value("a")),
    ];
    for discipline in disciplines(1, false) {
        for (request, values) in wrong.clone() {
            let reply = values.clone() + "END\r\n";
            let server = answering(move |line| if line == request { reply.clone() } else { "END\r\n".into() });
            let proxy = proxy(&server, |config| config.discipline = discipline);
            let mut client = proxy.client();
            client.ask("get other\r\n", "END\r\n");
            client.ask(format!("{request}\r\n"), lost(&server));
            assert_eq!(out_of_step(&proxy), 1, "{request} {values}");
            until_answered(&mut client, "get other\r\n", "END\r\n");
        }
    }
}

#[test]
fn a_part_of_a_multi_get_with_another_key_is_not_joined() {
    // Both servers answer every key with a value of the same wrong key.
    let servers = [(); 2].map(|()| answering(|_| "VALUE k1 0 6\r\nsecret\r\nEND\r\n".into()));
    let addresses = servers.each_ref().map(Scripted::address);
    let proxy = Proxy::at(&addresses, |config| {
        (config.loops, config.metrics) = (1, Some("127.0.0.1:0".into()));
        config.part_failure = proxy::PartFailure::Error;
    });
    let mut client = proxy.client();
    let keys: Vec<String> = (2..40).map(|key| format!("k{key}")).collect();
    client.send(format!("get {}\r\n", keys.join(" ")));
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR backend") && line.ends_with("lost the connection\r\n"), "{line}");
    assert_eq!(out_of_step(&proxy), 2);
}

#[test]
fn meta_replies_with_another_key_or_opaque_close_the_connection() {
    for (request, reply) in [
        ("mg mine k v", "VA 6 ktwice\r\nsecret\r\n"),
        ("mg mine k v", "VA 6\r\nsecret\r\n"),
        ("mg mine O1 v", "VA 6 O2\r\nsecret\r\n"),
        ("mg mine t", "VA 6 t-1\r\nsecret\r\n"),
        ("mg mine s v", "VA 6 s6 ktwice\r\nsecret\r\n"),
        ("mg bWluZQ== b k v", "VA 6 kdHdpY2U= b\r\nsecret\r\n"),
        ("mg mine O1 q\r\nmn", "EN O2\r\n"),
        ("md mine O1", "HD O2\r\n"),
        ("ma mine k v", "VA 1 ktwice\r\n7\r\n"),
        ("me mine", "ME twice exp=-1\r\n"),
    ] {
        let server = answering(move |line| match line {
            "get other" => "END\r\n".into(),
            _ => reply.into(),
        });
        let proxy = proxy(&server, |_| {});
        let mut client = proxy.client();
        client.ask("get other\r\n", "END\r\n");
        client.ask(format!("{request}\r\n"), lost(&server));
        assert_eq!(out_of_step(&proxy), 1, "{request} {reply}");
    }
    // A value follows the line of `ms`, so its server reads two lines.
    let server = Scripted::start(|peer, _| {
        while let (Some(_), Some(_)) = (peer.line(), peer.line()) {
            peer.send("HD O2\r\n");
        }
    });
    let proxy = proxy(&server, |_| {});
    proxy.client().ask("ms mine 1 O1\r\nx\r\n", lost(&server));
    assert_eq!(out_of_step(&proxy), 1);
}

#[test]
fn background_reads_are_compared_too() {
    let own = answering(|line| if line.starts_with("add") { String::new() } else { "END\r\n".into() });
    let other = answering(|line| if line == "get mine" { TWICE.into() } else { "END\r\n".into() });
    let proxy = proxy(&own, |config| {
        config.pools.push(PoolConfig::new("other", &[other.address().to_string()]));
        config.pools[0].shadow = Some(Shadow { to: "other".into(), share: 1.0, reads: true });
    });
    proxy.client().ask("get mine\r\n", "END\r\n");
    until("the shadow's connection is closed", || out_of_step(&proxy) == 1);
}

#[test]
fn values_of_the_warm_up_pool_and_of_replicas_are_compared_too() {
    for has_replicas in [false, true] {
        let own = answering(|line| if line.starts_with("add") { String::new() } else { "END\r\n".into() });
        let wrong = |line: &str| if line.contains("mine") { TWICE.into() } else { "END\r\n".into() };
        let (other, third) = (answering(wrong), answering(wrong));
        let proxy = proxy(&own, |config| {
            if has_replicas {
                let servers = [other.address().to_string(), third.address().to_string()];
                config.pools[0] = PoolConfig::new("default", &servers);
                (config.pools[0].replicas, config.pools[0].reads) = (2, Reads::Any);
            } else {
                config.pools.push(PoolConfig::new("other", &[other.address().to_string()]));
                let expiry = Duration::from_secs(60);
                config.pools[0].warm_up = Some(WarmUp { from: "other".into(), expiry });
            }
        });
        let mut client = proxy.client();
        for request in ["get mine\r\n", "get mine mine2\r\n", "mg mine k v\r\n"] {
            client.send(request);
            let mut line = client.line();
            while !line.starts_with("END") && !line.starts_with("EN") && !line.starts_with("SERVER_ERROR") {
                line = client.line();
                assert!(!line.contains("secret"), "{request} {line}");
            }
        }
        assert!(out_of_step(&proxy) > 0);
    }
}
