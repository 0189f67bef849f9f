//! A server that replies only to requests that a test has allowed, so that the test can observe what is in flight.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The timeout of every wait; nothing takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listening socket, the requests it has received, and the replies it may send.
#[derive(Debug)]
pub struct GatedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A request: the number of its connection, and its line without the line end.
type ReceivedRequest = (usize, String);

#[derive(Debug, Default)]
struct State {
    received: Vec<ReceivedRequest>,
    /// Allowed replies, by the line of the request.
    allowed: HashMap<String, Vec<String>>,
}

impl GatedServer {
    /// Listens. Replies to `version` immediately and to everything else when allowed; discards values.
    pub fn start() -> GatedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (reading, writing) = (accepting.clone(), accepting.clone());
                let (sender, lines) = channel();
                let other = stream.try_clone().unwrap();
                std::thread::spawn(move || writing.answer(other, &lines));
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                    while let Some(line) = lines.next() {
                        if ["set ", "add ", "ms "].iter().any(|command| line.starts_with(command)) {
                            lines.next();
                        }
                        if line != "version" {
                            reading.state.lock().unwrap().received.push((number, line.clone()));
                            reading.changed.notify_all();
                        }
                        if sender.send(line).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        GatedServer { address, shared }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has received this many requests; returns their lines in order of arrival, each with the number of its
    /// connection. Fails if more arrive within a moment.
    pub fn received(&self, count: usize) -> Vec<(usize, String)> {
        let state = self.shared.state.lock().unwrap();
        let (state, waited) =
            self.shared.changed.wait_timeout_while(state, PATIENCE, |state| state.received.len() < count).unwrap();
        assert!(!waited.timed_out(), "received only {:?}", state.received);
        drop(state);
        std::thread::sleep(Duration::from_millis(30));
        let received = self.shared.state.lock().unwrap().received.clone();
        assert_eq!(received.len(), count, "{received:?}");
        received
    }

    /// The number of requests received so far.
    pub fn received_so_far(&self) -> usize {
        self.shared.state.lock().unwrap().received.len()
    }

    /// Allows the reply to one request with this line, which may arrive later.
    pub fn answer(&self, line: &str, reply: &str) {
        let mut state = self.shared.state.lock().unwrap();
        state.allowed.entry(line.into()).or_default().push(reply.into());
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// Replies to the requests of one connection in order, each when it is allowed.
    fn answer(&self, mut stream: TcpStream, lines: &Receiver<String>) {
        for line in lines {
            let reply = if line == "version" { "VERSION 1.6.0\r\n".into() } else { self.wait_for(&line) };
            // A peer that has disconnected is not an error here.
            let _ = stream.write_all(reply.as_bytes());
        }
    }

    fn wait_for(&self, line: &str) -> String {
        let is_blocked = |state: &mut State| state.allowed.get(line).is_none_or(Vec::is_empty);
        let state = self.state.lock().unwrap();
        let (mut state, _) = self.changed.wait_timeout_while(state, 2 * PATIENCE, is_blocked).unwrap();
        state.allowed.get_mut(line).and_then(Vec::pop).unwrap_or_default()
    }
}
