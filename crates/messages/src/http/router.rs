//! The routes, made from the table of operations: which path and method reach which function. Pages that are always the same are answered
//! here, all other requests in `handle`.

use crate::http::handle::{Service, handle};
use crate::http::problem::Problem;
use crate::interface::operation::{Does, Method};
use crate::interface::{openapi, page, table};
use crate::observe::metrics::{self, Seen};
use crate::path::parse::request::Read;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use clock::Process;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

type Names = Result<Path<HashMap<String, String>>, PathRejection>;
type Reply = Pin<Box<dyn Future<Output = Response> + Send>>;

/// All paths, as the table of the interface has them.
pub(crate) fn router(service: Arc<Service>) -> Router {
    let text = openapi::text(&service.limits, !service.tokens.is_empty());
    let page = page::html(&serde_json::from_str(&text).unwrap_or_default());
    let (text, page) = (Bytes::from(text), Bytes::from(page));
    let mut router = Router::new();
    for operation in table::operations() {
        let method = filter(operation.method);
        let handler = match operation.does {
            Does::Work(read) => on(method, at(read)),
            Does::Alive => on(method, async || fixed("text/plain; charset=utf-8", "ok\n".into())),
            Does::Metrics => on(method, metrics_page),
            Does::Description => {
                let text = text.clone();
                on(method, async move || fixed("application/json", text))
            }
            Does::Page => {
                let page = page.clone();
                on(method, async move || fixed("text/html; charset=utf-8", page))
            }
        };
        router = router.route(operation.path, handler);
    }
    router
        .fallback(at(|_| Err(Problem::no_such_path())))
        .method_not_allowed_fallback(at(|_| Err(Problem::method())))
        .with_state(service)
}

fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Put => MethodFilter::PUT,
        Method::Post => MethodFilter::POST,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// A page that is always the same.
fn fixed(media_type: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    // The page for people has its style in itself; nothing else may be loaded into any of them.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// The handler of an operation that this function reads.
fn at(read: Read) -> impl Fn(State<Arc<Service>>, Names, Request) -> Reply + Clone {
    move |State(service): State<Arc<Service>>, names: Names, request: Request| -> Reply {
        // A path that cannot be decoded has no names in it, which is then what is said.
        let path = names.map_or_else(|_| HashMap::new(), |Path(path)| path);
        Box::pin(handle(service, read, path, request))
    }
}

async fn metrics_page(State(service): State<Arc<Service>>, mut headers: HeaderMap) -> Response {
    if service.metrics_need_token
        && let Err(problem) = service.tokens.grant(&mut headers).and_then(|grant| grant.check_admin())
    {
        return problem.response();
    }
    let admission = &service.admission;
    let page = metrics::page(&Seen {
        counts: service.journal.counts(),
        connections: service.connections.counts(),
        queues: admission.dispatcher.waiting(),
        polls: admission.waiting.polls(),
        memory: [service.memory.now(), service.memory.limit()],
        process: Process::now(),
    });
    let mut response = Response::new(Body::from(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
