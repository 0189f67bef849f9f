//! Turns an answer into an HTTP response: one message as its bytes, several as JSON, no message as 204.

use crate::http::message_list::{MessageList, json, json_bytes};
use crate::interface::documents;
use crate::path::memory::Reservation;
use crate::path::parse::request::ReplyFormat;
use crate::path::work::{Answer, Message};
use crate::path::work::{COUNT_MAX, QueueState};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use std::time::Duration;

/// Marks the reply to a repeated send, which stored nothing.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Builds the response in the requested format. Its memory is reserved before it is built, and until the client has received it. Messages
/// bring their reservation; for other documents that can be large, use `reserve`.
pub(crate) fn response(
    answer: Answer,
    format: ReplyFormat,
    reservation: Option<Reservation>,
    reserve: impl FnOnce() -> Reservation,
) -> Response {
    match answer {
        Answer::Stored(ids) => stored(&ids, format),
        Answer::Replayed(ids) => {
            let mut response = stored(&ids, format);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Answer::Messages(mut messages) => match format {
            ReplyFormat::Bytes => {
                messages.pop().map_or_else(|| empty(StatusCode::NO_CONTENT), |message| one(message, reservation))
            }
            ReplyFormat::Json => {
                let list = MessageList::new(messages, reservation.unwrap_or_else(reserve));
                as_json(StatusCode::OK, Body::new(list))
            }
        },
        Answer::Queues { names, next } => {
            large(&documents::Queues { queues: &names, next: next.as_deref() }, reserve())
        }
        Answer::Created(true) => empty(StatusCode::CREATED),
        Answer::Queue(queue) => document(StatusCode::OK, &queue_document(&queue)),
        Answer::ExpiredLeases(unsettled) if format == ReplyFormat::Json => {
            large(&documents::NotAcknowledged { not_acknowledged: unsettled }, reserve())
        }
        Answer::Created(false) | Answer::Deleted | Answer::ExpiredLeases(_) | Answer::Returned(_) => {
            empty(StatusCode::NO_CONTENT)
        }
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

/// A document whose size depends on the request.
fn large(value: &impl Serialize, mut reservation: Reservation) -> Response {
    let bytes = reservation.replace(0, json_bytes(value), || json(value));
    as_json(StatusCode::OK, Body::from(Bytes::from_owner(bytes)))
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

fn one(message: Message, reservation: Option<Reservation>) -> Response {
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
    if let Some(text) = message.dead_letter.as_ref().and_then(|letter| serde_json::to_string(letter).ok()) {
        put("waystage-dead-letter", HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("?")));
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
    let body = match reservation {
        Some(mut reservation) => {
            let bytes = message.body.len();
            Body::from(Bytes::from_owner(reservation.replace(bytes, bytes, || message.body)))
        }
        None => Body::from(message.body),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    response
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
        backoff: time(settings.backoff_ms),
        visible: queue.visible,
        invisible: queue.invisible,
        counted_up_to: COUNT_MAX,
    }
}
