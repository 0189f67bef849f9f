//! Station 7. An answer becomes a response: one message as its bytes, several as JSON, nothing as 204.

use crate::interface::documents;
use crate::path::memory::Held;
use crate::path::parse::request::Shape;
use crate::path::work::{Answer, Message};
use crate::path::work::{COUNTED, QueueState};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::time::Duration;

/// Says that nothing was stored now, since it had been stored before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Puts an answer into the form that was asked for. The bytes of messages count as held until the client has taken them.
pub(crate) fn response(answer: Answer, shape: Shape, held: Option<Held>) -> Response {
    let body = |bytes: Vec<u8>| match held {
        Some(held) => Body::from(Bytes::from_owner(held.of(bytes))),
        None => Body::from(bytes),
    };
    match answer {
        Answer::Stored(ids) => stored(&ids, shape),
        Answer::Replayed(ids) => {
            let mut response = stored(&ids, shape);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Answer::Messages(mut messages) => match shape {
            Shape::One => messages.pop().map_or_else(|| empty(StatusCode::NO_CONTENT), |message| one(message, body)),
            Shape::Document => {
                let messages = messages.iter().map(as_document).collect();
                as_json(StatusCode::OK, body(json(&documents::Messages { messages })))
            }
        },
        Answer::Queues(names) => document(StatusCode::OK, &documents::Queues { queues: &names }),
        Answer::Created(true) => empty(StatusCode::CREATED),
        Answer::Queue(queue) => document(StatusCode::OK, &queue_document(&queue)),
        Answer::Settled(unsettled) if shape == Shape::Document => {
            document(StatusCode::OK, &documents::NotAcknowledged { not_acknowledged: unsettled })
        }
        Answer::Created(false) | Answer::Deleted | Answer::Present | Answer::Settled(_) => {
            empty(StatusCode::NO_CONTENT)
        }
    }
}

fn stored(ids: &[i64], shape: Shape) -> Response {
    match (shape, ids) {
        (Shape::One, &[id]) => document(StatusCode::CREATED, &documents::Stored { id }),
        _ => document(StatusCode::CREATED, &documents::StoredBatch { ids }),
    }
}

/// A JSON document.
fn document(status: StatusCode, value: &impl Serialize) -> Response {
    as_json(status, Body::from(json(value)))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Plain structs with names for keys: there is nothing that could fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn as_json(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn one(message: Message, body: impl FnOnce(Vec<u8>) -> Body) -> Response {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: HeaderValue| headers.insert(HeaderName::from_static(name), value);
    put("content-type", HeaderValue::from_static("application/octet-stream"));
    put("waystage-message", message.id.into());
    put("waystage-sent-unix-us", message.sent_unix_us.into());
    if let Some(leased) = &message.leased {
        put("waystage-attempt", leased.attempt.into());
        put(
            "waystage-lease",
            HeaderValue::from_str(&leased.lease.to_string()).unwrap_or(HeaderValue::from_static("?")),
        );
    }
    let names = [
        ("waystage-queue", &message.queue),
        ("waystage-sender", &message.sender),
        ("waystage-receiver", &message.receiver),
    ];
    for (name, value) in names.into_iter().filter(|(_, value)| !value.is_empty()) {
        // The rules for names allow nothing that a header could not hold; somebody else may have written into the table.
        put(name, HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static("?")));
    }
    let mut response = Response::new(body(message.body));
    *response.headers_mut() = headers;
    response
}

fn as_document(message: &Message) -> documents::Message<'_> {
    let leased = message.leased.as_ref();
    documents::Message {
        id: message.id,
        queue: &message.queue,
        sender: &message.sender,
        receiver: (!message.receiver.is_empty()).then_some(message.receiver.as_str()),
        sent_unix_us: message.sent_unix_us,
        body_base64: STANDARD.encode(&message.body),
        lease: leased.map(|leased| leased.lease.to_string()),
        attempt: leased.map(|leased| leased.attempt),
    }
}

fn queue_document(queue: &QueueState) -> documents::Queue<'_> {
    let settings = &queue.settings;
    let time = |time_ms: Option<i64>| {
        time_ms.map(|time_ms| quantity::duration_text(Duration::from_millis(time_ms.unsigned_abs())))
    };
    documents::Queue {
        name: &queue.name,
        attempts: settings.attempts,
        dead_letters: settings.dead_letters.as_deref(),
        expiry: time(settings.expiry_ms),
        lease: time(settings.lease_ms),
        waiting: queue.waiting,
        held: queue.held,
        counted_up_to: COUNTED,
    }
}
