//! Stations 1 and 8. HTTP: which path is which operation, the body within its limit, the times on every reply. Knows no SQL.

use crate::admit::Admission;
use crate::config::Limits;
use crate::journal::{Journal, kind, server_timing};
use crate::metrics;
use crate::parse::{self, Asked, Exchange, Read};
use crate::problem::Problem;
use crate::reply;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use axum::routing::{get, post, put};
use clock::{Clock, Stage, StageClock};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What every request needs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) admission: Admission,
    pub(crate) journal: Arc<Journal>,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
}

type Shared = Arc<Service>;
type Names = Result<Path<HashMap<String, String>>, PathRejection>;
type Reply = Pin<Box<dyn Future<Output = Response> + Send>>;

/// All paths.
pub(crate) fn router(service: Shared) -> Router {
    let queue = put(at(parse::create_queue)).delete(at(parse::delete_queue)).get(at(parse::show_queue));
    Router::new()
        .route("/v1/queues", get(at(parse::list_queues)))
        .route("/v1/queues/{queue}", queue)
        .route("/v1/queues/{queue}/messages", post(at(parse::send)))
        .route("/v1/queues/{queue}/messages:batch", post(at(parse::send_batch)))
        .route("/v1/queues/{queue}/messages/head", get(at(parse::head)))
        .route("/v1/queues/{queue}/messages:pop", post(at(parse::pop)))
        .route("/v1/messages/head", get(at(parse::head_everywhere)))
        .route("/v1/messages:pop", post(at(parse::pop_everywhere)))
        .route("/v1/receivers/{receiver}/queues", get(at(parse::waiting_queues)))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(at(parse::probe)))
        .route("/metrics", get(metrics_page))
        .fallback(at(|_| Err(Problem::no_such_path())))
        .method_not_allowed_fallback(at(|_| Err(Problem::method())))
        .with_state(service)
}

/// The handler of an operation that this function reads.
fn at(read: Read) -> impl Fn(State<Shared>, Names, Request) -> Reply + Clone {
    move |State(service): State<Shared>, names: Names, request: Request| -> Reply {
        // A path that cannot be decoded has no names in it, which is then what is said.
        let path = names.map_or_else(|_| HashMap::new(), |Path(path)| path);
        Box::pin(through(service, read, path, request))
    }
}

/// The way of one request, from its last byte to its response.
async fn through(service: Shared, read: Read, path: HashMap<String, String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = read_body(body, &parts.headers, &service.limits, parts.uri.path()).await;
    let mut clock = StageClock::started(service.clock.now());
    let asked = body.and_then(|body| {
        read(&Exchange { path: &path, uri: &parts.uri, headers: &parts.headers, body, limits: &service.limits })
    });
    clock.stamp(Stage::Parsed, service.clock.now());
    let (kind, outcome) = match asked {
        Ok(Asked { work, shape, wait }) => (
            kind(&work),
            service.admission.ask(work, wait, &mut clock).await.map(|answer| reply::response(answer, shape)),
        ),
        Err(problem) => ("other", Err(problem)),
    };
    let mut response = outcome.unwrap_or_else(|problem| problem.response());
    clock.stamp(Stage::Replied, service.clock.now());
    clock.finish();
    service.journal.end(kind, response.status().as_u16(), &clock);
    if let Ok(value) = HeaderValue::from_str(&server_timing(&clock)) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
    response
}

/// The whole body. What says beforehand that it is too large is not read.
async fn read_body(body: Body, headers: &axum::http::HeaderMap, limits: &Limits, path: &str) -> Result<Bytes, Problem> {
    let limit =
        if path.ends_with(":batch") { limits.statement_bytes.max(limits.body_bytes) } else { limits.body_bytes };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > limit) {
        return Err(Problem::too_large(limit));
    }
    axum::body::to_bytes(body, limit).await.map_err(|error| {
        let is_too_large =
            std::error::Error::source(&error).is_some_and(|cause| cause.to_string().contains("length limit"));
        if is_too_large { Problem::too_large(limit) } else { Problem::unreadable("the body ended too early") }
    })
}

async fn metrics_page(State(service): State<Shared>) -> Response {
    let admission = &service.admission;
    let page = metrics::page(&service.journal.counts(), &admission.dispatcher.waiting(), admission.waiting.polls());
    let mut response = Response::new(Body::from(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
