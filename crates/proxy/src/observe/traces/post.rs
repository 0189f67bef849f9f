//! Sends a body to a collector with HTTP/1.1, and reads the reply. Each call has a connection of its own, a deadline for everything
//! but the resolution of the name, and a limit of the bytes that it reads, so that no collector can hold it up for longer.

use crate::config::{Collector, Lookup};
use clock::{Clock, Nanos};
use httparse::Status;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The most bytes of a reply that are read. That of a collector that accepts all spans has about 100.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// The most header fields of a reply.
const FIELDS_MAX: usize = 64;

/// How long the body of a reply may take after its head. It only reports rejected spans.
const BODY_WAIT: Duration = Duration::from_secs(1);

/// The reply of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorReply {
    pub(crate) status: u16,
    /// How long the collector asks to wait before the next attempt.
    pub(crate) retry_after: Option<Duration>,
    /// The body, if the status is a success and the whole body was read.
    pub(crate) body: Vec<u8>,
}

/// The head of a reply, and where its body begins.
#[derive(Debug)]
struct Head {
    reply: CollectorReply,
    ends_at: usize,
    framing: Framing,
}

/// Where the body of a reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// The body is not needed, or is too long to be a report about rejected spans.
    Unread,
    Length(usize),
    Chunked,
    UntilClose,
}

/// Sends a body of spans.
///
/// # Errors
/// If there is no connection, no valid reply, or none before `until`.
pub(crate) fn post(
    collector: &Collector,
    lookup: &Lookup,
    body: &[u8],
    until: Nanos,
    clock: &Clock,
) -> io::Result<CollectorReply> {
    let left = || match until.after(clock.now()) {
        Duration::ZERO => Err(io::Error::new(ErrorKind::TimedOut, "it took too long")),
        left => Ok(left),
    };
    let mut stream = connect(collector, lookup, &left)?;
    stream.set_nodelay(true)?;
    let Collector { host_port, path } = collector;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host_port}\r\nUser-Agent: waystage/{}\r\nContent-Type: application/x-protobuf\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    let message = [head.as_bytes(), body].concat();
    let written = write(&mut stream, &message, &left);
    // A collector may reply before it has read everything, for example that the body is too large, and close.
    match read(&mut stream, &left, clock) {
        Ok(reply) => Ok(reply),
        Err(error) => Err(written.err().unwrap_or(error)),
    }
}

/// Connects to the first address that accepts. One that never answers must leave time for the others, so each has an equal share of
/// the time that is left.
fn connect(collector: &Collector, lookup: &Lookup, left: &impl Fn() -> io::Result<Duration>) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("its name has no address");
    let addresses = lookup.look_up(&collector.host_port)?;
    for (address, others) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        // A timeout of zero would be an error of the caller.
        match TcpStream::connect_timeout(address, (left()? / others).max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn write(stream: &mut TcpStream, mut bytes: &[u8], left: &impl Fn() -> io::Result<Duration>) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left()?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => again(error)?,
        }
    }
    Ok(())
}

fn read(stream: &mut TcpStream, left: &impl Fn() -> io::Result<Duration>, clock: &Clock) -> io::Result<CollectorReply> {
    let (mut bytes, mut received) = (Vec::new(), 0);
    let head = loop {
        match parse(&bytes)? {
            // A server may send such replies at any time (RFC 9110, 15.2).
            Some(head) if head.is_interim() => drop(bytes.drain(..head.ends_at)),
            Some(head) => break head,
            None if received >= REPLY_BYTES_MAX => return Err(invalid()),
            None => match receive(stream, &mut bytes, left()?)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => received += count,
            },
        }
    };
    // The status counts, whatever becomes of the body.
    let mut body = bytes.split_off(head.ends_at);
    let until = clock.now() + BODY_WAIT;
    let mut is_closed = false;
    loop {
        if let Some(body) = head.framing.body(&body, is_closed) {
            return Ok(CollectorReply { body, ..head.reply });
        }
        let time = left().unwrap_or_default().min(until.after(clock.now()));
        if is_closed || time.is_zero() || body.len() >= REPLY_BYTES_MAX {
            return Ok(head.reply);
        }
        match receive(stream, &mut body, time) {
            Ok(count) => is_closed = count == 0,
            Err(_) => return Ok(head.reply),
        }
    }
}

/// Reads some bytes; none if the collector has closed the connection.
fn receive(stream: &mut TcpStream, bytes: &mut Vec<u8>, time: Duration) -> io::Result<usize> {
    stream.set_read_timeout(Some(time))?;
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(read) => {
                bytes.extend_from_slice(&piece[..read]);
                return Ok(read);
            }
            Err(error) => again(error)?,
        }
    }
}

impl Head {
    /// Whether another reply follows. After 101, none of HTTP does.
    fn is_interim(&self) -> bool {
        (100..200).contains(&self.reply.status) && self.reply.status != 101
    }
}

impl Framing {
    /// The whole body, if these bytes contain it.
    fn body(self, bytes: &[u8], is_closed: bool) -> Option<Vec<u8>> {
        match self {
            Framing::Unread => Some(Vec::new()),
            Framing::Length(length) => bytes.get(..length).map(<[u8]>::to_vec),
            Framing::Chunked => join_chunks(bytes),
            Framing::UntilClose => is_closed.then(|| bytes.to_vec()),
        }
    }
}

/// The content of chunks, if the last one is there. Bytes that are no chunks have none.
fn join_chunks(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        match httparse::parse_chunk_size(bytes) {
            Err(_) => return Some(Vec::new()),
            Ok(Status::Partial) => return None,
            Ok(Status::Complete((_, 0))) => return Some(body),
            Ok(Status::Complete((start, length))) => {
                let end = start.checked_add(usize::try_from(length).ok()?)?;
                body.extend_from_slice(bytes.get(start..end)?);
                bytes = bytes.get(end..)?.strip_prefix(b"\r\n")?;
            }
        }
    }
}

/// The head of a reply, if it is complete.
fn parse(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(parsed) = response.parse(bytes) else { return Err(invalid()) };
    let Status::Complete(ends_at) = parsed else { return Ok(None) };
    let field = |name: &str| {
        let value = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?.value;
        std::str::from_utf8(value).ok().map(str::trim)
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let status = response.code.unwrap_or_default();
    let is_chunked = field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let framing = match number("content-length") {
        _ if status != 200 => Framing::Unread,
        _ if is_chunked => Framing::Chunked,
        // A body that is too long is no report about rejected spans.
        Some(length) if length > REPLY_BYTES_MAX as u64 => Framing::Unread,
        Some(length) => Framing::Length(length as usize),
        None if field("content-length").is_some() || field("transfer-encoding").is_some() => Framing::Unread,
        None => Framing::UntilClose,
    };
    let retry_after = number("retry-after").map(Duration::from_secs);
    Ok(Some(Head { reply: CollectorReply { status, retry_after, body: Vec::new() }, ends_at, framing }))
}

fn invalid() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "its reply is not HTTP")
}

/// Passes over an interruption.
fn again(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        // What the operating system reports for a read or write that has timed out.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(io::Error::new(ErrorKind::TimedOut, "it took too long")),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply whose bytes these are, if they are complete.
    fn reply(text: &[u8], is_closed: bool) -> Option<CollectorReply> {
        let head = parse(text).unwrap()?;
        let body = head.framing.body(&text[head.ends_at..], is_closed)?;
        Some(CollectorReply { body, ..head.reply })
    }

    #[test]
    fn a_reply_is_parsed_from_any_number_of_its_bytes() {
        let abc = Some(CollectorReply { status: 200, retry_after: None, body: b"abc".to_vec() });
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\ncontent-length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n",
        ] {
            for end in 0..text.len() {
                assert_eq!(reply(&text.as_bytes()[..end], false), None, "{end} of {text}");
            }
            assert_eq!(reply(text.as_bytes(), false), abc);
        }
        let until_close = b"HTTP/1.0 200 OK\r\n\r\nabc";
        assert_eq!((reply(until_close, false), reply(until_close, true)), (None, abc));
        let busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nContent-Length: 1000000\r\n\r\n";
        let seventeen = Some(Duration::from_secs(17));
        let expected = CollectorReply { status: 503, retry_after: seventeen, body: Vec::new() };
        assert_eq!(reply(busy, false), Some(expected));
    }

    #[test]
    fn a_reply_that_lies_is_refused_or_believed_only_so_far() {
        let status = |text: &str| reply(text.as_bytes(), false).map(|r| (r.status, r.body.len(), r.retry_after));
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nRetry-After: soon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nRetry-After: Fri, 27 Nov 2026 15:00:00 GMT\r\n\r\n",
        ] {
            assert_eq!(status(text), Some((200, 0, None)), "{text}");
        }
        let endless = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc";
        assert_eq!(status(endless), None);
        assert!(parse(b"\x16\x03\x01").is_err() && parse(b"SSH-2.0-OpenSSH\r\n\r\n").is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert!(parse(many.as_bytes()).is_err());
    }
}
