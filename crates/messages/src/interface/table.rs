//! The table of all operations. The router and the description (`/openapi.json`, `/docs`) are made from these rows, so that neither can
//! omit an operation. A new operation is a new row.

use crate::interface::operation::{Body, Content, Does, Method, Operation, Reply, reply};
use crate::interface::{lease_operations, message_operations, queue_operations};
use crate::path::parse::queues;

/// Every operation, in the order in which they are shown, by subject.
pub(crate) const SUBJECTS: &[(&str, &[Operation])] = &[
    ("queues", queue_operations::OPERATIONS),
    ("messages", message_operations::OPERATIONS),
    ("leases", lease_operations::OPERATIONS),
    ("service", SERVICE_OPERATIONS),
];

/// Every operation.
pub(crate) fn operations() -> impl Iterator<Item = &'static Operation> {
    SUBJECTS.iter().flat_map(|(_, operations)| operations.iter())
}

/// Operations on the service itself.
const SERVICE_OPERATIONS: &[Operation] = &[
    get("/healthz", "health", Does::Alive, "Says that the service is alive.", &[reply(200, TEXT, "It is.")]),
    get(
        "/readyz",
        "ready",
        Does::Work(queues::probe),
        "Asks the database whether it is there.",
        &[reply(204, Content::Nothing, "It is there.")],
    ),
    get(
        "/metrics",
        "metrics",
        Does::Metrics,
        "Counts and times, for Prometheus.",
        &[reply(200, TEXT, "The page, in the text format.")],
    ),
    get(
        "/openapi.json",
        "description",
        Does::Description,
        "This description, for programs.",
        &[reply(200, Content::Text("application/json"), "OpenAPI 3.1.")],
    ),
    get(
        "/docs",
        "page",
        Does::Page,
        "This description, for people.",
        &[reply(200, Content::Text("text/html"), "One page that needs nothing else.")],
    ),
];

const TEXT: Content = Content::Text("text/plain");

const fn get(
    path: &'static str,
    id: &'static str,
    does: Does,
    says: &'static str,
    replies: &'static [Reply],
) -> Operation {
    Operation {
        method: Method::Get,
        path,
        does,
        id,
        says,
        more: "",
        takes: &[],
        body: Body::Nothing,
        replies,
        problems: &[],
    }
}
