//! The operations of a run with messages and their weights, parsed from `send:4,pop:1` or `d15`.

use crate::measure::request::Operation;
use std::fmt;
use std::str::FromStr;

/// The operation of a request to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table in docs/load-messages.md describes each")]
pub enum MessageOperation {
    Create,
    Delete,
    Send,
    SendTo,
    Peek,
    PeekFrom,
    Pop,
    PopFrom,
    Waiting,
    Receive,
    /// The next three follow a receive, and are not drawn themselves.
    Acknowledge,
    Extend,
    Nack,
    /// Not one request, but the five requests of D15 together.
    D15,
}

/// The number of operations.
pub(crate) const OPERATIONS: usize = ALL.len();
const ALL: [MessageOperation; 14] = [
    MessageOperation::Create,
    MessageOperation::Delete,
    MessageOperation::Send,
    MessageOperation::SendTo,
    MessageOperation::Peek,
    MessageOperation::PeekFrom,
    MessageOperation::Pop,
    MessageOperation::PopFrom,
    MessageOperation::Waiting,
    MessageOperation::Receive,
    MessageOperation::Acknowledge,
    MessageOperation::Extend,
    MessageOperation::Nack,
    MessageOperation::D15,
];
/// The operations that can be drawn: those up to this number.
const DRAWN: usize = 10;
/// A larger weight is most likely a mistake.
const WEIGHT_MAX: u32 = 1_000_000;

/// The operations of the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Each request is drawn with these weights.
    Drawn(Vec<(MessageOperation, u32)>),
    /// Each client sends the five requests of D15's operation in turn.
    D15,
}

impl MessageOperation {
    /// The name in arguments and in the summary.
    pub fn name(self) -> &'static str {
        match self {
            MessageOperation::Create => "create",
            MessageOperation::Delete => "delete",
            MessageOperation::Send => "send",
            MessageOperation::SendTo => "send-to",
            MessageOperation::Peek => "peek",
            MessageOperation::PeekFrom => "peek-from",
            MessageOperation::Pop => "pop",
            MessageOperation::PopFrom => "pop-from",
            MessageOperation::Waiting => "waiting",
            MessageOperation::Receive => "receive",
            MessageOperation::Acknowledge => "acknowledge",
            MessageOperation::Extend => "extend",
            MessageOperation::Nack => "nack",
            MessageOperation::D15 => "d15",
        }
    }

    /// The name of the operation with this number.
    pub(crate) fn name_of(number: usize) -> &'static str {
        ALL.get(number).map_or("", |operation| operation.name())
    }

    /// The number in records; docs/record-format.md lists them all.
    pub(crate) fn record(self) -> u8 {
        use MessageOperation::{
            Acknowledge, Create, D15, Delete, Extend, Nack, Peek, PeekFrom, Pop, PopFrom, Receive, Send, SendTo,
            Waiting,
        };
        match self {
            Send | SendTo => 27,
            Pop | PopFrom => 28,
            Peek | PeekFrom => 29,
            Waiting => 30,
            Create => 31,
            Delete => 32,
            Receive => 36,
            Acknowledge => 37,
            Extend => 38,
            Nack => 39,
            D15 => 0,
        }
    }

    /// The class under which it is counted: operations that may find nothing count as gets, the others as sets.
    pub(crate) fn class(self) -> Operation {
        if self.is_reading() { Operation::Get } else { Operation::Set }
    }

    /// Whether it may find nothing.
    pub(crate) fn is_reading(self) -> bool {
        use MessageOperation::{Acknowledge, Delete, Extend, Nack, Peek, PeekFrom, Pop, PopFrom, Receive, Waiting};
        matches!(self, Peek | PeekFrom | Pop | PopFrom | Waiting | Delete | Receive | Acknowledge | Extend | Nack)
    }
}

impl Mix {
    /// Whether messages are received with leases.
    pub(crate) fn is_leasing(&self) -> bool {
        match self {
            Mix::D15 => false,
            Mix::Drawn(drawn) => drawn.iter().any(|(operation, _)| *operation == MessageOperation::Receive),
        }
    }

    /// Whether some fetches name a sender and others do not. A service executes them at the same time, and each skips
    /// the messages that the other has locked.
    pub(crate) fn is_fetching_in_two_ways(&self) -> bool {
        let Mix::Drawn(drawn) = self else { return false };
        let has = |wanted: MessageOperation| drawn.iter().any(|(operation, _)| *operation == wanted);
        has(MessageOperation::PopFrom) && (has(MessageOperation::Pop) || has(MessageOperation::Receive))
    }

    /// Whether messages are sent to particular receivers.
    pub(crate) fn is_addressing(&self) -> bool {
        match self {
            Mix::D15 => true,
            Mix::Drawn(drawn) => drawn.iter().any(|(operation, _)| *operation == MessageOperation::SendTo),
        }
    }
}

impl Default for Mix {
    /// Equal numbers of sends and pops.
    fn default() -> Mix {
        Mix::Drawn(vec![(MessageOperation::Send, 1), (MessageOperation::Pop, 1)])
    }
}

impl FromStr for Mix {
    type Err = String;

    /// Parses `NAME[:WEIGHT],...`, or `d15`.
    fn from_str(text: &str) -> Result<Mix, String> {
        if text == MessageOperation::D15.name() {
            return Ok(Mix::D15);
        }
        let known: Vec<_> = ALL[..DRAWN].iter().map(|operation| (*operation, operation.name())).collect();
        let drawn = parse_weights(text, &known, ", or d15 alone")?;
        Ok(Mix::Drawn(drawn))
    }
}

/// Parses `NAME[:WEIGHT],...`.
pub(super) fn parse_weights<T: Copy + PartialEq>(
    text: &str,
    known: &[(T, &str)],
    other: &str,
) -> Result<Vec<(T, u32)>, String> {
    let mut drawn: Vec<(T, u32)> = Vec::new();
    for part in text.split(',') {
        let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
        let names = || known.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        let found = known.iter().find(|(_, known)| *known == name);
        let (found, _) =
            found.ok_or_else(|| format!("{name:?} is not an operation; give one of {}{other}", names()))?;
        let weight = weight.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        let weight = weight.ok_or_else(|| format!("{part:?}: a weight is a number from 1 to {WEIGHT_MAX}"))?;
        if drawn.iter().any(|(other, _)| other == found) {
            return Err(format!("{name} is named twice"));
        }
        drawn.push((*found, weight));
    }
    Ok(drawn)
}

impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::D15 => formatter.write_str(MessageOperation::D15.name()),
            Mix::Drawn(drawn) => {
                let parts: Vec<String> =
                    drawn.iter().map(|(operation, weight)| format!("{}:{weight}", operation.name())).collect();
                formatter.write_str(&parts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_names_with_weights() {
        let mix: Mix = "send:4,pop".parse().unwrap();
        assert_eq!(mix, Mix::Drawn(vec![(MessageOperation::Send, 4), (MessageOperation::Pop, 1)]));
        assert_eq!(mix.to_string(), "send:4,pop:1");
        assert_eq!(("d15".parse(), Mix::D15.to_string().as_str()), (Ok(Mix::D15), "d15"));
    }

    #[test]
    fn fetches_with_and_without_a_sender_are_two_ways() {
        for (text, expected) in [
            ("send,pop,pop-from", true),
            ("send,receive,pop-from", true),
            ("send,pop-from", false),
            ("send,pop,receive,peek-from", false),
            ("d15", false),
        ] {
            assert_eq!(text.parse::<Mix>().unwrap().is_fetching_in_two_ways(), expected, "{text}");
        }
    }

    #[test]
    fn a_malformed_mix_is_one_line() {
        for (text, expected) in [
            ("", "is not an operation; give one of create, delete, send"),
            ("send,d15", "\"d15\" is not an operation"),
            ("send:0", "a weight is"),
            ("send:-1", "a weight is"),
            ("pop:1,pop:2", "pop is named twice"),
            ("acknowledge", "\"acknowledge\" is not an operation"),
        ] {
            let line = text.parse::<Mix>().unwrap_err();
            assert!(line.contains(expected) && !line.contains('\n'), "{text}: {line}");
        }
    }

    #[test]
    fn the_number_of_an_operation_is_its_index() {
        for (number, operation) in ALL.iter().enumerate() {
            assert_eq!((*operation as usize, MessageOperation::name_of(number)), (number, operation.name()));
        }
    }
}
