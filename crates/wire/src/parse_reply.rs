//! Parses one unit of a reply. Stricter than the request parser: if a backend sends bytes that cannot be understood exactly,
//! its later replies could be matched to the wrong requests.

use crate::limits::{Limits, VALUE_BYTES_MAXIMUM};
use crate::number::{number_after_space, parse_digits, parse_u32, parse_u64};
use crate::reply::{MetaCode, Reply, Value};
use crate::words::{Words, find_space, trim_end_spaces};
use memchr::memchr;

/// The result of parsing the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedReply<'a> {
    /// The unit is not complete; parse again when more bytes have arrived.
    Incomplete,
    /// One unit: a value with its line, or a line.
    Reply {
        /// The unit; it borrows from the bytes.
        reply: Reply<'a>,
        /// The length of the unit in bytes.
        consumed: usize,
    },
    /// The bytes are not a reply, and nothing after them can be understood.
    Broken(ReplyError),
}

/// The reason why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The line is longer than the limit.
    #[error("the reply line is too long")]
    LineTooLong,
    /// A line that ends in `\n` alone.
    #[error("the reply line does not end in \\r\\n")]
    BadLineEnd,
    /// A line that no server sends.
    #[error("the reply is unknown")]
    UnknownReply,
    /// A `VALUE` line that is not a key, flags, a length and an optional cas token, or a `VA` line without a length.
    #[error("the VALUE or VA line is malformed")]
    BadValueLine,
    /// A `STAT` line without a name.
    #[error("the STAT line is malformed")]
    BadStatLine,
    /// A number of more than 64 bits.
    #[error("the number does not fit 64 bits")]
    BadNumber,
    /// The announced value is larger than the limit.
    #[error("the value is larger than the limit")]
    ValueTooLarge,
    /// A value does not end at its announced length.
    #[error("the value does not end in \\r\\n at its announced length")]
    BadDataChunk,
}

/// Parses the first unit in `bytes`.
pub fn parse_reply<'a>(bytes: &'a [u8], limits: &Limits) -> ParsedReply<'a> {
    let searched = &bytes[..bytes.len().min(limits.line_bytes)];
    let Some(end) = memchr(b'\n', searched) else {
        return if bytes.len() < limits.line_bytes {
            ParsedReply::Incomplete
        } else {
            ParsedReply::Broken(ReplyError::LineTooLong)
        };
    };
    let Some(line) = bytes[..end].strip_suffix(b"\r") else {
        return ParsedReply::Broken(ReplyError::BadLineEnd);
    };
    if let Some(rest) = line.strip_prefix(b"VALUE ") {
        return parse_value(rest, bytes, end + 1, limits);
    }
    if let Some(rest) = line.strip_prefix(b"VA ") {
        return parse_meta_value(rest, bytes, end + 1, limits);
    }
    match parse_line(line) {
        Ok(reply) => ParsedReply::Reply { reply, consumed: end + 1 },
        Err(error) => ParsedReply::Broken(error),
    }
}

/// The line of a value, and how many bytes follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueHead<'a> {
    /// The value, without its data.
    pub reply: Reply<'a>,
    /// The length of the line.
    pub line_bytes: usize,
    /// The length of the data and its line end, which follow the line.
    pub body_bytes: usize,
}

/// Parses the line of a value that is not complete, or for which `parse_reply` has returned [`ReplyError::ValueTooLarge`]. The caller
/// can make room for the value, or skip it and understand what follows it. None if the line is not complete or not that of a value, or
/// if the value is larger than any value of memcached.
pub fn parse_value_head<'a>(bytes: &'a [u8], limits: &Limits) -> Option<ValueHead<'a>> {
    let end = memchr(b'\n', bytes)?;
    let line = bytes[..end].strip_suffix(b"\r")?;
    let (reply, length) = match line.strip_prefix(b"VALUE ") {
        Some(line) => value_line(line, limits).map(|(value, length)| (Reply::Value(value), length))?,
        None => {
            let (length, flags) = split_word(line.strip_prefix(b"VA ")?);
            (Reply::MetaValue { flags, data: b"" }, parse_digits(length)?)
        }
    };
    let length = usize::try_from(length).ok().filter(|&length| length <= VALUE_BYTES_MAXIMUM)?;
    Some(ValueHead { reply, line_bytes: end + 1, body_bytes: length + 2 })
}

/// Parses a value whose line is the first `line_bytes` of `bytes`; `line` is the text after `VALUE `.
fn parse_value<'a>(line: &'a [u8], bytes: &'a [u8], line_bytes: usize, limits: &Limits) -> ParsedReply<'a> {
    let Some((value, length)) = value_line(line, limits) else {
        return ParsedReply::Broken(ReplyError::BadValueLine);
    };
    parse_data(length, bytes, line_bytes, limits, |data| Reply::Value(Value { data, ..value }))
}

/// The value without its data, and the length of the data, from the text after `VALUE `.
fn value_line<'a>(line: &'a [u8], limits: &Limits) -> Option<(Value<'a>, u64)> {
    let parsed = usual_value_line(line).or_else(|| unusual_value_line(line));
    parsed.filter(|(value, _)| value.key.len() <= limits.key_bytes)
}

/// A line as servers write it: numbers of digits only, with one space before each. Its numbers are read without a search for their ends.
fn usual_value_line(line: &[u8]) -> Option<(Value<'_>, u64)> {
    let (key, rest) = line.split_at(find_space(line).filter(|&end| end > 0)?);
    let (flags, rest) = number_after_space(rest)?;
    let (length, rest) = number_after_space(rest)?;
    let (cas, rest) = match rest {
        [] => (None, rest),
        _ => number_after_space(rest).map(|(cas, rest)| (Some(cas), rest))?,
    };
    rest.is_empty().then_some((Value { key, flags: u32::try_from(flags).ok()?, cas, data: b"" }, length))
}

/// Any other line, with more spaces or with signs.
fn unusual_value_line(line: &[u8]) -> Option<(Value<'_>, u64)> {
    let mut words = Words::new(line);
    let key = words.next()?;
    let flags = words.next().and_then(parse_u32)?;
    let length = words.next().and_then(parse_digits)?;
    let cas = match words.next() {
        Some(cas) => Some(parse_u64(cas)?),
        None => None,
    };
    words.next().is_none().then_some((Value { key, flags, cas, data: b"" }, length))
}

/// The same for the reply to a meta command; `line` is the text after `VA `.
fn parse_meta_value<'a>(line: &'a [u8], bytes: &'a [u8], line_bytes: usize, limits: &Limits) -> ParsedReply<'a> {
    let (length, flags) = split_word(line);
    let Some(length) = parse_digits(length) else {
        return ParsedReply::Broken(ReplyError::BadValueLine);
    };
    parse_data(length, bytes, line_bytes, limits, |data| Reply::MetaValue { flags, data })
}

/// The value of `length` bytes after a line of `line_bytes`.
fn parse_data<'a>(
    length: u64,
    bytes: &'a [u8],
    line_bytes: usize,
    limits: &Limits,
    reply: impl FnOnce(&'a [u8]) -> Reply<'a>,
) -> ParsedReply<'a> {
    let Some(length) = usize::try_from(length).ok().filter(|&length| length <= limits.value_bytes) else {
        return ParsedReply::Broken(ReplyError::ValueTooLarge);
    };
    let Some(body) = length.checked_add(2).and_then(|body_bytes| bytes[line_bytes..].get(..body_bytes)) else {
        return ParsedReply::Incomplete;
    };
    let (data, end) = body.split_at(length);
    if end != b"\r\n" {
        return ParsedReply::Broken(ReplyError::BadDataChunk);
    }
    ParsedReply::Reply { reply: reply(data), consumed: line_bytes + body.len() }
}

fn parse_line(line: &[u8]) -> Result<Reply<'_>, ReplyError> {
    Ok(match line {
        b"END" => Reply::End,
        b"STORED" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"EXISTS" => Reply::Exists,
        b"NOT_FOUND" => Reply::NotFound,
        b"DELETED" => Reply::Deleted,
        b"TOUCHED" => Reply::Touched,
        b"OK" => Reply::Ok,
        b"RESET" => Reply::Reset,
        b"ERROR" => Reply::Error,
        [b'0'..=b'9', ..] => {
            // memcached pads a value that `decr` shortened with spaces, and some servers return it with them.
            Reply::Number(parse_digits(trim_end_spaces(line)).ok_or(ReplyError::BadNumber)?)
        }
        _ => parse_text_line(line)?,
    })
}

fn parse_text_line(line: &[u8]) -> Result<Reply<'_>, ReplyError> {
    let (word, text) = split_word(line);
    if let Some(code) = MetaCode::ALL.into_iter().find(|code| code.name().as_bytes() == word) {
        return Ok(Reply::Meta { code, flags: text });
    }
    Ok(match word {
        b"VERSION" => Reply::Version(text),
        b"STAT" => {
            let (name, value) = split_word(text);
            if name.is_empty() {
                return Err(ReplyError::BadStatLine);
            }
            Reply::Stat { name, value }
        }
        b"CLIENT_ERROR" => Reply::ClientError(text),
        b"SERVER_ERROR" => Reply::ServerError(text),
        // memcached has replies such as `ERROR: shutdown not enabled`.
        b"ERROR" | b"ERROR:" => Reply::Error,
        _ => return Err(ReplyError::UnknownReply),
    })
}

/// The text before and after the first space.
fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    let (word, rest) = line.split_at(find_space(line).unwrap_or(line.len()));
    (word, rest.strip_prefix(b" ").unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_as_servers_write_it_is_a_usual_one() {
        for line in [&b"key 0 5"[..], b"key 4294967295 1048576", b"key 0 5 9999999999999999999"] {
            assert!(usual_value_line(line).is_some(), "{line:?}");
        }
        for line in [&b" key 0 5"[..], b"key  0 5", b"key 0 5 ", b"key +0 5", b"key 0", b"key 0 5 18446744073709551615"]
        {
            assert!(usual_value_line(line).is_none(), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn a_usual_line_means_the_same_as_its_words(line in "[k0-9+ -]{0,12}|k [0-9]{1,20} [0-9]{1,21}( [0-9]{1,21})?") {
            let line = line.as_bytes();
            prop_assert!(usual_value_line(line).is_none_or(|parsed| unusual_value_line(line) == Some(parsed)));
        }
    }
}
