//! What all parsing functions share: the HTTP request, its query parameters, and the parsed request that they return.

use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::documents::Object;
use crate::interface::rules::is_name;
use crate::observe::limits::RequestLimit;
use crate::path::work::Work;
use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, Uri, header};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The header with the sender.
pub(crate) const SENDER: HeaderName = HeaderName::from_static("waystage-sender");

/// The parameter in the path of a request; no operation has more than one. Empty if there is none, or if it could not be decoded.
#[derive(Debug, Default)]
pub(crate) struct PathParameter {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

impl PathParameter {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        (self.name == name).then_some(self.value.as_str())
    }
}

/// An HTTP request with its whole body.
#[derive(Debug)]
pub(crate) struct HttpRequest<'r> {
    pub(crate) path: &'r PathParameter,
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) limits: &'r Limits,
}

/// How messages are returned to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    /// One message: its body as it is, everything else in headers.
    Bytes,
    /// A JSON document with any number of messages.
    Json,
}

/// The work of a request, and how its reply looks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedRequest {
    pub(crate) work: Work,
    pub(crate) format: ReplyFormat,
    /// How long the request waits for a message.
    pub(crate) wait: Duration,
}

/// A function that parses the requests of one operation.
pub(crate) type Parse = fn(&HttpRequest<'_>) -> Result<ParsedRequest, Problem>;

impl ParsedRequest {
    pub(super) fn plain(work: Work) -> ParsedRequest {
        ParsedRequest { work, format: ReplyFormat::Bytes, wait: Duration::ZERO }
    }
}

/// The document in a body, which must be a JSON object.
pub(super) fn json_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let Object(document) =
        serde_json::from_slice(body).map_err(|error| Problem::invalid_request(format!("body: {error}")))?;
    Ok(document)
}

/// The query of a request, in which every key is known and occurs once.
pub(super) struct QueryParameters<'r> {
    pairs: Vec<(String, String)>,
    limits: &'r Limits,
}

impl HttpRequest<'_> {
    pub(super) fn name(&self, of: &str) -> Result<String, Problem> {
        let name = self.path.get(of).unwrap_or_default();
        if is_name(name) { Ok(name.to_string()) } else { Err(Problem::invalid_name(of)) }
    }

    /// A document without a media type is taken as JSON.
    pub(super) fn require_json(&self) -> Result<(), Problem> {
        let Some(announced) = self.headers.get(header::CONTENT_TYPE) else { return Ok(()) };
        let announced = String::from_utf8_lossy(announced.as_bytes());
        let kind = announced.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind == "application/json" { Ok(()) } else { Err(Problem::not_json(&announced)) }
    }

    /// Checks how many entries the list with this name has.
    pub(super) fn check_batch(&self, list: &str, number: usize) -> Result<(), Problem> {
        let most = self.limits.batch_messages;
        let detail = || format!("{list}: there are {number}; a batch has 1 to {most}");
        match number {
            0 => Err(Problem::invalid_request(detail())),
            _ if number > most => Err(Problem::over(RequestLimit::BatchLimit, detail())),
            _ => Ok(()),
        }
    }

    pub(super) fn sender(&self) -> Result<String, Problem> {
        let mut values = self.headers.get_all(SENDER).iter();
        match (values.next().map(|value| value.to_str()), values.next()) {
            (Some(Ok(name)), None) if is_name(name) => Ok(name.to_string()),
            (None, _) => Err(Problem::invalid_request("the header Waystage-Sender is missing; give the sender's name")),
            _ => Err(Problem::invalid_name("the header Waystage-Sender")),
        }
    }

    pub(super) fn parameters(&self, known: &[&str]) -> Result<QueryParameters<'_>, Problem> {
        if self.uri.query().is_none() {
            return Ok(QueryParameters { pairs: Vec::new(), limits: self.limits });
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(self.uri)
            .map_err(|_| Problem::invalid_request("the query is not a list of key=value"))?;
        for (index, (key, _)) in pairs.iter().enumerate() {
            if !known.contains(&key.as_str()) {
                let list = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                return Err(Problem::invalid_request(format!("unknown parameter {key:?}; this operation has: {list}")));
            }
            if pairs[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(Problem::invalid_request(format!("parameter {key} is given twice")));
            }
        }
        Ok(QueryParameters { pairs, limits: self.limits })
    }
}

impl QueryParameters<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A name, or the empty string if the parameter is missing.
    pub(super) fn name(&self, key: &str) -> Result<String, Problem> {
        match self.get(key) {
            None => Ok(String::new()),
            Some(name) if is_name(name) => Ok(name.to_string()),
            Some(_) => Err(Problem::invalid_name(key)),
        }
    }

    pub(super) fn max(&self) -> Result<(usize, ReplyFormat), Problem> {
        let Some(text) = self.get("max") else { return Ok((1, ReplyFormat::Bytes)) };
        let most = (self.limits.batch_messages, RequestLimit::BatchLimit);
        Ok((number("max", text, most)?, ReplyFormat::Json))
    }

    pub(super) fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = self.get("wait") else { return Ok(Duration::ZERO) };
        match quantity::duration(text) {
            Ok(wait) if wait <= self.limits.long_poll => Ok(wait),
            Ok(_) => Err(Problem::wait_too_long(self.limits.long_poll)),
            Err(error) => Err(Problem::invalid_request(format!("wait: {error}"))),
        }
    }
}

/// A number from 1 to `most`. `name` is the parameter.
pub(super) fn number(name: &str, text: &str, (most, limit): (usize, RequestLimit)) -> Result<usize, Problem> {
    let detail = || format!("{name}: {text:?} is not a number from 1 to {most}");
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        Ok(number) if number > most => Err(Problem::over(limit, detail())),
        _ => Err(Problem::invalid_request(detail())),
    }
}
