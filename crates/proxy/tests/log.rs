//! The log of a proxy: slow requests with their stages, backends that go down and come up, limits, and outputs that fail or block.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use clock::Clock;
use common::{Proxy, until};
use proxy::{Config, LogConfig, LogFormat, LogLevel, LogOutput, LoggedKeys, ProcessEvent, RouteConfig, Timeouts};
use serde_json::Value;
use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, Scripted, Server};

const SLOW: Duration = Duration::from_millis(60);

/// The lines of a log, as JSON.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Value>>>);

impl Lines {
    fn config(&self) -> LogConfig {
        let lines = self.0.clone();
        LogConfig {
            format: LogFormat::Json,
            slow_requests: Some(SLOW),
            output: LogOutput::new(move |line| {
                lines.lock().unwrap().push(serde_json::from_slice(line).expect("each line is JSON"));
                Ok(())
            }),
            ..LogConfig::default()
        }
    }

    fn of(&self, event: &str) -> Vec<Value> {
        self.0.lock().unwrap().iter().filter(|line| line["event"] == event).cloned().collect()
    }

    /// The first line about an event, when it is there.
    fn first(&self, event: &str) -> Value {
        until(&format!("a line about {event}"), || !self.of(event).is_empty());
        self.of(event)[0].clone()
    }
}

/// A server that lets reads of the key `slow` wait.
fn slow_server() -> Scripted {
    Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            if line.contains("slow") {
                std::thread::sleep(2 * SLOW);
            }
            peer.send(if line.starts_with("get") { "END\r\n" } else { "VERSION 1.6.0\r\n" });
        }
    })
}

/// Replies to the probes of a proxy, as long as it is not silent. Returns the number of connections.
fn answer_probes(listener: TcpListener, is_silent: Arc<AtomicBool>) -> Arc<AtomicUsize> {
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let is_silent = is_silent.clone();
            std::thread::spawn(move || {
                let (mut reader, mut line) = (io::BufReader::new(stream.try_clone().unwrap()), String::new());
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    while is_silent.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    if stream.write_all(b"VERSION 1.6.0\r\n").is_err() {
                        return;
                    }
                }
            });
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    connections
}

fn proxy(addresses: &[SocketAddr], log: LogConfig, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::at(addresses, |config| {
        (config.loops, config.log, config.metrics) = (1, log, Some("127.0.0.1:0".into()));
        change(config);
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn a_slow_request_is_logged_with_its_stages_and_a_fast_one_is_not() {
    let (lines, server) = (Lines::default(), slow_server());
    let proxy = proxy(&[server.address()], lines.config(), |_| ());
    let mut client = proxy.client();
    client.ask("get fast\r\n", "END\r\n");
    client.ask("get slow:1 b\r\n", "END\r\n");
    let line = lines.first("slow_request");
    assert_eq!(line["level"], "warn");
    assert_eq!((&line["operation"], &line["outcome"]), (&"get".into(), &"answered".into()));
    assert_eq!((&line["key"], &line["keys"], &line["hits"]), (&"slow:1".into(), &2.into(), &0.into()));
    assert_eq!((&line["request_bytes"], &line["reply_bytes"]), (&14.into(), &5.into()));
    assert_eq!(line["client"], format!("127.0.0.1:{}", client.port()));
    assert_eq!(line["sequence"], 1);
    let (total, stages) = (number(&line["total_us"]), line["stages_us"].as_object().unwrap());
    let names: Vec<&str> = clock::INTERVALS.iter().map(|interval| interval.name).collect();
    assert!(stages.len() == names.len() && names.iter().all(|name| stages.contains_key(*name)), "{line}");
    assert!((stages.values().map(number).sum::<f64>() - total).abs() < 0.01 && total >= 2.0 * 60_000.0, "{line}");
    let backend = &line["backends"][0];
    assert_eq!((&backend["backend"], &backend["outcome"]), (&server.address().to_string().into(), &"answered".into()));
    assert!(number(&backend["took_us"]) <= number(&stages["backend"]) + 1.0, "{line}");
    assert!(proxy.metrics().contains("\nwaystage_slow_requests_total 1\n"));
    drop(proxy);
    assert_eq!(lines.of("slow_request").len(), 1);
}

#[test]
fn keys_are_hashed_or_hidden_on_demand() {
    for (keys, shown) in [(LoggedKeys::Hashed, true), (LoggedKeys::Hidden, false)] {
        let (lines, server) = (Lines::default(), slow_server());
        let proxy = proxy(&[server.address()], LogConfig { keys, ..lines.config() }, |_| ());
        proxy.client().ask("get slow:secret\r\n", "END\r\n");
        let line = lines.first("slow_request");
        assert!(!line.to_string().contains("secret") && line["key"].is_string() == shown, "{line}");
    }
}

#[test]
fn a_client_of_the_binary_protocol_is_logged() {
    let (lines, server) = (Lines::default(), slow_server());
    let proxy = proxy(&[server.address()], lines.config(), |_| ());
    let mut client = proxy.client();
    client.send([&[0x80][..], &[0; 23]].concat());
    let line = lines.first("clients_refused_binary");
    assert!(line["level"] == "warn" && line["count"] == 1, "{line}");
}

#[test]
fn a_request_without_a_key_is_logged_without_that_of_an_earlier_one() {
    let lines = Lines::default();
    let log = LogConfig { slow_requests: Some(Duration::from_nanos(1)), ..lines.config() };
    let proxy = proxy(&[slow_server().address()], log, |_| ());
    let mut client = proxy.client();
    client.ask("get a\r\n", "END\r\n");
    client.ask("mn\r\n", "MN\r\n");
    client.ask("get b\r\n", "END\r\n");
    drop(proxy);
    let keys: Vec<Value> = lines.of("slow_request").iter().map(|line| line["key"].clone()).collect();
    assert_eq!(keys, ["a".into(), Value::Null, "b".into()]);
}

/// A route may change the keys: the log has those of the client, and none for a request whose changed key is impossible.
#[test]
fn the_key_of_the_client_is_logged() {
    let lines = Lines::default();
    let log = LogConfig { slow_requests: Some(Duration::from_nanos(1)), ..lines.config() };
    let proxy = proxy(&[slow_server().address()], log, |config| {
        config.routes = vec![RouteConfig { strip_prefix: true, ..RouteConfig::new("s:", "default") }];
    });
    let mut client = proxy.client();
    client.ask("get s:a\r\n", "END\r\n");
    client.ask("get s:\r\n", "CLIENT_ERROR bad command line format\r\n");
    client.ask("get s:b c\r\n", "END\r\n");
    drop(proxy);
    let keys: Vec<Value> = lines.of("slow_request").iter().map(|line| line["key"].clone()).collect();
    assert_eq!(keys, ["s:a".into(), Value::Null, "s:b".into()]);
}

#[test]
fn a_backend_that_goes_down_and_comes_up_is_logged_with_the_reason() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let lines = Lines::default();
    let proxy = proxy(&[address], lines.config(), |_| ());
    let down = lines.first("backend_down");
    let name = address.to_string();
    assert_eq!((&down["level"], &down["backend"]), (&"warn".into(), &name.as_str().into()));
    assert_eq!(down["reason"], "unreachable");
    assert!(down["message"].as_str().unwrap().contains("is down, because it cannot be connected to"), "{down}");
    assert!(proxy.get("/readyz").contains("503 Service Unavailable"));
    assert!(proxy.get("/readyz").ends_with("pool default: 0 of 1 servers are up, 1 needed\n"));
    answer_probes(TcpListener::bind(address).expect("nobody has taken the port"), Arc::default());
    let up = lines.first("backend_up");
    assert_eq!((&up["level"], &up["backend"]), (&"info".into(), &name.as_str().into()));
    assert!(number(&up["down_s"]) >= 0.0);
    until("the proxy is ready", || proxy.get("/readyz").ends_with("\r\n\r\nready\n"));
    assert!(proxy.get("/healthz").starts_with("HTTP/1.1 200 OK") && proxy.get("/healthz").ends_with("\r\n\r\nok\n"));
    drop(proxy);
    assert_eq!(lines.of("backend_down").len(), 1, "a backend is not down because the proxy stops");
}

#[test]
fn requests_that_time_out_are_the_reason() {
    let lines = Lines::default();
    let server = Scripted::start(|peer, _| {
        while let Some(line) = peer.line() {
            if line.starts_with("get") {
                return peer.hang();
            }
            peer.send("VERSION 1.6.0\r\n");
        }
    });
    let proxy = proxy(&[server.address()], lines.config(), |config| {
        config.pools[0].timeouts = Timeouts::all(Duration::from_millis(100));
        config.pools[0].failures = 1;
    });
    proxy.client().send("get a\r\n");
    assert_eq!(lines.first("backend_down")["reason"], "timeout");
    assert_eq!(lines.first("slow_request")["outcome"], "timeout");
}

/// A line of many keys is sent on in parts, each with its own keys and backends.
#[test]
fn a_slow_part_of_a_long_line_is_logged_with_its_own_key() {
    let (lines, server) = (Lines::default(), slow_server());
    let proxy = proxy(&[server.address()], lines.config(), |_| ());
    let many: String = (0..300).map(|key| format!(" key{key}")).collect();
    proxy.client().ask(format!("get slow{many}\r\n"), "END\r\n");
    let line = lines.first("slow_request");
    assert_eq!((&line["key"], &line["is_part"]), (&"slow".into(), &true.into()));
    assert_eq!(line["backends"][0]["backend"], server.address().to_string());
    assert!(
        line["message"].as_str().unwrap().contains("keys, a part of a longer line, the first is \"slow\""),
        "{line}"
    );
}

#[test]
fn the_proxy_is_ready_when_its_servers_have_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, is_silent) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(true)));
    let connections = answer_probes(listener, is_silent.clone());
    let proxy = proxy(&[address], Lines::default().config(), |_| ());
    until("the proxy has connected", || connections.load(Ordering::SeqCst) > 0);
    assert!(proxy.get("/readyz").ends_with("pool default: 0 of 1 servers are up, 1 needed\n"));
    is_silent.store(false, Ordering::SeqCst);
    until("the proxy is ready", || proxy.get("/readyz").ends_with("\r\n\r\nready\n"));
}

/// A backend is down for a moment, and again while two loops end one after the other.
#[test]
fn a_stop_is_not_taken_for_an_outage_and_an_outage_ends_in_the_log_after_a_reload() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (before, after) = (Lines::default(), Lines::default());
    let mut proxy = proxy(&[closed], before.config(), |config| config.loops = 2);
    before.first("backend_down");
    answer_probes(TcpListener::bind(closed).expect("nobody has taken the port"), Arc::default());
    let mut config = Config::new("127.0.0.1:0", &[closed.to_string()]);
    (config.log, config.loops) = (after.config(), 2);
    let running = proxy.running.as_mut().unwrap();
    let new = running.reload(config).unwrap();
    let mut old = std::mem::replace(running, new);
    old.wait_for_clients(|| false);
    old.stop().unwrap();
    until("a line about the end of the outage", || {
        !before.of("backend_up").is_empty() || !after.of("backend_up").is_empty()
    });
    let _busy = proxy.client();
    drop(proxy);
    assert_eq!((before.of("backend_down").len(), after.of("backend_down").len()), (1, 0));
}

#[test]
fn a_limit_that_is_reached_is_logged() {
    let lines = Lines::default();
    let proxy = proxy(&[Server::start().address()], lines.config(), |config| config.clients_max = 1);
    let _first = proxy.client();
    until("the first client is counted", || proxy.metrics().contains("\nwaystage_clients 1\n"));
    (0..3).for_each(|_| Client::connect(proxy.address).expect_closed());
    let line = lines.first("clients_refused");
    assert!(line["message"].as_str().unwrap().contains("refused, because the limit clients-max, 1,"), "{line}");
    drop(proxy);
    let counts: u64 = lines.of("clients_refused").iter().map(|line| line["count"].as_u64().unwrap()).sum();
    assert_eq!(counts, 3, "what the first line did not count is in the last one");
}

#[test]
fn the_level_and_the_process_decide_about_lines() {
    for (level, expected) in [(LogLevel::Info, 3), (LogLevel::Warn, 2), (LogLevel::Error, 1), (LogLevel::Off, 0)] {
        let lines = Lines::default();
        let log = LogConfig { level, slow_requests: None, ..lines.config() };
        let proxy = proxy(&[Server::start().address()], log, |_| ());
        let running = proxy.running.as_ref().unwrap();
        running.log(ProcessEvent::Started { listening: vec!["a:1".into()] });
        running.log(ProcessEvent::Warning { text: "one\ntwo".into() });
        running.log(ProcessEvent::ReloadFailed { reason: "it is wrong".into() });
        drop(proxy);
        let written = ["started", "warning", "reload_failed"].map(|event| lines.of(event).len());
        assert_eq!(written.iter().sum::<usize>(), expected, "{level:?}");
    }
}

#[test]
fn an_output_that_fails_or_blocks_delays_no_request_and_loses_lines_that_are_counted() {
    for is_blocking in [false, true] {
        let (is_free, calls) = (Arc::new(AtomicBool::new(!is_blocking)), Arc::new(AtomicUsize::new(0)));
        let (free, counted) = (is_free.clone(), calls.clone());
        let output = LogOutput::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            while !free.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        // Every request is slow.
        let slow = LogConfig {
            slow_requests: Some(Duration::from_nanos(1)),
            slow_requests_per_second: 100_000,
            output,
            ..LogConfig::default()
        };
        let proxy = proxy(&[Server::start().address()], slow, |_| ());
        let mut client = proxy.client();
        for _ in 0..3000 {
            client.ask("mn\r\n", "MN\r\n");
        }
        let lost = || {
            let metrics = proxy.metrics();
            let line = metrics.lines().find(|line| line.starts_with("waystage_log_lines_lost_total ")).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        // All but those in the queue, and the one that is being written.
        let expected = if is_blocking { 3000 - 1024 - 1 } else { 3000 };
        until("lost lines are counted", || lost() >= expected);
        assert!(calls.load(Ordering::SeqCst) > 0);
        let (clock, proxy) = (Clock::monotonic(), proxy);
        let begun = clock.now();
        proxy.stop();
        // An output that blocks delays the end by a second, and by as much as a busy machine does.
        assert!(clock.now() < begun + Duration::from_secs(10));
        is_free.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_line_after_one_that_was_broken_off_begins_on_a_line_of_its_own() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let lines = written.clone();
    let output = LogOutput::new(move |line| {
        let mut lines = lines.lock().unwrap();
        lines.push(line.to_vec());
        if lines.len() == 1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    });
    let server = Server::start();
    let proxy = proxy(&[server.address()], LogConfig { output, ..LogConfig::default() }, |_| ());
    let running = proxy.running.as_ref().unwrap();
    (0..3).for_each(|number| running.log(ProcessEvent::Warning { text: number.to_string() }));
    drop(proxy);
    let begins: Vec<bool> = written.lock().unwrap().iter().map(|line| line.starts_with(b"\n")).collect();
    assert_eq!(begins[..3], [false, true, false]);
}

#[test]
fn a_reload_ends_the_watch_of_the_old_configuration() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (before, after, server) = (Lines::default(), Lines::default(), Server::start());
    let mut proxy = proxy(&[server.address()], before.config(), |_| ());
    let mut config = Config::new("127.0.0.1:0", &[closed.to_string()]);
    config.log = after.config();
    let running = proxy.running.as_mut().unwrap();
    let new = running.reload(config).unwrap();
    let mut old = std::mem::replace(running, new);
    old.wait_for_clients(|| false);
    old.stop().unwrap();
    after.first("backend_down");
    assert_eq!(before.of("backend_down").len(), 0);
}
