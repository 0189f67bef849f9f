//! Parses a request: finds the line, then the command, then its arguments.
//! Accepts the command lines that memcached 1.6.18 accepts; the tests list the differences.

use crate::keys::Keys;
use crate::limits::Limits;
use crate::limits::has_nul;
use crate::number::{parse_i64, parse_u32, parse_u64};
use crate::parse_meta::parse_meta;
use crate::parse_storage::parse_storage;
use crate::request::{ParsedRequest, Request};
use crate::request_error::RequestError;
use crate::server_command::refuse;
use crate::verb::Verb;
use crate::words::{WordList, Words, has_longer_word, skip_spaces, trim_end_spaces};
use memchr::memchr;

/// Spaces allowed before a command on a line longer than `Limits::command_bytes`.
const LEADING_SPACES_MAXIMUM: usize = 100;

/// Parses the first message in `bytes`.
pub fn parse_request<'a>(bytes: &'a [u8], limits: &Limits) -> ParsedRequest<'a> {
    let (line, consumed) = match find_line(bytes, limits) {
        Line::Incomplete => return ParsedRequest::Incomplete,
        Line::TooLong => return ParsedRequest::Close { error: Some(RequestError::LineTooLong) },
        Line::Found { line, consumed } => (line, consumed),
    };
    let mut words = Words::new(line);
    let name = words.next().unwrap_or_default();
    let arguments = match Verb::of(name) {
        Some(verb @ (Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats)) => parse_retrieval(verb, words, limits),
        Some(verb @ (Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas)) => {
            return parse_storage(verb, words, bytes, consumed, limits);
        }
        Some(verb @ (Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me)) => {
            return parse_meta(verb, words, bytes, consumed, limits);
        }
        Some(Verb::Mn) => Ok(Request::Noop),
        Some(Verb::Delete) => parse_delete(&WordList::new(words), limits),
        Some(verb @ (Verb::Incr | Verb::Decr)) => parse_arithmetic(verb, &WordList::new(words), limits),
        Some(Verb::Touch) => parse_touch(&WordList::new(words), limits),
        Some(Verb::FlushAll) => parse_flush_all(&WordList::new(words)),
        Some(Verb::Verbosity) => parse_verbosity(&WordList::new(words)),
        Some(Verb::Stats) => Ok(Request::Stats { argument: trim_end_spaces(words.rest()) }),
        Some(Verb::Version) => Ok(Request::Version),
        Some(Verb::Quit) => Ok(Request::Quit),
        Some(Verb::Other | Verb::Invalid) | None if last_word(line).starts_with(b"HTTP/") => {
            // A browser was tricked into connecting (cross-protocol attack): the rest must not be read as commands.
            return ParsedRequest::Close { error: None };
        }
        Some(Verb::Other | Verb::Invalid) | None => Err(refuse(name, &WordList::new(words))),
    };
    match arguments {
        Ok(request) => ParsedRequest::Request { request, consumed },
        Err(error) => ParsedRequest::Invalid { error, consumed, swallow: 0 },
    }
}

enum Line<'a> {
    Incomplete,
    TooLong,
    Found { line: &'a [u8], consumed: usize },
}

/// Finds the first line. Whether it is too long depends on its own bytes only, not on how many have arrived.
fn find_line<'a>(bytes: &'a [u8], limits: &Limits) -> Line<'a> {
    let searched = &bytes[..bytes.len().min(limits.line_bytes.max(limits.command_bytes))];
    let end = memchr(b'\n', searched);
    if end.unwrap_or(bytes.len()) >= limits.command_bytes && !may_be_long(&bytes[..limits.command_bytes]) {
        return Line::TooLong;
    }
    match end {
        Some(end) => {
            let line = &bytes[..end];
            Line::Found { line: line.strip_suffix(b"\r").unwrap_or(line), consumed: end + 1 }
        }
        None if bytes.len() >= limits.line_bytes.max(limits.command_bytes) => Line::TooLong,
        None => Line::Incomplete,
    }
}

/// Whether a line that starts like this may be longer than `Limits::command_bytes`.
/// Lines of `gat` and `gats` may not, because memcached closes the connection if it receives one.
fn may_be_long(beginning: &[u8]) -> bool {
    let line = skip_spaces(beginning);
    let is_retrieval = line.starts_with(b"get ") || line.starts_with(b"gets ");
    is_retrieval && beginning.len() - line.len() <= LEADING_SPACES_MAXIMUM
}

fn last_word(line: &[u8]) -> &[u8] {
    let line = trim_end_spaces(line);
    &line[line.iter().rposition(|&byte| byte == b' ').map_or(0, |space| space + 1)..]
}

fn parse_retrieval<'a>(verb: Verb, mut words: Words<'a>, limits: &Limits) -> Result<Request<'a>, RequestError> {
    let exptime = match verb {
        Verb::Gat | Verb::Gats => {
            let word = words.next().ok_or(RequestError::WrongWordCount)?;
            parse_i64(word).ok_or(RequestError::BadExptime)?
        }
        _ => 0,
    };
    let keys = Keys::new(words.rest());
    if words.rest().is_empty() {
        return Err(RequestError::WrongWordCount);
    }
    // One search for a NUL in all keys costs less than one in each.
    if has_nul(words.rest()) || has_longer_word(words.rest(), limits.key_bytes) {
        return Err(RequestError::BadKey);
    }
    Ok(Request::Get { verb, exptime, keys })
}

fn parse_delete<'a>(words: &WordList<'a>, limits: &Limits) -> Result<Request<'a>, RequestError> {
    if !(1..=3).contains(&words.count()) {
        return Err(RequestError::WrongWordCount);
    }
    // A `noreply` in the first position is a key.
    let noreply = words.count() > 1 && words.ends_with_noreply();
    // Old clients send a time, which must be 0.
    let is_valid = match words.count() {
        1 => true,
        2 => noreply || words.get(1) == b"0",
        _ => noreply && words.get(1) == b"0",
    };
    let key = words.get(0);
    if !is_valid {
        return Err(RequestError::answered_unless(noreply, &RequestError::BadDelete));
    }
    if !limits.allow_key(key) {
        return Err(RequestError::answered_unless(noreply, &RequestError::BadKey));
    }
    Ok(Request::Delete { key, noreply })
}

fn parse_arithmetic<'a>(verb: Verb, words: &WordList<'a>, limits: &Limits) -> Result<Request<'a>, RequestError> {
    if !(2..=3).contains(&words.count()) {
        return Err(RequestError::WrongWordCount);
    }
    let (key, noreply) = (words.get(0), words.ends_with_noreply());
    if !limits.allow_key(key) {
        return Err(RequestError::answered_unless(noreply, &RequestError::BadKey));
    }
    match parse_u64(words.get(1)) {
        Some(delta) => Ok(Request::Arithmetic { verb, key, delta, noreply }),
        None => Err(RequestError::answered_unless(noreply, &RequestError::BadDelta)),
    }
}

fn parse_touch<'a>(words: &WordList<'a>, limits: &Limits) -> Result<Request<'a>, RequestError> {
    if !(2..=3).contains(&words.count()) {
        return Err(RequestError::WrongWordCount);
    }
    let (key, noreply) = (words.get(0), words.ends_with_noreply());
    if !limits.allow_key(key) {
        return Err(RequestError::answered_unless(noreply, &RequestError::BadKey));
    }
    match parse_i64(words.get(1)) {
        Some(exptime) => Ok(Request::Touch { key, exptime, noreply }),
        None => Err(RequestError::answered_unless(noreply, &RequestError::BadExptime)),
    }
}

fn parse_flush_all<'a>(words: &WordList<'a>) -> Result<Request<'a>, RequestError> {
    let noreply = words.ends_with_noreply();
    match words.count() {
        0 => return Ok(Request::FlushAll { delay: None, noreply }),
        1 if noreply => return Ok(Request::FlushAll { delay: None, noreply }),
        1 | 2 => (),
        _ => return Err(RequestError::WrongWordCount),
    }
    match parse_i64(words.get(0)) {
        Some(delay) if delay >= 0 => Ok(Request::FlushAll { delay: Some(delay), noreply }),
        _ => Err(RequestError::answered_unless(noreply, &RequestError::BadExptime)),
    }
}

fn parse_verbosity<'a>(words: &WordList<'a>) -> Result<Request<'a>, RequestError> {
    if !(1..=2).contains(&words.count()) {
        return Err(RequestError::WrongWordCount);
    }
    let noreply = words.ends_with_noreply();
    match parse_u32(words.get(0)) {
        Some(_) => Ok(Request::Verbosity { noreply }),
        None => Err(RequestError::answered_unless(noreply, &RequestError::BadLine)),
    }
}
