//! What controller and agent say to each other: one JSON object per line, and how lines are read with a limit.
//! Knows no sockets and no order of messages.

use crate::measure::seconds::Second;
use crate::report::summary::Summary;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};

/// The version of what is said. Both sides must have the same.
pub const PROTOCOL: u32 = 1;

/// What an agent takes on one line.
pub(crate) const TO_AGENT_BYTES_MAX: usize = 1 << 20;
/// What a controller takes on one line: a summary has a histogram for each second.
pub(crate) const FROM_AGENT_BYTES_MAX: usize = 256 << 20;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What a controller says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToAgent {
    /// The first line.
    Hello { protocol: u32, version: String },
    /// Asks for the time; also says that the controller is still there.
    Clock { number: u64 },
    /// The agent's share, as the arguments of a load.
    Prepare { arguments: Vec<String> },
    /// Run from this time on the agent's clock.
    Start { at_clock_ns: u64 },
    /// End early, with what was measured so far.
    Stop {},
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromAgent {
    /// The answer to the controller's.
    Hello(AgentHello),
    /// The time at which the request with this number was read.
    Clock { number: u64, clock_ns: u64 },
    /// So many keys are set.
    Prefill { keys: u64, of: u64 },
    /// Every key is set, every client is connected.
    Prepared {},
    /// A second is over.
    Second(Box<Second>),
    /// The run is over; it began so much later than it was told to.
    Result { late_ns: u64, summary: Box<Summary> },
    /// It goes no further; the last line.
    Error { line: String },
}

/// Who an agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentHello {
    pub(crate) protocol: u32,
    pub(crate) version: String,
    pub(crate) host: String,
    pub(crate) cores: usize,
}

/// Why there is no next line.
#[derive(Debug)]
pub(crate) enum LineError {
    /// Nothing has come for as long as the stream waits.
    TimedOut,
    /// The other side is gone.
    Closed,
    /// The other side does not keep to what was agreed.
    Broken(String),
}

/// Reads lines, each at most so long.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: R,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// No end of a line is before this.
    searched: usize,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(stream: R, bytes_max: usize) -> LineReader<R> {
        LineReader { stream, bytes_max, buffer: Vec::new(), searched: 0 }
    }

    /// The next line, without its end. After `TimedOut` it can be sent for again.
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

/// Reads one message.
pub(crate) fn parse<M: DeserializeOwned>(line: &[u8]) -> Result<M, String> {
    serde_json::from_slice(line).map_err(|error| {
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        format!("a line is no message of protocol {PROTOCOL}: {shown:?}: {error}")
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
    fn lines_come_whole_however_they_are_cut() {
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
    fn a_line_without_end_is_given_up() {
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
        assert!(refused.contains("no message") && refused.contains("GET /"), "{refused}");
    }

    #[test]
    fn a_hello_of_a_later_version_can_still_be_read() {
        let hello = parse::<ToAgent>(br#"{"hello":{"protocol":9,"version":"7.0","more":true}}"#).unwrap();
        assert_eq!(hello, ToAgent::Hello { protocol: 9, version: "7.0".into() });
    }
}
