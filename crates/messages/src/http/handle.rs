//! Step 1. One HTTP request: checks its token, reads its body within the limits, parses it, has the work done, and makes the response
//! with the time of each stage. Knows no SQL.

use crate::config::{ClientLimits, Limits};
use crate::http::active_request::ActiveRequest;
use crate::http::browsers::Browsers;
use crate::http::origin::Origin;
use crate::http::problem::Problem;
use crate::http::reply;
use crate::http::tokens::{Grant, Tokens};
use crate::interface::operation::Body::Nothing;
use crate::interface::operation::{Handler, Operation};
use crate::observe::client_connections::{BODY, ClientConnections};
use crate::observe::journal::{Journal, server_timing};
use crate::path::admit::Admission;
use crate::path::health::Health;
use crate::path::memory::{Memory, Reservation, Share, WAITED_FOR};
use crate::path::parse::request::{HttpRequest, ParsedRequest, PathParameter, ReplyFormat};
use crate::path::work::Work;
use axum::body::{Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Request, header};
use axum::response::Response;
use clock::{Clock, Stage};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What every request needs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) admission: Admission,
    pub(crate) memory: Arc<Memory>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) health: Arc<Health>,
    pub(crate) limits: Limits,
    pub(crate) clients: ClientLimits,
    pub(crate) connections: Arc<ClientConnections>,
    /// The connections at `admin-listen`.
    pub(crate) operators: Arc<ClientConnections>,
    pub(crate) tokens: Tokens,
    pub(crate) browsers: Browsers,
    /// Whether `/metrics` requires a token with the permission `admin`.
    pub(crate) metrics_need_token: bool,
    pub(crate) clock: Clock,
}

/// Handles one request, from its head to its response.
pub(crate) async fn handle<B>(
    service: Arc<Service>,
    operation: Result<&'static Operation, Problem>,
    path: PathParameter,
    origin: Arc<Origin>,
    request: Request<B>,
) -> Response
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let (mut parts, body) = request.into_parts();
    let mut active = ActiveRequest::begin(origin);
    // The head decides whether the body is read: a body occupies memory that all clients share.
    let admitted = service.browsers.check(&parts).and_then(|()| {
        // Paths outside /v1 need no token.
        let is_open = !parts.uri.path().starts_with("/v1");
        let grant = if is_open { Grant::default() } else { service.tokens.grant(&mut parts.headers)? };
        let operation = operation?;
        grant.check_head(operation.permission, path.get("queue"))?;
        // If the operation has no body, the head is the whole request.
        let is_whole = operation.body == Nothing;
        let parsed = is_whole.then(|| parse(&service, operation, &grant, &path, &parts, Bytes::new())).transpose()?;
        Ok((grant, operation, parsed))
    });
    let mut caller = active.caller();
    let body = match &admitted {
        Ok((grant, ..)) => {
            caller.share = grant.share().unwrap_or(caller.share);
            read_in_time(body, &parts, &service, &caller.share).await
        }
        Err(problem) => Err(problem.clone()),
    };
    active.received();
    let parsed = match (admitted, body) {
        (Ok((_, _, Some(parsed))), Ok((_, reservation))) => Ok((parsed, reservation)),
        (Ok((grant, operation, None)), Ok((body, reservation))) => {
            parse(&service, operation, &grant, &path, &parts, body).map(|parsed| (parsed, reservation))
        }
        (Err(problem), _) | (_, Err(problem)) => Err(problem),
    };
    active.measurements.stamp(Stage::Parsed, service.clock.now());
    let (outcome, format) = match parsed {
        Ok((ParsedRequest { work, format, wait }, reservation)) => {
            active.parsed(&work);
            // Other work is much smaller than the document that it was parsed from.
            let bodies = reservation.filter(|_| matches!(work, Work::Send(_) | Work::Lease(_)));
            let measurements = &mut active.measurements;
            let outcome = service.admission.submit(work, wait, caller.clone(), bodies, measurements).await;
            (outcome, format)
        }
        Err(problem) => (Err(problem), ReplyFormat::Bytes),
    };
    if let Some(limit) = outcome.as_ref().err().and_then(|problem| problem.limit) {
        service.journal.limits.refuse(limit);
    }
    active.answered(outcome.as_ref().map(|(answer, _)| answer));
    let mut response = outcome.map_or_else(
        |problem| problem.response(),
        |(answer, reservation)| {
            reply::response(answer, format, reservation, || service.memory.reserve_reply(&caller.share, 0))
        },
    );
    // The stage `Replied` ends when the kernel has the reply. A header inside the reply cannot contain that time, so here the stage ends
    // now.
    let mut clock = active.measurements.clock;
    clock.stamp(Stage::Replied, service.clock.now());
    clock.finish();
    if let Ok(value) = HeaderValue::try_from(server_timing(&clock)) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
    // The HTTP library leaves out the body of a reply to HEAD, which has the same handler as GET.
    let body_bytes = if parts.method == Method::HEAD { 0 } else { HttpBody::size_hint(response.body()).lower() };
    active.end(response.status(), body_bytes);
    response
}

/// Parses a request, and checks whether its token permits the work.
fn parse(
    service: &Service,
    operation: &Operation,
    grant: &Grant,
    path: &PathParameter,
    head: &Parts,
    body: Bytes,
) -> Result<ParsedRequest, Problem> {
    let Handler::Work(parse) = operation.handler else { return Err(Problem::unknown_path()) };
    let (uri, headers, limits) = (&head.uri, &head.headers, &service.limits);
    let mut parsed = parse(&HttpRequest { path, uri, headers, body, limits })?;
    grant.narrow(&mut parsed.work);
    grant.check(&parsed.work)?;
    Ok(parsed)
}

/// Reads the whole body and reserves memory for it. Fails if the body takes too long, is too large or finds no memory. A body whose
/// announced length is too large is not read.
async fn read_in_time<B: HttpBody<Data = Bytes> + Unpin>(
    body: B,
    head: &Parts,
    service: &Service,
    share: &Arc<Share>,
) -> Result<(Bytes, Option<Reservation>), Problem> {
    if HttpBody::is_end_stream(&body) {
        return Ok((Bytes::new(), None));
    }
    let limits = &service.limits;
    let limit = if head.uri.path().ends_with(":batch") {
        limits.statement_bytes.max(limits.body_bytes)
    } else {
        limits.body_bytes
    };
    let announced =
        head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > limit) {
        return Err(Problem::too_large(limit));
    }
    let within = service.clients.body_timeout;
    let waits = AtomicBool::new(false);
    let mut read = pin!(read_body(body, limit, service.memory.reserve_body(share), &waits));
    // A body that arrives together with its head needs no timer.
    let read = match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
        Poll::Ready(read) => Ok(read),
        Poll::Pending => match tokio::time::timeout(within, read.as_mut()).await {
            // The body may have arrived, but the service does not read it.
            Err(_) if waits.load(Ordering::Relaxed) => tokio::time::timeout(WAITED_FOR, read).await,
            read => read,
        },
    };
    match read {
        Ok(read) => read.map(|(body, reservation)| (body, Some(reservation))),
        Err(_) => {
            service.connections.note_timeout(BODY);
            Err(Problem::request_timeout(within))
        }
    }
}

/// Reserves memory for each piece as it arrives, so that a client that announces a large body and sends nothing occupies no memory. `waits`
/// is true while there is no room for the next piece.
async fn read_body<B: HttpBody<Data = Bytes> + Unpin>(
    mut body: B,
    limit: usize,
    mut reservation: Reservation,
    waits: &AtomicBool,
) -> Result<(Bytes, Reservation), Problem> {
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Problem::invalid_request("the body ended before its announced length"))?;
        // Trailers of a chunked body are ignored.
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + all.len() + piece.len() > limit {
            return Err(Problem::too_large(limit));
        }
        waits.store(true, Ordering::Relaxed);
        reservation.grow(piece.len()).await?;
        waits.store(false, Ordering::Relaxed);
        if first.is_empty() && all.is_empty() {
            // Most bodies arrive in one piece and need no copy.
            first = piece;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&piece);
        }
    }
    Ok((if all.is_empty() { first } else { all.into() }, reservation))
}
