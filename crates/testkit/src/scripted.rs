//! A server that follows a script, including behaviour that no real server has.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A script stops after this time, so that no test leaves a thread behind for long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A listening socket and the script for its connections.
#[derive(Debug)]
pub struct Scripted {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

const VERSION: &str = "version\r\n";
const VERSION_REPLY: &str = "VERSION 1.6.0\r\n";

/// One connection of a scripted server.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Scripted {
    /// Runs `script` for each connection, with its number from 0. It starts when the first `version` is answered, which a proxy sends
    /// before it uses a connection.
    pub fn start(script: impl Fn(&mut Peer, usize) + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (script, counter) = (Arc::new(script), connections.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, number) = (script.clone(), counter.fetch_add(1, Ordering::SeqCst));
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let mut peer = Peer { stream, buffer: Vec::new() };
                    if peer.next_line().is_some_and(|line| line == VERSION) {
                        peer.send(VERSION_REPLY);
                        script(&mut peer, number);
                    }
                });
            }
        });
        Scripted { address, connections }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Peer {
    /// The next line with its end; `None` at the end of the connection. Answers `version`, which a proxy also sends after a timeout.
    pub fn line(&mut self) -> Option<String> {
        loop {
            let line = self.next_line()?;
            if line != VERSION {
                return Some(line);
            }
            self.send(VERSION_REPLY);
        }
    }

    fn next_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return String::from_utf8(line).ok();
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// Sends bytes; a peer that has disconnected is not an error here.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes one at a time, each in its own packet.
    pub fn trickle(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.set_nodelay(true).unwrap();
        for byte in bytes.as_ref() {
            self.send([*byte]);
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Waits until the peer closes the connection.
    pub fn hang(&mut self) {
        while self.line().is_some() {}
    }
}
