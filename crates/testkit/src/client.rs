//! A blocking client that sends bytes and compares what it receives.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout of a reply; nothing takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the peer accepts the bytes");
    }

    /// Sends bytes one at a time, each in its own packet.
    pub fn trickle(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref() {
            self.send([*byte]);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Reads as many bytes as are expected, and compares them.
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut reply = vec![0; expected.len()];
        let mut filled = 0;
        while filled < reply.len() {
            match self.stream.read(&mut reply[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("reading a reply: {error}"),
            }
            if reply[..filled] != expected[..filled] {
                break;
            }
        }
        let (reply, expected) = (String::from_utf8_lossy(&reply[..filled]), String::from_utf8_lossy(expected));
        assert_eq!(reply, expected);
    }

    /// Sends, then expects.
    pub fn ask(&mut self, request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(expected);
    }

    /// Expects that no byte arrives for a moment.
    pub fn expect_silence(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut byte = [0];
        let read = self.stream.peek(&mut byte);
        assert!(read.is_err(), "bytes have arrived: {read:?}");
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    /// Reads one line, with its end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") {
            match self.stream.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no line came ({error}); so far {:?}", String::from_utf8_lossy(&line)),
            }
        }
        String::from_utf8(line).expect("a line of text")
    }

    /// Reads one line, if it starts within this time.
    pub fn line_within(&mut self, time: Duration) -> Option<String> {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let has_begun = self.stream.peek(&mut [0]).is_ok();
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        has_begun.then(|| self.line())
    }

    /// Shuts down the sending side; replies can still be read.
    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Expects that the peer closes the connection without another byte.
    pub fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), "", "nothing but the end was expected"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => assert!(rest.is_empty()),
            Err(error) => panic!("the peer did not close: {error}"),
        }
    }

    /// Sends the piece repeatedly until the peer accepts nothing for a second; returns the number of bytes it accepted.
    /// A partial write continues where it stopped, so the peer receives only repetitions of the piece.
    pub fn flood(&mut self, piece: &[u8], limit_bytes: usize) -> usize {
        self.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut taken = 0;
        while taken < limit_bytes {
            match self.stream.write(&piece[taken % piece.len()..]) {
                Ok(count) if count > 0 => taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        taken
    }

    /// Reads and discards everything until nothing arrives for a while; returns the number of bytes.
    pub fn drain(&mut self, quiet: Duration) -> usize {
        self.stream.set_read_timeout(Some(quiet)).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(count @ 1..) => total += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        total
    }

    /// The local port.
    pub fn port(&self) -> u16 {
        self.stream.local_addr().unwrap().port()
    }
}
