//! Parses one HTTP/1.1 response. Knows no sockets and no requests.

use std::time::Duration;

/// The maximum number of headers in a response.
const HEADERS_MAX: usize = 64;
/// The maximum size of the head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The maximum size of a body.
const BODY_BYTES_MAX: usize = 256 << 20;
/// The longest lease token; those of the service have 56 digits.
const LEASE_TOKEN_BYTES_MAX: usize = 64;
/// The longest `Retry-After` that is followed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The result of parsing.
#[derive(Debug)]
pub(crate) enum ParsedResponse<'a> {
    /// The response is incomplete.
    Incomplete,
    /// The bytes are not a valid response; the reason is one line.
    Broken(String),
    /// A response.
    Response(Response<'a>),
}

/// A complete response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
    /// Its size including head and body.
    pub(crate) consumed: usize,
    /// Whether the connection closes after it.
    pub(crate) closes: bool,
    /// How long the client must wait, according to the service.
    pub(crate) retry_after: Option<Duration>,
    /// The lease of a received message.
    pub(crate) lease_token: Option<LeaseToken>,
    /// The id of a message.
    pub(crate) id: Option<u64>,
    /// The number of the attempt.
    pub(crate) attempt: Option<u32>,
}

/// The token of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseToken {
    bytes: [u8; LEASE_TOKEN_BYTES_MAX],
    used: usize,
}

impl LeaseToken {
    /// A token of visible characters that is not too long.
    pub(crate) fn new(text: &str) -> Option<LeaseToken> {
        let is_good =
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let mut bytes = [0; LEASE_TOKEN_BYTES_MAX];
        bytes.get_mut(..text.len()).filter(|_| is_good)?.copy_from_slice(text.as_bytes());
        Some(LeaseToken { bytes, used: text.len() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// The relevant headers.
#[derive(Default)]
struct Headers {
    length: Option<usize>,
    closes: bool,
    retry_after: Option<Duration>,
    lease_token: Option<LeaseToken>,
    id: Option<u64>,
    attempt: Option<u32>,
}

/// Parses a response.
pub(crate) fn parse(bytes: &[u8]) -> ParsedResponse<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => return ParsedResponse::Incomplete,
        Ok(httparse::Status::Partial) => {
            return ParsedResponse::Broken(format!("the headers of a reply are longer than {HEAD_BYTES_MAX} bytes"));
        }
        Err(error) => return ParsedResponse::Broken(format!("a reply is not HTTP/1.1: {error}")),
    };
    let status = head.code.unwrap_or(0);
    let parsed = match Headers::read(head.headers, head.version == Some(0)) {
        Ok(parsed) => parsed,
        Err(line) => return ParsedResponse::Broken(line),
    };
    let has_no_body = status == 204 || status == 304;
    let body_bytes = match parsed.length {
        _ if status < 200 => return ParsedResponse::Broken(format!("unexpected status {status}")),
        _ if has_no_body => 0,
        Some(length) if length > BODY_BYTES_MAX => return ParsedResponse::Broken(format!("a body of {length} bytes")),
        Some(length) => length,
        None => return ParsedResponse::Broken(format!("status {status} without Content-Length")),
    };
    match bytes.get(head_bytes..head_bytes + body_bytes) {
        None => ParsedResponse::Incomplete,
        Some(body) => ParsedResponse::Response(Response {
            status,
            body,
            consumed: head_bytes + body_bytes,
            closes: parsed.closes,
            retry_after: parsed.retry_after,
            lease_token: parsed.lease_token,
            id: parsed.id,
            attempt: parsed.attempt,
        }),
    }
}

impl Headers {
    fn read(headers: &[httparse::Header<'_>], is_1_0: bool) -> Result<Headers, String> {
        let mut parsed = Headers { closes: is_1_0, ..Headers::default() };
        for header in headers {
            let text = std::str::from_utf8(header.value).unwrap_or("").trim();
            if header.name.eq_ignore_ascii_case("content-length") {
                let length = text.parse().map_err(|_| format!("Content-Length: {text:?} is not a number"))?;
                if parsed.length.is_some_and(|other| other != length) {
                    return Err("two different Content-Lengths".into());
                }
                parsed.length = Some(length);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(format!("Transfer-Encoding: {text} is not supported"));
            } else if header.name.eq_ignore_ascii_case("connection") {
                parsed.closes |= text.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
            } else if header.name.eq_ignore_ascii_case("retry-after") {
                parsed.retry_after = text.parse().ok().map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
            } else if header.name.eq_ignore_ascii_case("waystage-lease-token") {
                parsed.lease_token = LeaseToken::new(text);
            } else if header.name.eq_ignore_ascii_case("waystage-message") {
                parsed.id = text.parse().ok();
            } else if header.name.eq_ignore_ascii_case("waystage-attempt") {
                parsed.attempt = text.parse().ok();
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(bytes: &[u8]) -> Response<'_> {
        match parse(bytes) {
            ParsedResponse::Response(response) => response,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_response_is_complete_or_missing() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nServer-Timing: a;dur=1\r\n\r\nabcHTTP";
        let whole = response(bytes);
        assert_eq!((whole.status, whole.body, whole.consumed), (200, &b"abc"[..], bytes.len() - 4));
        assert!(!whole.closes && whole.retry_after.is_none());
        for cut in 0..bytes.len() - 4 {
            assert!(matches!(parse(&bytes[..cut]), ParsedResponse::Incomplete), "{cut}");
        }
    }

    #[test]
    fn an_empty_response_has_no_body() {
        let empty = response(b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1");
        assert_eq!((empty.status, empty.body.len(), empty.consumed), (204, 0, 27));
    }

    #[test]
    fn the_end_and_pauses_are_noticed() {
        let refused = response(b"HTTP/1.1 503 X\r\nRetry-After: 2\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n");
        assert_eq!((refused.retry_after, refused.closes), (Some(Duration::from_secs(2)), true));
        let long = response(b"HTTP/1.0 503 X\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n");
        assert_eq!((long.retry_after, long.closes), (Some(RETRY_AFTER_MAX), true));
    }

    #[test]
    fn a_received_message_has_a_lease() {
        let received = response(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nWaystage-Lease-Token: 0a-1\r\nWaystage-Message: 7\r\nwaystage-attempt: 2\r\n\r\nx",
        );
        assert_eq!(received.lease_token.unwrap().bytes(), b"0a-1");
        assert_eq!((received.id, received.attempt), (Some(7), Some(2)));
        assert_eq!((LeaseToken::new("a/b"), LeaseToken::new(""), LeaseToken::new(&"a".repeat(65))), (None, None, None));
    }

    #[test]
    fn malformed_responses_are_one_line() {
        let broken: [(&[u8], &str); 7] = [
            (b"VALUE key 0 3\r\n", "not HTTP/1.1"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "without Content-Length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "is not a number"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "two different"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "a body of"),
            (b"HTTP/1.1 100 Continue\r\n\r\n", "status 100"),
        ];
        for (bytes, expected) in broken {
            let ParsedResponse::Broken(line) = parse(bytes) else { panic!("{expected}: it was taken") };
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        }
        let endless = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &vec![b'a'; HEAD_BYTES_MAX]].concat();
        assert!(matches!(parse(&endless), ParsedResponse::Broken(_)));
    }
}
