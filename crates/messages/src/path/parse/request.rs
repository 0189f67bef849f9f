//! What the parsing functions of all operations share: the HTTP request, its query parameters, and what they make of it.

use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::rules::is_name;
use crate::path::work::Work;
use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};
use std::collections::HashMap;
use std::time::Duration;

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

impl Asked {
    pub(super) fn plain(work: Work) -> Asked {
        Asked { work, shape: Shape::One, wait: Duration::ZERO }
    }
}

/// The query of a request; each key at most once.
pub(super) struct Parameters<'r> {
    pairs: Vec<(String, String)>,
    limits: &'r Limits,
}

impl Exchange<'_> {
    pub(super) fn name(&self, of: &str) -> Result<String, Problem> {
        let name = self.path.get(of).map(String::as_str).unwrap_or_default();
        if is_name(name) { Ok(name.to_string()) } else { Err(Problem::name(of)) }
    }

    /// A document may come without its type, but not as another.
    pub(super) fn demand_json(&self) -> Result<(), Problem> {
        let Some(announced) = self.headers.get(header::CONTENT_TYPE) else { return Ok(()) };
        let announced = String::from_utf8_lossy(announced.as_bytes());
        let kind = announced.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind == "application/json" { Ok(()) } else { Err(Problem::not_json(&announced)) }
    }

    pub(super) fn sender(&self) -> Result<String, Problem> {
        let mut values = self.headers.get_all(SENDER).iter();
        match (values.next().map(|value| value.to_str()), values.next()) {
            (Some(Ok(name)), None) if is_name(name) => Ok(name.to_string()),
            (None, _) => Err(Problem::unreadable("the header Waystage-Sender, which says who sends, is missing")),
            _ => Err(Problem::name("the header Waystage-Sender")),
        }
    }

    pub(super) fn parameters(&self, known: &[&str]) -> Result<Parameters<'_>, Problem> {
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
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A name, or the empty string when there is none.
    pub(super) fn name(&self, key: &str) -> Result<String, Problem> {
        match self.get(key) {
            None => Ok(String::new()),
            Some(name) if is_name(name) => Ok(name.to_string()),
            Some(_) => Err(Problem::name(key)),
        }
    }

    pub(super) fn max(&self) -> Result<(usize, Shape), Problem> {
        let Some(text) = self.get("max") else { return Ok((1, Shape::One)) };
        let most = self.limits.batch_messages;
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok((number, Shape::Document)),
            _ => Err(Problem::unreadable(format!("max: {text:?} is not a number from 1 to {most}"))),
        }
    }

    pub(super) fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = self.get("wait") else { return Ok(Duration::ZERO) };
        match quantity::duration(text) {
            Ok(wait) if wait <= self.limits.long_poll => Ok(wait),
            Ok(_) => Err(Problem::unreadable(format!("wait: the longest is {:?}", self.limits.long_poll))),
            Err(error) => Err(Problem::unreadable(format!("wait: {error}"))),
        }
    }
}
