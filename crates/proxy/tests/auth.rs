//! Authentication of clients with a user and a password, as with `memcached -Y`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/users.rs"]
mod users;

use common::until;
use proxy::{ClientLimits, LogConfig, LogFormat, LogOutput, RecordsConfig};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, Server, memcached_is_here, skip_without};
use users::{Files, USERS, guarded, metric, reload};

const LOGIN: &str = "set any 0 0 12\r\nalice secret\r\n";
const WRONG: &str = "set any 0 0 12\r\nalice secreT\r\n";
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";
const FAILED: &str = "CLIENT_ERROR authentication failure\r\n";
const HIT: &str = "VALUE k 0 1\r\n1\r\nEND\r\n";

/// One line of each conversation is sent at a time.
#[test]
fn every_reply_before_the_authentication_is_that_of_memcached() {
    if !memcached_is_here() {
        return skip_without("memcached", "memcached");
    }
    let files = Files::new(USERS);
    let (strict, open) = (files.memcached(), Server::memcached());
    let proxy = guarded(&files, open.address(), |_| ());
    let long_key = format!("set {} 0 0 12\r\nalice secret\r\n", "k".repeat(300));
    let conversations: [&[&str]; 20] = [
        &["get a\r\n", "version\r\n", "quit\r\n", "mn\r\n", "\r\n", "flush_all\r\n", "mg a v\r\n"],
        &[LOGIN, "get none\r\n", "set k 0 0 1\r\n1\r\n"],
        &["set any 0 0 12\nalice secret\r\n", "get none\r\n"],
        &["set any zz -5 12 noreply\r\nalice secret\r\n", "get any\r\n"],
        &[" set  any 0 0 12\r\nalice secret\r\n", "get none\r\n"],
        &[&long_key, "get none\r\n"],
        &["set any 0 0 15\r\nbob hidden:word\r\n", "get none\r\n"],
        &[WRONG, WRONG, "get a\r\n", LOGIN, "get none\r\n"],
        &["set any 0 0 12\r\nalicE secret\r\n"],
        &["set any 0 0 11\r\nalice secre\r\n"],
        &["set any 0 0 15\r\nbob hidden:worD\r\n"],
        &["set any 0 0 13\r\nalice  secretX\r\n"],
        &["set any 0 0 5\r\nhello\r\n", LOGIN],
        &["set any 0 0 0\r\n\r\n", LOGIN],
        &["set any 0 0 12\r\nalice secretXX", LOGIN],
        &["set any 0 0\r\n", LOGIN],
        &["set any 0 0 x\r\n", LOGIN],
        &["set any 0 0 -1\r\n", LOGIN],
        &["SET any 0 0 12\r\n", LOGIN],
        &["add any 0 0 12\r\n", LOGIN],
    ];
    for conversation in conversations {
        let mut clients = [strict.address(), proxy.address].map(Client::connect);
        for request in conversation {
            let replies = clients.each_mut().map(|client| {
                client.send(request);
                client.line()
            });
            assert_eq!(replies[0], replies[1], "{request:?} in {conversation:?}");
        }
    }
    // Once authenticated, a client cannot do so again: this is a value.
    let mut client = proxy.client();
    client.ask(LOGIN, "STORED\r\n");
    client.ask(WRONG, "STORED\r\n");
    client.ask("get any\r\n", "VALUE any 0 12\r\nalice secreT\r\nEND\r\n");
}

#[test]
fn nothing_reaches_a_server_before_the_authentication() {
    let (files, server) = (Files::new(USERS), Server::start());
    let proxy = guarded(&files, server.address(), |_| ());
    let mut client = proxy.client();
    for request in ["get k\r\n", "set k 0 0 1\r\n1\r\n", "ms k 1\r\n", "delete k\r\n", "flush_all\r\n", "stats\r\n"] {
        client.send(request);
        assert!(client.line().starts_with("CLIENT_ERROR "), "{request}");
    }
    client.ask(WRONG, FAILED);
    assert_eq!(metric(&proxy, "waystage_backend_requests_total"), 0);
    assert_eq!(metric(&proxy, "waystage_clients_unauthenticated_total"), 6);
    assert_eq!(metric(&proxy, "waystage_clients_auth_failed_total"), 1);
    assert_eq!(metric(&proxy, "waystage_clients_authenticated_total"), 0);
    // Requests behind it, in the same piece, are served; those before it are refused.
    client.ask(
        format!("get k\r\n{WRONG}{LOGIN}set k 0 0 1\r\n1\r\nget k\r\n"),
        format!("{UNAUTHENTICATED}{FAILED}STORED\r\nSTORED\r\n{HIT}"),
    );
    assert_eq!(metric(&proxy, "waystage_clients_authenticated_total"), 1);
    assert_eq!(metric(&proxy, "waystage_backend_requests_total"), 2);
    client.send("stats\r\n");
    let mut stats = String::new();
    while !stats.ends_with("END\r\n") {
        stats += &client.line();
    }
    assert!(stats.contains("STAT auth_cmds 3\r\nSTAT auth_errors 2\r\n"), "{stats}");
    // It is not a request, so it is in no count of requests.
    assert!(!proxy.metrics().contains("operation=\"invalid\",outcome=\"client_error\""));
}

#[test]
fn the_authentication_can_come_in_any_pieces() {
    let (files, server) = (Files::new(USERS), Server::start());
    let proxy = guarded(&files, server.address(), |_| ());
    let all = format!("get k\r\n{WRONG}{LOGIN}get none\r\n");
    let replies = format!("{UNAUTHENTICATED}{FAILED}STORED\r\nEND\r\n");
    let mut client = proxy.client();
    client.trickle(&all);
    client.expect(&replies);
    for cut in 1..all.len() {
        let mut client = proxy.client();
        client.send(&all[..cut]);
        std::thread::sleep(Duration::from_millis(1));
        client.send(&all[cut..]);
        client.expect(&replies);
    }
    // Half-closed behind the last request.
    let mut client = proxy.client();
    client.send(&all);
    client.half_close();
    client.expect(&replies);
    client.expect_closed();
    // Half-closed within it.
    let mut client = proxy.client();
    client.send(&LOGIN[..20]);
    client.half_close();
    client.expect_closed();
}

#[test]
fn no_line_or_value_is_held_that_is_longer_than_an_authentication() {
    let (files, server) = (Files::new(USERS), Server::start());
    let proxy = guarded(&files, server.address(), |_| ());
    let long_line = "x".repeat(2048);
    for (request, reply) in [
        (long_line.as_str(), UNAUTHENTICATED),
        ("set any 0 0 1025\r\n", FAILED),
        ("set any 0 0 4294967297\r\n", FAILED),
        ("set any 0 0 99999999999999999999999999\r\nalice secret\r\n", FAILED),
    ] {
        let mut client = proxy.client();
        client.ask(request, reply);
        client.expect_closed();
    }
    // A client that sends without end and reads nothing is not read from for ever.
    let mut client = proxy.client();
    client.flood(b"\n", 64 << 20);
    let held = metric(&proxy, "waystage_held_bytes");
    assert!(held < 4 << 20, "{held}");
    let mut other = proxy.client();
    other.ask(LOGIN, "STORED\r\n");
}

#[test]
fn the_binary_protocol_is_refused_as_without_authentication() {
    let (files, server) = (Files::new(USERS), Server::start());
    let proxy = guarded(&files, server.address(), |_| ());
    let mut client = proxy.client();
    // SASL authentication.
    client.send([&[0x80, 0x21, 0, 5][..], &[0; 20]].concat());
    client.expect([&[0x81, 0x21, 0, 0, 0, 0, 0, 0x83][..]].concat());
    assert_eq!(metric(&proxy, "waystage_clients_refused_binary_total"), 1);
}

#[test]
fn a_client_that_does_not_authenticate_is_closed() {
    let (files, server) = (Files::new(USERS), Server::start());
    let limits = ClientLimits { request_timeout: Duration::from_millis(400), ..ClientLimits::default() };
    let proxy = guarded(&files, server.address(), |config| config.client_limits = limits);
    let mut good = proxy.client();
    good.ask(LOGIN, "STORED\r\n");
    let mut silent = proxy.client();
    let mut wrong = proxy.client();
    wrong.ask(WRONG, FAILED);
    let mut half = proxy.client();
    half.send(&LOGIN[..20]);
    for client in [&mut silent, &mut wrong, &mut half] {
        client.expect_closed();
    }
    assert!(proxy.metrics().contains("waystage_clients_closed_total{reason=\"request\"} 3"));
    good.ask("get none\r\n", "END\r\n");
}

#[test]
fn a_reload_reads_the_users_again_and_keeps_those_who_have_authenticated() {
    let (files, server) = (Files::new(USERS), Server::start());
    let mut proxy = guarded(&files, server.address(), |_| ());
    let (mut inside, mut outside, mut half) = (proxy.client(), proxy.client(), proxy.client());
    inside.ask(LOGIN, "STORED\r\n");
    outside.ask(WRONG, FAILED);
    half.send("set any 0 0 11\r\nalice ");
    files.write("alice:other\n");
    reload(&mut proxy, |_| ()).unwrap();
    inside.ask("set k 0 0 1\r\n1\r\nget k\r\n", format!("STORED\r\n{HIT}"));
    outside.ask("get k\r\n", UNAUTHENTICATED);
    outside.ask(LOGIN, FAILED);
    half.send("other\r\n");
    half.expect("STORED\r\n");
    half.ask("get k\r\n", HIT);
    proxy.client().ask(LOGIN, FAILED);
    // A bad file changes nothing.
    files.write("alice\n");
    let line = reload(&mut proxy, |_| ()).unwrap_err();
    assert_eq!(
        line,
        format!("cannot use {} for authentication: line 1 has no colon; write user:password", files.path().display())
    );
    inside.ask("get k\r\n", HIT);
    proxy.client().ask(LOGIN.replace("12", "11").replace("secret", "other"), "STORED\r\n");
    // Without authentication everybody is served.
    reload(&mut proxy, |config| config.client_auth_file = None).unwrap();
    for client in [&mut inside, &mut outside] {
        client.ask("get k\r\n", HIT);
    }
}

/// Such a client cannot know that it must authenticate.
#[test]
fn clients_without_authentication_are_disconnected_when_it_is_required() {
    let (files, server) = (Files::new(USERS), Server::start());
    let mut proxy = guarded(&files, server.address(), |config| config.client_auth_file = None);
    let (mut served, mut silent) = (proxy.client(), proxy.client());
    served.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    // Without a round trip the proxy might not have accepted it yet.
    silent.expect_silence();
    reload(&mut proxy, |config| config.client_auth_file = Some(files.path())).unwrap();
    served.expect_closed();
    silent.ask("get k\r\n", UNAUTHENTICATED);
    silent.ask(LOGIN, "STORED\r\n");
    silent.ask("get k\r\n", HIT);
}

#[test]
fn neither_users_nor_passwords_are_shown_anywhere() {
    let (files, server) = (Files::new("ultramarine:vermilion\n"), Server::start());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let written = lines.clone();
    let records = tempfile::tempdir().unwrap();
    let proxy = guarded(&files, server.address(), |config| {
        config.pools[0].server_auth_file = Some(files.path());
        config.records = Some(RecordsConfig { directory: records.path().into(), sample: 1 });
        config.log = LogConfig {
            format: LogFormat::Json,
            slow_requests: Some(Duration::from_nanos(1)),
            output: LogOutput::new(move |line| {
                written.lock().unwrap().extend_from_slice(line);
                Ok(())
            }),
            ..LogConfig::default()
        };
    });
    let mut client = proxy.client();
    client.ask("set vermilion 0 0 20\r\nultramarine vermilio\r\n", FAILED);
    client.ask("set ultramarine 0 0 21\r\nultramarine vermilion\r\n", "STORED\r\n");
    client.ask("get k\r\n", "END\r\n");
    until("the request is in the log", || String::from_utf8_lossy(&lines.lock().unwrap()).contains("slow_request"));
    until("the failure is in the log", || {
        String::from_utf8_lossy(&lines.lock().unwrap()).contains("client_auth_failed")
    });
    let mut shown = proxy.metrics() + &format!("{:?}", proxy.running.as_ref().unwrap().config());
    for request in ["stats\r\n", "stats settings\r\n", "stats hotkeys\r\n"] {
        client.send(request);
        while !shown.ends_with("END\r\n") {
            shown += &client.line();
        }
        shown += "\n";
    }
    proxy.stop();
    shown += &String::from_utf8_lossy(&lines.lock().unwrap());
    for file in std::fs::read_dir(records.path()).unwrap() {
        shown += &String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap());
    }
    for secret in ["vermilio", "ultramarine"] {
        let at = shown.find(secret);
        assert!(at.is_none(), "{}", &shown[at.unwrap_or(0).saturating_sub(200)..][..300]);
    }
}
