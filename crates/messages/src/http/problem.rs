//! What a client is told when something cannot be done: RFC 9457 problem documents. The `type` is stable; the words may change.

use crate::interface::problem_types;
use crate::path::failure::Failure;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use records::Outcome;
use serde_json::json;
use std::time::Duration;

/// Seconds after which it may be worth trying again.
const RETRY_AFTER_S: u32 = 1;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The last word of the `type`.
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    retry_after_s: Option<u32>,
    /// How to show who one is.
    challenge: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Problem {
        debug_assert!(
            problem_types::find(kind).is_some_and(|known| known.status == status.as_u16()),
            "{kind} with {status} is not in the list of kinds"
        );
        let retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S);
        Problem { status, kind, title, detail: detail.into(), retry_after_s, challenge: None }
    }

    /// A queue, a sender or a receiver with a name that is not allowed.
    pub(crate) fn name(what: &str) -> Problem {
        let detail = format!(
            "{what}: a name has 1 to {} characters, letters, digits, '_', '-' and '.', and does not begin with '-' or '.'",
            crate::interface::rules::NAME_BYTES_MAX
        );
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "name-not-allowed", "Name not allowed", detail)
    }

    /// A parameter, a header or a document that cannot be read.
    pub(crate) fn unreadable(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "unreadable", "The request cannot be read", detail)
    }

    /// Nobody knows who asks.
    pub(crate) fn no_token(detail: &str, is_wrong: bool) -> Problem {
        let challenge =
            if is_wrong { "Bearer realm=\"waystage\", error=\"invalid_token\"" } else { "Bearer realm=\"waystage\"" };
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "no-token", "A token is needed", detail);
        Problem { challenge: Some(challenge), ..problem }
    }

    /// Somebody may not do this.
    pub(crate) fn not_allowed(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "not-allowed", "Not allowed", detail)
    }

    /// A body that does not come.
    pub(crate) fn too_slow(limit: Duration) -> Problem {
        let detail = format!("the body was not there after {limit:?}");
        Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "Too slow", detail)
    }

    /// A document that is announced as something else.
    pub(crate) fn not_json(announced: &str) -> Problem {
        let detail = format!("content-type: {announced:?} is not application/json");
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "Not JSON", detail)
    }

    /// A body over the limit.
    pub(crate) fn too_large(limit_bytes: usize) -> Problem {
        let detail = format!("at most {limit_bytes} bytes are taken here");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "Body too large", detail)
    }

    /// A path that means nothing.
    pub(crate) fn no_such_path() -> Problem {
        let detail = "/docs has every path";
        Problem::new(StatusCode::NOT_FOUND, "no-such-path", "No such path", detail)
    }

    /// A method that this path does not have.
    pub(crate) fn method() -> Problem {
        let detail = "this path has other methods; see Allow";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
    }

    /// Too many requests poll.
    pub(crate) fn too_many_polls() -> Problem {
        let detail = "too many requests wait for messages";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded", detail)
    }

    /// The outcome of the request in records.
    pub(crate) fn record_outcome(&self) -> Outcome {
        match self.kind {
            "overloaded" | "ending" => Outcome::Overloaded,
            "database-down" => Outcome::BackendDown,
            "in-doubt" => Outcome::BackendLost,
            _ if self.status == StatusCode::REQUEST_TIMEOUT => Outcome::Timeout,
            _ if self.status.is_client_error() => Outcome::ClientError,
            _ => Outcome::ServerError,
        }
    }

    /// As a response.
    pub(crate) fn response(&self) -> Response {
        let document = json!({
            "type": format!("urn:waystage:problem:{}", self.kind),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = Response::new(document.to_string().into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(challenge) = self.challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if self.status == StatusCode::REQUEST_TIMEOUT {
            // What comes of the body later is no request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let detail = failure.to_string();
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match failure {
            Failure::UnknownQueue => Problem::new(StatusCode::NOT_FOUND, "unknown-queue", "Unknown queue", detail),
            Failure::UnknownDeadLetters => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "unknown-dead-letters",
                "Unknown queue for dead letters",
                detail,
            ),
            Failure::LeaseExpired => Problem::new(StatusCode::GONE, "lease-expired", "Lease expired", detail),
            Failure::KeyReused => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Problem::new(status, "idempotency-key-reused", "Idempotency key reused", detail)
            }
            Failure::Overloaded | Failure::OutOfMemory => Problem::new(unavailable, "overloaded", "Overloaded", detail),
            Failure::Ending => Problem::new(unavailable, "ending", "The service is ending", detail),
            Failure::DatabaseDown => Problem::new(unavailable, "database-down", "The database is down", detail),
            Failure::InDoubt => Problem::new(unavailable, "in-doubt", "Nobody knows whether it was done", detail),
            Failure::DatabaseRefuses(_) => {
                Problem::new(unavailable, "database-refuses", "The database cannot do this now", detail)
            }
            Failure::Unexpected(_) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unexpected", "This should not happen", detail)
            }
        }
    }
}
