//! Finds the operation of a request. Operations with a parameter in their path are found here: these are all frequent ones, and the HTTP
//! framework's router needs several allocations for each request. Other requests are left to that router.

use crate::http::handle::{Service, handle};
use crate::http::origin::Origin;
use crate::http::router::{Part, router};
use crate::interface::operation::{self, Handler, Operation};
use crate::interface::table;
use crate::path::parse::request::PathParameter;
use axum::Router;
use axum::http::{Method, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

/// A response in the making. Boxed, because it is large, and idle connections have none.
pub(crate) type PendingResponse = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// All operations of a part of the table.
#[derive(Clone)]
pub(crate) struct Routes {
    service: Arc<Service>,
    direct: Arc<[DirectRoute]>,
    router: TowerToHyperService<Router>,
}

/// An operation with a parameter in its path, and the path around the parameter.
struct DirectRoute {
    operation: &'static Operation,
    method: Method,
    before: &'static str,
    parameter: &'static str,
    after: &'static str,
}

impl Routes {
    pub(crate) fn new(service: Arc<Service>, part: Part) -> Routes {
        // Only the router adds the headers of CORS.
        let has_cors = !service.browsers.cors_origins().is_empty();
        let operations = table::operations().filter(|operation| !has_cors && part.has(operation.handler));
        let direct = operations.filter_map(DirectRoute::to).collect();
        Routes { router: TowerToHyperService::new(router(service.clone(), part)), direct, service }
    }

    /// Handles a request.
    pub(crate) fn handle(&self, origin: Arc<Origin>, mut request: Request<Incoming>) -> PendingResponse {
        if let Some((operation, path)) = find(&self.direct, request.method(), request.uri().path()) {
            let service = self.service.clone();
            return Box::pin(async { Ok(handle(service, Ok(operation), path, origin, request).await) });
        }
        request.extensions_mut().insert(origin);
        Box::pin(self.router.call(request))
    }
}

impl DirectRoute {
    fn to(operation: &'static Operation) -> Option<DirectRoute> {
        let Handler::Work(_) = operation.handler else { return None };
        let (before, parameter, after) = operation.path_parts()?;
        Some(DirectRoute { operation, method: method(operation.method), before, parameter, after })
    }
}

/// The operation with this path, and the parameter in the path. None if the parameter has to be decoded.
fn find(routes: &[DirectRoute], method: &Method, path: &str) -> Option<(&'static Operation, PathParameter)> {
    routes.iter().filter(|route| route.method == *method).find_map(|route| {
        let value = path.strip_prefix(route.before)?.strip_suffix(route.after)?;
        let is_plain = !value.is_empty() && !value.contains(['/', '%']);
        is_plain.then(|| (route.operation, PathParameter { name: route.parameter, value: value.to_string() }))
    })
}

fn method(method: operation::Method) -> Method {
    match method {
        operation::Method::Get => Method::GET,
        operation::Method::Put => Method::PUT,
        operation::Method::Post => Method::POST,
        operation::Method::Delete => Method::DELETE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_and_those_that_need_the_router_are_left_to_it() {
        let routes: Vec<DirectRoute> = table::operations().filter_map(DirectRoute::to).collect();
        let found = |method: &Method, path: &str| {
            find(&routes, method, path).map(|(operation, path)| (operation.id, path.name, path.value))
        };
        for DirectRoute { operation, method, before, parameter, after } in &routes {
            let expected = Some((operation.id, *parameter, "a.b:c".to_string()));
            assert_eq!(found(method, &format!("{before}a.b:c{after}")), expected);
        }
        let frequent = ["/v1/queues/q/messages", "/v1/queues/q/messages:pop", "/v1/queues/q/messages:receive"];
        for path in frequent.into_iter().chain(["/v1/leases/0/acknowledge"]) {
            assert!(found(&Method::POST, path).is_some(), "{path}");
            assert_eq!(found(&Method::HEAD, path), None);
            assert_eq!(found(&Method::POST, &format!("{path}/")), None);
        }
        for path in ["/v1/queues", "/v1/queues//messages", "/v1/queues/a/b/messages", "/v1/queues/%61/messages", "/"] {
            assert_eq!(found(&Method::POST, path), None, "{path}");
        }
    }
}
