//! The interface as a table: every path and method, what reads it, what it takes, what it replies. The router and the description
//! (`/openapi.json`, `/docs`) are made from the same rows, so that neither can forget an operation. A new operation is a new row.

use crate::config::Limits;
use crate::interface::problem_types;
use crate::path::parse::request::Read;
use std::time::Duration;

/// A method and a path, and everything that is to be said about them.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// With names in braces, as the router and OpenAPI both have them.
    pub(crate) path: &'static str,
    pub(crate) does: Does,
    /// Unique; what generated clients call it.
    pub(crate) id: &'static str,
    /// One sentence.
    pub(crate) says: &'static str,
    /// What else there is to know.
    pub(crate) more: &'static str,
    pub(crate) takes: &'static [Parameter],
    pub(crate) body: Body,
    pub(crate) replies: &'static [Reply],
    /// Besides those that every operation may have and those that follow from what it takes.
    pub(crate) problems: &'static [&'static str],
}

/// Of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Delete,
}

/// Who replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    /// The dispatch, with what this function reads.
    Work(Read),
    Alive,
    Metrics,
    Description,
    Page,
}

/// Where a parameter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Of a queue, a sender or a receiver.
    Name,
    /// A number from 1 to this limit.
    Count(fn(&Limits) -> usize),
    /// A time with its unit, up to this limit; whether it may be nothing.
    Time(fn(&Limits) -> Duration, bool),
    /// A key of a send.
    Key,
    /// Any text.
    Word,
}

/// A parameter.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) place: Place,
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) is_required: bool,
    pub(crate) says: &'static str,
    pub(crate) example: &'static str,
}

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    /// A message as it is.
    Bytes,
    /// A document with this schema, and an example.
    Json(&'static str, &'static str),
    /// The same, or nothing.
    JsonOrNothing(&'static str, &'static str),
}

/// What a reply carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Nothing,
    /// A document with this schema.
    Json(&'static str),
    /// One message as its bytes or, with `max`, a document with this schema.
    MessageOr(&'static str),
    /// The same under a lease.
    LeasedOr(&'static str),
    /// Something of this media type.
    Text(&'static str),
}

/// A reply that is not a problem.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) says: &'static str,
    pub(crate) content: Content,
}

pub(crate) const QUEUE: Parameter = Parameter {
    place: Place::Path,
    name: "queue",
    value: Value::Name,
    is_required: true,
    says: "The queue.",
    example: "orders",
};

pub(crate) const SENDER: Parameter = Parameter {
    place: Place::Header,
    name: "Waystage-Sender",
    value: Value::Name,
    is_required: true,
    says: "Who sends.",
    example: "alice",
};

pub(crate) const fn query(name: &'static str, value: Value, says: &'static str, example: &'static str) -> Parameter {
    Parameter { place: Place::Query, name, value, is_required: false, says, example }
}

pub(crate) const fn reply(status: u16, content: Content, says: &'static str) -> Reply {
    Reply { status, says, content }
}

impl Operation {
    /// The types of problems that it may reply with.
    pub(crate) fn problems(&self) -> Vec<&'static str> {
        let Does::Work(_) = self.does else { return Vec::new() };
        let has_name = self.takes.iter().any(|parameter| matches!(parameter.value, Value::Name));
        let of_name = has_name.then_some("name-not-allowed");
        let of_body = matches!(self.body, Body::Json(..) | Body::JsonOrNothing(..)).then_some("not-json");
        let common = problem_types::COMMON.iter().copied();
        common.chain(of_name).chain(of_body).chain(self.problems.iter().copied()).collect()
    }
}
