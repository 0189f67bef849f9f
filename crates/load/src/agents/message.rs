//! The messages between controller and agent, one JSON object per line, and a reader of lines with a length limit.
//! Knows no sockets and no order of messages.

use crate::measure::seconds::Second;
use crate::report::summary::Summary;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};

/// The version of the protocol. Both sides must have the same.
pub const PROTOCOL: u32 = 2;

/// The longest line that an agent accepts.
pub(crate) const TO_AGENT_BYTES_MAX: usize = 1 << 20;
/// The longest line that a controller accepts. A summary has a histogram for each second.
pub(crate) const FROM_AGENT_BYTES_MAX: usize = 256 << 20;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The messages of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToAgent {
    /// The first line.
    Hello { protocol: u32, version: String },
    /// The reply to a challenge: proves that the controller has the agent's secret, and requests the same proof from the
    /// agent.
    Proof { nonce: String, proof: String },
    /// Requests the time, and shows that the controller is alive.
    Clock { number: u64 },
    /// The agent's share, as arguments of `waystage load`.
    Prepare { arguments: Vec<String> },
    /// Start at this time on the agent's clock.
    Start { at_clock_ns: u64 },
    /// End early, with what was measured so far.
    Stop {},
}

/// The messages of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromAgent {
    /// The reply to the controller's hello, if the agent has a secret.
    Challenge { nonce: String },
    /// The reply to the controller's hello, or to its proof.
    Hello(AgentHello),
    /// The time at which the request with this number was read.
    Clock { number: u64, clock_ns: u64 },
    /// The keys set so far, and all keys.
    Prefill { keys: u64, of: u64 },
    /// The prefill is done and every client is connected.
    Prepared {},
    /// A second has passed.
    Second(Box<Second>),
    /// The run is over. It started this much after the requested time.
    Result { late_ns: u64, summary: Box<Summary> },
    /// The agent gives up; this is its last line.
    Error { line: String },
}

/// Identifies an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentHello {
    pub(crate) protocol: u32,
    pub(crate) version: String,
    pub(crate) host: String,
    pub(crate) cores: usize,
    /// Proves that the agent has the controller's secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proof: Option<String>,
}

/// Why there is no next line.
#[derive(Debug)]
pub(crate) enum LineError {
    /// Nothing arrived within the read timeout of the stream.
    TimedOut,
    /// The peer has closed the connection.
    Closed,
    /// The peer violates the protocol.
    Broken(String),
}

/// Reads lines up to a maximum length.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: R,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// The buffer has no line end before this index.
    searched: usize,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(stream: R, bytes_max: usize) -> LineReader<R> {
        LineReader { stream, bytes_max, buffer: Vec::new(), searched: 0 }
    }

    /// The next line, without its end. After `TimedOut` the call can be repeated.
    pub(crate) fn next(&mut self) -> Result<Vec<u8>, LineError> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > self.bytes_max {
                return Err(LineError::Broken(format!("a line is longer than {} bytes", self.bytes_max)));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), LineError> {
        let before = self.buffer.len();
        self.buffer.resize(before + CHUNK_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[before..]);
        self.buffer.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
        match read {
            Ok(0) => Err(LineError::Closed),
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => Ok(()),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(LineError::TimedOut),
                _ => Err(LineError::Closed),
            },
        }
    }
}

/// Parses one message.
pub(crate) fn parse<M: DeserializeOwned>(line: &[u8]) -> Result<M, String> {
    serde_json::from_slice(line).map_err(|error| {
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        format!("a line is not a message of protocol {PROTOCOL}: {shown:?}: {error}")
    })
}

/// Writes one message.
pub(crate) fn write<M: Serialize>(out: &mut impl Write, message: &M) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_however_they_arrive() {
        struct Bits<'a>(&'a [u8]);
        impl Read for Bits<'_> {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                let taken = self.0.len().min(3);
                out[..taken].copy_from_slice(&self.0[..taken]);
                self.0 = &self.0[taken..];
                Ok(taken)
            }
        }
        let mut lines = LineReader::new(Bits(b"one\n\ntwo and more\nrest"), 100);
        let read: Vec<Vec<u8>> = (0..3).map(|_| lines.next().unwrap()).collect();
        assert_eq!(read, [b"one".to_vec(), b"".to_vec(), b"two and more".to_vec()]);
        assert!(matches!(lines.next(), Err(LineError::Closed)));
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        let mut lines = LineReader::new(io::repeat(b'x'), 1000);
        assert!(matches!(lines.next(), Err(LineError::Broken(line)) if line.contains("1000 bytes")));
    }

    #[test]
    fn messages_are_objects_with_their_name() {
        let mut out = Vec::new();
        write(&mut out, &ToAgent::Start { at_clock_ns: 17 }).unwrap();
        write(&mut out, &ToAgent::Stop {}).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), "{\"start\":{\"at_clock_ns\":17}}\n{\"stop\":{}}\n");
        assert_eq!(parse::<ToAgent>(b"{\"stop\":{}}").unwrap(), ToAgent::Stop {});
        let refused = parse::<ToAgent>(b"GET / HTTP/1.1\r").unwrap_err();
        assert!(refused.contains("not a message") && refused.contains("GET /"), "{refused}");
    }

    #[test]
    fn a_hello_of_a_later_version_can_still_be_read() {
        let hello = parse::<ToAgent>(br#"{"hello":{"protocol":9,"version":"7.0","more":true}}"#).unwrap();
        assert_eq!(hello, ToAgent::Hello { protocol: 9, version: "7.0".into() });
    }
}
