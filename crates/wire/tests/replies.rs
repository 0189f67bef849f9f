//! Replies: a table of bytes and their meaning.

use wire::{Limits, MetaCode, ParsedReply, Reply, ReplyError, Value, ValueHead, parse_reply, parse_value_head};

fn parse(bytes: &[u8]) -> ParsedReply<'_> {
    parse_reply(bytes, &Limits { value_bytes: 1000, line_bytes: 100, ..Limits::default() })
}

fn assert_reply(bytes: &[u8], expected: Reply<'_>) {
    let mut stream = bytes.to_vec();
    stream.extend_from_slice(b"END\r\n");
    assert_eq!(
        parse(&stream),
        ParsedReply::Reply { reply: expected, consumed: bytes.len() },
        "{}",
        bytes.escape_ascii()
    );
    for length in 0..bytes.len() {
        assert_eq!(parse(&bytes[..length]), ParsedReply::Incomplete, "{}", bytes[..length].escape_ascii());
    }
}

fn assert_broken(bytes: &[u8], error: ReplyError) {
    assert_eq!(parse(bytes), ParsedReply::Broken(error), "{}", bytes.escape_ascii());
}

#[test]
fn lines() {
    for (bytes, reply) in [
        (&b"END\r\n"[..], Reply::End),
        (b"STORED\r\n", Reply::Stored),
        (b"NOT_STORED\r\n", Reply::NotStored),
        (b"EXISTS\r\n", Reply::Exists),
        (b"NOT_FOUND\r\n", Reply::NotFound),
        (b"DELETED\r\n", Reply::Deleted),
        (b"TOUCHED\r\n", Reply::Touched),
        (b"OK\r\n", Reply::Ok),
        (b"RESET\r\n", Reply::Reset),
        (b"0\r\n", Reply::Number(0)),
        (b"18446744073709551615\r\n", Reply::Number(u64::MAX)),
        (b"9  \r\n", Reply::Number(9)),
        (b"VERSION 1.6.18\r\n", Reply::Version(b"1.6.18")),
        (b"STAT pid 17\r\n", Reply::Stat { name: b"pid", value: b"17" }),
        (b"STAT version a b \r\n", Reply::Stat { name: b"version", value: b"a b " }),
        (b"STAT inter \r\n", Reply::Stat { name: b"inter", value: b"" }),
        (b"ERROR\r\n", Reply::Error),
        (b"ERROR: shutdown not enabled\r\n", Reply::Error),
        (b"CLIENT_ERROR bad data chunk\r\n", Reply::ClientError(b"bad data chunk")),
        (b"SERVER_ERROR out of memory storing object\r\n", Reply::ServerError(b"out of memory storing object")),
        (b"SERVER_ERROR\r\n", Reply::ServerError(b"")),
    ] {
        assert_reply(bytes, reply);
        let says_error = bytes.windows(5).any(|word| word == b"ERROR");
        assert_eq!(reply.is_error(), says_error);
    }
}

#[test]
fn values() {
    let value = |key, flags, cas, data| Reply::Value(Value { key, flags, cas, data });
    assert_reply(b"VALUE k 0 2\r\nhi\r\n", value(b"k", 0, None, b"hi"));
    assert_reply(b"VALUE k 4294967295 0\r\n\r\n", value(b"k", u32::MAX, None, b""));
    assert_reply(
        b"VALUE a\0\xff 1 5 18446744073709551615\r\nEND\r\n\r\n",
        value(b"a\0\xff", 1, Some(u64::MAX), b"END\r\n"),
    );
    assert_reply(b"VALUE k 0 3\r\n\r\n\n\r\n", value(b"k", 0, None, b"\r\n\n"));
}

#[test]
fn meta_replies() {
    let line = |code, flags| Reply::Meta { code, flags };
    for (bytes, reply) in [
        (&b"HD\r\n"[..], line(MetaCode::Header, &b""[..])),
        (b"HD \r\n", line(MetaCode::Header, b"")),
        (b"HD kZm9v b t-1 Z X\r\n", line(MetaCode::Header, b"kZm9v b t-1 Z X")),
        (b"EN\r\n", line(MetaCode::Miss, b"")),
        (b"EN kmiss Oabc\r\n", line(MetaCode::Miss, b"kmiss Oabc")),
        (b"NF O1\r\n", line(MetaCode::NotFound, b"O1")),
        (b"NS c0\r\n", line(MetaCode::NotStored, b"c0")),
        (b"EX\r\n", line(MetaCode::Exists, b"")),
        (b"MN\r\n", line(MetaCode::Noop, b"")),
        (b"ME k exp=-1 la=0\r\n", line(MetaCode::Debug, b"k exp=-1 la=0")),
        (b"VA 2\r\nhi\r\n", Reply::MetaValue { flags: b"", data: b"hi" }),
        (b"VA 0 s0 W\r\n\r\n", Reply::MetaValue { flags: b"s0 W", data: b"" }),
        (b"VA 4 kk\r\nEN\r\n\r\n", Reply::MetaValue { flags: b"kk", data: b"EN\r\n" }),
    ] {
        assert_reply(bytes, reply);
        assert!(!reply.is_error());
    }
    for line in ["VA ", "VA x", "VA -1", "VA  2", "VA 2x", "VA 18446744073709551616"] {
        assert_broken(format!("{line}\r\nhi\r\n").as_bytes(), ReplyError::BadValueLine);
    }
    assert_broken(b"VA 1001\r\n", ReplyError::ValueTooLarge);
    assert_broken(b"VA 2\r\nhix\r\n", ReplyError::BadDataChunk);
    assert_broken(b"HD\n", ReplyError::BadLineEnd);
}

#[test]
fn invalid_replies() {
    for line in [
        &b"\r\n"[..],
        b" END\r\n",
        b"END \r\n",
        b"stored\r\n",
        b"VALUE\r\n",
        b"ERRORS\r\n",
        b"HDx\r\n",
        b"VA\r\n",
        b"hd\r\n",
        b"-1\r\n",
    ] {
        assert_broken(line, ReplyError::UnknownReply);
    }
    assert_broken(b"END\n", ReplyError::BadLineEnd);
    assert_broken(b"\n", ReplyError::BadLineEnd);
    assert_broken(b"1x\r\n", ReplyError::BadNumber);
    assert_broken(b"18446744073709551616\r\n", ReplyError::BadNumber);
    assert_broken(b"STAT\r\n", ReplyError::BadStatLine);
    assert_broken(b"STAT  x\r\n", ReplyError::BadStatLine);
    for line in [
        "VALUE ",
        "VALUE k",
        "VALUE k 0",
        "VALUE k 0 -1",
        "VALUE k -1 2",
        "VALUE k 4294967296 2",
        "VALUE k 0 2x",
        "VALUE k 0 2 x",
        "VALUE k 0 2 1 1",
        "VALUE k 0 18446744073709551616",
    ] {
        assert_broken(format!("{line}\r\nhi\r\n").as_bytes(), ReplyError::BadValueLine);
    }
}

#[test]
fn limits_are_enforced() {
    assert_eq!(parse(b"VALUE k 0 1000\r\n"), ParsedReply::Incomplete);
    assert_broken(b"VALUE k 0 1001\r\n", ReplyError::ValueTooLarge);
    assert_broken(b"VALUE k 0 18446744073709551615\r\n", ReplyError::ValueTooLarge);
    assert_broken(b"VALUE k 0 2\r\nhix\r\n", ReplyError::BadDataChunk);
    assert_broken(b"VALUE k 0 2\r\nhi\n\r", ReplyError::BadDataChunk);
    assert_eq!(parse(&[b'x'; 99]), ParsedReply::Incomplete);
    assert_broken(&[b'x'; 100], ReplyError::LineTooLong);
    let longer = format!("VERSION {}\r\n", "1".repeat(91));
    assert_eq!(longer.len(), 101);
    assert_broken(longer.as_bytes(), ReplyError::LineTooLong);
    let key = [b'k'; 251];
    let line = [b"VALUE ", &key[..], b" 0 0\r\n\r\n"].concat();
    assert_eq!(parse_reply(&line, &Limits::default()), ParsedReply::Broken(ReplyError::BadValueLine));
}

#[test]
fn the_line_of_a_value_beyond_the_limit_is_parsed_without_its_value() {
    let limits = Limits { value_bytes: 1000, ..Limits::default() };
    let value = Value { key: b"k", flags: 7, cas: Some(9), data: b"" };
    for (line, reply) in [
        (&b"VALUE k 7 1001 9\r\n"[..], Reply::Value(value)),
        (b"VA 1001 kk s1001\r\n", Reply::MetaValue { flags: b"kk s1001", data: b"" }),
    ] {
        let bytes = [line, b"xxx"].concat();
        assert_eq!(parse_reply(&bytes, &limits), ParsedReply::Broken(ReplyError::ValueTooLarge));
        let large = ValueHead { reply, line_bytes: line.len(), body_bytes: 1003 };
        assert_eq!(parse_value_head(&bytes, &limits), Some(large));
    }
    // memcached has no such values.
    for line in
        [&b"VALUE k 0 1073741825\r\n"[..], b"VA 18446744073709551615\r\n", b"VALUE k 0 x\r\n", b"VALUE k 0 1001"]
    {
        assert_eq!(parse_value_head(line, &limits), None);
    }
}
