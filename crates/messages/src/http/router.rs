//! The routes of the HTTP framework, made from the table of operations. Constant pages and metrics are answered here, all other requests in
//! `handle`. Frequent requests do not come here: see `routes`.

use crate::http::handle::{Service, handle};
use crate::http::origin::Origin;
use crate::http::problem::Problem;
use crate::interface::operation::{Handler, Method, Operation};
use crate::interface::{openapi, page, table};
use crate::observe::metrics::{self, MetricsSnapshot};
use crate::path::parse::request::PathParameter;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use clock::Process;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer, ExposeHeaders};

/// How long a browser may keep the answer to a preflight request.
const PREFLIGHT_VALID: Duration = Duration::from_secs(600);

type Names = Result<Path<HashMap<String, String>>, PathRejection>;
type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The operations at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// For clients: queues and messages.
    Clients,
    /// For operators: readiness, metrics and the OpenAPI description.
    Admin,
}

impl Part {
    pub(super) fn has(self, handler: Handler) -> bool {
        match (self, handler) {
            (Part::All, _) | (_, Handler::Alive) => true,
            (Part::Clients, _) => matches!(handler, Handler::Work(_)),
            (Part::Admin, _) => !matches!(handler, Handler::Work(_)),
        }
    }
}

/// The router with the operations of the table in this part.
pub(super) fn router(service: Arc<Service>, part: Part) -> Router {
    let text = openapi::text(&service.limits, !service.tokens.is_empty());
    let page = page::html(&serde_json::from_str(&text).unwrap_or_default());
    let (text, page) = (Bytes::from(text), Bytes::from(page));
    let mut router = Router::new();
    for operation in table::operations().filter(|operation| part.has(operation.handler)) {
        let method = filter(operation.method);
        let handler = match operation.handler {
            Handler::Work(_) => on(method, at(Ok(operation))),
            Handler::Alive => on(method, async || fixed("text/plain; charset=utf-8", "ok\n".into())),
            Handler::Ready => on(method, readiness),
            Handler::Metrics => on(method, metrics_page),
            Handler::Description => {
                let text = text.clone();
                on(method, async move || fixed("application/json", text))
            }
            Handler::Page => {
                let page = page.clone();
                on(method, async move || fixed("text/html; charset=utf-8", page))
            }
        };
        router = router.route(operation.path, handler);
    }
    let origins = service.browsers.cors_origins();
    let cors = (!origins.is_empty()).then(|| cors(origins));
    let router = router
        .fallback(at(Err(Problem::unknown_path)))
        .method_not_allowed_fallback(at(Err(Problem::method_not_allowed)))
        .with_state(service);
    match cors {
        Some(cors) => router.layer(cors),
        None => router,
    }
}

/// Lets the pages of these origins use the service.
fn cors(origins: &[String]) -> CorsLayer {
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(ExposeHeaders::any())
        .max_age(PREFLIGHT_VALID)
}

fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Put => MethodFilter::PUT,
        Method::Post => MethodFilter::POST,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// A constant page.
fn fixed(media_type: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    // The HTML page contains its style. No page loads anything else.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// The axum handler of an operation, or of requests that have no operation.
fn at(
    operation: Result<&'static Operation, fn() -> Problem>,
) -> impl Fn(State<Arc<Service>>, Names, Request) -> ResponseFuture + Clone {
    move |State(service): State<Arc<Service>>, names: Names, request: Request| -> ResponseFuture {
        let mut names = names.map_or_else(|_| HashMap::new(), |Path(names)| names);
        let known = operation.ok().and_then(Operation::path_parts);
        // A path that cannot be decoded yields no names, and parsing then reports the missing name.
        let path = known.and_then(|(_, name, _)| Some(PathParameter { name, value: names.remove(name)? }));
        let operation = operation.map_err(|problem| problem());
        Box::pin(async move {
            match request.extensions().get::<Arc<Origin>>().cloned() {
                Some(origin) => handle(service, operation, path.unwrap_or_default(), origin, request).await,
                None => Problem::unknown_path().response(),
            }
        })
    }
}

async fn readiness(State(service): State<Arc<Service>>) -> Response {
    match service.health.check() {
        Ok(()) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Err(failure) => Problem::from(failure).response(),
    }
}

async fn metrics_page(State(service): State<Arc<Service>>, mut headers: HeaderMap) -> Response {
    if service.metrics_need_token
        && let Err(problem) = service.tokens.grant(&mut headers).and_then(|grant| grant.check_admin())
    {
        return problem.response();
    }
    let admission = &service.admission;
    let [queue, quota] = admission.dispatcher.refused();
    let [memory, share] = service.memory.refused();
    let page = metrics::page(&MetricsSnapshot {
        counts: service.journal.counts(),
        connections: service.connections.counts(),
        operators: service.operators.counts(),
        lanes: service.health.lane_states(),
        queues: admission.dispatcher.queue_lengths(),
        polls: admission.long_polls.len(),
        refused: [queue, quota, memory, share, admission.long_polls.refused()],
        refused_alone: service.journal.limits.refused(),
        limits_reached: service.journal.limits.reached(),
        loop_ages: service.health.ages(),
        memory: [service.memory.reserved_bytes(), service.memory.limit()],
        process: Process::now(),
    });
    let mut response = Response::new(Body::from(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
