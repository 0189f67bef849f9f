//! One client: a connection that says its request, waits for the answer and says it again. Knows no clock and no other client.

use crate::talk::{Next, Talk};
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};

/// A client.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// When its request went out, in nanoseconds.
    pub(crate) begun_ns: u64,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
}

impl Connection {
    /// A client that has said nothing yet.
    pub(crate) fn new(stream: TcpStream) -> Connection {
        Connection { stream, begun_ns: 0, output: Vec::new(), written: 0, input: Vec::new() }
    }

    /// Begins a request.
    pub(crate) fn begin(&mut self, opening: &[u8], now_ns: u64) -> Result<(), String> {
        self.begun_ns = now_ns;
        self.say(opening)
    }

    /// Does what can be done now; whether the message is done, or there is none.
    pub(crate) fn go_on(&mut self, talk: &Talk) -> Result<Option<Next>, String> {
        self.write()?;
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("the server has closed the connection".into()),
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            }
            match talk.next(&self.input) {
                Next::Read => {}
                Next::Done(bytes) => {
                    self.input.drain(..bytes);
                    return Ok(Some(Next::Done(bytes)));
                }
                Next::Say(bytes, more) => {
                    self.input.drain(..bytes);
                    self.say(&more)?;
                }
                Next::Empty => return Ok(Some(Next::Empty)),
                Next::Wrong(text) => return Err(format!("unexpected: {text}")),
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.output.clear();
        self.output.extend_from_slice(bytes);
        self.written = 0;
        self.write()
    }

    fn write(&mut self) -> Result<(), String> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}
