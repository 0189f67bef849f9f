//! All problem types with their status. The description of the interface is made from this list, and only problems in it can be returned.

/// A problem type.
#[derive(Debug)]
pub(crate) struct ProblemType {
    /// The last part of the URN in `type`.
    pub(crate) name: &'static str,
    pub(crate) status: u16,
    pub(crate) description: &'static str,
}

pub(crate) const PROBLEM_TYPES: &[ProblemType] = &[
    problem_type("invalid-request", 400, "a parameter, a header or the document is invalid; nothing was done"),
    problem_type("unauthorized", 401, "the bearer token is missing or unknown; nothing was done"),
    problem_type("forbidden", 403, "the token does not permit this; nothing was done"),
    problem_type("foreign-origin", 403, "a web page of another origin made a browser send this; nothing was done"),
    problem_type("unknown-path", 404, "no operation has this path"),
    problem_type("unknown-queue", 404, "no queue has this name"),
    problem_type("method-not-allowed", 405, "the path has other methods, listed in the header `Allow`"),
    problem_type("request-timeout", 408, "the body did not arrive in time; nothing was done"),
    problem_type(
        "lease-expired",
        410,
        "the lease has expired or never existed; for an acknowledgement, another client has taken the message",
    ),
    problem_type("body-too-large", 413, "the body exceeds the limit"),
    problem_type("not-json", 415, "the media type of the body is not JSON"),
    problem_type("invalid-name", 422, "the name of a queue, sender or receiver is not valid"),
    problem_type(
        "never-visible",
        422,
        "the delay is not shorter than the expiry of the message or of its queue; nothing was done",
    ),
    problem_type("unknown-dead-letter-queue", 422, "the dead-letter queue does not exist"),
    problem_type("idempotency-key-reused", 422, "the key was used with other bodies or receivers; nothing was done"),
    problem_type("path-too-long", 414, "path and query exceed 64 KiB; nothing was done"),
    problem_type("head-too-large", 431, "the head of the request exceeds 64 KiB or 100 headers; nothing was done"),
    problem_type(
        "client-closed",
        499,
        "the client closed its side of the connection before the request was executed; nothing was done",
    ),
    problem_type("internal-error", 500, "a bug, or a trigger or constraint of another program; nothing was done"),
    problem_type(
        "database-damaged",
        500,
        "data that the request needs are damaged or missing in the database, and an operator must restore them; nothing was done",
    ),
    problem_type("overloaded", 503, "a limit of waiting requests, connections or memory is reached; nothing was done"),
    problem_type("shutting-down", 503, "the service is shutting down; nothing was done"),
    problem_type("database-down", 503, "the database is unreachable; nothing was done"),
    problem_type(
        "not-ready",
        503,
        "the database is read-only or refuses connections, a privilege or a table is missing, a lane has no connection or is stuck, or a background loop is stuck",
    ),
    problem_type(
        "database-error",
        503,
        "the database is full, read-only, too slow, out of memory or cannot use its files, something else has locked what the request needs, or a privilege or a table is missing; nothing was done",
    ),
    problem_type(
        "in-doubt",
        503,
        "the outcome is unknown: the connection to the database broke during the request, or a batch of acknowledgements was applied in part",
    ),
];

/// The problem types of every operation that uses the database.
pub(crate) const COMMON_PROBLEMS: &[&str] = &[
    "invalid-request",
    "foreign-origin",
    "request-timeout",
    "body-too-large",
    "client-closed",
    "internal-error",
    "database-damaged",
    "overloaded",
    "shutting-down",
    "database-down",
    "database-error",
];

const fn problem_type(name: &'static str, status: u16, description: &'static str) -> ProblemType {
    ProblemType { name, status, description }
}

/// The problem types of every operation that requires a token.
pub(crate) const TOKEN_PROBLEMS: &[&str] = &["unauthorized", "forbidden"];

/// The problem type of this name.
pub(crate) fn find(name: &str) -> Option<&'static ProblemType> {
    PROBLEM_TYPES.iter().find(|problem_type| problem_type.name == name)
}
