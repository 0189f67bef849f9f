//! JSON with comments, as mcrouter reads it, and the places of values in it.

use crate::error::ConvertError;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};
use std::fmt;

/// Whether a text begins with a brace, after comments and spaces.
pub(crate) fn is_json(text: &str) -> bool {
    without_comments(text).trim_start().starts_with('{')
}

/// Parses a text. The parser limits the depth of nesting.
pub(super) fn parse(text: &str) -> Result<Value, ConvertError> {
    let parsed = serde_json::from_str(&without_comments(text)).map_err(|error| {
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
        let fault = if error.classify() == Category::Data { "" } else { "not JSON: " };
        ConvertError::at_line(error.line(), format!("{fault}{message}"))
    });
    parsed.map(|Strict(value)| value)
}

/// A value in which no object has a key twice. Only the last of them would count, which is hardly meant.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("{key:?} is given twice; leave one of them out")));
            }
            let Strict(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(value)) = access.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// An object at this place.
pub(super) fn object<'j>(value: &'j Value, path: &str) -> Result<&'j Map<String, Value>, ConvertError> {
    value.as_object().ok_or_else(|| ConvertError::at_path(path, "give an object in { }"))
}

/// The place of a value inside another one.
pub(super) fn below(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}

/// The text with spaces in place of comments, so that lines keep their numbers.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => text_length(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ => first.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        match first == '/' && length > 1 {
            true => kept.extend(part.chars().map(|character| if character == '\n' { '\n' } else { ' ' })),
            false => kept.push_str(part),
        }
        rest = after;
    }
    kept
}

/// The length of the text in quotes at the beginning.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_no_part_of_the_text() {
        let text = "/* a\n \"b */ {\n// c \"\n\"d\": \"/* no // \\\" comment */\", /**/ \"e\": 1 }";
        assert!(is_json(text) && !is_json("alpha:\n  listen: a:1\n"));
        let value = parse(text).unwrap();
        assert_eq!((value["d"].as_str(), value["e"].as_u64()), (Some("/* no // \" comment */"), Some(1)));
        let twice = parse("{ \"a\": [\n{ \"b at line \": 1.5,\n\"b at line \": -1 }] }").unwrap_err().to_string();
        assert_eq!(twice, "3: \"b at line \" is given twice; leave one of them out");
        let all = parse("{\"a\": [null, true, -1, 2.5, \"x\", {}, []], \"b\": {\"a\": 1}}").unwrap();
        assert_eq!(all, serde_json::json!({"a": [null, true, -1, 2.5, "x", {}, []], "b": {"a": 1}}));
        let line = parse("{\n/* a\n */ \"b\": }").unwrap_err().to_string();
        assert!(line.starts_with("3: not JSON: "), "{line}");
        assert!(parse(&("[".repeat(5000) + &"]".repeat(5000))).is_err());
        assert!(parse("{\"a\": \"").is_err() && parse("{ /* ").is_err() && parse("\"\\").is_err());
    }
}
