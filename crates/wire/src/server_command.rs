//! Commands that concern one server, such as `slabs`. A proxy obeys none of them, and refuses each as memcached refuses its arguments.

use crate::number::{parse_i64, parse_u32};
use crate::request_error::RequestError;
use crate::words::WordList;

/// The error of a command whose first word is not the name of a request.
pub(crate) fn refuse(name: &[u8], words: &WordList<'_>) -> RequestError {
    let is_number = |index| parse_u32(words.get(index)).is_some();
    // A `noreply` counts only where memcached looks for it.
    let (is_valid, takes_noreply) = match (name, words.get(0), words.count()) {
        (b"slabs", b"reassign", 3) => (is_class(words.get(1)) && is_class(words.get(2)), false),
        (b"slabs", b"automove", 2..) => (words.get(1) == b"ratio" || is_number(1), true),
        (b"lru_crawler", b"tocrawl" | b"sleep", 2) => (is_number(1), false),
        (b"cache_memlimit", _, 1..=2) | (b"lru", _, 1..) | (b"watch", _, 1..) => (true, true),
        _ => (true, false),
    };
    let error = if is_valid { &RequestError::UnknownCommand } else { &RequestError::BadLine };
    RequestError::answered_unless(takes_noreply && words.ends_with_noreply(), error)
}

/// Whether this is the number of a slab class, which can be negative.
fn is_class(word: &[u8]) -> bool {
    parse_i64(word).is_some_and(|number| i32::try_from(number).is_ok())
}
