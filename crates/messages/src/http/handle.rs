//! Stations 1 and 9. One HTTP request: its body within the limits, the work it asks for, its response with the time of each stage. Knows no SQL.

use crate::config::{Clients, Limits};
use crate::http::accept::Origin;
use crate::http::active_request::ActiveRequest;
use crate::http::problem::Problem;
use crate::http::reply;
use crate::http::tokens::{Grant, Tokens};
use crate::observe::client_connections::{BODY, Connections};
use crate::observe::journal::{Journal, server_timing};
use crate::path::admit::Admission;
use crate::path::failure::Failure;
use crate::path::memory::{Held, Memory};
use crate::path::parse::request::{Asked, Exchange, Read, Shape};
use crate::path::work::Work;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use clock::{Clock, Stage};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What every request needs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) admission: Admission,
    pub(crate) memory: Arc<Memory>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) limits: Limits,
    pub(crate) clients: Clients,
    pub(crate) connections: Arc<Connections>,
    pub(crate) tokens: Tokens,
    /// Whether `/metrics` is for administrators only.
    pub(crate) metrics_need_token: bool,
    pub(crate) clock: Clock,
}

/// The way of one request, from its last byte to its response.
pub(crate) async fn handle(
    service: Arc<Service>,
    read: Read,
    path: HashMap<String, String>,
    request: Request,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(origin) = parts.extensions.remove::<Arc<Origin>>() else { return Problem::no_such_path().response() };
    let mut passage = ActiveRequest::begin(origin);
    // What everybody may see is not under /v1.
    let grant = match parts.uri.path().starts_with("/v1") {
        true => service.tokens.grant(&mut parts.headers),
        false => Ok(Grant::default()),
    };
    let body = match &grant {
        Ok(_) => read_in_time(body, &parts.headers, &service, parts.uri.path()).await,
        Err(problem) => Err(problem.clone()),
    };
    passage.received();
    let asked = body.and_then(|(body, held)| {
        let (uri, headers, limits) = (&parts.uri, &parts.headers, &service.limits);
        Ok((read(&Exchange { path: &path, uri, headers, body, limits })?, held))
    });
    let grant = grant.unwrap_or_default();
    let asked = asked.and_then(|(asked, held)| grant.check(&asked.work).map(|()| (asked, held)));
    passage.journey.stamp(Stage::Parsed, service.clock.now());
    let (outcome, shape) = match asked {
        Ok((Asked { work, shape, wait }, held)) => {
            passage.asks(&work);
            // Only sends have bodies that are of use any more.
            let held = held.filter(|_| matches!(work, Work::Send(_)));
            let mut outcome = service.admission.ask(work, wait, held, &mut passage.journey).await;
            outcome.iter_mut().for_each(|(answer, _)| grant.filter(answer));
            (outcome, shape)
        }
        Err(problem) => (Err(problem), Shape::One),
    };
    passage.answered(outcome.as_ref().map(|(answer, _)| answer));
    let mut response =
        outcome.map_or_else(|problem| problem.response(), |(answer, held)| reply::response(answer, shape, held));
    // The last stage is passed when the kernel has the reply, which cannot be said in it: here it is as if that were now.
    let mut clock = passage.journey.clock;
    clock.stamp(Stage::Replied, service.clock.now());
    clock.finish();
    if let Ok(value) = HeaderValue::from_str(&server_timing(&clock)) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
    let body_bytes = HttpBody::size_hint(response.body()).lower();
    passage.end(response.status(), body_bytes);
    response
}

/// The whole body, with what it takes of the memory, unless it comes too slowly, there is no room for it or it is too large. What says
/// beforehand that it is too large is not read.
async fn read_in_time(
    body: Body,
    headers: &HeaderMap,
    service: &Service,
    path: &str,
) -> Result<(Bytes, Option<Held>), Problem> {
    if HttpBody::is_end_stream(&body) {
        return Ok((Bytes::new(), None));
    }
    let limits = &service.limits;
    let limit =
        if path.ends_with(":batch") { limits.statement_bytes.max(limits.body_bytes) } else { limits.body_bytes };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > limit) {
        return Err(Problem::too_large(limit));
    }
    let within = service.clients.body_timeout;
    match tokio::time::timeout(within, read_body(body, limit, service.memory.none())).await {
        Ok(read) => read.map(|(body, held)| (body, Some(held))),
        Err(_) => {
            service.connections.note_late(BODY);
            Err(Problem::too_slow(within))
        }
    }
}

/// Piece by piece, as far as there is room: who announces much and sends nothing holds nothing.
async fn read_body(mut body: Body, limit: usize, mut held: Held) -> Result<(Bytes, Held), Problem> {
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Problem::unreadable("the body ended too early"))?;
        // What follows a body of chunks means nothing here.
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + all.len() + piece.len() > limit {
            return Err(Problem::too_large(limit));
        }
        if !held.grow(piece.len()).await {
            return Err(Failure::OutOfMemory.into());
        }
        if first.is_empty() && all.is_empty() {
            // Most come in one piece, which needs not be copied.
            first = piece;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&piece);
        }
    }
    Ok((if all.is_empty() { first } else { all.into() }, held))
}
