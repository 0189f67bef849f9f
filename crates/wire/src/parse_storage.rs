//! Parses a request with a value: its line is complete, its value may not have arrived yet.
//! The length is read first, because it determines how many bytes to drop even if the rest of the line is malformed.

use crate::limits::Limits;
use crate::number::{parse_i64, parse_u32, parse_u64};
use crate::request::{ParsedRequest, Request};
use crate::request_error::RequestError;
use crate::verb::Verb;
use crate::words::WordList;

/// The largest number that memcached accepts as a length.
pub(crate) const LENGTH_MAXIMUM: u64 = (i32::MAX - 2) as u64;

/// The fields of the line other than the length.
struct Header<'a> {
    key: &'a [u8],
    flags: u32,
    exptime: i64,
    cas: u64,
}

/// Parses the storage request whose line is the first `line_bytes` of `bytes` and whose arguments are `words`.
pub(crate) fn parse_storage<'a>(
    verb: Verb,
    words: &WordList<'a>,
    bytes: &'a [u8],
    line_bytes: usize,
    limits: &Limits,
) -> ParsedRequest<'a> {
    let invalid = |error, swallow| ParsedRequest::Invalid { error, consumed: line_bytes, swallow };
    let count_minimum = if verb == Verb::Cas { 5 } else { 4 };
    if words.count() != count_minimum && words.count() != count_minimum + 1 {
        return invalid(RequestError::WrongWordCount, 0);
    }
    let noreply = words.ends_with_noreply();
    let Some(length) = parse_u64(words.get(3)).filter(|&length| length <= LENGTH_MAXIMUM) else {
        return invalid(RequestError::answered_unless(noreply, &RequestError::BadLine), 0);
    };
    let header = match parse_header(verb, words, limits) {
        Ok(header) => header,
        Err(error) => return invalid(RequestError::answered_unless(noreply, error), length + 2),
    };
    let Some(length) = usize::try_from(length).ok().filter(|&length| length <= limits.value_bytes) else {
        return invalid(RequestError::answered_unless(noreply, &RequestError::ValueTooLarge), length + 2);
    };
    let Some((value, end)) = bytes[line_bytes..].get(..length + 2).map(|body| body.split_at(length)) else {
        return ParsedRequest::Incomplete;
    };
    let consumed = line_bytes + length + 2;
    if end != b"\r\n" {
        let error = RequestError::answered_unless(noreply, &RequestError::BadDataChunk);
        return ParsedRequest::Invalid { error, consumed, swallow: 0 };
    }
    let Header { key, flags, exptime, cas } = header;
    ParsedRequest::Request { request: Request::Store { verb, key, flags, exptime, value, cas, noreply }, consumed }
}

fn parse_header<'a>(verb: Verb, words: &WordList<'a>, limits: &Limits) -> Result<Header<'a>, &'static RequestError> {
    let key = words.get(0);
    if !limits.allow_key(key) {
        return Err(&RequestError::BadKey);
    }
    let flags = parse_u32(words.get(1)).ok_or(&RequestError::BadLine)?;
    let exptime = parse_i64(words.get(2)).ok_or(&RequestError::BadLine)?;
    let cas = if verb == Verb::Cas { parse_u64(words.get(4)).ok_or(&RequestError::BadLine)? } else { 0 };
    Ok(Header { key, flags, exptime, cas })
}
