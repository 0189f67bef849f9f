//! Spans of sampled requests: what a collector receives, and collectors that are away, slow, wrong or busy.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "common/collector.rs"]
mod collector;
mod common;

use clock::{Clock, INTERVALS, unix_now};
use collector::{Collector, Reply, status, took};
use common::{Proxy, servers, until};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use prost::Message;
use proxy::{Config, LogConfig, LogOutput, LoggedKeys, Lookup, Stamps, TracesConfig};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Client, Scripted};

/// Every request is traced, unless the test changes it.
fn traces(url: &str) -> Option<TracesConfig> {
    Some(TracesConfig { sample: 1, ..TracesConfig::new(url) })
}

fn with_traces(url: &str) -> impl FnOnce(&mut Config) {
    let traces = traces(url);
    move |config| (config.loops, config.traces, config.metrics) = (1, traces, Some("127.0.0.1:0".into()))
}

fn proxy(url: &str) -> Proxy {
    Proxy::before(servers(2), with_traces(url))
}

fn counter(proxy: &Proxy, name: &str) -> u64 {
    let page = proxy.metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("waystage_{name}_total ")));
    line.unwrap_or_else(|| panic!("{name} is not in {page}")).parse().unwrap()
}

/// A log whose lines are kept here.
fn log_to(lines: &Arc<Mutex<String>>) -> LogConfig {
    let lines = lines.clone();
    let output = LogOutput::new(move |line| {
        lines.lock().unwrap().push_str(std::str::from_utf8(line).unwrap());
        Ok(())
    });
    LogConfig { output, ..LogConfig::default() }
}

/// Changes the tracing, and waits until the thread of the earlier configuration has ended or is given up.
fn reload(proxy: &mut Proxy, traces: Option<TracesConfig>) {
    let running = proxy.running.as_mut().unwrap();
    let config = Config { traces, ..running.config().clone() };
    let new = running.reload(config).unwrap();
    let mut old = std::mem::replace(running, new);
    old.wait_for_clients(|| false);
    old.stop().unwrap();
}

/// Gets a key so many times. Every reply must come, whatever the collector does.
fn get(client: &mut Client, count: usize) {
    for _ in 0..count {
        client.ask("get a\r\n", "END\r\n");
    }
}

fn attributes(of: &[KeyValue]) -> HashMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(is_so) => is_so.to_string(),
        other => format!("{other:?}"),
    };
    of.iter().map(|one| (one.key.as_str(), text(one.value.as_ref().unwrap().value.as_ref().unwrap()))).collect()
}

#[test]
fn a_request_has_a_span_with_its_stages_and_its_legs() {
    let collector = Collector::accepting();
    let servers = servers(2);
    let ports: Vec<String> = servers.iter().map(|server| server.address().port().to_string()).collect();
    let before = unix_now();
    let proxy = Proxy::before(servers, |config| {
        with_traces(&collector.url)(config);
        config.pools[0].replicas = 2;
    });
    let mut client = proxy.client();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let whole = collector.expect(1).remove(0);
    let after = unix_now();
    assert_eq!(whole.name, "set");
    assert!(before <= whole.start_time_unix_nano && whole.end_time_unix_nano <= after, "{whole:?}");
    let shown = attributes(&whole.attributes);
    for (key, expected) in [
        ("db.system.name", "memcached".into()),
        ("db.operation.name", "set".into()),
        ("waystage.outcome", "answered".into()),
        ("waystage.legs", "2".into()),
        ("waystage.request_bytes", "16".into()),
        ("client.address", "127.0.0.1".into()),
        ("client.port", client.port().to_string()),
    ] {
        assert_eq!(shown[key], expected, "{key}");
    }
    assert!(shown["waystage.key"].starts_with("xxh3:"), "{shown:?}");
    let spans = collector.spans();
    let stages: Vec<&Span> = spans.iter().filter(|span| span.kind() == SpanKind::Internal).collect();
    assert_eq!(stages.iter().map(|span| took(span)).sum::<u64>(), took(&whole), "{spans:?}");
    let known = |span: &&Span| INTERVALS.iter().any(|interval| interval.name == span.name);
    assert!(
        stages.iter().all(known)
            && stages.windows(2).all(|pair| pair[0].end_time_unix_nano <= pair[1].start_time_unix_nano)
    );
    let mut legs: Vec<String> = Vec::new();
    for leg in spans.iter().filter(|span| span.kind() == SpanKind::Client) {
        assert!(
            leg.start_time_unix_nano >= whole.start_time_unix_nano
                && leg.end_time_unix_nano <= whole.end_time_unix_nano
        );
        let shown = attributes(&leg.attributes);
        assert_eq!((shown["server.address"].as_str(), shown["waystage.pool"].as_str()), ("127.0.0.1", "default"));
        assert_eq!(leg.name, format!("set 127.0.0.1:{}", shown["server.port"]));
        legs.push(shown["server.port"].clone());
    }
    legs.sort();
    let mut expected = ports;
    expected.sort();
    assert_eq!(legs, expected);
    for span in &spans {
        assert_eq!(span.trace_id, whole.trace_id);
        assert!(span.span_id == whole.span_id || span.parent_span_id == whole.span_id);
    }
    let messages = collector.messages.lock().unwrap();
    let resource = messages[0].resource_spans[0].resource.as_ref().unwrap();
    let shown = attributes(&resource.attributes);
    assert_eq!((shown["service.name"].as_str(), shown["waystage.traces.sample"].as_str()), ("waystage-proxy", "1"));
    assert!(!shown["host.name"].is_empty() && !shown["service.version"].is_empty(), "{shown:?}");
}

#[test]
fn a_failure_of_a_backend_is_an_error_of_the_request_and_of_its_leg() {
    let collector = Collector::accepting();
    let server = Scripted::start(|peer, _| while peer.line().is_some() {});
    let proxy = Proxy::at(&[server.address()], |config| {
        with_traces(&collector.url)(config);
        config.pools[0].timeouts = proxy::Timeouts::all(Duration::from_millis(200));
    });
    let mut client = proxy.client();
    client.send("get a\r\n");
    assert!(client.line().starts_with("SERVER_ERROR"));
    collector.expect(1);
    let spans = collector.spans();
    for span in spans.iter().filter(|span| span.kind() != SpanKind::Internal) {
        assert_eq!(attributes(&span.attributes)["error.type"], "timeout", "{span:?}");
        assert_eq!(
            (span.status.as_ref().unwrap().code, span.status.as_ref().unwrap().message.as_str()),
            (2, "timeout")
        );
    }
    assert_eq!(spans.iter().filter(|span| span.kind() == SpanKind::Client).count(), 1);
}

#[test]
fn one_request_in_n_is_traced_and_all_of_them_arrive() {
    let collector = Collector::accepting();
    let proxy = Proxy::before(servers(1), |config| {
        with_traces(&collector.url)(config);
        config.traces.as_mut().unwrap().sample = 10;
        // Only the traced requests are stamped.
        config.stamps = Stamps::Sampled;
    });
    let mut client = proxy.client();
    for _ in 0..100 {
        client.send("get a\r\n".repeat(50));
        client.expect("END\r\n".repeat(50));
    }
    collector.expect(420);
    let all = proxy.metrics();
    drop(proxy);
    let found = collector.requests();
    // Six standard deviations of a sample in which each gap between traced requests is uniform from 1 to 19.
    assert!((420..=580).contains(&found.len()), "{} of 5000", found.len());
    assert!(all.contains("\nwaystage_requests_total{operation=\"get\",outcome=\"answered\"} 5000\n"), "{all}");
    assert!(found.iter().all(|span| took(span) > 0));
}

#[test]
fn keys_appear_as_the_operator_wants_and_those_of_other_requests_never() {
    for (keys, expected) in [(LoggedKeys::Plain, Some("secret")), (LoggedKeys::Hidden, None)] {
        let collector = Collector::accepting();
        let proxy = Proxy::before(servers(1), |config| {
            with_traces(&collector.url)(config);
            config.traces.as_mut().unwrap().keys = keys;
        });
        let mut client = proxy.client();
        client.ask("get secret\r\n", "END\r\n");
        client.ask("mn\r\n", "MN\r\n");
        let spans = collector.expect(2);
        let key = |name: &str| {
            let span = spans.iter().find(|span| span.name == name).unwrap();
            attributes(&span.attributes).get("waystage.key").cloned()
        };
        assert_eq!((key("get").as_deref(), key("mn")), (expected, None));
    }
}

#[test]
fn a_collector_that_is_busy_gets_the_same_spans_again_when_it_has_asked_for_them() {
    let clock = Clock::monotonic();
    let times = Arc::new(Mutex::new(Vec::new()));
    let (seen, now) = (times.clone(), clock.clone());
    let collector = Collector::start(move |number| {
        seen.lock().unwrap().push(now.now());
        match number {
            0 => Reply::Bytes(b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n".into()),
            1 => Reply::Bytes(b"HTTP/1.1 429 Slow down\r\n\r\n".into()),
            _ => status("200 OK", b""),
        }
    });
    let proxy = proxy(&collector.url);
    get(&mut proxy.client(), 1);
    until("the spans are accepted", || counter(&proxy, "traces_exported") == 1);
    let messages = collector.messages.lock().unwrap();
    assert!(messages.len() == 3 && messages[0] == messages[1] && messages[1] == messages[2]);
    let times = times.lock().unwrap();
    assert!(times[1].since(times[0]) >= 3_000_000_000, "{times:?}");
    assert_eq!((counter(&proxy, "trace_attempts_failed"), counter(&proxy, "traces_failed")), (2, 0));
}

#[test]
fn spans_that_a_collector_refuses_are_given_up_and_rejected_ones_are_counted() {
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "too old".into() };
    let partial = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", partial.len());
    let accepted = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (reply, [exported, failed, rejected]) in [
        (status("400 Bad Request", b"no"), [0, 1, 0]),
        (status("301 Moved\r\nLocation: http://a/", b""), [0, 1, 0]),
        (status("200 OK", &partial), [1, 0, 2]),
        (status("200 OK", b"\xff garbage"), [1, 0, 0]),
        (Reply::Bytes([&b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..], &partial].concat()), [1, 0, 2]),
        (Reply::Bytes([chunked.as_bytes(), &partial, b"\r\n0\r\n\r\n"].concat()), [1, 0, 2]),
        (
            Reply::Bytes(
                [&b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n"[..], accepted].concat(),
            ),
            [1, 0, 0],
        ),
        (Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n".into()), [1, 0, 0]),
        (Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut".into()), [1, 0, 0]),
    ] {
        let answer = reply.clone();
        let collector = Collector::start(move |_| answer.clone());
        let proxy = proxy(&collector.url);
        get(&mut proxy.client(), 1);
        until("the collector has replied", || {
            counter(&proxy, "traces_exported") + counter(&proxy, "traces_failed") == 1
        });
        let counts = ["traces_exported", "traces_failed", "trace_spans_rejected"].map(|name| counter(&proxy, name));
        assert_eq!(
            (counts, collector.connections.load(Ordering::SeqCst)),
            ([exported, failed, rejected], 1),
            "{reply:?}"
        );
    }
}

#[test]
fn a_collector_that_closes_or_replies_with_garbage_is_tried_again_and_logged() {
    for reply in [Reply::Close, Reply::Bytes(b"\x15\x03\x01\x00\x02\x02\x46".into()), Reply::Bytes(vec![b'a'; 1 << 20])]
    {
        let answer = reply.clone();
        let collector =
            Collector::start(move |number| if number == 0 { answer.clone() } else { status("200 OK", b"") });
        let lines = Arc::default();
        let proxy = Proxy::before(servers(1), |config| {
            with_traces(&collector.url)(config);
            config.log = log_to(&lines);
        });
        get(&mut proxy.client(), 3);
        until("the spans are accepted", || counter(&proxy, "traces_exported") == 3);
        assert_eq!((counter(&proxy, "trace_attempts_failed"), counter(&proxy, "traces_failed")), (1, 0), "{reply:?}");
        drop(proxy);
        let lines = lines.lock().unwrap();
        let line = "warn  1 attempt to send spans to the collector failed; the last reason: ";
        assert_eq!(lines.matches(line).count(), 1, "{lines}");
    }
}

#[test]
fn a_collector_that_stalls_delays_no_request_and_the_queue_has_a_limit() {
    let collector = Collector::start(|_| Reply::Stall);
    let proxy = Proxy::before(servers(1), |config| {
        with_traces(&collector.url)(config);
        config.traces.as_mut().unwrap().queue = 20;
    });
    let mut client = proxy.client();
    get(&mut client, 1);
    until("the first message is sent", || collector.connections.load(Ordering::SeqCst) == 1);
    // The collector has not replied, and its time has not run out: meanwhile, only so many requests can wait.
    get(&mut client, 500);
    assert!(counter(&proxy, "traces_dropped") >= 480 - 20, "{}", proxy.metrics());
    assert_eq!(counter(&proxy, "traces_exported"), 0);
    let clock = Clock::monotonic();
    let before = clock.now();
    assert_eq!(proxy.stop().lost, 0);
    // An attempt may take ten seconds, but the proxy does not wait for it.
    assert!(clock.now().since(before) < 8_000_000_000);
}

#[test]
fn without_a_collector_every_request_is_answered() {
    // Nobody listens on a port that was just closed.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::before(servers(1), |config| {
        with_traces(&format!("http://{address}/v1/traces"))(config);
        config.traces.as_mut().unwrap().queue = 5;
    });
    let mut client = proxy.client();
    get(&mut client, 100);
    until("an attempt has failed", || counter(&proxy, "trace_attempts_failed") > 0);
    get(&mut client, 100);
    let dropped = counter(&proxy, "traces_dropped");
    assert!((1..=200).contains(&dropped), "{dropped}");
}

#[test]
fn an_address_that_never_answers_leaves_time_for_the_next_one() {
    let collector = Collector::accepting();
    let real = collector.address;
    // The kernel drops further connections to a listener whose queue is full.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let address = silent.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let _waiting: Vec<TcpStream> = (0..10).map_while(connect).collect();
    let proxy = Proxy::before(servers(1), |config| {
        with_traces("http://collector.test:4318/v1/traces")(config);
        config.transport.lookup = Lookup::new(move |_| Ok::<Vec<SocketAddr>, _>(vec![address, real]));
    });
    get(&mut proxy.client(), 1);
    until("the second address has the spans", || counter(&proxy, "traces_exported") == 1);
    assert_eq!((counter(&proxy, "trace_attempts_failed"), collector.requests().len()), (0, 1));
}

#[test]
fn requests_that_are_left_at_a_reload_are_counted_as_given_up() {
    let stalled = Collector::start(|_| Reply::Stall);
    let lines = Arc::default();
    let mut proxy = Proxy::before(servers(2), |config| {
        with_traces(&stalled.url)(config);
        config.log = log_to(&lines);
    });
    let mut client = proxy.client();
    get(&mut client, 1);
    until("the first message is sent", || stalled.connections.load(Ordering::SeqCst) == 1);
    get(&mut client, 30);
    reload(&mut proxy, None);
    get(&mut client, 1);
    let counts = ["traces_exported", "traces_dropped", "traces_failed"].map(|name| counter(&proxy, name));
    assert_eq!(counts, [0, 0, 31]);
    let lines = lines.lock().unwrap();
    let line = "warn  31 requests were traced, but given up, because the collector has not accepted the spans\n";
    assert!(lines.contains(line), "{lines}");
}

#[test]
fn what_is_left_is_sent_when_the_proxy_stops() {
    let collector = Collector::accepting();
    let proxy = proxy(&collector.url);
    let mut client = proxy.client();
    client.send("get a\r\n".repeat(20));
    client.expect("END\r\n".repeat(20));
    drop(client);
    proxy.stop();
    assert_eq!(collector.requests().len(), 20);
}

#[test]
fn a_reload_sends_later_spans_to_another_collector_and_the_counters_continue() {
    let (first, second) = (Collector::accepting(), Collector::accepting());
    let mut proxy = proxy(&first.url);
    let mut client = proxy.client();
    get(&mut client, 2);
    reload(&mut proxy, traces(&second.url).map(|traces| TracesConfig { service: "other".into(), ..traces }));
    get(&mut client, 3);
    second.expect(3);
    assert_eq!((first.requests().len(), second.requests().len()), (2, 3));
    until("all are counted", || counter(&proxy, "traces_exported") == 5);
    let messages = second.messages.lock().unwrap().clone();
    let resource = messages[0].resource_spans[0].resource.clone().unwrap();
    assert_eq!(attributes(&resource.attributes)["service.name"], "other");
    // A configuration that is refused changes nothing.
    let running = proxy.running.as_mut().unwrap();
    let bad = Config { traces: traces("https://127.0.0.1:1/v1/traces"), ..running.config().clone() };
    assert!(running.reload(bad).is_err());
    reload(&mut proxy, None);
    get(&mut client, 4);
    assert_eq!(counter(&proxy, "traces_exported"), 5);
    drop(proxy);
    assert_eq!(second.requests().len(), 3);
}
