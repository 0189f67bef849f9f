//! A server for the simulation: it keeps what it is told in memory, and delivers its replies as badly as its seed says.
//! Nothing that it says out of turn can be taken for the reply to anything that the simulated clients ask.

use super::random::Random;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{Limits, Meta, MetaCode, ParsedRequest, Reply, Request, Value, Verb, parse_request};

/// How badly a server behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One reply in so many is not simply sent; none if it is zero.
    pub(crate) one_in: usize,
    /// One connection in so many is of no use from the beginning; none if it is zero.
    pub(crate) connection_one_in: usize,
    /// Longer than the proxy waits.
    pub(crate) stall: Duration,
}

/// A listening socket and what stands behind it; it ends with the scenario.
pub(crate) struct SimulatedBackend {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Store {
    items: HashMap<Vec<u8>, Item>,
    tokens: u64,
}

struct Item {
    flags: u32,
    value: Vec<u8>,
    token: u64,
}

/// One connection.
struct Peer {
    stream: TcpStream,
    random: Random,
    faults: Faults,
    /// Replies that are sent together.
    ready: Vec<u8>,
}

/// The connection is at its end.
struct Over;

/// What no request of the simulation can be answered with.
const NONSENSE: &[&str] =
    &["HELLO\r\n", "VALUE a\r\n", "VALUE a 0 99999999999\r\n", "\0\n", "TOUCHED\r\n", "RESET\r\n", "\r\n", "x"];

impl SimulatedBackend {
    pub(crate) fn start(seed: u64, faults: Faults) -> SimulatedBackend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_over, store) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Store::default())));
        let ending = is_over.clone();
        let accepting = std::thread::spawn(move || {
            let mut random = Random(seed);
            for stream in listener.incoming().flatten() {
                if ending.load(Ordering::SeqCst) {
                    return;
                }
                let (store, random) = (store.clone(), Random(random.next()));
                std::thread::spawn(move || Peer { stream, random, faults, ready: Vec::new() }.serve(&store));
            }
        });
        SimulatedBackend { address, is_over, accepting: Some(accepting) }
    }
}

impl Drop for SimulatedBackend {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // It waits for somebody to come; a thread of it that is left ends when the proxy has closed its connection.
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

impl Peer {
    fn serve(mut self, store: &Mutex<Store>) {
        // No scenario takes longer.
        self.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        self.stream.set_nodelay(true).unwrap();
        if self.faults.connection_one_in > 0 && self.random.one_in(self.faults.connection_one_in) {
            return self.be_of_no_use();
        }
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = self.stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
            let mut used = 0;
            while let ParsedRequest::Request { request, consumed } = parse_request(&bytes[used..], &Limits::default()) {
                used += consumed;
                let mut reply = Vec::new();
                store.lock().unwrap().execute(&request, &mut reply);
                if self.deliver(&reply, used == bytes.len()).is_err() {
                    return;
                }
            }
            bytes.drain(..used);
            if self.send_ready().is_err() {
                return;
            }
        }
    }

    /// Refuses, keeps silent, or says nonsense.
    fn be_of_no_use(mut self) {
        match self.random.below(3) {
            0 => {}
            1 => _ = self.stream.write_all(self.random.choose(NONSENSE).as_bytes()),
            _ => while let Ok(1..) = self.stream.read(&mut [0; 4096]) {},
        }
    }

    fn send_ready(&mut self) -> Result<(), Over> {
        let sent = self.stream.write_all(&std::mem::take(&mut self.ready));
        sent.map_err(|_| Over)
    }

    /// Sends a reply, now or with others, whole or not.
    fn deliver(&mut self, reply: &[u8], is_last: bool) -> Result<(), Over> {
        if self.faults.one_in == 0 || !self.random.one_in(self.faults.one_in) {
            self.ready.extend_from_slice(reply);
            return Ok(());
        }
        match self.random.below(9) {
            0 => std::thread::sleep(Duration::from_micros(self.random.next() % 8000)),
            1 | 2 => return self.split(reply),
            3 => {
                let cut = self.random.below(reply.len());
                self.ready.extend_from_slice(&reply[..cut]);
                self.send_ready()?;
                return Err(Over);
            }
            4 => {
                self.ready.extend_from_slice(self.random.choose(NONSENSE).as_bytes());
                return if self.random.one_in(2) { self.send_ready().and(Err(Over)) } else { Ok(()) };
            }
            5 => {
                let extra = self.random.choose(NONSENSE);
                self.ready.extend_from_slice(&[reply, extra.as_bytes()].concat());
                return Ok(());
            }
            6 => {
                self.send_ready()?;
                std::thread::sleep(self.faults.stall);
            }
            7 if is_last => {
                self.ready.extend_from_slice(reply);
                self.send_ready()?;
                return Err(Over);
            }
            _ => {
                self.ready.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
                return Ok(());
            }
        }
        self.ready.extend_from_slice(reply);
        Ok(())
    }

    fn split(&mut self, reply: &[u8]) -> Result<(), Over> {
        let mut rest = reply;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((1 + self.random.below(1 + reply.len() / 3)).min(rest.len()));
            self.ready.extend_from_slice(piece);
            self.send_ready()?;
            std::thread::sleep(Duration::from_micros(self.random.next() % 400));
            rest = after;
        }
        Ok(())
    }
}

impl Store {
    fn execute(&mut self, request: &Request<'_>, out: &mut Vec<u8>) {
        let reply = match *request {
            Request::Version => Reply::Version(b"1.6.0"),
            Request::Get { verb, keys, .. } => {
                for key in keys {
                    let Some(item) = self.items.get(key) else { continue };
                    let cas = matches!(verb, Verb::Gets | Verb::Gats).then_some(item.token);
                    Reply::Value(Value { key, flags: item.flags, cas, data: &item.value }).encode(out);
                }
                Reply::End
            }
            Request::Store { key, flags, value, .. } => {
                self.put(key, flags, value.to_vec());
                Reply::Stored
            }
            Request::Delete { key, .. } if self.items.remove(key).is_some() => Reply::Deleted,
            Request::Arithmetic { key, delta, .. } if self.items.contains_key(key) => {
                let text = String::from_utf8_lossy(&self.items[key].value).into_owned();
                let number = text.trim().parse::<u64>().unwrap_or(0).wrapping_add(delta);
                self.put(key, 0, number.to_string().into_bytes());
                Reply::Number(number)
            }
            Request::Delete { .. } | Request::Arithmetic { .. } => Reply::NotFound,
            Request::Meta(ref meta) => return self.execute_meta(meta, out),
            _ => Reply::Error,
        };
        reply.encode(out);
    }

    fn execute_meta(&mut self, meta: &Meta<'_>, out: &mut Vec<u8>) {
        assert!(!meta.is_quiet(), "nobody is asked quietly");
        let mut told = Vec::new();
        for flag in meta.flags.iter().filter(|flag| matches!(flag[0], b'O' | b'k')) {
            told.push(b' ');
            told.extend_from_slice(flag);
            if flag == b"k" {
                told.extend_from_slice(meta.key);
            }
        }
        let flags = told.strip_prefix(b" ").unwrap_or(&told);
        let code = |code| Reply::Meta { code, flags };
        let reply = match meta.verb {
            Verb::Mg => match self.items.get(meta.key) {
                Some(item) => Reply::MetaValue { flags, data: &item.value },
                None => code(MetaCode::Miss),
            },
            Verb::Ms => {
                self.put(meta.key, 0, meta.value.to_vec());
                code(MetaCode::Header)
            }
            _ if self.items.remove(meta.key).is_some() => code(MetaCode::Header),
            _ => code(MetaCode::NotFound),
        };
        reply.encode(out);
    }

    fn put(&mut self, key: &[u8], flags: u32, value: Vec<u8>) {
        self.tokens += 1;
        self.items.insert(key.to_vec(), Item { flags, value, token: self.tokens });
    }
}
