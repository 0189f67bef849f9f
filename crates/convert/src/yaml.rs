//! YAML as a tree in which every value knows its line. Only what configurations of twemproxy have: mappings, lists and texts.

use crate::error::ConvertError;
use saphyr_parser::{Event, Parser};

/// The deepest nesting: pools, keys, and a list of servers.
const DEPTH_MAX: usize = 8;

/// A value, with the line where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// A value. A text is what is written, so `true` and `11211` are texts too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    List(Vec<Node>),
    /// The keys with their values, in their order.
    Mapping(Vec<(Node, Node)>),
}

/// A list or mapping that is not complete. The children of a mapping are its keys and values in turn.
struct Open {
    line: usize,
    is_mapping: bool,
    children: Vec<Node>,
}

impl Node {
    /// Its text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Parses a text with one document.
///
/// # Errors
/// If it is not YAML, or has what no configuration of twemproxy has.
pub(crate) fn parse(text: &str) -> Result<Node, ConvertError> {
    let mut open: Vec<Open> = Vec::new();
    let mut document = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| ConvertError::at_line(error.marker().line(), format!("not YAML: {}", error.info())))?;
        let line = span.start.line();
        let refuse = |problem: &str| Err(ConvertError::at_line(line, problem));
        let complete = match event {
            Event::Alias(_) => return refuse("twemproxy has no aliases; write the value out"),
            Event::Scalar(text, _, 0, None) => Node { line, value: Value::Text(text.into_owned()) },
            Event::SequenceStart(0, None) | Event::MappingStart(0, None) if open.len() == DEPTH_MAX => {
                return refuse("lists or mappings are nested too deeply");
            }
            Event::SequenceStart(0, None) => {
                open.push(Open { line, is_mapping: false, children: Vec::new() });
                continue;
            }
            Event::MappingStart(0, None) => {
                open.push(Open { line, is_mapping: true, children: Vec::new() });
                continue;
            }
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                return refuse("twemproxy has no anchors and no tags; leave it out");
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(open) => open.into_node(),
                None => return refuse("a list or mapping ends that has not begun"),
            },
            _ => continue,
        };
        match open.last_mut() {
            Some(above) => above.children.push(complete),
            None if document.is_some() => return refuse("a second document begins; give a file with one"),
            None => document = Some(complete),
        }
    }
    document.ok_or_else(|| ConvertError::new("is empty; give a configuration with at least one pool"))
}

impl Open {
    fn into_node(self) -> Node {
        let Open { line, is_mapping, children } = self;
        if !is_mapping {
            return Node { line, value: Value::List(children) };
        }
        let mut children = children.into_iter();
        let mut pairs = Vec::new();
        while let (Some(key), Some(value)) = (children.next(), children.next()) {
            pairs.push((key, value));
        }
        Node { line, value: Value::Mapping(pairs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_line() {
        let node =
            parse("# a comment\nalpha:\n  listen: 127.0.0.1:22121\n  servers:\n   - a:1:1 \"one\"\n   - 'b:1:1'\n")
                .unwrap();
        let Value::Mapping(pools) = &node.value else { panic!("{node:?}") };
        let Value::Mapping(keys) = &pools[0].1.value else { panic!("{node:?}") };
        assert_eq!((pools[0].0.text(), pools[0].0.line, keys.len()), (Some("alpha"), 2, 2));
        assert_eq!((keys[0].1.text(), keys[0].1.line), (Some("127.0.0.1:22121"), 3));
        let Value::List(servers) = &keys[1].1.value else { panic!("{node:?}") };
        let texts: Vec<_> = servers.iter().map(|server| (server.line, server.text().unwrap())).collect();
        assert_eq!(texts, [(5, "a:1:1 \"one\""), (6, "b:1:1")]);
    }

    #[test]
    fn what_is_no_configuration_is_one_line_with_its_place() {
        let deep = "[".repeat(9) + &"]".repeat(9);
        for (text, expected) in [
            ("", "is empty"),
            ("# only a comment\n", "is empty"),
            ("a: [1, 2", "not YAML: "),
            ("a:\n\t- b", "2: not YAML: "),
            ("a: &x 1\n", "1: twemproxy has no anchors"),
            ("a: 1\nb: *x\n", "2: "),
            ("a: !!int 1\n", "1: twemproxy has no anchors and no tags"),
            ("a: 1\n---\nb: 2\n", "a second document begins"),
            (deep.as_str(), "1: lists or mappings are nested too deeply"),
        ] {
            let line = parse(text).unwrap_err().to_string();
            assert!(line.contains(expected) && !line.contains('\n'), "{text:?}: {line}");
        }
    }
}
