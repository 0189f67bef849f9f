//! Numbers in values, as memcached reads and writes them for `incr` and `decr`.

/// Adds to a number; the sum wraps at 2^64.
pub(crate) fn increased(number: u64, delta: u64) -> u64 {
    number.wrapping_add(delta)
}

/// Subtracts from a number, down to 0.
pub(crate) fn decreased(number: u64, delta: u64) -> u64 {
    number.saturating_sub(delta)
}

/// The number at the start of a value, as C's `strtoull` reads it: spaces and a sign may precede it, and a space with any
/// text may follow it. A negative number is refused, unless it is so small that it wraps to a positive one.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let text = &value[value.iter().position(|byte| !is_blank(*byte))?..];
    let (negative, text) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 || text.get(digits).is_some_and(|&byte| !is_blank(byte)) {
        return None;
    }
    let mut magnitude = 0u64;
    for digit in &text[..digits] {
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    (!negative || number.cast_signed() >= 0).then_some(number)
}

/// Writes a number over a value. The value never becomes shorter: spaces replace missing digits.
pub(crate) fn overwrite(value: &[u8], number: u64) -> Box<[u8]> {
    let mut text = number.to_string().into_bytes();
    text.resize(text.len().max(value.len()), b' ');
    text.into()
}

/// C's `isspace`.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_number_syntax_is_accepted() {
        let table: [(&[u8], Option<u64>); 18] = [
            (b"0", Some(0)),
            (b"10", Some(10)),
            (b" 12 x", Some(12)),
            (b"12\t34", Some(12)),
            (b"+5", Some(5)),
            (b"-0 ", Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-9223372036854775809", Some(9_223_372_036_854_775_807)),
            (b"-5", None),
            (b"", None),
            (b" ", None),
            (b"-", None),
            (b"+", None),
            (b"abc", None),
            (b"12a", None),
            (b"1.5", None),
            (b"12\0", None),
        ];
        for (value, expected) in table {
            assert_eq!(number(value), expected, "{:?}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn a_value_never_becomes_shorter() {
        assert_eq!(&*overwrite(b"10", 9), b"9 ");
        assert_eq!(&*overwrite(b"9", 10), b"10");
        assert_eq!(increased(u64::MAX, 2), 1);
        assert_eq!(decreased(4, 5), 0);
    }
}
