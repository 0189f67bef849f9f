//! Parses receives, acknowledgements, extensions and nacks.

use super::options::{positive_ms, time_ms};
use crate::http::problem::Problem;
use crate::interface::documents::LeaseTokens;
use crate::observe::limits::RequestLimit;
use crate::path::lease::{LeaseAction, LeaseRequest, LeaseToken};
use crate::path::parse::request::{HttpRequest, ParsedRequest, ReplyFormat, json_object};
use crate::path::work::{FetchRequest, Scope, Work};

pub(crate) fn receive(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let parameters = request.parameters(&["for", "from", "max", "wait", "lease"])?;
    let (count, format) = parameters.max()?;
    let scope =
        Scope { queue: request.name("queue")?, receiver: parameters.name("for")?, sender: parameters.name("from")? };
    let lease_ms = lease_ms(request, parameters.get("lease"))?;
    Ok(ParsedRequest { work: Work::Receive(FetchRequest { scope, count }, lease_ms), format, wait: parameters.wait()? })
}

pub(crate) fn acknowledge(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    request.parameters(&[])?;
    Ok(single(request, LeaseAction::Acknowledge, 0))
}

pub(crate) fn extend(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let parameters = request.parameters(&["lease"])?;
    Ok(single(request, LeaseAction::Extend, lease_ms(request, parameters.get("lease"))?))
}

pub(crate) fn nack(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let parameters = request.parameters(&["delay"])?;
    let delay_ms = parameters
        .get("delay")
        .map_or(Ok(-1), |text| time_ms("delay", text, request.limits.delay, RequestLimit::DelayLimit))?;
    Ok(single(request, LeaseAction::Nack, delay_ms))
}

pub(crate) fn acknowledge_batch(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    request.parameters(&[])?;
    request.require_json()?;
    let LeaseTokens { lease_tokens: written } = json_object(&request.body)?;
    request.check_batch("lease_tokens", written.len())?;
    let tokens = written.iter().map(|text| LeaseToken::read(text)).collect();
    let request = LeaseRequest { action: LeaseAction::Acknowledge, tokens, written, time_ms: 0, is_single: false };
    Ok(ParsedRequest { format: ReplyFormat::Json, ..ParsedRequest::plain(Work::Lease(request)) })
}

fn single(request: &HttpRequest<'_>, action: LeaseAction, time_ms: i64) -> ParsedRequest {
    let text = request.path.get("lease_token").unwrap_or_default().to_string();
    let request =
        LeaseRequest { action, tokens: vec![LeaseToken::read(&text)], written: vec![text], time_ms, is_single: true };
    ParsedRequest::plain(Work::Lease(request))
}

/// The visibility timeout of the request; 0 for the queue's own.
fn lease_ms(request: &HttpRequest<'_>, text: Option<&str>) -> Result<i64, Problem> {
    text.map_or(Ok(0), |text| positive_ms("lease", text, request.limits.lease, RequestLimit::LeaseLimit))
}
