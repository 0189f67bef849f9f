//! Parses a request with a value: its line is complete, its value may not have arrived yet.
//! The length is read first, because it determines how many bytes to drop even if the rest of the line is malformed.

use crate::limits::Limits;
use crate::number::{number_after_space, parse_i64, parse_u32, parse_u64};
use crate::request::{ParsedRequest, Request};
use crate::request_error::RequestError;
use crate::verb::Verb;
use crate::words::{WordList, Words, find_space};

/// The largest number that memcached accepts as a length.
pub(crate) const LENGTH_MAXIMUM: u64 = (i32::MAX - 2) as u64;

/// The arguments of a line.
#[derive(Debug, PartialEq, Eq)]
struct Arguments<'a> {
    key: &'a [u8],
    flags: u32,
    exptime: i64,
    length: u64,
    cas: u64,
    noreply: bool,
}

/// Parses the storage request whose line is the first `line_bytes` of `bytes` and whose arguments are `words`.
pub(crate) fn parse_storage<'a>(
    verb: Verb,
    words: Words<'a>,
    bytes: &'a [u8],
    line_bytes: usize,
    limits: &Limits,
) -> ParsedRequest<'a> {
    let invalid = |error, swallow| ParsedRequest::Invalid { error, consumed: line_bytes, swallow };
    let usual = usual_arguments(verb, words.rest(), limits).map(Ok);
    let arguments = match usual.unwrap_or_else(|| all_arguments(verb, &WordList::new(words), limits)) {
        Ok(arguments) => arguments,
        Err((error, swallow)) => return invalid(error, swallow),
    };
    let Arguments { key, flags, exptime, length, cas, noreply } = arguments;
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
    ParsedRequest::Request { request: Request::Store { verb, key, flags, exptime, value, cas, noreply }, consumed }
}

/// The arguments of a valid line as most clients write it: without `noreply`, and numbers of digits only with one space before each. They
/// are read without a search for their ends.
fn usual_arguments<'a>(verb: Verb, line: &'a [u8], limits: &Limits) -> Option<Arguments<'a>> {
    let (key, rest) = line.split_at(find_space(line)?);
    let (flags, rest) = number_after_space(rest)?;
    let (exptime, rest) = number_after_space(rest)?;
    let (length, rest) = number_after_space(rest)?;
    let is_valid = rest.is_empty() && length <= LENGTH_MAXIMUM && verb != Verb::Cas && limits.allow_key(key);
    let (flags, exptime) = (u32::try_from(flags).ok()?, i64::try_from(exptime).ok()?);
    is_valid.then_some(Arguments { key, flags, exptime, length, cas: 0, noreply: false })
}

/// The arguments of any line, or its error and the number of bytes to drop after it.
fn all_arguments<'a>(verb: Verb, words: &WordList<'a>, limits: &Limits) -> Result<Arguments<'a>, (RequestError, u64)> {
    let count_minimum = if verb == Verb::Cas { 5 } else { 4 };
    if words.count() != count_minimum && words.count() != count_minimum + 1 {
        return Err((RequestError::WrongWordCount, 0));
    }
    let noreply = words.ends_with_noreply();
    let invalid = |error, swallow| (RequestError::answered_unless(noreply, error), swallow);
    let length = parse_u64(words.get(3)).filter(|&length| length <= LENGTH_MAXIMUM);
    let length = length.ok_or_else(|| invalid(&RequestError::BadLine, 0))?;
    let key = words.get(0);
    if !limits.allow_key(key) {
        return Err(invalid(&RequestError::BadKey, length + 2));
    }
    let bad_number = || invalid(&RequestError::BadLine, length + 2);
    let flags = parse_u32(words.get(1)).ok_or_else(bad_number)?;
    let exptime = parse_i64(words.get(2)).ok_or_else(bad_number)?;
    let cas = if verb == Verb::Cas { parse_u64(words.get(4)).ok_or_else(bad_number)? } else { 0 };
    Ok(Arguments { key, flags, exptime, length, cas, noreply })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn usual(line: &str) -> Option<Arguments<'_>> {
        usual_arguments(Verb::Set, line.as_bytes(), &Limits::default())
    }

    #[test]
    fn a_line_as_most_clients_write_it_is_a_usual_one() {
        for line in ["key 0 0 5", "key 4294967295 9223372036854775807 2147483645"] {
            assert!(usual(line).is_some(), "{line:?}");
            assert!(usual_arguments(Verb::Cas, line.as_bytes(), &Limits::default()).is_none(), "{line:?}");
        }
        for line in [
            "",
            "key",
            "key  0 0 5",
            "key 0 0 5 ",
            "key 0 0 5 noreply",
            "key 0 -1 5",
            "key +0 0 5",
            "key 4294967296 0 5",
            "key 0 9223372036854775808 5",
            "key 0 0 2147483646",
            "k\0 0 0 5",
        ] {
            assert!(usual(line).is_none(), "{line:?}");
        }
        assert!(usual(&format!("{} 0 0 5", "k".repeat(251))).is_none());
    }

    proptest! {
        #[test]
        fn a_usual_line_means_the_same_as_its_words(
            line in "[k0-9+ -]{0,14}|k [0-9]{1,11} [0-9]{1,20} [0-9]{1,11}( [0-9]{1,21})?( noreply)?", is_cas in any::<bool>(),
        ) {
            let (verb, limits) = (if is_cas { Verb::Cas } else { Verb::Set }, Limits::default());
            // The parser skips the spaces before the key.
            let words = Words::new(line.as_bytes());
            let usual = usual_arguments(verb, words.rest(), &limits);
            prop_assert!(usual.is_none_or(|usual| all_arguments(verb, &WordList::new(words), &limits) == Ok(usual)));
        }
    }
}
