//! One connection for what comes before and after a run: a request, and then its answer. Not part of what is measured.

use super::http::{Parsed, parse};
use super::request::Speaking;
use super::venue::Venue;
use crate::drive::connection::CONNECT_TIMEOUT;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const READ_BYTES: usize = 64 * 1024;

/// A connection to one of the services, whichever is there.
#[derive(Debug)]
pub(crate) struct Plain<'v> {
    venue: &'v Venue,
    addresses: Vec<SocketAddr>,
    patience: Duration,
    server: usize,
    stream: Option<TcpStream>,
    request: Vec<u8>,
    bytes: Vec<u8>,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// With this status and body.
    Reply(u16, Vec<u8>),
    /// Nobody was there to be asked.
    NotAsked(String),
    /// It was asked, and nobody said how it ended.
    Doubt(String),
}

impl<'v> Plain<'v> {
    /// To any of these services; each answer may take so long.
    pub(crate) fn new(venue: &'v Venue, addresses: &[SocketAddr], patience: Duration) -> Plain<'v> {
        Plain {
            venue,
            addresses: addresses.to_vec(),
            patience,
            server: 0,
            stream: None,
            request: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// The service that is asked.
    pub(crate) fn host(&self) -> &'v str {
        &self.venue.hosts[self.server]
    }

    /// Asks, as this client, what `write` writes.
    pub(crate) fn ask(&mut self, client: u32, write: impl FnOnce(&Speaking<'_>, &mut Vec<u8>)) -> Answer {
        let mut stream = match self.stream.take().map_or_else(|| self.connect(), Ok) {
            Ok(stream) => stream,
            Err(error) => {
                let line = format!("{}: {error}", self.host());
                self.server = (self.server + 1) % self.addresses.len();
                return Answer::NotAsked(line);
            }
        };
        self.request.clear();
        write(&Speaking { venue: self.venue, host: self.host(), client }, &mut self.request);
        let answer = stream.write_all(&self.request).map_err(|error| error.to_string());
        let answer = answer.and_then(|()| self.read(&mut stream));
        match answer {
            Ok((status, body, closes)) => {
                self.stream = (!closes).then_some(stream);
                if status >= 500 && is_in_doubt(&body) {
                    return Answer::Doubt(format!("{}: status {status}", self.host()));
                }
                Answer::Reply(status, body)
            }
            Err(line) => Answer::Doubt(format!("{}: {line}", self.host())),
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.addresses[self.server], CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
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
                Parsed::Incomplete => {}
                Parsed::Broken(line) => return Err(line),
                Parsed::Response(response) => {
                    return Ok((response.status, response.body.to_vec(), response.closes));
                }
            }
        }
    }
}

/// A problem of ours says when nothing was done.
fn is_in_doubt(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    !text.contains("urn:waystage:problem:") || text.contains("urn:waystage:problem:in-doubt")
}

/// The beginning of a body, for a message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let line = body.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()
}
