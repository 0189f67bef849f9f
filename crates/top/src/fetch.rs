//! One GET of a metrics page over HTTP/1.1, with limits of its time and its size.

use crate::target::Target;
use clock::{Clock, Nanos};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The largest reply. A proxy with 1000 backends has a page of 4 MB.
const REPLY_MAX: usize = 32 << 20;
/// The largest head of a reply.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
const PIECE: usize = 64 << 10;
/// A socket refuses a time limit of zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// A page, and when its reply began.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) at: Nanos,
    pub(crate) text: String,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("cannot resolve the name: {0}")]
    Resolve(io::Error),
    #[error("{0}")]
    Connect(io::Error),
    #[error("no complete reply within {}", quantity::duration_text(*.0))]
    Timeout(Duration),
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    #[error("the reply ended early")]
    Short,
    #[error("the reply is not HTTP")]
    NotHttp,
    #[error("the page needs a token; give --token-file")]
    Token,
    #[error("the reply has status {0} instead of 200")]
    Status(u16),
    #[error("the reply is larger than {} MiB", REPLY_MAX >> 20)]
    TooLarge,
    #[error("the page is not UTF-8")]
    NotUtf8,
}

/// Where the body of a reply ends.
#[derive(Debug)]
enum End {
    Length(usize),
    Chunks,
    Close,
}

/// Gets the page within `limit`. Only name resolution can take longer, because the system's resolver has its own limits.
pub(crate) fn fetch(
    target: &Target,
    token: Option<&str>,
    limit: Duration,
    clock: &Clock,
) -> Result<Fetched, FetchError> {
    let deadline = clock.now() + limit;
    let left = || {
        let left = deadline.after(clock.now());
        if left.is_zero() { Err(FetchError::Timeout(limit)) } else { Ok(left.max(SHORTEST)) }
    };
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => FetchError::Timeout(limit),
        _ => FetchError::Connection(error),
    };
    let mut stream = connect(target, limit, left)?;
    stream.set_write_timeout(Some(left()?)).map_err(failed)?;
    stream.write_all(request(target, token).as_bytes()).map_err(failed)?;
    let mut reply = Reply::default();
    let (mut at, mut piece) = (None, vec![0; PIECE]);
    loop {
        stream.set_read_timeout(Some(left()?)).map_err(failed)?;
        let count = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.map_err(failed)?,
        };
        let at = *at.get_or_insert_with(|| clock.now());
        if count == 0 {
            let body = reply.at_close()?;
            return Ok(Fetched { at, text: text(body)? });
        }
        if let Some(body) = reply.add(&piece[..count])? {
            return Ok(Fetched { at, text: text(body)? });
        }
    }
}

fn text(body: Vec<u8>) -> Result<String, FetchError> {
    String::from_utf8(body).map_err(|_| FetchError::NotUtf8)
}

/// Connects to the first address of the target that accepts.
fn connect(
    target: &Target,
    limit: Duration,
    left: impl Fn() -> Result<Duration, FetchError>,
) -> Result<TcpStream, FetchError> {
    let addresses = target.address.to_socket_addrs().map_err(FetchError::Resolve)?;
    let mut last = FetchError::Resolve(ErrorKind::NotFound.into());
    for address in addresses {
        match TcpStream::connect_timeout(&address, left()?) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::TimedOut => last = FetchError::Timeout(limit),
            Err(error) => last = FetchError::Connect(error),
        }
    }
    Err(last)
}

fn request(target: &Target, token: Option<&str>) -> String {
    let Target { address, path } = target;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: waystage-top\r\nAccept: text/plain\r\n{token}Connection: close\r\n\r\n"
    )
}

/// A reply while it arrives.
#[derive(Debug, Default)]
struct Reply {
    /// What has arrived and is not in `body`: the head, later chunks.
    raw: Vec<u8>,
    /// The total of the bytes that have arrived.
    size: usize,
    end: Option<End>,
    body: Vec<u8>,
}

impl Reply {
    /// Adds bytes. Returns the body if it is complete.
    fn add(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, FetchError> {
        self.size += bytes.len();
        if self.size > REPLY_MAX {
            return Err(FetchError::TooLarge);
        }
        self.raw.extend_from_slice(bytes);
        if self.end.is_none() {
            self.end = self.head()?;
        }
        let is_complete = match self.end {
            None => false,
            Some(End::Chunks) => self.take_chunks()?,
            Some(End::Close) => {
                self.body.append(&mut self.raw);
                false
            }
            Some(End::Length(length)) => {
                self.body.append(&mut self.raw);
                self.body.len() >= length
            }
        };
        if let Some(End::Length(length)) = self.end {
            self.body.truncate(length);
        }
        Ok(is_complete.then(|| std::mem::take(&mut self.body)))
    }

    /// The body when the server has closed the connection.
    fn at_close(self) -> Result<Vec<u8>, FetchError> {
        match self.end {
            Some(End::Close) => Ok(self.body),
            None if self.raw.is_empty() => Err(FetchError::Short),
            None => Err(FetchError::NotHttp),
            Some(_) => Err(FetchError::Short),
        }
    }

    /// Removes a complete head and returns where the body ends.
    fn head(&mut self) -> Result<Option<End>, FetchError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(&self.raw) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.raw.len() <= HEAD_MAX => return Ok(None),
            _ => return Err(FetchError::NotHttp),
        };
        match head.code {
            Some(200) => {}
            Some(401 | 403) => return Err(FetchError::Token),
            code => return Err(FetchError::Status(code.unwrap_or(0))),
        }
        let header = |name: &str| {
            let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(found.value).ok().map(str::trim)
        };
        let end = if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            End::Chunks
        } else if let Some(value) = header("content-length") {
            match value.parse() {
                Ok(length) if length <= REPLY_MAX => End::Length(length),
                Ok(_) => return Err(FetchError::TooLarge),
                Err(_) => return Err(FetchError::NotHttp),
            }
        } else {
            End::Close
        };
        self.raw.drain(..length);
        Ok(Some(end))
    }

    /// Moves complete chunks to the body. Returns whether the last one has arrived.
    fn take_chunks(&mut self) -> Result<bool, FetchError> {
        let mut at = 0;
        let is_last = loop {
            match httparse::parse_chunk_size(&self.raw[at..]) {
                Ok(httparse::Status::Complete((_, 0))) => break true,
                Ok(httparse::Status::Complete((line, size))) => {
                    let size = usize::try_from(size).ok().filter(|size| *size <= REPLY_MAX);
                    let start = at + line;
                    let end = start + size.ok_or(FetchError::TooLarge)?;
                    // Two bytes end a chunk.
                    if self.raw.len() < end + 2 {
                        break false;
                    }
                    self.body.extend_from_slice(&self.raw[start..end]);
                    at = end + 2;
                }
                Ok(httparse::Status::Partial) => break false,
                Err(_) => return Err(FetchError::NotHttp),
            }
        };
        self.raw.drain(..at);
        Ok(is_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of a reply that arrives in pieces of this size and then ends.
    fn read(reply: &str, piece: usize) -> Result<String, String> {
        let mut state = Reply::default();
        for bytes in reply.as_bytes().chunks(piece) {
            match state.add(bytes) {
                Ok(Some(body)) => return Ok(String::from_utf8(body).unwrap()),
                Ok(None) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        state.at_close().map(|body| String::from_utf8(body).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn replies_end_in_three_ways_and_arrive_in_any_pieces() {
        for reply in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello, and more",
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        ] {
            for piece in [1, 2, 7, 1000] {
                assert_eq!(read(reply, piece), Ok("hello".into()), "{reply} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn replies_without_a_page_are_one_line() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(HEAD_MAX));
        for (reply, expected) in [
            ("", "ended early"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", "ended early"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello", "ended early"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "not HTTP"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "larger than 32 MiB"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "larger than 32 MiB"),
            ("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
            ("HTTP/1.1 401 Unauthorized\r\n\r\n", "--token-file"),
            ("ERROR\r\n", "not HTTP"),
            ("HTTP/1.1 200 O", "not HTTP"),
            (long.as_str(), "not HTTP"),
        ] {
            let error = read(reply, 1000).unwrap_err();
            assert!(error.contains(expected), "{:.60}: {error}", reply);
        }
    }

    #[test]
    fn an_endless_reply_is_given_up() {
        let mut reply = Reply::default();
        reply.add(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let error = (0..100).find_map(|_| reply.add(&vec![b'a'; 1 << 20]).err());
        assert!(matches!(error, Some(FetchError::TooLarge)), "{error:?}");
    }
}
