//! Station 2. Path, query, headers and body of a request become work, or a problem: to send, pop and peek.

use super::options;
use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::documents::{Batch, BatchMessage};
use crate::interface::rules::is_name;
use crate::path::parse::request::{Asked, Exchange, Shape};
use crate::path::work::{NewMessage, Scope, Sending, Wish, Work};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(crate) fn send(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let parameters = exchange.parameters(&["to", "delay", "expiry"])?;
    let receiver = parameters.name("to")?;
    let (delay_ms, expiry_ms) = options::times("", parameters.get("delay"), parameters.get("expiry"), exchange.limits)?;
    let messages = vec![NewMessage { receiver, body: exchange.body.to_vec(), delay_ms, expiry_ms }];
    let (queue, sender, key) = (exchange.name("queue")?, exchange.sender()?, options::key(exchange.headers)?);
    let work = Work::Send(Sending { queue, sender, messages, key });
    Ok(Asked::plain(work))
}

pub(crate) fn send_batch(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    exchange.demand_json()?;
    let document: Batch =
        serde_json::from_slice(&exchange.body).map_err(|error| Problem::unreadable(format!("body: {error}")))?;
    let limits = exchange.limits;
    let number = document.messages.len();
    if number == 0 || number > limits.batch_messages {
        let detail = format!("messages: there are {number}; a batch has 1 to {}", limits.batch_messages);
        return Err(Problem::unreadable(detail));
    }
    let messages = document.messages.into_iter().enumerate().map(|(index, message)| message.read(index, limits));
    let messages = messages.collect::<Result<_, _>>()?;
    let (queue, sender, key) = (exchange.name("queue")?, exchange.sender()?, options::key(exchange.headers)?);
    let work = Work::Send(Sending { queue, sender, messages, key });
    Ok(Asked { shape: Shape::Document, ..Asked::plain(work) })
}

pub(crate) fn pop(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let parameters = exchange.parameters(&["for", "from", "max", "wait"])?;
    let (wanted, shape) = parameters.max()?;
    let scope =
        Scope { queue: exchange.name("queue")?, receiver: parameters.name("for")?, sender: parameters.name("from")? };
    Ok(Asked { work: Work::Pop(Wish { scope, wanted }), shape, wait: parameters.wait()? })
}

pub(crate) fn head(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let parameters = exchange.parameters(&["for", "from", "max"])?;
    let (wanted, shape) = parameters.max()?;
    let scope =
        Scope { queue: exchange.name("queue")?, receiver: parameters.name("for")?, sender: parameters.name("from")? };
    Ok(Asked { shape, ..Asked::plain(Work::Peek(Wish { scope, wanted })) })
}

pub(crate) fn pop_everywhere(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let (wish, shape) = everywhere(exchange)?;
    Ok(Asked { shape, ..Asked::plain(Work::Pop(wish)) })
}

pub(crate) fn head_everywhere(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let (wish, shape) = everywhere(exchange)?;
    Ok(Asked { shape, ..Asked::plain(Work::Peek(wish)) })
}

fn everywhere(exchange: &Exchange<'_>) -> Result<(Wish, Shape), Problem> {
    let parameters = exchange.parameters(&["for", "from", "max"])?;
    let (wanted, shape) = parameters.max()?;
    let sender = parameters.name("from")?;
    if sender.is_empty() {
        return Err(Problem::unreadable("from: over all queues, messages are found by their sender, which is missing"));
    }
    let scope = Scope { queue: String::new(), receiver: parameters.name("for")?, sender };
    Ok((Wish { scope, wanted }, shape))
}

impl BatchMessage {
    fn read(self, index: usize, limits: &Limits) -> Result<NewMessage, Problem> {
        let at = |what: &str| Problem::unreadable(format!("messages[{index}]: {what}"));
        if self.to.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(Problem::name(&format!("messages[{index}].to")));
        }
        let receiver = self.to.unwrap_or_default();
        let body = match (self.body, self.body_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| at(&format!("body_base64: {error}")))?,
            _ => return Err(at("it needs either body or body_base64")),
        };
        if body.len() > limits.body_bytes {
            return Err(Problem::too_large(limits.body_bytes));
        }
        let (delay, expiry) = (self.delay.as_deref(), self.expiry.as_deref());
        let (delay_ms, expiry_ms) = options::times(&format!("messages[{index}]."), delay, expiry, limits)?;
        Ok(NewMessage { receiver, body, delay_ms, expiry_ms })
    }
}
