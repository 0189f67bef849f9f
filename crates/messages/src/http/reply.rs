//! Turns an answer into an HTTP response: one message as its bytes, several as JSON, no message as 204.

use crate::interface::documents;
use crate::path::memory::Reservation;
use crate::path::parse::request::ReplyFormat;
use crate::path::work::{Answer, Message};
use crate::path::work::{COUNT_MAX, QueueState};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::time::Duration;

/// Marks the reply to a repeated send, which stored nothing.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Makes the response in the requested format. The bytes of messages stay reserved until the client has received them.
pub(crate) fn response(answer: Answer, format: ReplyFormat, reservation: Option<Reservation>) -> Response {
    let body = |bytes: Vec<u8>| match reservation {
        Some(reservation) => Body::from(Bytes::from_owner(reservation.of(bytes))),
        None => Body::from(bytes),
    };
    match answer {
        Answer::Stored(ids) => stored(&ids, format),
        Answer::Replayed(ids) => {
            let mut response = stored(&ids, format);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Answer::Messages(mut messages) => match format {
            ReplyFormat::Bytes => {
                messages.pop().map_or_else(|| empty(StatusCode::NO_CONTENT), |message| one(message, body))
            }
            ReplyFormat::Json => {
                let messages = messages.iter().map(as_document).collect();
                as_json(StatusCode::OK, body(json(&documents::Messages { messages })))
            }
        },
        Answer::Queues(names) => document(StatusCode::OK, &documents::Queues { queues: &names }),
        Answer::Created(true) => empty(StatusCode::CREATED),
        Answer::Queue(queue) => document(StatusCode::OK, &queue_document(&queue)),
        Answer::ExpiredLeases(unsettled) if format == ReplyFormat::Json => {
            document(StatusCode::OK, &documents::NotAcknowledged { not_acknowledged: unsettled })
        }
        Answer::Created(false) | Answer::Deleted | Answer::ExpiredLeases(_) => empty(StatusCode::NO_CONTENT),
    }
}

fn stored(ids: &[i64], format: ReplyFormat) -> Response {
    match (format, ids) {
        (ReplyFormat::Bytes, &[id]) => document(StatusCode::CREATED, &documents::Stored { id }),
        _ => document(StatusCode::CREATED, &documents::StoredBatch { ids }),
    }
}

fn document(status: StatusCode, value: &impl Serialize) -> Response {
    as_json(status, Body::from(json(value)))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Serializing plain structs with string keys cannot fail.
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
    if let Some(leased) = &message.lease {
        put("waystage-attempt", leased.attempt.into());
        put(
            "waystage-lease-token",
            HeaderValue::from_str(&leased.token.to_string()).unwrap_or(HeaderValue::from_static("?")),
        );
    }
    let names = [
        ("waystage-queue", &message.queue),
        ("waystage-sender", &message.sender),
        ("waystage-receiver", &message.receiver),
    ];
    for (name, value) in names.into_iter().filter(|(_, value)| !value.is_empty()) {
        // Valid names are valid header values, but another program may have written other names into the table.
        put(name, HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static("?")));
    }
    let mut response = Response::new(body(message.body));
    *response.headers_mut() = headers;
    response
}

fn as_document(message: &Message) -> documents::MessageDocument<'_> {
    let leased = message.lease.as_ref();
    documents::MessageDocument {
        id: message.id,
        queue: &message.queue,
        sender: &message.sender,
        receiver: (!message.receiver.is_empty()).then_some(message.receiver.as_str()),
        sent_unix_us: message.sent_unix_us,
        body_base64: STANDARD.encode(&message.body),
        lease_token: leased.map(|leased| leased.token.to_string()),
        attempt: leased.map(|leased| leased.attempt),
    }
}

fn queue_document(queue: &QueueState) -> documents::QueueDocument<'_> {
    let settings = &queue.settings;
    let time = |time_ms: Option<i64>| {
        time_ms.map(|time_ms| quantity::duration_text(Duration::from_millis(time_ms.unsigned_abs())))
    };
    documents::QueueDocument {
        name: &queue.name,
        attempts: settings.attempts,
        dead_letter_queue: settings.dead_letter_queue.as_deref(),
        expiry: time(settings.expiry_ms),
        lease: time(settings.lease_ms),
        visible: queue.visible,
        invisible: queue.invisible,
        counted_up_to: COUNT_MAX,
    }
}
