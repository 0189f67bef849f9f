//! A collector of spans, which can misbehave.

#![allow(dead_code, reason = "not every file of this folder uses all of it")]

use super::common::until;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a collector does with a message.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Sends these bytes, and closes the connection.
    Bytes(Vec<u8>),
    /// Reads nothing, and keeps the connection open.
    Stall,
    /// Closes the connection without a reply.
    Close,
}

/// A collector that keeps all messages, accepted or not.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    pub(crate) messages: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// The requests whose spans it has accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
}

/// A reply with this status.
pub(crate) fn status(line: &str, body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 {line}\r\nContent-Length: {}\r\n\r\n", body.len());
    Reply::Bytes([head.as_bytes(), body].concat())
}

impl Collector {
    /// Replies to the message with this number, from 0.
    pub(crate) fn start(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (messages, connections) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
        let collector = Collector {
            address,
            url: format!("http://{address}/v1/traces"),
            messages: messages.clone(),
            connections: connections.clone(),
            accepted: Arc::default(),
        };
        let accepted = collector.accepted.clone();
        let reply = Arc::new(reply);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (number, messages) = (connections.fetch_add(1, Ordering::SeqCst), messages.clone());
                let (reply, accepted) = (reply.clone(), accepted.clone());
                std::thread::spawn(move || answer(stream, reply(number), &messages, &accepted));
            }
        });
        collector
    }

    pub(crate) fn accepting() -> Collector {
        Collector::start(|_| status("200 OK", b""))
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.messages.lock().unwrap().iter().flat_map(spans_of).cloned().collect()
    }

    /// The spans of requests, without those of stages and legs.
    pub(crate) fn requests(&self) -> Vec<Span> {
        self.spans().into_iter().filter(|span| is_request(&span)).collect()
    }

    /// Waits until spans of this many requests have arrived.
    pub(crate) fn expect(&self, requests: usize) -> Vec<Span> {
        until("the spans have arrived", || self.requests().len() >= requests);
        self.requests()
    }
}

/// Reads one message, keeps it, and replies.
fn answer(
    mut stream: TcpStream,
    reply: Reply,
    messages: &Mutex<Vec<ExportTraceServiceRequest>>,
    accepted: &AtomicUsize,
) {
    let Reply::Bytes(reply) = reply else {
        if matches!(reply, Reply::Stall) {
            std::thread::sleep(Duration::from_secs(120));
        }
        return;
    };
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(1..=2) => break,
            Ok(3..) => head.push(line.trim_end().to_ascii_lowercase()),
            // The proxy has gone away.
            _ => return,
        }
    }
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/x-protobuf".into()), "{head:?}");
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let message = ExportTraceServiceRequest::decode(&*body).unwrap();
    if reply.starts_with(b"HTTP/1.1 200 ") {
        accepted.fetch_add(spans_of(&message).filter(is_request).count(), Ordering::SeqCst);
    }
    messages.lock().unwrap().push(message);
    // The proxy may have gone away.
    let _ = stream.write_all(&reply);
}

/// All spans of a message.
pub(crate) fn spans_of(message: &ExportTraceServiceRequest) -> impl Iterator<Item = &Span> {
    let resources = message.resource_spans.iter();
    resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans)
}

/// Whether it is the span of a request, and not of a stage or of a leg.
pub(crate) fn is_request(span: &&Span) -> bool {
    span.kind() == SpanKind::Server
}

/// The duration of a span.
pub(crate) fn took(span: &Span) -> u64 {
    span.end_time_unix_nano - span.start_time_unix_nano
}
