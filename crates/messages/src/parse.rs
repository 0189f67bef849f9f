//! Station 2. Path, query, headers and body become work, or a problem. Knows nothing of what happens with it.

pub(crate) mod leases;
mod options;
pub(crate) mod settings;

use crate::config::Limits;
use crate::documents::{Batch, BatchMessage};
use crate::names::is_name;
use crate::problem::Problem;
use crate::work::{NewMessage, Scope, Sending, Wish, Work};
use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::time::Duration;

pub(crate) use options::KEY_BYTES_MAX;

/// Who sends.
pub(crate) const SENDER: &str = "waystage-sender";

/// A request as HTTP has it.
#[derive(Debug)]
pub(crate) struct Exchange<'r> {
    pub(crate) path: &'r HashMap<String, String>,
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) limits: &'r Limits,
}

/// How messages are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One message: its body as it is, the rest in headers.
    One,
    /// A JSON document with as many as there are.
    Document,
}

/// What is to be done, and how it is said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) work: Work,
    pub(crate) shape: Shape,
    /// How long an empty answer may be put off.
    pub(crate) wait: Duration,
}

/// Reads a request.
pub(crate) type Read = fn(&Exchange<'_>) -> Result<Asked, Problem>;

pub(crate) fn create_queue(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    let name = exchange.name("queue")?;
    if !exchange.body.is_empty() {
        exchange.demand_json()?;
    }
    let settings = settings::read(&name, &exchange.body, exchange.limits)?;
    Ok(Asked::plain(Work::CreateQueue(name, settings)))
}

pub(crate) fn delete_queue(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::DeleteQueue(exchange.name("queue")?)))
}

pub(crate) fn show_queue(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::ShowQueue(exchange.name("queue")?)))
}

pub(crate) fn list_queues(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::ListQueues))
}

pub(crate) fn waiting_queues(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::Waiting(exchange.name("receiver")?)))
}

pub(crate) fn probe(_: &Exchange<'_>) -> Result<Asked, Problem> {
    Ok(Asked::plain(Work::Probe))
}

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

impl Asked {
    fn plain(work: Work) -> Asked {
        Asked { work, shape: Shape::One, wait: Duration::ZERO }
    }
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

/// The query of a request; each key at most once.
struct Parameters<'r> {
    pairs: Vec<(String, String)>,
    limits: &'r Limits,
}

impl Exchange<'_> {
    fn name(&self, of: &str) -> Result<String, Problem> {
        let name = self.path.get(of).map(String::as_str).unwrap_or_default();
        if is_name(name) { Ok(name.to_string()) } else { Err(Problem::name(of)) }
    }

    /// A document may come without its type, but not as another.
    fn demand_json(&self) -> Result<(), Problem> {
        let Some(announced) = self.headers.get(header::CONTENT_TYPE) else { return Ok(()) };
        let announced = String::from_utf8_lossy(announced.as_bytes());
        let kind = announced.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind == "application/json" { Ok(()) } else { Err(Problem::not_json(&announced)) }
    }

    fn sender(&self) -> Result<String, Problem> {
        let mut values = self.headers.get_all(SENDER).iter();
        match (values.next().map(|value| value.to_str()), values.next()) {
            (Some(Ok(name)), None) if is_name(name) => Ok(name.to_string()),
            (None, _) => Err(Problem::unreadable("the header Waystage-Sender, which says who sends, is missing")),
            _ => Err(Problem::name("the header Waystage-Sender")),
        }
    }

    fn parameters(&self, known: &[&str]) -> Result<Parameters<'_>, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(self.uri)
            .map_err(|_| Problem::unreadable("the query is not made of key=value"))?;
        for (index, (key, _)) in pairs.iter().enumerate() {
            if !known.contains(&key.as_str()) {
                let list = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                return Err(Problem::unreadable(format!("parameter {key:?} means nothing here; known: {list}")));
            }
            if pairs[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(Problem::unreadable(format!("parameter {key} is there twice")));
            }
        }
        Ok(Parameters { pairs, limits: self.limits })
    }
}

impl Parameters<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A name, or the empty string when there is none.
    fn name(&self, key: &str) -> Result<String, Problem> {
        match self.get(key) {
            None => Ok(String::new()),
            Some(name) if is_name(name) => Ok(name.to_string()),
            Some(_) => Err(Problem::name(key)),
        }
    }

    fn max(&self) -> Result<(usize, Shape), Problem> {
        let Some(text) = self.get("max") else { return Ok((1, Shape::One)) };
        let most = self.limits.batch_messages;
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok((number, Shape::Document)),
            _ => Err(Problem::unreadable(format!("max: {text:?} is not a number from 1 to {most}"))),
        }
    }

    fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = self.get("wait") else { return Ok(Duration::ZERO) };
        match quantity::duration(text) {
            Ok(wait) if wait <= self.limits.long_poll => Ok(wait),
            Ok(_) => Err(Problem::unreadable(format!("wait: the longest is {:?}", self.limits.long_poll))),
            Err(error) => Err(Problem::unreadable(format!("wait: {error}"))),
        }
    }
}
