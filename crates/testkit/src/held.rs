//! A server that answers only what a test allows it to, so that the test can see what is in flight meanwhile.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Nothing on one machine takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A listening socket, what it has been asked, and what it may answer.
#[derive(Debug)]
pub struct Held {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// One request: the number of its connection, and its line without its end.
type Asked = (usize, String);

#[derive(Debug, Default)]
struct State {
    asked: Vec<Asked>,
    /// Replies that may be sent, by the line that asks for them.
    allowed: HashMap<String, Vec<String>>,
}

impl Held {
    /// Listens. `version` is answered at once, everything else when it is allowed; values are read and dropped.
    pub fn start() -> Held {
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
                            reading.state.lock().unwrap().asked.push((number, line.clone()));
                            reading.changed.notify_all();
                        }
                        if sender.send(line).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Held { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has been asked so many times; returns the lines in the order in which they came, each with the
    /// number of its connection. A moment later there must not be more.
    pub fn asked(&self, count: usize) -> Vec<(usize, String)> {
        let state = self.shared.state.lock().unwrap();
        let (state, waited) =
            self.shared.changed.wait_timeout_while(state, PATIENCE, |state| state.asked.len() < count).unwrap();
        assert!(!waited.timed_out(), "asked only {:?}", state.asked);
        drop(state);
        std::thread::sleep(Duration::from_millis(30));
        let asked = self.shared.state.lock().unwrap().asked.clone();
        assert_eq!(asked.len(), count, "{asked:?}");
        asked
    }

    /// How often it has been asked until now.
    pub fn asked_so_far(&self) -> usize {
        self.shared.state.lock().unwrap().asked.len()
    }

    /// Lets one request with this line be answered, now or when it comes.
    pub fn answer(&self, line: &str, reply: &str) {
        let mut state = self.shared.state.lock().unwrap();
        state.allowed.entry(line.into()).or_default().push(reply.into());
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// Answers the requests of one connection in their order, each when it may be answered.
    fn answer(&self, mut stream: TcpStream, lines: &Receiver<String>) {
        for line in lines {
            let reply = if line == "version" { "VERSION 1.6.0\r\n".into() } else { self.wait_for(&line) };
            // A peer that has gone away is not this server's concern.
            let _ = stream.write_all(reply.as_bytes());
        }
    }

    fn wait_for(&self, line: &str) -> String {
        let is_held = |state: &mut State| state.allowed.get(line).is_none_or(Vec::is_empty);
        let state = self.state.lock().unwrap();
        let (mut state, _) = self.changed.wait_timeout_while(state, 2 * PATIENCE, is_held).unwrap();
        state.allowed.get_mut(line).and_then(Vec::pop).unwrap_or_default()
    }
}
