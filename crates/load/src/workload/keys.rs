//! The text of a key, from its number and back. Knows no values.

use crate::workload::sizes::KeySizes;

/// How key numbers become key texts.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    prefix: Vec<u8>,
    /// The lengths of keys; none makes a key as short as its number.
    sizes: Option<KeySizes>,
}

impl KeySpace {
    /// Keys made of this prefix and their number, padded with zeros to their length.
    pub(crate) fn new(prefix: &str, sizes: Option<KeySizes>) -> KeySpace {
        KeySpace { prefix: prefix.as_bytes().to_vec(), sizes }
    }

    /// Appends the text of a key.
    pub(crate) fn append(&self, key: u64, out: &mut Vec<u8>) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(key).as_bytes();
        out.extend_from_slice(&self.prefix);
        out.extend(std::iter::repeat_n(b'0', self.zeros(key, digits.len())));
        out.extend_from_slice(digits);
    }

    /// The number of zeros before the digits of a key.
    fn zeros(&self, key: u64, digits: usize) -> usize {
        let needed = self.prefix.len() + digits;
        self.sizes.as_ref().map_or(0, |sizes| sizes.of(key, needed).saturating_sub(needed))
    }

    /// The number in a text; none if the text is not one of these keys.
    pub(crate) fn number(&self, text: &[u8]) -> Option<u64> {
        let padded = text.strip_prefix(self.prefix.as_slice())?;
        // The last digit can be a zero, too. Most keys begin with another digit.
        let zeros = match padded {
            [b'0', ..] => padded[..padded.len() - 1].iter().take_while(|&&byte| byte == b'0').count(),
            _ => 0,
        };
        let digits = padded.get(zeros..).filter(|digits| !digits.is_empty())?;
        let key = digits.iter().try_fold(0u64, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })?;
        (zeros == self.zeros(key, digits.len())).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use variates::{Unit, Variate};

    #[test]
    fn only_keys_in_the_exact_format_are_recognised() {
        let keys = KeySpace::new("key-", None);
        let number = |key: &str| keys.number(key.as_bytes());
        assert_eq!(number("key-0"), Some(0));
        assert_eq!(number("key-18446744073709551615"), Some(u64::MAX));
        for other in ["key-", "key-01", "key-1x", "kez-1", "1", "key-18446744073709551616", "key--1", "key-00"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn keys_of_drawn_sizes_are_distinct_and_recognised() {
        let sizes = |text| Some(KeySizes::new(&Variate::parse(text, Unit::Bytes).unwrap(), 250));
        for text in ["fb_key", "uniform:1:400", "16"] {
            let keys = KeySpace::new("k", sizes(text));
            let mut seen = std::collections::HashSet::new();
            let mut lengths = std::collections::HashSet::new();
            for key in (0..3000).chain([u64::MAX]) {
                let mut out = Vec::new();
                keys.append(key, &mut out);
                assert!(out.len() <= 250);
                assert_eq!(keys.number(&out), Some(key), "{out:?}");
                lengths.insert(out.len());
                assert!(seen.insert(out));
            }
            assert!(text == "16" || lengths.len() > 10, "{text}: {lengths:?}");
        }
        assert_eq!(KeySpace::new("k", sizes("8")).number(b"k1234567"), Some(1_234_567));
        assert_eq!(KeySpace::new("k", sizes("8")).number(b"k01234567"), None);
    }
}
