//! Errors as clients receive them: RFC 9457 problem documents. The `type` is stable; title and detail can change.

use crate::interface::problem_types;
use crate::observe::limits::RequestLimit;
use crate::observe::measurements::CLIENT_CLOSED;
use crate::path::failure::Failure;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use records::Outcome;
use serde_json::{Value, json};
use std::time::Duration;

/// Seconds after which the client should retry.
const RETRY_AFTER_S: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The last part of the URN in `type`.
    pub(crate) problem_type: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    retry_after_s: Option<u32>,
    /// The value of `WWW-Authenticate`.
    challenge: Option<&'static str>,
    /// The limit that the `wait` of the request exceeded.
    longest_wait: Option<Duration>,
    /// The limit that the request exceeded.
    pub(crate) limit: Option<RequestLimit>,
}

impl Problem {
    fn new(status: StatusCode, problem_type: &'static str, title: &'static str, detail: impl Into<String>) -> Problem {
        debug_assert!(
            problem_types::find(problem_type).is_some_and(|known| known.status == status.as_u16()),
            "{problem_type} with {status} is not in PROBLEM_TYPES"
        );
        let retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S);
        Problem {
            status,
            problem_type,
            title,
            detail: detail.into(),
            retry_after_s,
            challenge: None,
            longest_wait: None,
            limit: None,
        }
    }

    /// The name of a queue, sender or receiver is not valid.
    pub(crate) fn invalid_name(what: &str) -> Problem {
        let detail = format!(
            "{what}: a name has 1 to {} characters, letters, digits, '_', '-' and '.', and does not start with '-' or '.'",
            crate::interface::rules::NAME_BYTES_MAX
        );
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-name", "Invalid name", detail)
    }

    /// A parameter, header or document cannot be parsed.
    pub(crate) fn invalid_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid-request", "Invalid request", detail)
    }

    /// The request exceeds a limit.
    pub(crate) fn over(limit: RequestLimit, detail: impl Into<String>) -> Problem {
        Problem { limit: Some(limit), ..Problem::invalid_request(detail) }
    }

    /// The request would wait for longer than the limit.
    pub(crate) fn wait_too_long(longest: Duration) -> Problem {
        let detail = format!("wait: the longest is {}", quantity::duration_text(longest));
        Problem { longest_wait: Some(longest), ..Problem::over(RequestLimit::LongPollLimit, detail) }
    }

    /// The message would be deleted before its delay ends.
    pub(crate) fn never_visible(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "never-visible", "Never visible", detail)
    }

    /// The request has no valid token.
    pub(crate) fn unauthorized(detail: &str, is_wrong: bool) -> Problem {
        let challenge =
            if is_wrong { "Bearer realm=\"waystage\", error=\"invalid_token\"" } else { "Bearer realm=\"waystage\"" };
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "A token is required", detail);
        Problem { challenge: Some(challenge), ..problem }
    }

    /// The token does not permit the request.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", "Forbidden", detail)
    }

    /// A web page of another origin has made a browser send the request.
    pub(crate) fn foreign_origin(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "foreign-origin", "Foreign origin", detail)
    }

    /// The body did not arrive in time.
    pub(crate) fn request_timeout(limit: Duration) -> Problem {
        let detail = format!("the body did not arrive within {limit:?}");
        Problem::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", "Request timeout", detail)
    }

    /// The media type of a document is not JSON.
    pub(crate) fn not_json(announced: &str) -> Problem {
        let detail = format!("content-type: {announced:?} is not application/json");
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "Not JSON", detail)
    }

    /// The body is larger than the limit.
    pub(crate) fn too_large(limit_bytes: usize) -> Problem {
        let detail = format!("the limit is {limit_bytes} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "Body too large", detail)
    }

    /// The problem if the HTTP library refuses the request line.
    pub(crate) fn path_too_long() -> Problem {
        let detail = "path and query can have at most 64 KiB";
        Problem::new(StatusCode::URI_TOO_LONG, "path-too-long", "Path too long", detail)
    }

    /// The problem if the HTTP library refuses the head of the request.
    pub(crate) fn head_too_large(detail: &str) -> Problem {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Problem::new(status, "head-too-large", "Head too large", detail)
    }

    /// No operation has this path.
    pub(crate) fn unknown_path() -> Problem {
        let detail = "no operation has this path; see /docs";
        Problem::new(StatusCode::NOT_FOUND, "unknown-path", "Unknown path", detail)
    }

    /// No operation of this path has this method.
    pub(crate) fn method_not_allowed() -> Problem {
        let detail = "this path has other methods; see the header Allow";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
    }

    /// The limit of concurrent long polls is reached.
    pub(crate) fn too_many_polls() -> Problem {
        let detail = "too many requests are waiting for messages";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded", detail)
    }

    /// The outcome of the request in records.
    pub(crate) fn record_outcome(&self) -> Outcome {
        match self.problem_type {
            "overloaded" | "shutting-down" => Outcome::Overloaded,
            "client-closed" => Outcome::ClientGone,
            "database-down" => Outcome::BackendDown,
            "in-doubt" => Outcome::BackendLost,
            _ if self.status == StatusCode::REQUEST_TIMEOUT => Outcome::Timeout,
            _ if self.status.is_client_error() => Outcome::ClientError,
            _ => Outcome::ServerError,
        }
    }

    /// The problem document.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({
            "type": format!("urn:waystage:problem:{}", self.problem_type),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(longest) = self.longest_wait {
            // For programs, because the detail can change.
            document["longest_wait_ms"] = json!(longest.as_millis());
        }
        document
    }

    /// The problem as an HTTP response.
    pub(crate) fn response(&self) -> Response {
        let mut response = Response::new(self.document().to_string().into());
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
            // The rest of the body could be taken for the next request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The status that nginx logs for a client that closed the connection. A client that closed only its sending side receives it.
fn client_closed() -> StatusCode {
    StatusCode::from_u16(CLIENT_CLOSED).unwrap_or(StatusCode::BAD_REQUEST)
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let detail = failure.to_string();
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match failure {
            Failure::UnknownQueue => Problem::new(StatusCode::NOT_FOUND, "unknown-queue", "Unknown queue", detail),
            Failure::NeverVisible => Problem::never_visible(detail),
            Failure::UnknownDeadLetterQueue => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "unknown-dead-letter-queue",
                "Unknown dead-letter queue",
                detail,
            ),
            Failure::LeaseExpired => Problem::new(StatusCode::GONE, "lease-expired", "Lease expired", detail),
            Failure::KeyReused => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Problem::new(status, "idempotency-key-reused", "Idempotency key reused", detail)
            }
            Failure::Overloaded | Failure::OverQuota | Failure::OutOfMemory | Failure::OutOfShare => {
                Problem::new(unavailable, "overloaded", "Overloaded", detail)
            }
            Failure::ClientClosed => Problem::new(client_closed(), "client-closed", "Client closed", detail),
            Failure::ShuttingDown => Problem::new(unavailable, "shutting-down", "Shutting down", detail),
            Failure::DatabaseDown | Failure::ConnectionRefused(_) => {
                Problem::new(unavailable, "database-down", "The database is down", detail)
            }
            Failure::NotReady(_) => Problem::new(unavailable, "not-ready", "Not ready", detail),
            Failure::InDoubt | Failure::PartlyApplied(_) => {
                Problem::new(unavailable, "in-doubt", "Outcome unknown", detail)
            }
            Failure::DatabaseError(_) | Failure::Refused(_) | Failure::KeyLocked => {
                Problem::new(unavailable, "database-error", "Database error", detail)
            }
            Failure::Damaged(_) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Problem::new(status, "database-damaged", "The database is damaged", detail)
            }
            Failure::Internal(_) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal-error", "Internal error", detail)
            }
        }
    }
}
