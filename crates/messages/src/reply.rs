//! Station 7. An answer becomes a response: one message as its bytes, several as JSON, nothing as 204.

use crate::parse::Shape;
use crate::work::{Answer, Message};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Puts an answer into the form that was asked for.
pub(crate) fn response(answer: Answer, shape: Shape) -> Response {
    match answer {
        Answer::Stored(ids) => match (shape, ids.as_slice()) {
            (Shape::One, [id]) => document(StatusCode::CREATED, &json!({ "id": id })),
            _ => document(StatusCode::CREATED, &json!({ "ids": ids })),
        },
        Answer::Messages(mut messages) => match shape {
            Shape::One => messages.pop().map_or_else(|| empty(StatusCode::NO_CONTENT), one),
            Shape::Document => {
                let messages: Vec<Value> = messages.iter().map(as_json).collect();
                document(StatusCode::OK, &json!({ "messages": messages }))
            }
        },
        Answer::Queues(names) => document(StatusCode::OK, &json!({ "queues": names })),
        Answer::Created(true) => empty(StatusCode::CREATED),
        Answer::Created(false) | Answer::Deleted | Answer::Shown => empty(StatusCode::NO_CONTENT),
    }
}

/// A JSON document.
pub(crate) fn document(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn one(message: Message) -> Response {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: HeaderValue| headers.insert(HeaderName::from_static(name), value);
    put("content-type", HeaderValue::from_static("application/octet-stream"));
    put("waystage-message", message.id.into());
    put("waystage-sent-unix-us", message.sent_unix_us.into());
    let names = [
        ("waystage-queue", &message.queue),
        ("waystage-sender", &message.sender),
        ("waystage-receiver", &message.receiver),
    ];
    for (name, value) in names.into_iter().filter(|(_, value)| !value.is_empty()) {
        // The rules for names allow nothing that a header could not hold; somebody else may have written into the table.
        put(name, HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static("?")));
    }
    let mut response = Response::new(Body::from(message.body));
    *response.headers_mut() = headers;
    response
}

fn as_json(message: &Message) -> Value {
    let receiver = (!message.receiver.is_empty()).then_some(&message.receiver);
    json!({
        "id": message.id,
        "queue": message.queue,
        "sender": message.sender,
        "receiver": receiver,
        "sent_unix_us": message.sent_unix_us,
        "body_base64": STANDARD.encode(&message.body),
    })
}
