//! Sends a body to a collector with HTTP/1.1, and reads the reply. Each call has a connection of its own, a deadline for everything
//! but the resolution of the name, and a limit of the bytes that it reads, so that no collector can hold it up for longer.

use crate::config::{Collector, Lookup};
use clock::{Clock, Nanos};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The most bytes of a reply that are read. That of a collector that accepts all spans has about 100.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// The most header fields of a reply.
const FIELDS_MAX: usize = 64;

/// The reply of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorReply {
    pub(crate) status: u16,
    /// How long the collector asks to wait before the next attempt.
    pub(crate) retry_after: Option<Duration>,
    /// The body, if the status is a success and its length was stated.
    pub(crate) body: Vec<u8>,
}

/// The head of a reply, and where its body begins.
#[derive(Debug)]
struct Head {
    reply: CollectorReply,
    ends_at: usize,
    body_bytes: Option<usize>,
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
    match read(&mut stream, &left) {
        Ok(reply) => Ok(reply),
        Err(error) => Err(written.err().unwrap_or(error)),
    }
}

fn connect(collector: &Collector, lookup: &Lookup, left: &impl Fn() -> io::Result<Duration>) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("its name has no address");
    for address in lookup.look_up(&collector.host_port)? {
        match TcpStream::connect_timeout(&address, left()?) {
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

fn read(stream: &mut TcpStream, left: &impl Fn() -> io::Result<Duration>) -> io::Result<CollectorReply> {
    let (mut bytes, mut head) = (Vec::new(), None);
    loop {
        if head.is_none() {
            head = parse(&bytes)?;
        }
        if let Some(head) = head.take_if(|head| head.is_complete(&bytes)) {
            return Ok(head.with_body(&bytes));
        }
        if bytes.len() >= REPLY_BYTES_MAX {
            return Err(invalid());
        }
        stream.set_read_timeout(Some(left()?))?;
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            // The status counts, also if the body is cut off.
            Ok(0) => return head.map(|head| head.reply).ok_or_else(|| ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(error) => match (again(error), head.take()) {
                (Ok(()), kept) => head = kept,
                (Err(_), Some(head)) => return Ok(head.reply),
                (Err(error), None) => return Err(error),
            },
        }
    }
}

impl Head {
    /// Whether enough of the reply is there. The body is needed only if it can report rejected spans.
    fn is_complete(&self, bytes: &[u8]) -> bool {
        self.body_bytes.is_none_or(|length| bytes.len() - self.ends_at >= length)
    }

    fn with_body(self, bytes: &[u8]) -> CollectorReply {
        let body = bytes[self.ends_at..][..self.body_bytes.unwrap_or(0)].to_vec();
        CollectorReply { body, ..self.reply }
    }
}

/// The head of a reply, if it is complete. Interim replies (1xx) are not expected, because the request does not ask for them.
fn parse(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(parsed) = response.parse(bytes) else { return Err(invalid()) };
    let httparse::Status::Complete(ends_at) = parsed else { return Ok(None) };
    let field = |name: &str| {
        let value = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?.value;
        std::str::from_utf8(value).ok()?.trim().parse::<u64>().ok()
    };
    let status = response.code.unwrap_or_default();
    // A body that is too long is no report about rejected spans.
    let length = field("content-length").and_then(|length| usize::try_from(length).ok());
    let body_bytes = length.filter(|&length| status == 200 && length <= REPLY_BYTES_MAX - ends_at.min(REPLY_BYTES_MAX));
    let retry_after = field("retry-after").map(Duration::from_secs);
    Ok(Some(Head { reply: CollectorReply { status, retry_after, body: Vec::new() }, ends_at, body_bytes }))
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

    fn reply(text: &str) -> Option<CollectorReply> {
        let head = parse(text.as_bytes()).unwrap()?;
        head.is_complete(text.as_bytes()).then(|| head.with_body(text.as_bytes()))
    }

    #[test]
    fn a_reply_is_parsed_from_any_number_of_its_bytes() {
        let text = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\ncontent-length: 3\r\n\r\nabc";
        for end in 0..text.len() {
            assert_eq!(reply(&text[..end]), None, "{end}");
        }
        assert_eq!(reply(text), Some(CollectorReply { status: 200, retry_after: None, body: b"abc".to_vec() }));
        let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nContent-Length: 1000000\r\n\r\n";
        let seventeen = Some(Duration::from_secs(17));
        assert_eq!(reply(busy), Some(CollectorReply { status: 503, retry_after: seventeen, body: Vec::new() }));
    }

    #[test]
    fn a_reply_that_lies_is_refused_or_believed_only_so_far() {
        let status = |text: &str| reply(text).map(|reply| (reply.status, reply.body.len(), reply.retry_after));
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nRetry-After: soon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nRetry-After: Fri, 27 Nov 2026 15:00:00 GMT\r\n\r\n",
        ] {
            assert_eq!(status(text), Some((200, 0, None)), "{text}");
        }
        assert!(parse(b"\x16\x03\x01").is_err() && parse(b"SSH-2.0-OpenSSH\r\n\r\n").is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        assert!(parse(many.as_bytes()).is_err());
    }
}
