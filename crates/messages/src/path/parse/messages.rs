//! Step 2. Parses sends, pops and peeks: path, query, headers and body become work, or a problem.

use super::options;
use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::documents::{Batch, BatchMessage, Object};
use crate::interface::rules::is_name;
use crate::path::parse::request::{HttpRequest, ParsedRequest, ReplyFormat, json_object};
use crate::path::work::{FetchRequest, NewMessage, Scope, SendRequest, Work};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(crate) fn send(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let parameters = request.parameters(&["to", "delay", "expiry"])?;
    let receiver = parameters.name("to")?;
    let (delay_ms, expiry_ms) = options::times("", parameters.get("delay"), parameters.get("expiry"), request.limits)?;
    let messages = vec![NewMessage { receiver, body: request.body.to_vec(), delay_ms, expiry_ms }];
    let (queue, sender, key) = (request.name("queue")?, request.sender()?, options::key(request.headers)?);
    let work = Work::Send(SendRequest { queue, sender, messages, key });
    Ok(ParsedRequest::plain(work))
}

pub(crate) fn send_batch(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    request.parameters(&[])?;
    request.require_json()?;
    let document: Batch = json_object(&request.body)?;
    let limits = request.limits;
    request.check_batch("messages", document.messages.len())?;
    let messages =
        document.messages.into_iter().enumerate().map(|(index, Object(message))| message.read(index, limits));
    let messages = messages.collect::<Result<_, _>>()?;
    let (queue, sender, key) = (request.name("queue")?, request.sender()?, options::key(request.headers)?);
    let work = Work::Send(SendRequest { queue, sender, messages, key });
    Ok(ParsedRequest { format: ReplyFormat::Json, ..ParsedRequest::plain(work) })
}

pub(crate) fn pop(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let parameters = request.parameters(&["for", "from", "max", "wait"])?;
    let (count, format) = parameters.max()?;
    let scope =
        Scope { queue: request.name("queue")?, receiver: parameters.name("for")?, sender: parameters.name("from")? };
    Ok(ParsedRequest { work: Work::Pop(FetchRequest { scope, count }), format, wait: parameters.wait()? })
}

pub(crate) fn peek(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let parameters = request.parameters(&["for", "from", "max"])?;
    let (count, format) = parameters.max()?;
    let scope =
        Scope { queue: request.name("queue")?, receiver: parameters.name("for")?, sender: parameters.name("from")? };
    Ok(ParsedRequest { format, ..ParsedRequest::plain(Work::Peek(FetchRequest { scope, count })) })
}

pub(crate) fn pop_everywhere(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let (fetch, format) = everywhere(request)?;
    Ok(ParsedRequest { format, ..ParsedRequest::plain(Work::Pop(fetch)) })
}

pub(crate) fn peek_everywhere(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    let (fetch, format) = everywhere(request)?;
    Ok(ParsedRequest { format, ..ParsedRequest::plain(Work::Peek(fetch)) })
}

fn everywhere(request: &HttpRequest<'_>) -> Result<(FetchRequest, ReplyFormat), Problem> {
    let parameters = request.parameters(&["for", "from", "max"])?;
    let (count, format) = parameters.max()?;
    let sender = parameters.name("from")?;
    if sender.is_empty() {
        return Err(Problem::invalid_request("from: is missing; over all queues, give the sender"));
    }
    let scope = Scope { queue: String::new(), receiver: parameters.name("for")?, sender };
    Ok((FetchRequest { scope, count }, format))
}

impl BatchMessage {
    fn read(self, index: usize, limits: &Limits) -> Result<NewMessage, Problem> {
        let at = |what: &str| Problem::invalid_request(format!("messages[{index}]: {what}"));
        if self.to.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(Problem::invalid_name(&format!("messages[{index}].to")));
        }
        let receiver = self.to.unwrap_or_default();
        let body = match (self.body, self.body_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| at(&format!("body_base64: {error}")))?,
            _ => return Err(at("give exactly one of body and body_base64")),
        };
        if body.len() > limits.body_bytes {
            return Err(Problem::too_large(limits.body_bytes));
        }
        let (delay, expiry) = (self.delay.as_deref(), self.expiry.as_deref());
        let (delay_ms, expiry_ms) = options::times(&format!("messages[{index}]."), delay, expiry, limits)?;
        Ok(NewMessage { receiver, body, delay_ms, expiry_ms })
    }
}
