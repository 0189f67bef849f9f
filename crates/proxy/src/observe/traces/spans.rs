//! The spans of ended requests, as a message of OTLP. docs/tracing.md describes them.

use crate::config::LoggedKeys;
use crate::observe::ended_request::{EndedLeg, EndedRequest};
use clock::{INTERVALS, Nanos, Stage};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use records::Outcome;
use std::hash::{BuildHasher, RandomState};

/// `SpanFlags` of trace.proto: the trace is sampled, and the parent is known to be of this process.
const FLAGS: u32 = 0x101;

/// A backend, as spans name it.
#[derive(Clone, Debug)]
pub(crate) struct TracedBackend {
    pub(crate) pool: String,
    /// The host, or the path of a unix socket.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

/// Makes spans of requests.
#[derive(Debug)]
pub(crate) struct Spans {
    resource: Resource,
    keys: LoggedKeys,
    /// By number.
    backends: Vec<TracedBackend>,
    ids: Ids,
}

/// The wall-clock time of a stamp. All spans of a message have the same, so that those of one request fit each other also if the
/// clock is set meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(crate) now: Nanos,
    pub(crate) unix_ns: u64,
}

/// Numbers that no other process uses. SipHash with a key that the operating system has drawn makes them from a counter.
#[derive(Debug, Default)]
struct Ids {
    key: RandomState,
    last: u64,
}

impl Anchor {
    fn unix(self, stamp: Nanos) -> u64 {
        self.unix_ns.saturating_sub(self.now.since(stamp))
    }
}

impl Ids {
    /// A number that is not zero, which OTLP reserves.
    fn next(&mut self) -> u64 {
        loop {
            self.last += 1;
            let id = self.key.hash_one(self.last);
            if id != 0 {
                return id;
            }
        }
    }

    fn span(&mut self) -> Vec<u8> {
        self.next().to_be_bytes().into()
    }

    fn trace(&mut self) -> Vec<u8> {
        [self.next().to_be_bytes(), self.next().to_be_bytes()].concat()
    }
}

impl Spans {
    /// Spans of the service with this name, of which one request in `sample` is traced.
    pub(crate) fn new(service: &str, sample: u32, keys: LoggedKeys, backends: Vec<TracedBackend>) -> Spans {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let attributes = vec![
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("host.name", host),
            number("process.pid", std::process::id()),
            number("waystage.traces.sample", sample),
        ];
        Spans { resource: Resource { attributes, ..Resource::default() }, keys, backends, ids: Ids::default() }
    }

    /// The encoded message with the spans of these requests.
    pub(crate) fn encode(&mut self, requests: &[EndedRequest], anchor: Anchor) -> Vec<u8> {
        let mut spans = Vec::new();
        for request in requests {
            self.add(request, anchor, &mut spans);
        }
        let scope = InstrumentationScope {
            name: "waystage.proxy".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    /// Adds the spans of a request: its own, one for each stage that took time, and one for each leg.
    fn add(&mut self, request: &EndedRequest, anchor: Anchor, spans: &mut Vec<Span>) {
        let (trace_id, parent) = (self.ids.trace(), self.ids.span());
        let whole = Span {
            trace_id: trace_id.clone(),
            span_id: parent.clone(),
            flags: FLAGS,
            name: request.verb.name().into(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: anchor.unix(request.at(Stage::Received)),
            end_time_unix_nano: anchor.unix(request.at(Stage::Replied)),
            attributes: self.request_attributes(request),
            status: status(request.outcome),
            ..Span::default()
        };
        let child = |ids: &mut Ids| Span {
            trace_id: trace_id.clone(),
            span_id: ids.span(),
            parent_span_id: parent.clone(),
            flags: FLAGS,
            ..Span::default()
        };
        spans.push(whole);
        for interval in INTERVALS {
            let [start, end] = [interval.from, interval.to].map(|stage| anchor.unix(request.at(stage)));
            if end > start {
                spans.push(Span {
                    name: interval.name.into(),
                    kind: SpanKind::Internal.into(),
                    start_time_unix_nano: start,
                    end_time_unix_nano: end,
                    ..child(&mut self.ids)
                });
            }
        }
        for leg in &request.legs {
            // A stage that a leg did not reach has the stamp of the stage before, as in records.
            let start = leg.dispatched.max(request.at(Stage::Enqueued));
            let sent = leg.sent.max(start);
            let end = if leg.answered.is_set() { leg.answered.max(sent) } else { request.at(Stage::Replied).max(sent) };
            let backend = self.backends.get(usize::from(leg.backend));
            let place = backend.map_or_else(String::new, |backend| match backend.port {
                Some(port) if backend.host.contains(':') => format!(" [{}]:{port}", backend.host),
                Some(port) => format!(" {}:{port}", backend.host),
                None => format!(" {}", backend.host),
            });
            spans.push(Span {
                name: format!("{}{place}", request.verb.name()),
                kind: SpanKind::Client.into(),
                start_time_unix_nano: anchor.unix(start),
                end_time_unix_nano: anchor.unix(end),
                attributes: leg_attributes(request, leg, backend),
                status: status(leg.outcome).filter(|_| leg.answered.is_set()),
                ..child(&mut self.ids)
            });
        }
    }

    fn request_attributes(&self, request: &EndedRequest) -> Vec<KeyValue> {
        let mut attributes = common(request, request.request_bytes);
        attributes.extend(result(request.outcome, request.hits, request.reply_bytes));
        // A batch of one is no batch.
        if request.keys > 1 {
            attributes.push(number("db.operation.batch.size", request.keys));
        }
        attributes.extend([
            number("waystage.connection", request.connection),
            number("waystage.sequence", request.sequence),
            number("waystage.legs", request.legs_total as u64),
        ]);
        if request.is_part {
            attributes.push(attribute("waystage.is_part", Value::BoolValue(true)));
        }
        attributes.extend(request.key_text(self.keys).map(|key| text("waystage.key", key)));
        if let Some(client) = request.client {
            attributes.push(text("client.address", client.to_string()));
            attributes.push(number("client.port", request.port));
        }
        attributes
    }
}

/// The spans that the body of a reply reports as rejected.
pub(crate) fn rejected_spans(body: &[u8]) -> u64 {
    let reply = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    reply.partial_success.and_then(|partial| u64::try_from(partial.rejected_spans).ok()).unwrap_or(0)
}

/// The attributes of a request and of its legs.
fn common(request: &EndedRequest, request_bytes: u32) -> Vec<KeyValue> {
    vec![
        text("db.system.name", "memcached"),
        text("db.operation.name", request.verb.name()),
        number("waystage.request_bytes", request_bytes),
    ]
}

/// The attributes of a request or a leg that has ended.
fn result(outcome: Outcome, hits: u16, reply_bytes: u32) -> impl Iterator<Item = KeyValue> {
    let error = (outcome != Outcome::Answered).then(|| text("error.type", outcome.name()));
    let known = [
        text("waystage.outcome", outcome.name()),
        number("waystage.hits", hits),
        number("waystage.reply_bytes", reply_bytes),
    ];
    known.into_iter().chain(error)
}

fn leg_attributes(request: &EndedRequest, leg: &EndedLeg, backend: Option<&TracedBackend>) -> Vec<KeyValue> {
    let mut attributes = common(request, leg.request_bytes);
    // Of a leg without a reply, nobody knows how it would have ended.
    if leg.answered.is_set() || leg.outcome != Outcome::Answered {
        attributes.extend(result(leg.outcome, leg.hits, leg.reply_bytes));
    }
    if let Some(TracedBackend { pool, host, port }) = backend {
        attributes.push(text("waystage.pool", pool.as_str()));
        attributes.push(text("server.address", host.as_str()));
        attributes.extend(port.map(|port| number("server.port", port)));
    }
    if leg.is_hedge {
        attributes.push(attribute("waystage.is_hedge", Value::BoolValue(true)));
    }
    if !leg.answered.is_set() {
        attributes.push(attribute("waystage.is_unanswered", Value::BoolValue(true)));
    }
    // From the last byte sent to the reply, which is the time of the backend and of the network.
    attributes.extend(leg.took_ns().map(|ns| attribute("waystage.took_us", Value::DoubleValue(ns as f64 / 1000.0))));
    attributes
}

/// An error, unless the client has caused it: then the span of a server has no status, as with HTTP.
fn status(outcome: Outcome) -> Option<Status> {
    match outcome {
        Outcome::Answered | Outcome::ClientError | Outcome::ClientGone => None,
        _ => Some(Status { message: outcome.name().into(), code: StatusCode::Error.into() }),
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn number(key: &str, value: impl Into<u64>) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value.into()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::STAGES;
    use std::collections::HashSet;
    use wire::Verb;

    const ANCHOR: Anchor = Anchor { now: Nanos(1_000_000), unix_ns: 1_700_000_000_000_000_000 };

    fn leg(backend: u16, outcome: Outcome, [dispatched, sent, answered]: [u64; 3]) -> EndedLeg {
        EndedLeg {
            backend,
            outcome,
            hits: 1,
            request_bytes: 7,
            reply_bytes: 5,
            is_hedge: backend == 1,
            dispatched: Nanos(dispatched),
            sent: Nanos(sent),
            answered: Nanos(answered),
        }
    }

    fn request(legs: Vec<EndedLeg>) -> EndedRequest {
        EndedRequest {
            verb: Verb::Get,
            outcome: Outcome::Answered,
            key: b"user:\x07".to_vec(),
            keys: 2,
            is_part: false,
            hits: 1,
            request_bytes: 20,
            reply_bytes: 131,
            client: Some([10, 0, 0, 9].into()),
            port: 5000,
            connection: 3,
            sequence: 8,
            stamps: std::array::from_fn::<u64, STAGES, _>(|stage| if stage == 0 { 1000 } else { 2000 * stage as u64 }),
            legs_total: legs.len(),
            legs,
        }
    }

    fn spans_of(request: EndedRequest, keys: LoggedKeys) -> Vec<Span> {
        let backend = |host: &str, port| TracedBackend { pool: "main".into(), host: host.into(), port };
        let backends = vec![backend("10.0.0.1", Some(11211)), backend("::1", Some(11212)), backend("/run/a", None)];
        let bytes = Spans::new("test", 7, keys, backends).encode(&[request], ANCHOR);
        let message = ExportTraceServiceRequest::decode(&*bytes).unwrap();
        message.resource_spans.into_iter().flat_map(|one| one.scope_spans).flat_map(|one| one.spans).collect()
    }

    fn value(span: &Span, key: &str) -> Option<String> {
        let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
        Some(match value {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            Value::BoolValue(is_so) => is_so.to_string(),
            Value::DoubleValue(number) => number.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn the_stages_add_up_to_the_request_and_each_leg_has_a_span() {
        let legs = vec![leg(0, Outcome::Answered, [8000, 10_000, 11_500]), leg(1, Outcome::Timeout, [0, 0, 11_900])];
        let spans = spans_of(request(legs), LoggedKeys::Plain);
        let of_kind = |kind: SpanKind| spans.iter().filter(move |span| span.kind == i32::from(kind));
        let took = |span: &Span| span.end_time_unix_nano - span.start_time_unix_nano;
        let [whole] = of_kind(SpanKind::Server).collect::<Vec<_>>()[..] else { panic!("{spans:?}") };
        assert_eq!((whole.name.as_str(), took(whole)), ("get", 13_000));
        assert_eq!(whole.start_time_unix_nano, ANCHOR.unix_ns - 999_000);
        assert_eq!(of_kind(SpanKind::Internal).map(took).sum::<u64>(), 13_000);
        let names: Vec<&str> = of_kind(SpanKind::Internal).map(|span| span.name.as_str()).collect();
        assert_eq!(names, INTERVALS.map(|interval| interval.name));
        let clients: Vec<&Span> = of_kind(SpanKind::Client).collect();
        assert_eq!(clients.iter().map(|span| took(span)).collect::<Vec<_>>(), [3500, 5900]);
        assert_eq!((clients[0].name.as_str(), clients[1].name.as_str()), ("get 10.0.0.1:11211", "get [::1]:11212"));
        assert!(clients[0].status.is_none() && clients[1].status.as_ref().unwrap().code == 2);
        // The number of keys is that of the whole request, of which a leg may have a part.
        assert_eq!(value(clients[0], "db.operation.batch.size"), None);
        for (key, expected) in [("server.address", "10.0.0.1"), ("server.port", "11211"), ("waystage.took_us", "1.5")] {
            assert_eq!(value(clients[0], key).as_deref(), Some(expected));
        }
        assert_eq!(value(clients[1], "error.type").as_deref(), Some("timeout"));
        assert_eq!((value(clients[0], "waystage.is_hedge"), value(clients[1], "waystage.took_us")), (None, None));
        for span in &spans {
            assert_eq!((span.trace_id.len(), span.span_id.len(), &span.trace_id), (16, 8, &whole.trace_id));
            let parent: &[u8] = if span == whole { &[] } else { &whole.span_id };
            assert_eq!(span.parent_span_id, parent);
        }
        assert_eq!(spans.iter().map(|span| &span.span_id).collect::<HashSet<_>>().len(), spans.len());
    }

    #[test]
    fn attributes_follow_the_conventions_and_keys_are_hashed_unless_asked() {
        let whole = |request, keys| spans_of(request, keys).remove(0);
        let span = whole(request(vec![]), LoggedKeys::Hashed);
        for (key, expected) in [
            ("db.system.name", "memcached"),
            ("db.operation.name", "get"),
            ("db.operation.batch.size", "2"),
            ("client.address", "10.0.0.9"),
            ("client.port", "5000"),
            ("waystage.sequence", "8"),
        ] {
            assert_eq!(value(&span, key).as_deref(), Some(expected), "{key}");
        }
        assert!(value(&span, "waystage.key").unwrap().starts_with("xxh3:"));
        assert_eq!(value(&whole(request(vec![]), LoggedKeys::Plain), "waystage.key").unwrap(), "user:\\x07");
        assert_eq!(value(&whole(request(vec![]), LoggedKeys::Hidden), "waystage.key"), None);
        let alone = EndedRequest { keys: 1, client: None, outcome: Outcome::ClientError, ..request(vec![]) };
        let span = whole(alone, LoggedKeys::Hashed);
        assert_eq!((value(&span, "db.operation.batch.size"), value(&span, "client.address")), (None, None));
        assert!(span.status.is_none() && value(&span, "error.type").as_deref() == Some("client_error"));
    }

    #[test]
    fn a_leg_that_was_never_sent_or_not_answered_breaks_no_order() {
        let never = leg(2, Outcome::BackendDown, [0, 0, 0]);
        let late = leg(7, Outcome::Answered, [8000, 9000, 0]);
        let spans = spans_of(request(vec![never, late]), LoggedKeys::Hidden);
        let clients: Vec<&Span> = spans.iter().filter(|span| span.kind == i32::from(SpanKind::Client)).collect();
        assert_eq!((clients[0].name.as_str(), clients[1].name.as_str()), ("get /run/a", "get"));
        let ended = |name| [clients[0], clients[1]].map(|span| value(span, name).is_some());
        assert_eq!(["waystage.outcome", "error.type", "waystage.hits"].map(ended), [[true, false]; 3]);
        for span in clients {
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            assert_eq!(value(span, "waystage.is_unanswered").as_deref(), Some("true"));
            assert_eq!(value(span, "waystage.took_us"), None);
        }
    }

    #[test]
    fn a_request_that_the_proxy_answers_itself_has_no_span_of_a_stage_without_time() {
        let stamps = [1000, 2000, 2000, 2000, 2000, 2000, 2000, 4000];
        let spans = spans_of(EndedRequest { stamps, ..request(vec![]) }, LoggedKeys::Hidden);
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["get", "parse", "reply"]);
    }

    #[test]
    fn a_collector_reports_rejected_spans_and_garbage_reports_none() {
        use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
        let body = |rejected_spans| {
            let partial = ExportTracePartialSuccess { rejected_spans, error_message: "no".into() };
            ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!(rejected_spans(&body(3)), 3);
        assert_eq!((rejected_spans(&body(-3)), rejected_spans(b""), rejected_spans(b"\xff\xff{}")), (0, 0, 0));
    }

    #[test]
    fn two_processes_have_different_ids() {
        let ids = |mut ids: Ids| (0..1000).map(|_| ids.next()).collect::<HashSet<u64>>();
        let (first, second) = (ids(Ids::default()), ids(Ids::default()));
        assert!(first.len() == 1000 && first.is_disjoint(&second) && !first.contains(&0));
    }
}
