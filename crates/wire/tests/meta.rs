//! Meta commands: a table of lines and their meaning, as memcached 1.6.18 was observed to treat them.

use wire::{Limits, Meta, MetaFlags, Mode, Options, ParsedRequest, Request, RequestError, Verb, parse_request};

const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";

fn parse(bytes: &[u8]) -> ParsedRequest<'_> {
    parse_request(bytes, &Limits::default())
}

fn meta<'a>(verb: Verb, key: &'a [u8], flags: &'a [u8], value: &'a [u8]) -> Request<'a> {
    let flags = MetaFlags::new(flags);
    Request::Meta(Meta { verb, key, flags, left_out: b"", value })
}

/// A second message follows, which must not be parsed as part of the first.
fn assert_request(bytes: &[u8], expected: Request<'_>) {
    let stream = [bytes, b"mn\r\n"].concat();
    let expected = ParsedRequest::Request { request: expected, consumed: bytes.len() };
    assert_eq!(parse(&stream), expected, "{}", bytes.escape_ascii());
    for length in 0..bytes.len() {
        assert_eq!(parse(&bytes[..length]), ParsedRequest::Incomplete, "{}", bytes[..length].escape_ascii());
    }
}

fn assert_invalid(bytes: &[u8], consumed: usize, swallow: u64, line: &str) {
    match parse(bytes) {
        ParsedRequest::Invalid { error, consumed: bytes_consumed, swallow: bytes_swallowed } => {
            let found = (String::from_utf8_lossy(error.line()).into_owned(), bytes_consumed, bytes_swallowed);
            assert_eq!(found, (line.to_string(), consumed, swallow), "{}", bytes.escape_ascii());
        }
        other => panic!("{} -> {other:?}", bytes.escape_ascii()),
    }
}

fn assert_invalid_line(line: &str, reply: &str) {
    let line = format!("{line}\r\n");
    assert_invalid(line.as_bytes(), line.len(), 0, reply);
}

#[test]
fn commands_with_a_key() {
    for (name, verb) in [("mg", Verb::Mg), ("md", Verb::Md), ("ma", Verb::Ma), ("me", Verb::Me)] {
        assert_request(format!("{name} k\r\n").as_bytes(), meta(verb, b"k", b"", b""));
        assert_request(format!("{name} k\n").as_bytes(), meta(verb, b"k", b"", b""));
        assert_request(format!("  {name}  k  v   T30 \r\n").as_bytes(), meta(verb, b"k", b"v T30", b""));
        assert_request(format!("{name} k Oq k q\r\n").as_bytes(), meta(verb, b"k", b"Oq k q", b""));
        // The backend decides about unknown or meaningless flags.
        assert_request(format!("{name} k Z v v T T \t Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n").as_bytes(), {
            meta(verb, b"k", b"Z v v T T \t Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", b"")
        });
    }
    assert_request(b"mn\r\n", Request::Noop);
    assert_request(b" mn x y\n", Request::Noop);
    assert_invalid_line("mg", "ERROR\r\n");
    assert_invalid_line("md ", "ERROR\r\n");
    assert_invalid_line("ma", "ERROR\r\n");
    assert_invalid_line("me", BAD_LINE);
}

#[test]
fn storing() {
    assert_request(b"ms k 2\r\nhi\r\n", meta(Verb::Ms, b"k", b"", b"hi"));
    assert_request(b"ms k 2\nhi\r\n", meta(Verb::Ms, b"k", b"", b"hi"));
    assert_request(b"ms k 0\r\n\r\n", meta(Verb::Ms, b"k", b"", b""));
    assert_request(b"ms k -0 q\r\n\r\n", meta(Verb::Ms, b"k", b"q", b""));
    assert_request(b"ms k +02 T0 F5 c\r\nhi\r\n", meta(Verb::Ms, b"k", b"T0 F5 c", b"hi"));
    assert_request(b"ms k 9 q\r\nmn\r\nEN\r\n \r\n", meta(Verb::Ms, b"k", b"q", b"mn\r\nEN\r\n "));
    assert_invalid_line("ms", "ERROR\r\n");
    for line in ["ms k", "ms k abc", "ms k -1", "ms k 2x", "ms k 2147483646", "ms k v", "ms k 18446744073709551616"] {
        assert_invalid_line(line, BAD_LINE);
    }
    assert_invalid(b"ms k 2\r\nhixx\r\n", 12, 0, BAD_CHUNK);
    assert_invalid(b"ms k 2 q\r\nhixx\r\n", 14, 0, BAD_CHUNK);
    assert_invalid(b"ms k 9000000\r\n", 14, 9_000_002, TOO_LARGE);
    // memcached's error for the line takes precedence over that for the value.
    assert_invalid(b"ms k 2 Z\r\nhixx\r\n", 14, 0, "CLIENT_ERROR invalid flag\r\n");
    assert_invalid(b"ms k 9000000 k k\r\n", 18, 9_000_002, "CLIENT_ERROR duplicate flag\r\n");
}

#[test]
fn keys_have_a_limit_and_no_nul() {
    let (longest, longer) = ("k".repeat(250), "k".repeat(251));
    assert_request(format!("mg {longest} v\r\n").as_bytes(), meta(Verb::Mg, longest.as_bytes(), b"v", b""));
    for name in ["mg", "md", "ma", "me"] {
        assert_invalid_line(&format!("{name} {longer} v"), BAD_LINE);
        // In base64 as well, although fewer bytes would be stored: memcached checks the length on the line.
        assert_invalid_line(&format!("{name} {} b", "Zm9v".repeat(63)), BAD_LINE);
        for line in ["a\0b v", "a v\0 q", "a \0"] {
            assert_invalid_line(&format!("{name} {line}"), BAD_LINE);
        }
    }
    let line = format!("ms {longer} 2\r\n");
    assert_invalid(format!("{line}hi\r\n").as_bytes(), line.len(), 4, BAD_LINE);
    assert_invalid(b"ms k 2 \0 q\r\nhi\r\n", 12, 4, BAD_LINE);
}

#[test]
fn flags_have_a_limit() {
    let flags = |count: usize| b"acdefghijklmnoprstu"[..count].iter().map(|&flag| format!(" {}", flag as char));
    let line = |name: &str, count| format!("{name}{}\r\n", flags(count).collect::<String>());
    for (name, most, error) in [
        ("mg k", 17, "CLIENT_ERROR options flags are too long\r\n"),
        ("md k", 17, "CLIENT_ERROR options flags too long\r\n"),
        ("ma k", 17, "CLIENT_ERROR options flags too long\r\n"),
    ] {
        assert!(matches!(parse(line(name, most).as_bytes()), ParsedRequest::Request { .. }), "{name}");
        assert_invalid_line(line(name, most + 1).trim_end(), error);
    }
    assert!(matches!(parse(line("me k", 19).as_bytes()), ParsedRequest::Request { .. }));
    assert_eq!(parse(line("ms k 0", 16).as_bytes()), ParsedRequest::Incomplete);
    let long = line("ms k 5", 17);
    assert_invalid(long.as_bytes(), long.len(), 7, "CLIENT_ERROR options flags too long\r\n");
    let long = line("ms k x", 17);
    assert_invalid(long.as_bytes(), long.len(), 0, "CLIENT_ERROR options flags too long\r\n");
}

/// A quiet request is forwarded without its `q`. One of two `q` would remain, or none, so such requests are refused here.
#[test]
fn two_quiet_flags_are_an_error() {
    assert_invalid_line("mg k q q", "CLIENT_ERROR duplicate flag\r\n");
    assert_invalid_line("mg k qx v q", "CLIENT_ERROR duplicate flag\r\n");
    assert_invalid_line("mg k Z q q", "CLIENT_ERROR invalid flag\r\n");
    assert_invalid_line("md k q q", "CLIENT_ERROR invalid or duplicate flag\r\n");
    assert_invalid_line("ma k q q", "CLIENT_ERROR invalid or duplicate flag\r\n");
    assert_invalid(b"ms k 2 q q\r\nhi\r\n", 12, 4, "CLIENT_ERROR duplicate flag\r\n");
    assert!(matches!(parse(b"me k q q\r\n"), ParsedRequest::Request { .. }));
}

#[test]
fn a_key_that_is_not_base64_is_refused() {
    assert_request(b"mg Zm9vZg== k b\r\n", meta(Verb::Mg, b"Zm9vZg==", b"k b", b""));
    for key in ["Zm9", "Zm", "====", "!"] {
        assert_invalid_line(&format!("mg {key} b v"), "CLIENT_ERROR error decoding key\r\n");
        assert_invalid_line(&format!("mg {key} b Tx"), "CLIENT_ERROR bad token in command line format\r\n");
        assert_invalid_line(&format!("md {key} b"), "CLIENT_ERROR invalid or duplicate flag\r\n");
        assert_invalid_line(&format!("ma {key} b"), "CLIENT_ERROR invalid or duplicate flag\r\n");
        assert_invalid_line(&format!("me {key} b"), BAD_LINE);
        let line = format!("ms {key} 2 b\r\n");
        assert_invalid(line.as_bytes(), line.len(), 4, "CLIENT_ERROR error decoding key\r\n");
    }
    assert_request(b"mg YQpi b k\r\n", meta(Verb::Mg, b"YQpi", b"b k", b""));
    assert_invalid_line("me YQpi b", BAD_LINE);
    assert_request(b"me Zm9 v b\r\n", meta(Verb::Me, b"Zm9", b"v b", b""));
}

/// The options of a command that is a request.
fn options(line: &str) -> Result<Options, RequestError> {
    let bytes = format!("{line}\r\n{}", if line.starts_with("ms") { "hi\r\n" } else { "" });
    match parse(bytes.as_bytes()) {
        ParsedRequest::Request { request: Request::Meta(meta), .. } => Options::parse(&meta),
        ParsedRequest::Invalid { error, .. } => Err(error),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn valid_flags() {
    let plain = Options { delta: 1, ..Options::default() };
    assert_eq!(options("mg k v k t s f c h l u q Oabc Pxy L"), Ok(plain));
    assert_eq!(
        options("mg k T-1 N30 R5"),
        Ok(Options { exptime: Some(-1), vivify: Some(30), recache: Some(5), ..plain })
    );
    let stored = Options { client_flags: u32::MAX, cas: Some(u64::MAX), invalidates: true, ..plain };
    assert_eq!(options("ms k 2 F4294967295 C18446744073709551615 I MS"), Ok(stored));
    assert_eq!(options("ms k 2 F4294967296"), Ok(plain));
    for (letter, mode) in [('E', Mode::Add), ('A', Mode::Append), ('P', Mode::Prepend), ('R', Mode::Replace)] {
        assert_eq!(options(&format!("ms k 2 M{letter}")), Ok(Options { mode, ..plain }));
    }
    for (letter, mode) in [('I', Mode::Ordinary), ('+', Mode::Ordinary), ('D', Mode::Down), ('-', Mode::Down)] {
        assert_eq!(options(&format!("ma k D5 J7 M{letter}")), Ok(Options { mode, delta: 5, initial: 7, ..plain }));
    }
    assert_eq!(options("mg Zm9v b"), Ok(plain));
}

#[test]
fn invalid_flags() {
    for (line, error) in [
        ("mg k Z", "CLIENT_ERROR invalid flag"),
        ("mg k Tx Z", "CLIENT_ERROR invalid flag"),
        ("mg k k k Z", "CLIENT_ERROR duplicate flag"),
        ("mg k \x7f", "CLIENT_ERROR duplicate flag"),
        ("mg k \u{e9}", "CLIENT_ERROR duplicate flag"),
        ("mg Zm9 b", "CLIENT_ERROR error decoding key"),
        ("mg Zm9 b Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg k Fx Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg k Tx Fx", "CLIENT_ERROR bad token in command line format"),
        ("mg k Tx M", "CLIENT_ERROR incorrect length for M token"),
        ("ms k 2 Fx", "CLIENT_ERROR bad command line format"),
        ("ms k 2 F-1", "CLIENT_ERROR bad command line format"),
        ("ms k 2 T", "CLIENT_ERROR bad token in command line format"),
        ("ms k 2 Cx", "CLIENT_ERROR bad token in command line format"),
        ("ms k 2 MSS", "CLIENT_ERROR incorrect length for M token"),
        ("ms k 2 MX", "CLIENT_ERROR invalid mode for ms M token"),
        ("ms k 2 Ma", "CLIENT_ERROR invalid mode for ms M token"),
        ("ma k MX", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma k Dx", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k J-1", "CLIENT_ERROR invalid or duplicate flag"),
        ("md k C", "CLIENT_ERROR invalid or duplicate flag"),
        ("md Zm9 b", "CLIENT_ERROR invalid or duplicate flag"),
        ("mg k J", "CLIENT_ERROR invalid numeric initial value"),
        ("mg k D", "CLIENT_ERROR invalid numeric delta value"),
        ("mg k Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "CLIENT_ERROR opaque token too long"),
    ] {
        let found = options(line).map_err(|error| String::from_utf8_lossy(error.line()).trim_end().to_string());
        assert_eq!(found, Err(error.to_string()), "{line}");
    }
    assert!(options("mg k Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx").is_ok(), "31 bytes are not too long");
}
