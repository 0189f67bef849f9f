//! Operations on the service itself.

use super::{Body, Content, Does, Method, Operation, Reply, reply};
use crate::parse;

pub(super) const OPERATIONS: &[Operation] = &[
    get("/healthz", "health", Does::Alive, "Says that the service is alive.", &[reply(200, TEXT, "It is.")]),
    get(
        "/readyz",
        "ready",
        Does::Work(parse::probe),
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
