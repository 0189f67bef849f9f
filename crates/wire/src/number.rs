//! Numbers as words of a line, in both directions. A number that does not fit is refused, never rounded, truncated or wrapped.

/// Every number of this many digits fits 64 bits.
const DIGITS_THAT_FIT: usize = 19;

/// An unsigned 64-bit number. As in memcached, a leading `+` and `-0` are accepted.
pub(crate) fn parse_u64(word: &[u8]) -> Option<u64> {
    match word.strip_prefix(b"-") {
        Some(digits) => parse_digits(digits).filter(|&number| number == 0),
        None => parse_digits(word.strip_prefix(b"+").unwrap_or(word)),
    }
}

/// An unsigned 32-bit number.
pub(crate) fn parse_u32(word: &[u8]) -> Option<u32> {
    parse_u64(word).and_then(|number| u32::try_from(number).ok())
}

/// A signed 64-bit number.
pub(crate) fn parse_i64(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => parse_digits(digits).and_then(|number| 0i64.checked_sub_unsigned(number)),
        None => parse_u64(word).and_then(|number| i64::try_from(number).ok()),
    }
}

/// One or more digits.
pub(crate) fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(value))?;
    }
    Some(number)
}

/// A number of up to 19 digits after one space, and what follows its digits. None for anything else.
#[inline]
pub(crate) fn number_after_space(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let [b' ', digits @ ..] = bytes else { return None };
    let (mut number, mut count) = (0u64, 0);
    while let Some(digit) = digits.get(count).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9) {
        // More digits may not fit, and the caller does not use the number then.
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        count += 1;
    }
    (1..=DIGITS_THAT_FIT).contains(&count).then(|| (number, &digits[count..]))
}

/// Appends a space and a number.
pub(crate) fn push_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_types_are_limits_of_the_numbers() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"+007"), Some(7));
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
    }

    #[test]
    fn words_that_are_not_numbers() {
        for word in [&b""[..], b"+", b"-", b"+-1", b"-+1", b"--1", b"1x", b"x1", b"0x1", b"1.0", b"1\0", b"\xff"] {
            assert_eq!((parse_u64(word), parse_i64(word)), (None, None), "{word:?}");
        }
        assert_eq!((parse_u64(b"-1"), parse_u64(b"-0")), (None, Some(0)));
    }
}
