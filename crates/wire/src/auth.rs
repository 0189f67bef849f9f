//! memcached's authentication in the text protocol (`memcached -Y`): the first request of a connection is a `set` of any key, whose
//! value is a user and a password. Parses and encodes it. What it returns is secret, so nothing here can be printed.

use crate::words::Words;
use memchr::memchr;

/// The longest line before the authentication, as in memcached.
const LINE_BYTES_MAX: usize = 2048;
/// The longest value. A line of memcached's file has at most 254 bytes, so no user and password are as long.
const VALUE_BYTES_MAX: usize = 1024;

/// The reply to a user and a password that are accepted.
pub const AUTHENTICATED: &[u8] = b"STORED\r\n";
/// The reply to a user and a password that are not.
pub const AUTHENTICATION_FAILED: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// The text of the error that any other request receives.
pub const UNAUTHENTICATED: &[u8] = b"unauthenticated";

const NOT_AUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const BAD_END: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const NO_PASSWORD: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";

/// What a client that has not authenticated has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    /// More must arrive.
    Incomplete,
    /// The authentication.
    Login {
        /// The user.
        user: &'a [u8],
        /// The password. It can contain spaces, which older versions of memcached, such as 1.6.18, do not accept.
        password: &'a [u8],
        /// The bytes of the request.
        consumed: usize,
    },
    /// Something else.
    Refused {
        /// The reply.
        reply: &'static [u8],
        /// The bytes that it answers.
        consumed: usize,
    },
    /// More than any authentication needs: the connection must be closed after this reply.
    TooLong {
        /// The reply.
        reply: &'static [u8],
    },
}

/// Parses the next request of a client that has not authenticated.
pub fn parse_auth(bytes: &[u8]) -> AuthRequest<'_> {
    let searched = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr(b'\n', searched) else {
        return match searched.len() {
            LINE_BYTES_MAX => AuthRequest::TooLong { reply: NOT_AUTHENTICATED },
            _ => AuthRequest::Incomplete,
        };
    };
    let (line, start) = (&bytes[..end], end + 1);
    let Some(value_bytes) = value_bytes(line.strip_suffix(b"\r").unwrap_or(line)) else {
        return AuthRequest::Refused { reply: NOT_AUTHENTICATED, consumed: start };
    };
    if value_bytes > VALUE_BYTES_MAX {
        return AuthRequest::TooLong { reply: AUTHENTICATION_FAILED };
    }
    let consumed = start + value_bytes + 2;
    let Some(value) = bytes.get(start..consumed) else { return AuthRequest::Incomplete };
    let Some(value) = value.strip_suffix(b"\r\n") else {
        return AuthRequest::Refused { reply: BAD_END, consumed };
    };
    match memchr(b' ', value) {
        Some(space) => AuthRequest::Login { user: &value[..space], password: &value[space + 1..], consumed },
        None => AuthRequest::Refused { reply: NO_PASSWORD, consumed },
    }
}

/// The length of the value, if the line is a `set`. memcached ignores the key, the flags, the expiry time, and what follows the length.
fn value_bytes(line: &[u8]) -> Option<usize> {
    let mut words = Words::new(line);
    let (command, length) = (words.next()?, words.nth(3)?);
    if command != b"set" || !length.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |number: usize, digit: &u8| number.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
    Some(length.iter().fold(0, digit))
}

/// Encodes the authentication. The expiry time has passed: a server that requires no authentication stores the value, and must not
/// return it to its clients.
pub fn encode_auth(user: &[u8], password: &[u8]) -> Vec<u8> {
    let length = user.len() + 1 + password.len();
    let line = format!("set auth 0 -1 {length}\r\n");
    [line.as_bytes(), user, b" ", password, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy;

    fn refused(bytes: &[u8]) -> Option<(&'static [u8], usize)> {
        match parse_auth(bytes) {
            AuthRequest::Refused { reply, consumed } => Some((reply, consumed)),
            _ => None,
        }
    }

    #[test]
    fn what_is_encoded_is_parsed_in_any_pieces() {
        for (user, password) in [("a", "b"), ("user", "pass word"), ("user", " x "), ("user", "a:b")] {
            let bytes = encode_auth(user.as_bytes(), password.as_bytes());
            for arrived in 0..bytes.len() {
                assert!(parse_auth(&bytes[..arrived]) == AuthRequest::Incomplete, "{user} {arrived}");
            }
            let more = [&bytes[..], b"get k\r\n"].concat();
            let expected =
                AuthRequest::Login { user: user.as_bytes(), password: password.as_bytes(), consumed: bytes.len() };
            assert!(parse_auth(&more) == expected, "{user}");
        }
    }

    #[test]
    fn the_key_flags_and_expiry_time_do_not_matter() {
        for line in
            ["set k 0 0 3", "set k zz -5 3 noreply", " set  k 0 0 3 ", &format!("set {} 0 0 3", "k".repeat(300))]
        {
            for end in ["\r\n", "\n"] {
                let bytes = format!("{line}{end}a b\r\n");
                let expected = AuthRequest::Login { user: b"a", password: b"b", consumed: bytes.len() };
                assert!(parse_auth(bytes.as_bytes()) == expected, "{bytes:?}");
            }
        }
    }

    #[test]
    fn everything_else_is_refused_as_memcached_does() {
        for line in [
            "get a",
            "version",
            "quit",
            "mn",
            "",
            "add k 0 0 3",
            "SET k 0 0 3",
            "set k 0 0",
            "set k 0 0 x",
            "set k 0 0 -1",
        ] {
            let bytes = format!("{line}\r\na b\r\n");
            assert_eq!(refused(bytes.as_bytes()), Some((NOT_AUTHENTICATED, line.len() + 2)), "{line}");
        }
        assert_eq!(refused(b"set k 0 0 5\r\nhello\r\n"), Some((NO_PASSWORD, 20)));
        assert_eq!(refused(b"set k 0 0 0\r\n\r\n"), Some((NO_PASSWORD, 15)));
        assert_eq!(refused(b"set k 0 0 3\r\na bXXmn\r\n"), Some((BAD_END, 18)));
    }

    proptest::proptest! {
        /// A part of the bytes is parsed like the whole, or is incomplete.
        #[test]
        fn any_bytes_are_parsed_within_the_limits(
            pieces in proptest::collection::vec(
                proptest::prop_oneof![
                    "set |a |0 |3|12|9999|\\r\\n|\\n|a b|noreply|x{1000}".prop_map(String::into_bytes),
                    proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3),
                ],
                0..12,
            ),
            cut in 0..4000usize,
        ) {
            let bytes = pieces.concat();
            let (whole, part) = (parse_auth(&bytes), parse_auth(&bytes[..cut.min(bytes.len())]));
            assert!(part == whole || part == AuthRequest::Incomplete);
            match whole {
                AuthRequest::Incomplete => assert!(bytes.len() < LINE_BYTES_MAX + VALUE_BYTES_MAX + 2),
                AuthRequest::Login { consumed, .. } | AuthRequest::Refused { consumed, .. } => {
                    assert!((1..=bytes.len()).contains(&consumed));
                }
                AuthRequest::TooLong { .. } => {}
            }
        }
    }

    #[test]
    fn no_line_and_no_value_is_waited_for_beyond_a_limit() {
        let line = vec![b'x'; LINE_BYTES_MAX];
        assert!(parse_auth(&line[1..]) == AuthRequest::Incomplete);
        assert!(matches!(parse_auth(&line), AuthRequest::TooLong { reply: NOT_AUTHENTICATED }));
        for length in ["1025", "4294967295", "99999999999999999999999999"] {
            let bytes = format!("set k 0 0 {length}\r\n");
            let is_refused =
                matches!(parse_auth(bytes.as_bytes()), AuthRequest::TooLong { reply: AUTHENTICATION_FAILED });
            assert!(is_refused, "{length}");
        }
        assert!(parse_auth(b"set k 0 0 1024\r\n") == AuthRequest::Incomplete);
    }
}
