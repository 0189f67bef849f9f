//! The types of the table of operations: an operation with its path, parameters, body, replies and problems.

use crate::config::{Limits, Permission};
use crate::interface::problem_types;
use crate::path::parse::request::Parse;
use std::time::Duration;

/// A method and a path, and their description.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// With names in braces, as both the router and OpenAPI expect them.
    pub(crate) path: &'static str,
    pub(crate) handler: Handler,
    /// Unique; the name of the method in generated clients.
    pub(crate) id: &'static str,
    /// What a token must permit; none: every token will do.
    pub(crate) permission: Option<Permission>,
    /// One sentence.
    pub(crate) summary: &'static str,
    /// Further sentences.
    pub(crate) details: &'static str,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) body: Body,
    pub(crate) replies: &'static [Reply],
    /// Besides the problems of all operations and those that follow from the parameters and the body.
    pub(crate) problems: &'static [&'static str],
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Delete,
}

/// What answers the request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler {
    /// The dispatcher, with the work that this function parses.
    Work(Parse),
    Alive,
    Ready,
    Metrics,
    Description,
    Page,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Path,
    Query,
    Header,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// The name of a queue, sender or receiver.
    Name,
    /// A number from 1 to this limit.
    Count(fn(&Limits) -> usize),
    /// A duration with its unit, up to this limit, and whether it can be zero.
    Time(fn(&Limits) -> Duration, bool),
    /// An idempotency key.
    Key,
    /// Any text.
    Text,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) location: Location,
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) is_required: bool,
    pub(crate) description: &'static str,
    pub(crate) example: &'static str,
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    /// A message's body as it is.
    Bytes,
    /// A document with this schema, and an example.
    Json(&'static str, &'static str),
    /// The same, or no body.
    JsonOrNothing(&'static str, &'static str),
}

/// The body of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Nothing,
    /// A document with this schema.
    Json(&'static str),
    /// One message as its bytes or, with `max`, a document with this schema.
    MessageOrJson(&'static str),
    /// The same for leased messages.
    LeasedMessageOrJson(&'static str),
    /// Text of this media type.
    Text(&'static str),
}

/// A successful reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) content: Content,
}

pub(crate) const QUEUE: Parameter = Parameter {
    location: Location::Path,
    name: "queue",
    value: Value::Name,
    is_required: true,
    description: "The queue.",
    example: "orders",
};

pub(crate) const SENDER: Parameter = Parameter {
    location: Location::Header,
    name: "Waystage-Sender",
    value: Value::Name,
    is_required: true,
    description: "The sender.",
    example: "alice",
};

pub(crate) const fn query(
    name: &'static str,
    value: Value,
    description: &'static str,
    example: &'static str,
) -> Parameter {
    Parameter { location: Location::Query, name, value, is_required: false, description, example }
}

pub(crate) const fn reply(status: u16, content: Content, description: &'static str) -> Reply {
    Reply { status, description, content }
}

impl Operation {
    /// The parts of the path around its parameter: what is before it, its name, and what follows. None without a parameter; no path has
    /// more than one.
    pub(crate) fn path_parts(&self) -> Option<(&'static str, &'static str, &'static str)> {
        let (before, rest) = self.path.split_once('{')?;
        let (name, after) = rest.split_once('}')?;
        Some((before, name, after))
    }

    /// The problem types that the operation can return.
    pub(crate) fn problems(&self) -> Vec<&'static str> {
        let Handler::Work(_) = self.handler else { return self.problems.to_vec() };
        let has_name = self.parameters.iter().any(|parameter| matches!(parameter.value, Value::Name));
        let of_name = has_name.then_some("invalid-name");
        let of_body = matches!(self.body, Body::Json(..) | Body::JsonOrNothing(..)).then_some("not-json");
        let common = problem_types::COMMON_PROBLEMS.iter().copied();
        common.chain(of_name).chain(of_body).chain(self.problems.iter().copied()).collect()
    }
}
