//! What a key looks like: from its number to its text and back. Knows no values.

/// How the numbers of keys are written.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    prefix: Vec<u8>,
}

impl KeySpace {
    /// Keys that are this prefix and their number.
    pub(crate) fn new(prefix: &str) -> KeySpace {
        KeySpace { prefix: prefix.as_bytes().to_vec() }
    }

    /// Appends the text of a key.
    pub(crate) fn append(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
    }

    /// The number in a text; none when it is not one of ours.
    pub(crate) fn number(&self, text: &[u8]) -> Option<u64> {
        let digits = text.strip_prefix(self.prefix.as_slice())?;
        if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
            return None;
        }
        digits.iter().try_fold(0u64, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_as_we_write_them_are_ours() {
        let keys = KeySpace::new("key-");
        let number = |key: &str| keys.number(key.as_bytes());
        assert_eq!(number("key-0"), Some(0));
        assert_eq!(number("key-18446744073709551615"), Some(u64::MAX));
        for other in ["key-", "key-01", "key-1x", "kez-1", "1", "key-18446744073709551616", "key--1"] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
