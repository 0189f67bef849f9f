//! Parses a line of keys part by part, so that a `get` of any number of keys needs no buffer for the whole line.
//! A caller finds the start of the line once, and then takes keys from the bytes behind it as they arrive.

use crate::keys::Keys;
use crate::limits::Limits;
use crate::number::parse_i64;
use crate::verb::Verb;
use crate::words::{Words, skip_spaces};
use memchr::memchr2;

/// The start of a retrieval line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// `Get`, `Gets`, `Gat` or `Gats`.
    pub verb: Verb,
    /// The expiry time of `Gat` and `Gats`, 0 for the others.
    pub exptime: i64,
    /// Where the keys begin.
    pub start: usize,
}

/// The next part of a line of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart<'a> {
    /// Not enough keys have arrived; parse again when more bytes have.
    Incomplete,
    /// These keys come next.
    Keys {
        /// The keys. There can be none at the end of the line, or if only spaces have arrived.
        keys: Keys<'a>,
        /// The bytes of this part.
        consumed: usize,
        /// Whether the line ends with this part.
        is_last: bool,
    },
    /// The next key is too long or contains a NUL. Drop `consumed` bytes.
    BadKey {
        /// The bytes of this line that have been received.
        consumed: usize,
        /// Whether the line ends with them.
        is_last: bool,
    },
}

/// The start of the retrieval line in `bytes`, whose command, and expiry time if it has one, are complete.
pub fn parse_key_line(bytes: &[u8]) -> Option<KeyLine> {
    let line = skip_spaces(bytes);
    let mut words = Words::new(line);
    let verb = Verb::of(words.next()?).filter(|verb| verb.is_retrieval())?;
    let exptime = match verb {
        Verb::Gat | Verb::Gats => parse_i64(words.next()?)?,
        _ => 0,
    };
    let start = bytes.len() - words.rest().len();
    (start > 0 && bytes[start - 1] == b' ').then_some(KeyLine { verb, exptime, start })
}

/// The next part of a line of keys: at most `keys_max` keys, and fewer only if the line ends or `limits.line_bytes` have arrived.
pub fn parse_keys<'a>(bytes: &'a [u8], keys_max: usize, limits: &Limits) -> KeyPart<'a> {
    let mut at = bytes.len() - skip_spaces(bytes).len();
    let start = at;
    for count in 0..=keys_max {
        let word = &bytes[at..];
        let Some(length) = memchr2(b' ', b'\n', word) else {
            // One byte more than the longest key may be the `\r` of the line end.
            if count < keys_max
                && (word.len() > limits.key_bytes + 1 || !limits.allow_key(&word[..word.len().min(limits.key_bytes)]))
            {
                return bad_key(bytes, at);
            }
            let is_full = count == keys_max || bytes.len() >= limits.line_bytes;
            return match () {
                () if is_full || (word.is_empty() && count == 0 && at > 0) => {
                    KeyPart::Keys { keys: Keys::new(&bytes[start..at]), consumed: at, is_last: false }
                }
                () => KeyPart::Incomplete,
            };
        };
        let is_last = word[length] == b'\n';
        let key = if is_last { word[..length].strip_suffix(b"\r").unwrap_or(&word[..length]) } else { &word[..length] };
        if !key.is_empty() && count == keys_max {
            return KeyPart::Keys { keys: Keys::new(&bytes[start..at]), consumed: at, is_last: false };
        }
        if !limits.allow_key(key) {
            return bad_key(bytes, at);
        }
        if is_last {
            let keys = Keys::new(&bytes[start..at + key.len()]);
            return KeyPart::Keys { keys, consumed: at + length + 1, is_last };
        }
        at += length;
        at += bytes[at..].len() - skip_spaces(&bytes[at..]).len();
    }
    KeyPart::Incomplete
}

fn bad_key<'a>(bytes: &'a [u8], at: usize) -> KeyPart<'a> {
    let end = memchr::memchr(b'\n', &bytes[at..]);
    KeyPart::BadKey { consumed: end.map_or(bytes.len(), |end| at + end + 1), is_last: end.is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All keys of a line that arrives in pieces of `piece` bytes, and whether it ended well.
    fn streamed(line: &[u8], piece: usize, keys_max: usize) -> (Vec<Vec<u8>>, bool) {
        let (mut keys, mut buffer, mut input) = (Vec::new(), Vec::new(), line.chunks(piece));
        loop {
            match parse_keys(&buffer, keys_max, &Limits::default()) {
                KeyPart::Incomplete => match input.next() {
                    Some(bytes) => buffer.extend_from_slice(bytes),
                    None => return (keys, false),
                },
                KeyPart::Keys { keys: part, consumed, is_last } => {
                    assert!(part.count() <= keys_max);
                    keys.extend(part.iter().map(<[u8]>::to_vec));
                    buffer.drain(..consumed);
                    if is_last {
                        return (keys, true);
                    }
                }
                KeyPart::BadKey { .. } => return (keys, false),
            }
        }
    }

    #[test]
    fn the_start_of_a_line_is_found_only_where_keys_can_follow() {
        let line = |text: &str| parse_key_line(text.as_bytes());
        assert_eq!(line("get a"), Some(KeyLine { verb: Verb::Get, exptime: 0, start: 4 }));
        assert_eq!(line("  gats -5  a b"), Some(KeyLine { verb: Verb::Gats, exptime: -5, start: 11 }));
        for text in ["", "get", "set a", "gat a b", "getx a", "\nget a"] {
            assert_eq!(line(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_bad_key_ends_the_keys_wherever_it_is() {
        let long = "k".repeat(251);
        for line in [format!("a b {long} c\r\n"), format!("a b {long}\n"), "a b c\0d e\r\n".into()] {
            for piece in [1, 7, 1000] {
                assert_eq!(streamed(line.as_bytes(), piece, 2), (vec![b"a".to_vec(), b"b".to_vec()], false), "{line}");
            }
        }
        let longest = "k".repeat(250);
        for end in ["\r\n", "\n", " \r\n"] {
            assert_eq!(streamed(format!("{longest}{end}").as_bytes(), 1, 2), (vec![longest.clone().into()], true));
        }
    }

    #[test]
    fn spaces_need_no_buffer() {
        let spaces = vec![b' '; 100_000];
        assert!(matches!(
            parse_keys(&spaces, 2, &Limits::default()),
            KeyPart::Keys { consumed: 100_000, is_last: false, .. }
        ));
        let line = [b"a".as_slice(), &spaces].concat();
        assert!(matches!(
            parse_keys(&line, 2, &Limits::default()),
            KeyPart::Keys { consumed: 100_001, is_last: false, .. }
        ));
    }

    proptest! {
        #[test]
        fn keys_are_the_same_however_the_line_is_split(
            keys in proptest::collection::vec("[a-z]{1,9}", 0..40), piece in 1usize..30, keys_max in 1usize..9,
            gap in 1usize..4, end in 0usize..3,
        ) {
            let line = keys.join(&" ".repeat(gap)) + [" \r\n", "\r\n", "\n"][end];
            let expected: Vec<Vec<u8>> = keys.iter().map(|key| key.clone().into_bytes()).collect();
            prop_assert_eq!(streamed(line.as_bytes(), piece, keys_max), (expected, true));
        }
    }
}
