//! The table of all operations. The router and the description (`/openapi.json`, `/docs`) are made from it, so that neither can omit an
//! operation. A new operation is a new row.

use crate::interface::operation::{Body, Content, Handler, Method, Operation, Reply, reply};
use crate::interface::{lease_operations, message_operations, queue_operations};

/// All operations by subject, in the order of the description.
pub(crate) const SUBJECTS: &[(&str, &[Operation])] = &[
    ("queues", queue_operations::OPERATIONS),
    ("messages", message_operations::OPERATIONS),
    ("leases", lease_operations::OPERATIONS),
    ("service", SERVICE_OPERATIONS),
];

/// All operations.
pub(crate) fn operations() -> impl Iterator<Item = &'static Operation> {
    SUBJECTS.iter().flat_map(|(_, operations)| operations.iter())
}

/// Operations on the service itself.
const SERVICE_OPERATIONS: &[Operation] = &[
    get("/healthz", "health", Handler::Alive, "Checks that the service is alive.", &[reply(200, TEXT, "It is.")]),
    Operation {
        problems: &["database-down", "not-ready"],
        ..get(
            "/readyz",
            "ready",
            Handler::Ready,
            "Reports whether the database answered within the last seconds and accepts writes, and all background loops make progress.",
            &[reply(204, Content::Nothing, "The service is ready.")],
        )
    },
    get(
        "/metrics",
        "metrics",
        Handler::Metrics,
        "Metrics for Prometheus.",
        &[reply(200, TEXT, "Metrics in the text format.")],
    ),
    get(
        "/openapi.json",
        "description",
        Handler::Description,
        "This description in OpenAPI 3.1.",
        &[reply(200, Content::Text("application/json"), "OpenAPI 3.1.")],
    ),
    get(
        "/docs",
        "page",
        Handler::Page,
        "This description as a page.",
        &[reply(200, Content::Text("text/html"), "A page without external resources.")],
    ),
];

const TEXT: Content = Content::Text("text/plain");

const fn get(
    path: &'static str,
    id: &'static str,
    handler: Handler,
    summary: &'static str,
    replies: &'static [Reply],
) -> Operation {
    Operation {
        method: Method::Get,
        path,
        handler,
        id,
        permission: None,
        summary,
        details: "",
        parameters: &[],
        body: Body::Nothing,
        replies,
        problems: &[],
    }
}
