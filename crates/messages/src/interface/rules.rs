//! Rules for names of queues, senders and receivers, and for idempotency keys. Names are in paths, headers and an index, so they are short
//! and plain.

use std::time::Duration;

/// The longest name.
pub(crate) const NAME_BYTES_MAX: usize = 80;

/// The rule for names as a regular expression, without the length.
pub(crate) const NAME_PATTERN: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";

/// The longest idempotency key.
pub(crate) const KEY_BYTES_MAX: usize = 80;

/// The rule for idempotency keys as a regular expression, without the length.
pub(crate) const KEY_PATTERN: &str = "^[!-~]+$";

/// Names in one page of a list of queues.
pub(crate) const NAMES_MAX: usize = 1000;

/// The longest `backoff` of a queue, and the longest pause after doubling.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(60 * 60);

/// The highest `attempts` of a queue.
pub(crate) const ATTEMPTS_MAX: i32 = 1000;

/// Whether this is a valid name: letters, digits, `_`, `-` and `.`, starting with a letter, a digit or `_`.
pub(crate) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    begins_well && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain)
}

/// Whether this is a valid idempotency key: visible ASCII characters.
pub(crate) fn is_key(text: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_length_limit_and_a_character_set() {
        for name in ["a", "0", "_", "orders.new-2_x", &"q".repeat(80)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "-a", "a b", "a/b", "a\0", "ä", "a:b", "a\n", &"q".repeat(81)] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
