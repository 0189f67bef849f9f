//! A cache for one test, and a client that sends bytes and compares what it receives.

#![allow(dead_code, reason = "each test file uses what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub(crate) mod table;

use cache::{Config, Running, Totals};
use clock::Clock;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout of every step.
const PATIENCE: Duration = Duration::from_secs(20);

/// A blocking client.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

/// A cache on a free port with this configuration and the real clock.
pub(crate) fn cache(config: &Config) -> Running {
    cache::start(config, Clock::monotonic()).unwrap()
}

/// Stops a cache.
pub(crate) fn finish(running: Running) -> Totals {
    running.stop();
    running.join().unwrap()
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads as many bytes as are expected and compares.
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>, context: &str) {
        let expected = expected.as_ref();
        let got = self.read(expected.len(), context);
        assert!(got == expected, "{context}: expected {:?}, got {:?}", shown(expected), shown(&got));
    }

    /// One read. A pause of the machine interrupts a read with a timeout, which is not a reply.
    fn read_some(&mut self, piece: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.stream.read(piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn read(&mut self, count: usize, context: &str) -> Vec<u8> {
        let mut got = vec![0; count];
        let mut filled = 0;
        while filled < count {
            match self.read_some(&mut got[filled..]) {
                Ok(0) => panic!("{context}: closed after {:?}", shown(&got[..filled])),
                Ok(count) => filled += count,
                Err(error) => panic!("{context}: {error} after {:?}", shown(&got[..filled])),
            }
        }
        got
    }

    /// Sends, and reads until the reply ends with `last`; nothing may follow.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, last: &str) -> String {
        self.send(request);
        let (mut got, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
        while !got.ends_with(last.as_bytes()) {
            let count = self.read_some(&mut piece).unwrap();
            assert!(count > 0, "closed after {:?} without {last:?}", shown(&got));
            got.extend_from_slice(&piece[..count]);
        }
        String::from_utf8(got).unwrap()
    }

    /// One number from `stats`.
    pub(crate) fn statistic(&mut self, name: &str) -> u64 {
        let all = self.ask("stats\r\n", "END\r\n");
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).unwrap();
        line.parse().unwrap()
    }

    /// Expects that nothing more arrives.
    pub(crate) fn expect_closed(&mut self, context: &str) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{context}: {:?} before the end", shown(&rest));
    }
}

/// Prints even if the test passes; the test harness captures only the print macros.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Bytes for a message, not too many.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}
