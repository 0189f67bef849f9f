//! Requests: a table of lines and their meaning, as memcached 1.6.18 was observed to treat them.

use wire::{Keys, Limits, ParsedRequest, Request, RequestError, Verb, parse_request};

fn parse(bytes: &[u8]) -> ParsedRequest<'_> {
    parse_request(bytes, &Limits::default())
}

fn get<'a>(verb: Verb, exptime: i64, keys: &'a [u8]) -> Request<'a> {
    Request::Get { verb, exptime, keys: Keys::new(keys) }
}

fn store<'a>(verb: Verb, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request::Store { verb, key, flags: 0, exptime: 0, value, cas: 0, noreply: false }
}

/// The parser must wait for an incomplete line or value, so a second message follows each case.
fn assert_request(bytes: &[u8], expected: Request<'_>) {
    let mut stream = bytes.to_vec();
    stream.extend_from_slice(b"version\r\n");
    let expected = ParsedRequest::Request { request: expected, consumed: bytes.len() };
    assert_eq!(parse(&stream), expected, "{}", bytes.escape_ascii());
}

fn assert_invalid(bytes: &[u8], consumed: usize, swallow: u64, line: &str) {
    match parse(bytes) {
        ParsedRequest::Invalid { error, consumed: bytes_consumed, swallow: bytes_swallowed } => {
            let found = (error.line().escape_ascii().to_string(), bytes_consumed, bytes_swallowed);
            let line = line.as_bytes().escape_ascii().to_string();
            assert_eq!(found, (line, consumed, swallow), "{}", bytes.escape_ascii());
        }
        other => panic!("{} -> {other:?}", bytes.escape_ascii()),
    }
}

fn assert_invalid_line(line: &[u8], reply: &str) {
    assert_invalid(line, line.len(), 0, reply);
}

const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";

#[test]
fn retrieval() {
    assert_request(b"get a\r\n", get(Verb::Get, 0, b"a"));
    assert_request(b"get a\n", get(Verb::Get, 0, b"a"));
    assert_request(b"  get  a  b a \r\n", get(Verb::Get, 0, b"a b a"));
    assert_request(b"gets a b\r\n", get(Verb::Gets, 0, b"a b"));
    assert_request(b"gat 10 a b\r\n", get(Verb::Gat, 10, b"a b"));
    assert_request(b"gats -1 a\r\n", get(Verb::Gats, -1, b"a"));
    assert_request(b"get a noreply\r\n", get(Verb::Get, 0, b"a noreply"));
    assert_request(b"get / HTTP/1.1\r\n", get(Verb::Get, 0, b"/ HTTP/1.1"));
    for line in [&b"get\r\n"[..], b"get \r\n", b"gets   \n", b"gat\r\n", b"gat 0\r\n", b"GET a\r\n", b"get\0a\r\n"] {
        assert_invalid_line(line, "ERROR\r\n");
    }
    assert_invalid_line(b"gat abc a\r\n", BAD_EXPTIME);
    assert_invalid_line(b"gats 5x a\r\n", BAD_EXPTIME);
}

#[test]
fn keys_are_bytes() {
    assert_request(b"get a\tb\r\n", get(Verb::Get, 0, b"a\tb"));
    assert_request(b"get \x02 \x7f\xff\x01\r\n", get(Verb::Get, 0, b"\x02 \x7f\xff\x01"));
    assert_request(b"get a\r\r\n", get(Verb::Get, 0, b"a\r"));
    let caf = "caf\u{e9}".as_bytes();
    assert_request(&[b"delete ", caf, b"\r\n"].concat(), Request::Delete { key: caf, noreply: false });
}

/// memcached ends a line at a NUL: `delete a\0b` would delete `a`, and the value of `set a\0b ...` would be read as commands.
#[test]
fn a_key_with_a_nul_is_refused() {
    for line in [&b"get \0\r\n"[..], b"get a b\0c\r\n", b"delete a\0b\r\n", b"incr a\0b 1\r\n", b"touch a\0b 1\r\n"] {
        assert_invalid_line(line, BAD_LINE);
    }
    let set = b"set a\0b 0 0 9\r\ndelete x\r\r\n";
    let parsed = parse_request(set, &Limits::default());
    assert!(matches!(parsed, ParsedRequest::Invalid { consumed: 15, swallow: 11, .. }), "{parsed:?}");
}

#[test]
fn keys_have_a_limit() {
    let (longest, longer) = ([b'k'; 250], [b'k'; 251]);
    let line = |parts: &[&[u8]]| parts.concat();
    assert_request(&line(&[b"get ", &longest, b"\r\n"]), get(Verb::Get, 0, &longest));
    assert_request(&line(&[b"set ", &longest, b" 0 0 0\r\n\r\n"]), store(Verb::Set, &longest, b""));
    assert_invalid_line(&line(&[b"get ", &longer, b"\r\n"]), BAD_LINE);
    assert_invalid_line(&line(&[b"get a ", &longer, b" a\r\n"]), BAD_LINE);
    assert_invalid_line(&line(&[b"gat 0 a ", &longer, b"\r\n"]), BAD_LINE);
    assert_invalid_line(&line(&[b"delete ", &longer, b"\r\n"]), BAD_LINE);
    assert_invalid_line(&line(&[b"incr ", &longer, b" 1\r\n"]), BAD_LINE);
    assert_invalid_line(&line(&[b"touch ", &longer, b" 1\r\n"]), BAD_LINE);
    let set = line(&[b"set ", &longer, b" 0 0 2\r\n"]);
    assert_invalid(&line(&[&set, b"hi\r\n"]), set.len(), 4, BAD_LINE);
}

#[test]
fn storage() {
    for (name, verb) in [
        ("set", Verb::Set),
        ("add", Verb::Add),
        ("replace", Verb::Replace),
        ("append", Verb::Append),
        ("prepend", Verb::Prepend),
    ] {
        assert_request(format!("{name} k 0 0 2\r\nhi\r\n").as_bytes(), store(verb, b"k", b"hi"));
    }
    assert_request(b"set k 0 0 2\nhi\r\n", store(Verb::Set, b"k", b"hi"));
    assert_request(b"set k 0 0 0\r\n\r\n", store(Verb::Set, b"k", b""));
    assert_request(b"set  k  00 +0  02 \r\nhi\r\n", store(Verb::Set, b"k", b"hi"));
    assert_request(b"set k 0 0 7\r\n\r\nEND\r\n\r\n", store(Verb::Set, b"k", b"\r\nEND\r\n"));
    assert_request(b"set k 0 0 2 x\r\nhi\r\n", store(Verb::Set, b"k", b"hi"));
    let (key, value) = (&b"k"[..], &b"hi"[..]);
    assert_request(
        b"set k 4294967295 -9223372036854775808 2 noreply\r\nhi\r\n",
        Request::Store { verb: Verb::Set, key, flags: u32::MAX, exptime: i64::MIN, value, cas: 0, noreply: true },
    );
    assert_request(
        b"cas k 1 99999999999 2 18446744073709551615 noreply \r\nhi\r\n",
        Request::Store { verb: Verb::Cas, key, flags: 1, exptime: 99999999999, value, cas: u64::MAX, noreply: true },
    );
    assert_request(
        b"cas k 0 0 2 5\r\nhi\r\n",
        Request::Store { verb: Verb::Cas, key, flags: 0, exptime: 0, value, cas: 5, noreply: false },
    );
    for bytes in
        [&b"set k 0 0 2"[..], b"set k 0 0 2\r", b"set k 0 0 2\r\n", b"set k 0 0 2\r\nhi", b"set k 0 0 2\r\nhi\r"]
    {
        assert_eq!(parse(bytes), ParsedRequest::Incomplete, "{}", bytes.escape_ascii());
    }
}

#[test]
fn storage_with_an_unusable_line() {
    for (line, swallow) in [
        ("set k 0 0 -1\r\n", 0),
        ("set k 0 0 abc\r\n", 0),
        ("set k 0 0 2x\r\n", 0),
        ("set k 0 0 0x2\r\n", 0),
        ("set k 0 0 2147483646\r\n", 0),
        ("set k 0 0 2147483647\r\n", 0),
        ("set k 0 0 4294967295\r\n", 0),
        ("set k x 0 -1\r\n", 0),
        ("set k abc 0 2\r\n", 4),
        ("set k -1 0 2\r\n", 4),
        ("set k 4294967296 0 2\r\n", 4),
        ("set k 0 abc 2\r\n", 4),
        ("set k 0 9223372036854775808 2\r\n", 4),
        ("set k abc 0 2147483645\r\n", 2147483647),
        ("cas k 0 0 2 abc\r\n", 4),
        ("cas k 0 0 2 -1\r\n", 4),
        ("cas k 0 0 2 18446744073709551616\r\n", 4),
    ] {
        assert_invalid(line.as_bytes(), line.len(), swallow, BAD_LINE);
        assert_invalid(format!("{line}hi\r\n").as_bytes(), line.len(), swallow, BAD_LINE);
    }
    for line in
        ["set", "set k", "set k 0 0", "set k 0 0 2 noreply x", "add k 0 0 2 5 6 7 8 9", "cas k 0 0 2", "setx k 0 0 2"]
    {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "ERROR\r\n");
    }
    assert_invalid_line(b"cas k 0 0 2 5 noreply x\r\n", "ERROR\r\n");
}

#[test]
fn a_body_without_its_line_end_is_skipped_exactly() {
    let bad = "CLIENT_ERROR bad data chunk\r\n";
    assert_invalid(b"set k 0 0 2\r\nhixx\r\nversion\r\n", 17, 0, bad);
    assert_invalid(b"set k 0 0 2\r\nhi\nversion\r\n", 17, 0, bad);
    assert_invalid(b"set k 0 0 0\nab", 14, 0, bad);
    assert_eq!(parse(b"set k 0 0 2\r\nhix"), ParsedRequest::Incomplete);
}

#[test]
fn a_value_over_the_limit_is_refused_before_it_arrives() {
    let limits = Limits { value_bytes: 10, ..Limits::default() };
    assert_eq!(parse_request(b"set k 0 0 10\r\n", &limits), ParsedRequest::Incomplete);
    let error = RequestError::ValueTooLarge;
    let refused = ParsedRequest::Invalid { error, consumed: 14, swallow: 13 };
    assert_eq!(parse_request(b"set k 0 0 11\r\n", &limits), refused);
    assert_eq!(parse_request(b"set k 0 0 11\r\n12345678901\r\n", &limits), refused);
    assert_invalid_line(b"set k 0 0 -1\r\n", BAD_LINE);
    assert_invalid(b"set k 0 0 1000000000\r\n", 22, 1000000002, TOO_LARGE);
}

#[test]
fn delete() {
    let (key, loud, quiet) = (&b"k"[..], false, true);
    assert_request(b"delete k\r\n", Request::Delete { key, noreply: loud });
    assert_request(b"delete k 0\r\n", Request::Delete { key, noreply: loud });
    assert_request(b"delete k noreply\r\n", Request::Delete { key, noreply: quiet });
    assert_request(b"delete k 0 noreply\r\n", Request::Delete { key, noreply: quiet });
    assert_request(b"delete noreply\r\n", Request::Delete { key: b"noreply", noreply: loud });
    for line in ["k 10", "k 00", "k 0 x", "k 0 0", "k noreply 0", "k noreply x"] {
        assert_invalid_line(format!("delete {line}\r\n").as_bytes(), BAD_DELETE);
    }
    assert_invalid_line(b"delete\r\n", "ERROR\r\n");
    assert_invalid_line(b"delete k 0 noreply x\r\n", "ERROR\r\n");
}

#[test]
fn arithmetic_and_touch() {
    let key = &b"n"[..];
    for (name, verb) in [("incr", Verb::Incr), ("decr", Verb::Decr)] {
        let request = |delta, noreply| Request::Arithmetic { verb, key, delta, noreply };
        assert_request(format!("{name} n 1\r\n").as_bytes(), request(1, false));
        assert_request(format!("{name} n 18446744073709551615 noreply\r\n").as_bytes(), request(u64::MAX, true));
        assert_request(format!("{name} n +1 x\r\n").as_bytes(), request(1, false));
        for delta in ["abc", "-1", "18446744073709551616", "1.5"] {
            assert_invalid_line(format!("{name} n {delta}\r\n").as_bytes(), BAD_DELTA);
        }
        for line in ["", "n", "n 1 2 3", "n 1 noreply x"] {
            assert_invalid_line(format!("{name} {line}\r\n").as_bytes(), "ERROR\r\n");
        }
    }
    assert_request(b"touch n -1\r\n", Request::Touch { key, exptime: -1, noreply: false });
    assert_request(b"touch n 0 noreply\r\n", Request::Touch { key, exptime: 0, noreply: true });
    assert_invalid_line(b"touch n abc\r\n", BAD_EXPTIME);
    assert_invalid_line(b"touch n\r\n", "ERROR\r\n");
    assert_invalid_line(b"touch n 0 noreply x\r\n", "ERROR\r\n");
}

#[test]
fn commands_without_a_key() {
    for (line, delay, noreply) in [
        ("flush_all", None, false),
        ("flush_all noreply", None, true),
        ("flush_all 0", Some(0), false),
        ("flush_all 99999999999 noreply", Some(99999999999), true),
        ("flush_all 1 2", Some(1), false),
    ] {
        assert_request(format!("{line}\r\n").as_bytes(), Request::FlushAll { delay, noreply });
    }
    for line in ["flush_all abc", "flush_all -1", "flush_all noreply 0"] {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), BAD_EXPTIME);
    }
    assert_request(b"verbosity 1\r\n", Request::Verbosity { noreply: false });
    assert_request(b"verbosity 1 noreply\r\n", Request::Verbosity { noreply: true });
    assert_invalid_line(b"verbosity abc\r\n", BAD_LINE);
    for line in ["verbosity", "verbosity 0 0 noreply", "flush_all x y z", "flush_all 0 noreply x"] {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "ERROR\r\n");
    }
    for (line, argument) in
        [("stats", ""), ("stats ", ""), ("stats settings  ", "settings"), (" stats  items  x ", "items  x")]
    {
        assert_request(format!("{line}\r\n").as_bytes(), Request::Stats { argument: argument.as_bytes() });
    }
    assert_request(b"version\n", Request::Version);
    assert_request(b"  version x \r\n", Request::Version);
    assert_request(b"quit\r\n", Request::Quit);
    assert_request(b"quit x y\r\n", Request::Quit);
}

#[test]
fn an_unknown_command_is_one_error() {
    for line in ["", " ", "\r", "\0", "q", "quitx", "versionx", "version\r", "statsx", "Get a", "bogus x", "HTTP/ foo"]
    {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "ERROR\r\n");
    }
    for line in
        ["watch", "lru_crawler metadump all", "slabs reassign 1 2", "shutdown", "cache_memlimit 1", "debugtime p"]
    {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "ERROR\r\n");
    }
    for line in
        ["slabs", "slabs reassign 1 2 3", "slabs automove", "slabs automove ratio x", "lru tune x", "lru_crawler sleep"]
    {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "ERROR\r\n");
    }
    for line in [
        "slabs reassign 1 x",
        "slabs automove x",
        "slabs automove -1 2",
        "lru_crawler tocrawl x",
        "lru_crawler sleep 1x",
    ] {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), BAD_LINE);
    }
    for line in
        ["slabs automove x noreply", "slabs automove 1 noreply", "cache_memlimit 64 noreply", "lru mode flat noreply"]
    {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "");
    }
    for line in ["m", "mx k", "MG k v", "mgx k", "mnx"] {
        assert_invalid_line(format!("{line}\r\n").as_bytes(), "ERROR\r\n");
    }
}

#[test]
fn a_web_request_closes_the_connection() {
    for line in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.0\r\n", "HTTP/1.1\n", "foo HTTP/x \r\n"] {
        assert_eq!(parse(line.as_bytes()), ParsedRequest::Close { error: None }, "{line}");
    }
}

#[test]
fn noreply_suppresses_the_error_of_a_malformed_line() {
    for (line, consumed, swallow, reason) in [
        ("set k abc 0 2 noreply\r\n", 23, 4, RequestError::BadLine),
        ("set k 0 0 -1 noreply\r\n", 22, 0, RequestError::BadLine),
        ("set k 0 0 noreply\r\n", 19, 0, RequestError::BadLine),
        ("set k 0 0 9000000 noreply\r\n", 27, 9000002, RequestError::ValueTooLarge),
        ("set k 0 0 0 noreply\r\nxx", 23, 0, RequestError::BadDataChunk),
        ("cas k 0 0 2 noreply\r\n", 21, 4, RequestError::BadLine),
        ("delete k 10 noreply\r\n", 21, 0, RequestError::BadDelete),
        ("delete k noreply noreply\r\n", 26, 0, RequestError::BadDelete),
        ("incr n abc noreply\r\n", 20, 0, RequestError::BadDelta),
        ("incr n noreply\r\n", 16, 0, RequestError::BadDelta),
        ("touch n noreply\r\n", 17, 0, RequestError::BadExptime),
        ("flush_all abc noreply\r\n", 23, 0, RequestError::BadExptime),
        ("verbosity noreply\r\n", 19, 0, RequestError::BadLine),
    ] {
        assert_invalid(line.as_bytes(), consumed, swallow, "");
        let ParsedRequest::Invalid { error, .. } = parse(line.as_bytes()) else { panic!("{line}") };
        assert_eq!((error.noreply(), error.reason()), (true, reason), "{line}");
    }
}

#[test]
fn long_lines_are_for_retrieval() {
    let limits = Limits { line_bytes: 4096, ..Limits::default() };
    let too_long = ParsedRequest::Close { error: Some(RequestError::LineTooLong) };
    let padded = |before: &str, bytes: usize| format!("{before:<0$}\r\n", bytes - 2);
    for name in ["get a", "gets a"] {
        for bytes in [1024, 1025, 2049, 4096] {
            let line = padded(name, bytes);
            let ParsedRequest::Request { request, consumed } = parse_request(line.as_bytes(), &limits) else {
                panic!("{name} {bytes}")
            };
            assert_eq!((request.key(), consumed), (Some(&b"a"[..]), bytes));
            assert_eq!(parse_request(&line.as_bytes()[..bytes - 1], &limits), ParsedRequest::Incomplete);
        }
        let line = padded(name, 4097);
        assert_eq!(parse_request(line.as_bytes(), &limits), too_long);
        assert_eq!(parse_request(&line.as_bytes()[..4096], &limits), too_long);
    }
    for name in ["gat 0 a", "gats 0 a", "incr n 1", "set k 0 0 0", "version", "x", "getx a", "stats"] {
        let line = padded(name, 1025);
        assert_eq!(parse_request(line.as_bytes(), &limits), too_long, "{name}");
        assert_eq!(parse_request(&line.as_bytes()[..1024], &limits), too_long, "{name}");
        assert_eq!(parse_request(&line.as_bytes()[..1023], &limits), ParsedRequest::Incomplete, "{name}");
    }
    let spaced = |spaces: usize| format!("{}get a{}\r\n", " ".repeat(spaces), " ".repeat(1024));
    assert_ne!(parse_request(spaced(100).as_bytes(), &limits), too_long);
    assert_eq!(parse_request(spaced(101).as_bytes(), &limits), too_long);
    assert_eq!(parse_request(&[b' '; 1024], &limits), too_long);
}
