//! JSON with comments, as mcrouter reads it, and the places of values in it.

use crate::error::ConvertError;
use serde_json::{Map, Value};

/// Whether a text begins with a brace, after comments and spaces.
pub(crate) fn is_json(text: &str) -> bool {
    without_comments(text).trim_start().starts_with('{')
}

/// Parses a text. The parser limits the depth of nesting.
pub(super) fn parse(text: &str) -> Result<Value, ConvertError> {
    serde_json::from_str(&without_comments(text)).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        ConvertError::at_line(error.line(), format!("not JSON: {message}"))
    })
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
        let line = parse("{\n/* a\n */ \"b\": }").unwrap_err().to_string();
        assert!(line.starts_with("3: not JSON: "), "{line}");
        assert!(parse(&("[".repeat(5000) + &"]".repeat(5000))).is_err());
        assert!(parse("{\"a\": \"").is_err() && parse("{ /* ").is_err() && parse("\"\\").is_err());
    }
}
