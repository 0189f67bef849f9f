//! Parses a meta command whose line is complete; its value may not have arrived yet.
//! Refuses commands that would desynchronise a backend connection or that cannot be routed; the backend interprets the flags.

use crate::base64::decode_base64;
use crate::limits::{KEY_BYTES_MAXIMUM, Limits};
use crate::meta::Meta;
use crate::meta_flags::MetaFlags;
use crate::meta_options::Options;
use crate::number::parse_i64;
use crate::parse_storage::LENGTH_MAXIMUM;
use crate::request::{ParsedRequest, Request};
use crate::request_error::{FlagError, RequestError};
use crate::verb::Verb;
use crate::words::Words;
use memchr::memchr;

/// Words of a line, the command included. memcached refuses a line with more, and does not read the value of such an `ms`.
const WORDS_MAXIMUM: usize = 19;

/// Parses the command whose line is the first `line_bytes` of `bytes` and whose arguments are `words`.
pub(crate) fn parse_meta<'a>(
    verb: Verb,
    mut words: Words<'a>,
    bytes: &'a [u8],
    line_bytes: usize,
    limits: &Limits,
) -> ParsedRequest<'a> {
    let Some(key) = words.next() else {
        let error = if verb == Verb::Me { RequestError::BadLine } else { RequestError::WrongWordCount };
        return ParsedRequest::Invalid { error, consumed: line_bytes, swallow: 0 };
    };
    let length = if verb == Verb::Ms { Some(words.next().and_then(parse_length)) } else { None };
    // A usable length determines how many bytes to drop, even if the rest of the line is malformed.
    let swallow = length.flatten().map_or(0, |length| length + 2);
    let flags = MetaFlags::new(words.rest());
    let meta = Meta { verb, key, flags, left_out: b"", value: b"" };
    if let Err(error) = check(&meta, length, bytes, line_bytes, limits) {
        return ParsedRequest::Invalid { error, consumed: line_bytes, swallow };
    }
    let Some(length) = length.flatten() else {
        return ParsedRequest::Request { request: Request::Meta(meta), consumed: line_bytes };
    };
    let refused = |error| Options::parse(&meta).err().unwrap_or(error);
    let Some(length) = usize::try_from(length).ok().filter(|&length| length <= limits.value_bytes) else {
        let error = refused(RequestError::ValueTooLarge);
        return ParsedRequest::Invalid { error, consumed: line_bytes, swallow };
    };
    let Some((value, end)) = bytes[line_bytes..].get(..length + 2).map(|body| body.split_at(length)) else {
        return ParsedRequest::Incomplete;
    };
    let consumed = line_bytes + length + 2;
    if end != b"\r\n" {
        return ParsedRequest::Invalid { error: refused(RequestError::BadDataChunk), consumed, swallow: 0 };
    }
    ParsedRequest::Request { request: Request::Meta(Meta { value, ..meta }), consumed }
}

/// A length in the range that memcached accepts.
fn parse_length(word: &[u8]) -> Option<u64> {
    parse_i64(word).and_then(|length| u64::try_from(length).ok()).filter(|&length| length <= LENGTH_MAXIMUM)
}

/// Checks the line; `length` is that of an `ms`, if it has a usable one.
fn check(
    meta: &Meta<'_>,
    length: Option<Option<u64>>,
    bytes: &[u8],
    line_bytes: usize,
    limits: &Limits,
) -> Result<(), RequestError> {
    // memcached ends a line at a NUL, so it would not see the flags after it.
    if !limits.allow_key(meta.key) || memchr(0, &bytes[..line_bytes]).is_some() {
        return Err(RequestError::BadLine);
    }
    let words = 2 + usize::from(length.is_some()) + meta.flags.count();
    if words > WORDS_MAXIMUM && meta.verb != Verb::Me {
        let error = if meta.verb == Verb::Mg { FlagError::TooManyOfGet } else { FlagError::TooMany };
        return Err(RequestError::Flag(error));
    }
    if length == Some(None) {
        return Err(RequestError::BadLine);
    }
    if meta.is_base64() && decode_base64(meta.key, &mut [0; KEY_BYTES_MAXIMUM]).is_none() {
        return Err(match meta.verb {
            Verb::Me => RequestError::BadLine,
            _ => Options::parse(meta).err().unwrap_or(RequestError::Flag(FlagError::BadBase64)),
        });
    }
    // The reply to `me` contains the key. A key with a line end would make it look like several replies.
    if meta.verb == Verb::Me && meta.key_holds_line_end() {
        return Err(RequestError::BadLine);
    }
    // The proxy removes one `q` before it forwards the command. Two are an error, which the backend must see.
    if meta.flags.count_of(b'q') > 1 && meta.verb != Verb::Me {
        return Err(Options::parse(meta).err().unwrap_or(RequestError::Flag(FlagError::Duplicate)));
    }
    Ok(())
}
