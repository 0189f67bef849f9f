//! A blocking connection for the time before and after a run, with one request at a time. Its requests are not
//! measured.

use super::context::MessagesContext;
use super::http::{ParsedResponse, parse};
use super::request::RequestWriter;
use crate::drive::connection::CONNECT_TIMEOUT;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const READ_BYTES: usize = 64 * 1024;

/// A connection to one of the services. If one is down, the next is tried.
#[derive(Debug)]
pub(crate) struct SetupConnection<'v> {
    context: &'v MessagesContext,
    addresses: Vec<SocketAddr>,
    timeout: Duration,
    server: usize,
    stream: Option<TcpStream>,
    request: Vec<u8>,
    bytes: Vec<u8>,
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A response with this status and body.
    Reply(u16, Vec<u8>),
    /// The request was not sent, because no connection could be made.
    NotSent(String),
    /// The request was sent, and its outcome is unknown.
    InDoubt(String),
}

impl<'v> SetupConnection<'v> {
    /// A connection to any of these services, with a timeout for each response.
    pub(crate) fn new(
        context: &'v MessagesContext,
        addresses: &[SocketAddr],
        timeout: Duration,
    ) -> SetupConnection<'v> {
        SetupConnection {
            context,
            addresses: addresses.to_vec(),
            timeout,
            server: 0,
            stream: None,
            request: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// The current service.
    pub(crate) fn host(&self) -> &'v str {
        &self.context.hosts[self.server]
    }

    /// Sends, as this client, the request that `write` appends.
    pub(crate) fn send(&mut self, client: u32, write: impl FnOnce(&RequestWriter<'_>, &mut Vec<u8>)) -> Answer {
        let mut stream = match self.stream.take().map_or_else(|| self.connect(), Ok) {
            Ok(stream) => stream,
            Err(error) => {
                let line = format!("{}: {error}", self.host());
                self.server = (self.server + 1) % self.addresses.len();
                return Answer::NotSent(line);
            }
        };
        self.request.clear();
        write(&RequestWriter { context: self.context, host: self.host(), client }, &mut self.request);
        let answer = stream.write_all(&self.request).map_err(|error| error.to_string());
        let answer = answer.and_then(|()| self.read(&mut stream));
        match answer {
            Ok((status, body, closes)) => {
                self.stream = (!closes).then_some(stream);
                if status >= 500 && is_in_doubt(&body) {
                    return Answer::InDoubt(format!("{}: status {status}", self.host()));
                }
                Answer::Reply(status, body)
            }
            Err(line) => Answer::InDoubt(format!("{}: {line}", self.host())),
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.addresses[self.server], CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(stream)
    }

    fn read(&mut self, stream: &mut TcpStream) -> Result<(u16, Vec<u8>, bool), String> {
        self.bytes.clear();
        let mut room = vec![0; READ_BYTES];
        loop {
            let count = stream.read(&mut room).map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("the connection was closed".into());
            }
            self.bytes.extend_from_slice(&room[..count]);
            match parse(&self.bytes) {
                ParsedResponse::Incomplete => {}
                ParsedResponse::Broken(line) => return Err(line),
                ParsedResponse::Response(response) => {
                    return Ok((response.status, response.body.to_vec(), response.closes));
                }
            }
        }
    }
}

/// Whether an error leaves the outcome unknown. The service's other problem documents mean that nothing was done.
fn is_in_doubt(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    !text.contains("urn:waystage:problem:") || text.contains("urn:waystage:problem:in-doubt")
}

/// The first line of a body, for an error message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let line = body.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()
}
