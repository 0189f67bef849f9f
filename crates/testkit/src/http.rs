//! A client of HTTP/1.1 that sends one request at a time over one connection, and exposes the whole reply.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A timeout longer than any delay of a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
pub struct Http {
    stream: BufReader<TcpStream>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// Headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as long as announced.
    pub body: Vec<u8>,
}

impl Http {
    /// Connects.
    ///
    /// # Errors
    /// If no server listens.
    pub fn connect(address: SocketAddr) -> io::Result<Http> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Http { stream: BufReader::new(stream) })
    }

    /// Sends one request and reads the reply; headers as `name: value`.
    ///
    /// # Errors
    /// If the connection breaks or the reply is not HTTP.
    pub fn request(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> io::Result<HttpReply> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
        for header in headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<HttpReply> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "not a reply of HTTP");
        let status = self.line()?.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(broken)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").ok_or_else(broken)?;
            headers.push((name.to_ascii_lowercase(), value.to_string()));
        }
        let mut reply = HttpReply { status, headers, body: Vec::new() };
        let length = reply.header("content-length").map_or(Ok(0), str::parse).map_err(|_| broken())?;
        reply.body.resize(length, 0);
        self.stream.read_exact(&mut reply.body)?;
        Ok(reply)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_string())
    }
}

impl HttpReply {
    /// The first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
