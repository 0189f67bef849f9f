//! One client's conversation with a server or a proxy: rounds of commands, sent in random pieces, each read to its end.

use super::deviations::{LINE_TOO_LONG, normalised};
use super::random::Random;
use super::random_text::{Command, Ending};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The commands of one client on one connection, to an empty store.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) rounds: Vec<Vec<Command>>,
    pub(crate) ending: Ending,
}

/// The other side of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Proxy,
}

/// Ends a round, including a value of up to 60 bytes that was announced and not sent.
const FILLER: &[u8] = b"mn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\n";

impl Conversation {
    /// The number of commands.
    pub(crate) fn commands(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    /// Sends all commands; returns the normalised replies to each round and to the ending.
    ///
    /// # Errors
    /// The missing reply, and what arrived instead.
    pub(crate) fn run(
        &self,
        address: SocketAddr,
        side: Side,
        pieces: &mut Random,
        patience: Duration,
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut line = Line::connect(address, patience);
        let (mut replies, mut tokens) = (Vec::new(), Vec::new());
        for (number, round) in self.rounds.iter().enumerate() {
            let mut bytes = if number == 0 { b"flush_all\r\n".to_vec() } else { Vec::new() };
            for command in round {
                let own = if side == Side::Proxy { &command.to_proxy } else { &command.to_server };
                fill_in(own, &tokens, &mut bytes);
            }
            bytes.extend_from_slice(FILLER);
            bytes.extend_from_slice(format!("mg {} Oend{number}\r\n", "z".repeat(40)).as_bytes());
            line.send(&bytes, pieces)?;
            let got = line.read_until(format!("EN Oend{number}\r\n").as_bytes())?;
            learn(&got, &mut tokens);
            replies.push(normalised(&got));
        }
        let mut last = line.end(self.ending)?;
        if self.ending == Ending::EndlessLine
            && let Some(before) = last.strip_suffix(LINE_TOO_LONG)
        {
            last = before.to_vec();
        }
        replies.push(normalised(&last));
        Ok(replies)
    }
}

/// Inserts the cas tokens.
fn fill_in(command: &[u8], tokens: &[Vec<u8>], out: &mut Vec<u8>) {
    let Some(at) = command.windows(6).position(|window| window.starts_with(b"{cas") && window[5] == b'}') else {
        return out.extend_from_slice(command);
    };
    let back = usize::from(command[at + 4] - b'0');
    out.extend_from_slice(&command[..at]);
    let token = tokens.len().checked_sub(back + 1).map_or(&b"7"[..], |index| &tokens[index]);
    out.extend_from_slice(token);
    fill_in(&command[at + 6..], tokens, out);
}

/// Finds the cas tokens in the replies to `gets`.
fn learn(replies: &[u8], tokens: &mut Vec<Vec<u8>>) {
    for line in replies.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"VALUE ")) {
        let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
        if let [_, _, _, _, token] = words[..]
            && !token.is_empty()
            && token.iter().all(u8::is_ascii_digit)
        {
            tokens.push(token.to_vec());
        }
    }
}

/// A connection that reads whenever it cannot write, so that large replies do not block both sides.
struct Line {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Line {
    fn connect(address: SocketAddr, patience: Duration) -> Line {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        Line { stream, got: Vec::new() }
    }

    /// Sends in pieces, mostly in a single one, because small pieces take long.
    fn send(&mut self, bytes: &[u8], pieces: &mut Random) -> Result<(), String> {
        let largest = match pieces.below(40) {
            0 => 3,
            1..=2 => 60,
            3..=9 => pieces.choose(&[500, 5000, 30_000]),
            _ => usize::MAX,
        };
        // Sending a long stream in tiny pieces would take too long.
        let largest = largest.max(bytes.len() / 2000);
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = (1 + pieces.below(largest)).min(rest.len());
            match self.stream.write(&rest[..piece]) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_not_yet(&error) => self.read_what_is_there()?,
                Err(error) => return Err(format!("{error} while sending, after {}", self.last_words())),
            }
            if largest < usize::MAX && pieces.one_in(50) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    fn read_what_is_there(&mut self) -> Result<(), String> {
        self.stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 1 << 16];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(format!("closed after {}", self.last_words())),
                Ok(count) => self.got.extend_from_slice(&buffer[..count]),
                Err(_) => break,
            }
        }
        self.stream.set_nonblocking(false).unwrap();
        Ok(())
    }

    /// Reads everything up to and including this line.
    fn read_until(&mut self, mark: &[u8]) -> Result<Vec<u8>, String> {
        let mut buffer = [0; 1 << 16];
        while !self.got.ends_with(mark) {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(format!("closed after {}", self.last_words())),
                Ok(count) => self.got.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(format!("{error} after {}", self.last_words())),
            }
        }
        Ok(std::mem::take(&mut self.got))
    }

    /// Closes the connection; returns everything that still arrives.
    fn end(mut self, ending: Ending) -> Result<Vec<u8>, String> {
        let (bytes, is_closing) = ending.bytes();
        self.stream.write_all(&bytes).map_err(|error| format!("{error} while closing"))?;
        if is_closing {
            self.stream.shutdown(Shutdown::Write).map_err(|error| format!("{error} while closing"))?;
        }
        match self.stream.read_to_end(&mut self.got) {
            Err(error) if is_not_yet(&error) => Err(format!("not closed after {ending:?}")),
            // Closing with unread input resets the connection.
            _ => Ok(self.got),
        }
    }

    fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.got[self.got.len().saturating_sub(300)..]).escape_debug().to_string()
    }
}

fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
