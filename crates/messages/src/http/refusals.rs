//! Problem documents for request heads that the HTTP library refuses. The library answers them itself, with a status and no body.

use crate::http::problem::Problem;
use axum::body::Bytes;
use serde_json::Value;

/// The bytes before the status in a reply.
const VERSION: &[u8] = b"HTTP/1.1 ";
/// Replies of operations with these statuses have a body.
const NO_BODY: &[u8] = b"\r\ncontent-length: 0\r\n";

/// Returns the status and a reply with a problem document if these bytes are the library's reply to a refused head.
pub(super) fn replacement(bytes: &[u8]) -> Option<(u16, Bytes)> {
    let status = bytes.strip_prefix(VERSION)?.get(..4)?;
    let problem = match status {
        b"400 " => Problem::invalid_request("the head of the request is not valid HTTP/1.1"),
        b"414 " => Problem::path_too_long(),
        b"431 " => Problem::head_too_large("the head of a request can have at most 64 KiB and 100 headers"),
        _ => return None,
    };
    bytes.windows(NO_BODY.len()).any(|window| window == NO_BODY).then(|| (problem.status.as_u16(), reply(&problem)))
}

fn reply(problem: &Problem) -> Bytes {
    let document: Value = problem.document();
    let (body, status) = (document.to_string(), problem.status);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Bytes::from(head + &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::client_connection::ClientConnection;
    use crate::http::stream::ObservedStream;
    use crate::observe::journal::Journal;
    use crate::observe::measurements::{self, AnsweredRequest, Measurements};
    use crate::observe::record_file::RecordSink;
    use crate::path::caller::Caller;
    use clock::Clock;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_body_that_looks_like_a_refusal_is_written_as_it_is() {
        let (clock, journal) = (Clock::monotonic(), Arc::new(Journal::new(RecordSink::default(), Arc::default())));
        let client = Arc::new(ClientConnection::new(0, 0, Caller::default(), clock, journal));
        let text = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        for is_body in [false, true] {
            let (mut near, mut far) = tokio::io::duplex(1 << 10);
            let mut stream = ObservedStream { stream: &mut near, client: client.clone(), refusal: None };
            if is_body {
                let request = AnsweredRequest {
                    operation: "peek",
                    status: 200,
                    measurements: Measurements::default(),
                    row: measurements::row(0, 0, 0),
                };
                client.hand_over(request, text.len() as u64);
            }
            stream.write_all(text).await.unwrap();
            drop(near);
            let mut written = Vec::new();
            far.read_to_end(&mut written).await.unwrap();
            assert_eq!(written == text, is_body, "{}", String::from_utf8_lossy(&written));
        }
    }

    #[test]
    fn only_refusals_without_a_body_are_replaced() {
        let refused = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let (status, reply) = replacement(refused).unwrap();
        assert_eq!(status, 431);
        let reply = String::from_utf8(reply.to_vec()).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        assert!(body.contains("urn:waystage:problem:head-too-large"), "{body}");
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\n",
            b"HTTP/1.1",
        ] {
            assert_eq!(replacement(other), None);
        }
    }
}
