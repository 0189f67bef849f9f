//! The requests to a message service and their bytes, which are written directly into the output buffer of a
//! connection.

use super::body::{self, ANYONE, Label};
use super::context::MessagesContext;
use super::http::LeaseToken;
use super::mix::MessageOperation;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageRequest {
    /// Creates the client's own queue of this number.
    Create { number: u32 },
    /// Deletes it.
    Delete { number: u32 },
    /// Sends this message.
    Send { label: Label, size_bytes: usize },
    /// Reads the oldest message of a queue without removing it.
    Peek { queue: u32 },
    /// Reads the oldest message of a sender, in any queue, without removing it.
    PeekFrom { sender: u32 },
    /// Removes the oldest message of a queue.
    Pop { queue: u32 },
    /// Removes the oldest message of a sender in a queue.
    PopFrom { queue: u32, sender: u32 },
    /// Lists the queues with messages for the client.
    Waiting,
    /// Receives the oldest message of a queue with a lease.
    Receive { queue: u32 },
    /// Acknowledges a message.
    Acknowledge { lease: LeaseToken },
    /// Extends a lease.
    Extend { lease: LeaseToken },
    /// Returns a message.
    Nack { lease: LeaseToken },
}

/// Writes requests of a client to a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestWriter<'v> {
    pub(crate) context: &'v MessagesContext,
    /// HOST:PORT of the service.
    pub(crate) host: &'v str,
    pub(crate) client: u32,
}

impl MessageRequest {
    /// The operation under which it is counted.
    pub(crate) fn operation(&self) -> MessageOperation {
        match self {
            MessageRequest::Create { .. } => MessageOperation::Create,
            MessageRequest::Delete { .. } => MessageOperation::Delete,
            MessageRequest::Send { label, .. } if label.receiver == ANYONE => MessageOperation::Send,
            MessageRequest::Send { .. } => MessageOperation::SendTo,
            MessageRequest::Peek { .. } => MessageOperation::Peek,
            MessageRequest::PeekFrom { .. } => MessageOperation::PeekFrom,
            MessageRequest::Pop { .. } => MessageOperation::Pop,
            MessageRequest::PopFrom { .. } => MessageOperation::PopFrom,
            MessageRequest::Waiting => MessageOperation::Waiting,
            MessageRequest::Receive { .. } => MessageOperation::Receive,
            MessageRequest::Acknowledge { .. } => MessageOperation::Acknowledge,
            MessageRequest::Extend { .. } => MessageOperation::Extend,
            MessageRequest::Nack { .. } => MessageOperation::Nack,
        }
    }
}

impl RequestWriter<'_> {
    /// Appends a request.
    pub(crate) fn write(&self, request: &MessageRequest, out: &mut Vec<u8>) {
        match *request {
            MessageRequest::Create { number } => self.scratch(b"PUT", number, out),
            MessageRequest::Delete { number } => self.scratch(b"DELETE", number, out),
            MessageRequest::Send { label, size_bytes } => return self.send(&label, size_bytes, out),
            MessageRequest::Peek { queue } => {
                self.queue(b"GET", queue, b"/messages/head?for=c", out);
                number(self.client, out);
            }
            MessageRequest::PeekFrom { sender } => {
                out.extend_from_slice(b"GET /v1/messages/head?for=c");
                number(self.client, out);
                from(sender, out);
            }
            MessageRequest::Pop { queue } => {
                self.queue(b"POST", queue, b"/messages:pop?for=c", out);
                number(self.client, out);
            }
            MessageRequest::PopFrom { queue, sender } => {
                self.queue(b"POST", queue, b"/messages:pop?for=c", out);
                number(self.client, out);
                from(sender, out);
            }
            MessageRequest::Waiting => {
                out.extend_from_slice(b"GET /v1/receivers/c");
                number(self.client, out);
                out.extend_from_slice(b"/queues");
            }
            MessageRequest::Receive { queue } => {
                self.queue(b"POST", queue, b"/messages:receive?for=c", out);
                number(self.client, out);
                self.lease_time(b'&', out);
            }
            MessageRequest::Acknowledge { lease } => on_lease(&lease, b"acknowledge", out),
            MessageRequest::Extend { lease } => {
                on_lease(&lease, b"extend", out);
                self.lease_time(b'?', out);
            }
            MessageRequest::Nack { lease } => on_lease(&lease, b"nack", out),
        }
        self.headers(0, out);
    }

    /// The visibility timeout as a parameter.
    fn lease_time(&self, separator: u8, out: &mut Vec<u8>) {
        out.push(separator);
        out.extend_from_slice(b"lease=");
        out.extend_from_slice(itoa::Buffer::new().format(self.context.config.lease.as_millis()).as_bytes());
        out.extend_from_slice(b"ms");
    }

    fn send(&self, label: &Label, size_bytes: usize, out: &mut Vec<u8>) {
        self.queue(b"POST", label.queue, b"/messages", out);
        if label.receiver != ANYONE {
            out.extend_from_slice(b"?to=c");
            number(label.receiver, out);
        }
        self.headers(size_bytes, out);
        body::make(label, size_bytes, out);
    }

    /// Appends a request without a body, to any path.
    pub(crate) fn plain(&self, method: &str, path: &str, out: &mut Vec<u8>) {
        for part in [method, " ", path] {
            out.extend_from_slice(part.as_bytes());
        }
        self.headers(0, out);
    }

    /// Appends a request with a JSON document.
    pub(crate) fn document(&self, method: &str, path: &str, document: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(path.as_bytes());
        self.headers(document.len(), out);
        out.extend_from_slice(document.as_bytes());
    }

    fn queue(&self, method: &[u8], queue: u32, rest: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(method);
        out.extend_from_slice(b" /v1/queues/");
        out.extend_from_slice(self.context.queues.get(queue as usize).map_or("", String::as_str).as_bytes());
        out.extend_from_slice(rest);
    }

    fn scratch(&self, method: &[u8], queue: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(method);
        out.extend_from_slice(b" /v1/queues/");
        out.extend_from_slice(self.context.prefix.as_bytes());
        out.extend_from_slice(b"own-");
        number(self.client, out);
        out.push(b'-');
        number(queue, out);
    }

    /// Everything between the path and the body.
    fn headers(&self, body_bytes: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(self.host.as_bytes());
        if let Some(token) = self.context.token(self.client) {
            out.extend_from_slice(b"\r\nAuthorization: Bearer ");
            out.extend_from_slice(token.as_bytes());
        } else {
            out.extend_from_slice(b"\r\nWaystage-Sender: c");
            number(self.client, out);
        }
        out.extend_from_slice(b"\r\nContent-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(body_bytes).as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
    }
}

fn number(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn on_lease(lease: &LeaseToken, action: &[u8], out: &mut Vec<u8>) {
    for part in [b"POST /v1/leases/".as_slice(), lease.bytes(), b"/", action] {
        out.extend_from_slice(part);
    }
}

fn from(sender: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"&from=c");
    number(sender, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::messages::MessagesConfig;
    use crate::config::{Config, fixed_bytes};

    fn context(tokens: &[&str]) -> MessagesContext {
        let messages = MessagesConfig {
            queue_prefix: Some("q".into()),
            tokens: tokens.iter().map(ToString::to_string).collect(),
            ..MessagesConfig::default()
        };
        let config = Config { messages: Some(messages), clients: 4, data_size: fixed_bytes(40), ..Config::default() };
        MessagesContext::new(&config, 1).unwrap()
    }

    fn written(context: &MessagesContext, request: &MessageRequest) -> String {
        let mut out = Vec::new();
        RequestWriter { context, host: "h:1", client: 3 }.write(request, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn every_request_has_the_expected_bytes() {
        let context = context(&[]);
        let lease = LeaseToken::new("0a").unwrap();
        let rest = " HTTP/1.1\r\nHost: h:1\r\nWaystage-Sender: c3\r\nContent-Length: 0\r\n\r\n";
        for (request, line) in [
            (MessageRequest::Create { number: 0 }, "PUT /v1/queues/qown-3-0"),
            (MessageRequest::Delete { number: 7 }, "DELETE /v1/queues/qown-3-7"),
            (MessageRequest::Peek { queue: 2 }, "GET /v1/queues/q2/messages/head?for=c3"),
            (MessageRequest::PeekFrom { sender: 1 }, "GET /v1/messages/head?for=c3&from=c1"),
            (MessageRequest::Pop { queue: 9 }, "POST /v1/queues/q9/messages:pop?for=c3"),
            (MessageRequest::PopFrom { queue: 0, sender: 2 }, "POST /v1/queues/q0/messages:pop?for=c3&from=c2"),
            (MessageRequest::Waiting, "GET /v1/receivers/c3/queues"),
            (MessageRequest::Receive { queue: 1 }, "POST /v1/queues/q1/messages:receive?for=c3&lease=30000ms"),
            (MessageRequest::Acknowledge { lease }, "POST /v1/leases/0a/acknowledge"),
            (MessageRequest::Extend { lease }, "POST /v1/leases/0a/extend?lease=30000ms"),
            (MessageRequest::Nack { lease }, "POST /v1/leases/0a/nack"),
        ] {
            assert_eq!(written(&context, &request), format!("{line}{rest}"));
        }
    }

    #[test]
    fn a_send_has_its_body_and_its_receiver() {
        let context = context(&["secret", "other"]);
        for (receiver, path) in [(ANYONE, "q1/messages "), (2, "q1/messages?to=c2 ")] {
            let label = context.issue(3, 1, receiver);
            let text = written(&context, &MessageRequest::Send { label, size_bytes: 40 });
            assert!(text.starts_with(&format!("POST /v1/queues/{path}HTTP/1.1\r\n")), "{text}");
            assert!(text.contains("\r\nAuthorization: Bearer other\r\n") && !text.contains("Sender"), "{text}");
            assert!(text.contains("Content-Length: 40\r\n\r\n"));
        }
        let label = context.issue(3, 1, ANYONE);
        let mut out = Vec::new();
        RequestWriter { context: &context, host: "h", client: 3 }
            .write(&MessageRequest::Send { label, size_bytes: 40 }, &mut out);
        assert_eq!(body::read(&out[out.len() - 40..]), Some(label));
    }
}
