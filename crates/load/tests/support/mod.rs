//! A tiny memcached with a script of faults: for tests that want a server to misbehave in one exact way.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, missing_docs, reason = "shared by several test programs")]

use clock::Clock;
use load::{Config, LoadError, Summary};
use records::Reader;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Connections of the prefill, which come before those of the clients.
pub const PREFILL_CONNECTIONS: u64 = 4;

/// The fault in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Replies as memcached does.
    None,
    /// Replies to a get with the value before the last.
    Stale,
    /// Replies to a get with the value of another key.
    Wrong,
    /// Replies to a get with halves of two versions.
    Torn,
    /// Replies to a get with a value without its last byte.
    Short,
    /// Replies to a get with its keys in reverse order.
    Reversed,
    /// Replies with this line and does nothing.
    Line(&'static str),
    /// Stores the value, but replies with this line.
    StoreAndLine(&'static str),
    /// Sends half of the reply and closes the connection.
    CloseInReply,
    /// Accepts the request and never replies on this connection again.
    Silence,
}

/// A request as the script sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub is_set: bool,
    /// The number of the connection, in the order of acceptance.
    pub connection: u64,
    /// The number of the request in the server, from 0.
    pub number: u64,
}

impl Seen {
    /// Whether a client sent it, not the prefill.
    pub fn is_load(self) -> bool {
        self.connection >= PREFILL_CONNECTIONS
    }
}

type Script = dyn Fn(Seen, &str) -> Fault + Send + Sync;
/// Every value that each key has had.
type Store = Arc<Mutex<HashMap<String, Vec<Vec<u8>>>>>;

/// A running server, which stops on drop.
pub struct TinyServer {
    pub address: SocketAddr,
    store: Store,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    stopped: Arc<AtomicBool>,
}

struct Session {
    script: Arc<Script>,
    store: Store,
    requests: Arc<AtomicU64>,
    connection: u64,
}

impl TinyServer {
    pub fn start(script: impl Fn(Seen) -> Fault + Send + Sync + 'static) -> TinyServer {
        TinyServer::start_with_keys(move |seen, _| script(seen))
    }

    /// Starts a server whose script sees the first key of each request, too.
    pub fn start_with_keys(script: impl Fn(Seen, &str) -> Fault + Send + Sync + 'static) -> TinyServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (store, streams): (Store, Arc<Mutex<Vec<TcpStream>>>) = Default::default();
        let stopped = Arc::new(AtomicBool::new(false));
        let (script, requests) = (Arc::new(script), Arc::new(AtomicU64::new(0)));
        let server = TinyServer { address, store: store.clone(), streams: streams.clone(), stopped: stopped.clone() };
        thread::spawn(move || {
            for (connection, stream) in (0..).zip(listener.incoming()) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                let session =
                    Session { script: script.clone(), store: store.clone(), requests: requests.clone(), connection };
                thread::spawn(move || session.serve(stream));
            }
        });
        server
    }

    pub fn healthy() -> TinyServer {
        TinyServer::start(|_| Fault::None)
    }

    /// Closes everything, like a killed process.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then drops the listener.
        let _ = TcpStream::connect(self.address);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The number of stored keys.
    pub fn keys(&self) -> usize {
        self.store.lock().unwrap().len()
    }
}

impl Drop for TinyServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Session {
    fn serve(self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_set = words[0] == "set";
            let mut value = Vec::new();
            if is_set {
                value = vec![0; words[4].parse::<usize>().unwrap() + 2];
                reader.read_exact(&mut value).unwrap();
                value.truncate(value.len() - 2);
            }
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let fault = (self.script)(Seen { is_set, connection: self.connection, number }, words[1]);
            let reply = if is_set { self.set(words[1], value, fault) } else { self.get(&words[1..], fault) };
            let mut stream = &stream;
            match fault {
                Fault::Silence => {
                    let _ = std::io::copy(&mut reader, &mut std::io::sink());
                    return;
                }
                Fault::CloseInReply => {
                    let _ = stream.write_all(&reply[..reply.len() / 2]);
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                _ => {
                    if stream.write_all(&reply).is_err() {
                        return;
                    }
                }
            }
            line.clear();
        }
    }

    fn set(&self, key: &str, value: Vec<u8>, fault: Fault) -> Vec<u8> {
        if let Fault::Line(line) = fault {
            return format!("{line}\r\n").into_bytes();
        }
        self.store.lock().unwrap().entry(key.to_owned()).or_default().push(value);
        match fault {
            Fault::StoreAndLine(line) => format!("{line}\r\n").into_bytes(),
            _ => b"STORED\r\n".to_vec(),
        }
    }

    fn get(&self, keys: &[&str], fault: Fault) -> Vec<u8> {
        if let Fault::Line(line) = fault {
            return format!("{line}\r\n").into_bytes();
        }
        let store = self.store.lock().unwrap();
        let mut keys = keys.to_vec();
        if fault == Fault::Reversed {
            keys.reverse();
        }
        let mut reply = Vec::new();
        for key in keys {
            let Some(versions) = store.get(key) else { continue };
            let value = faulty(versions, fault, || {
                store.iter().find(|(other, _)| *other != key).unwrap().1.last().unwrap().clone()
            });
            reply.extend_from_slice(format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes());
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\n");
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }
}

/// The value for the reply, out of all values of the key.
fn faulty(versions: &[Vec<u8>], fault: Fault, other: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let last = versions.last().unwrap();
    match fault {
        Fault::Stale if versions.len() > 3 => versions[versions.len() - 4].clone(),
        Fault::Wrong => other(),
        Fault::Torn if versions.len() > 1 => {
            let half = last.len() / 2;
            [&last[..half], &versions[versions.len() - 2][half..]].concat()
        }
        Fault::Short => last[..last.len() - 1].to_vec(),
        _ => last.clone(),
    }
}

/// A short run against `server` with few keys.
pub fn config(server: &TinyServer) -> Config {
    Config {
        servers: vec![server.address.to_string()],
        clients: 4,
        ratio_set: 1,
        ratio_get: 1,
        key_maximum: 19,
        warm_up: Duration::ZERO,
        test_time: Duration::from_millis(300),
        ..Config::default()
    }
}

pub fn try_run(config: &Config) -> Result<Summary, LoadError> {
    load::run(config, &Clock::monotonic(), &AtomicBool::new(false), &mut |_| ())
}

pub fn run(config: &Config) -> Summary {
    try_run(config).unwrap()
}

/// The only record file of a directory.
pub fn records(directory: &Path) -> Reader {
    let file = fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    let reader = Reader::open(&file, false).unwrap();
    assert_eq!((reader.dropped, reader.lost), (0, 0));
    reader
}
