//! Finds out whether bytes of the next request follow a request in what was read. The HTTP library reads ahead and does not report it.

use axum::http::Request;
use memchr::memchr;

/// An empty line after a request is ignored: old clients send one.
const EMPTY_LINE_BYTES: u64 = 2;

/// Where the bytes that were read last belong.
#[derive(Debug)]
pub(super) enum ReadAhead {
    /// To a head, whose end is searched.
    Head { is_line_empty: bool, has_line: bool },
    /// This many bytes were read after the head of the current request.
    AfterHead(u64),
    /// This many bytes of the next head were read before the current request ended.
    NextHead(u64),
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead::Head { is_line_empty: true, has_line: false }
    }
}

impl ReadAhead {
    pub(super) fn read(&mut self, bytes: &[u8]) {
        match self {
            ReadAhead::AfterHead(count) | ReadAhead::NextHead(count) => *count += bytes.len() as u64,
            ReadAhead::Head { is_line_empty, has_line } => {
                let is_empty = |line: &[u8]| line.iter().all(|byte| *byte == b'\r');
                let mut left = bytes;
                while let Some(end) = memchr(b'\n', left) {
                    let is_whole_line_empty = *is_line_empty && is_empty(&left[..end]);
                    left = &left[end + 1..];
                    if is_whole_line_empty && *has_line {
                        *self = ReadAhead::AfterHead(left.len() as u64);
                        return;
                    }
                    (*is_line_empty, *has_line) = (true, *has_line || !is_whole_line_empty);
                }
                *is_line_empty = *is_line_empty && is_empty(left);
            }
        }
    }

    /// A head is complete. If it was read together with the request before it, its size is estimated from its content.
    pub(super) fn begin<B>(&mut self, request: &Request<B>) {
        if let ReadAhead::NextHead(count) = self {
            *self = ReadAhead::AfterHead(count.saturating_sub(head_bytes(request)));
        }
    }

    /// The request has ended, and its body had this size; none if it was chunked. Returns whether bytes of the next head were read.
    pub(super) fn end(&mut self, body_bytes: Option<u64>) -> bool {
        let left = match (&self, body_bytes) {
            (ReadAhead::AfterHead(count), Some(body_bytes)) => count.saturating_sub(body_bytes),
            _ => 0,
        };
        let is_next = left > EMPTY_LINE_BYTES;
        *self = if is_next { ReadAhead::NextHead(left) } else { ReadAhead::default() };
        is_next
    }
}

/// The size of a head, if its fields have no superfluous spaces.
fn head_bytes<B>(request: &Request<B>) -> u64 {
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let line = request.method().as_str().len() + path + "  HTTP/1.1\r\n".len();
    (line + fields.sum::<usize>() + "\r\n".len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"POST /q HTTP/1.1\r\nhost: a\r\n\r\n";

    fn request() -> Request<()> {
        Request::post("/q").header("host", "a").body(()).unwrap()
    }

    #[test]
    fn the_start_of_the_next_head_is_found_after_a_body_and_after_another_request() {
        assert_eq!(head_bytes(&request()), HEAD.len() as u64);
        // Each byte by itself, and all at once.
        for size in [1, 1000] {
            let mut ahead = ReadAhead::default();
            let mut read = |parts: &[&[u8]]| parts.concat().chunks(size).for_each(|bytes| ahead.read(bytes));
            read(&[b"\r\n", HEAD, b"body", HEAD, b"body", b"GET"]);
            ahead.begin(&request());
            assert!(ahead.end(Some(4)), "a whole request and a part follow");
            ahead.begin(&request());
            assert!(ahead.end(Some(4)), "a part follows");
        }
        let mut ahead = ReadAhead::default();
        for body in [&b""[..], b"body", b"a\n\nb"] {
            ahead.read(HEAD);
            ahead.begin(&request());
            ahead.read(body);
            ahead.read(b"\r\n");
            assert!(!ahead.end(Some(body.len() as u64)), "nothing but an empty line follows");
        }
        ahead.read(HEAD);
        ahead.read(b"7\r\nGET / H\r\n0\r\n\r\n");
        assert!(!ahead.end(None), "the end of a chunked body is not known");
    }
}
