//! A server for the simulation. It stores values in memory, delivers its replies as badly as its seed decides, and is cut off
//! from time to time. No unsolicited bytes that it sends are a valid reply to a request of the simulated clients.

use super::random::Random;
use super::simulated_opening::LOGIN;
use super::simulated_store::Store;
use clock::{Clock, Nanos};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{Limits, ParsedRequest, Request, parse_request};

/// The faults of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One reply in this many is faulty; none if it is zero.
    pub(crate) one_in: usize,
    /// One connection in this many never works; none if it is zero.
    pub(crate) connection_one_in: usize,
    /// After one request in this many, the server is unreachable for a while; never if it is zero.
    pub(crate) outage_one_in: usize,
    /// How long it is unreachable at most.
    pub(crate) outage: Duration,
    /// Whether it has lost all values then.
    pub(crate) forgets: bool,
    /// About the proxy's timeout.
    pub(crate) stall: Duration,
    /// Whether each connection must begin with a login.
    pub(crate) requires_login: bool,
}

/// A listening socket and its threads, which end with the scenario.
pub(crate) struct SimulatedBackend {
    pub(crate) address: SocketAddr,
    server: Arc<Server>,
    accepting: Option<JoinHandle<()>>,
}

/// The state that its connections share.
struct Server {
    clock: Clock,
    faults: Faults,
    store: Mutex<Store>,
    is_over: AtomicBool,
    /// Set when it has no more faults.
    is_calm: AtomicBool,
    /// Until when it is cut off.
    down_until: AtomicU64,
    connections: Mutex<HashMap<usize, TcpStream>>,
}

/// One connection.
struct Peer {
    stream: TcpStream,
    number: usize,
    random: Random,
    server: Arc<Server>,
    /// The number of restarts when the connection was opened: a restarted server closes older connections.
    life: usize,
    /// Replies that are sent together.
    ready: Vec<u8>,
    stalls: usize,
    login: Login,
}

/// Whether a connection has begun with a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    None,
    Refused,
    Accepted,
}

/// The connection is at its end.
struct Over;

/// A line that is no valid reply to any request of the simulation.
const NONSENSE: &[&str] = &["HELLO\r\n", "VALUE a\r\n", "VALUE a 0 99999999999\r\n", "\0\n", "RESET\r\n", "\r\n", "x"];
/// Serves one connection. A request in the buffer of a closed connection is applied within a second, or never: the proxy
/// relies on that (docs/consistency.md).
const STALLS_MAX: usize = 3;

impl SimulatedBackend {
    pub(crate) fn start(seed: u64, faults: Faults, store: Store) -> SimulatedBackend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Server {
            clock: Clock::monotonic(),
            faults,
            store: Mutex::new(store),
            is_over: AtomicBool::new(false),
            is_calm: AtomicBool::new(false),
            down_until: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let shared = server.clone();
        let accepting = std::thread::spawn(move || {
            let mut random = Random(seed);
            for (number, stream) in listener.incoming().flatten().enumerate() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if shared.is_cut_off() {
                    continue;
                }
                shared.connections.lock().unwrap().extend(stream.try_clone().map(|stream| (number, stream)));
                let (server, random, life) = (shared.clone(), Random(random.next()), shared.store.lock().unwrap().life);
                let peer =
                    Peer { stream, number, random, server, life, ready: Vec::new(), stalls: 0, login: Login::None };
                std::thread::spawn(move || {
                    let (server, number) = (peer.server.clone(), peer.number);
                    peer.serve();
                    server.connections.lock().unwrap().remove(&number);
                });
            }
        });
        SimulatedBackend { address, server, accepting: Some(accepting) }
    }

    /// Ends its bad behaviour.
    pub(crate) fn calm_down(&self) {
        self.server.is_calm.store(true, Ordering::SeqCst);
    }

    /// Its requests for a key.
    pub(crate) fn log(&self, key: &str) -> Vec<String> {
        self.server.store.lock().unwrap().log(key).to_vec()
    }

    /// The first request that it should not have received.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.server.store.lock().unwrap().complaint.clone()
    }
}

impl Drop for SimulatedBackend {
    fn drop(&mut self) {
        self.server.is_over.store(true, Ordering::SeqCst);
        // Wakes up the accepting thread. Other threads end when the proxy has closed their connections.
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

impl Server {
    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    fn is_cut_off(&self) -> bool {
        !self.is_calm() && self.clock.now() < Nanos(self.down_until.load(Ordering::SeqCst))
    }

    /// Makes it unreachable for a while and closes its connections. It may still apply requests that it has received.
    fn cut_off(&self, length: Duration) {
        self.down_until.store((self.clock.now() + length).0, Ordering::SeqCst);
        for (_, connection) in self.connections.lock().unwrap().drain() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if self.faults.forgets {
            self.store.lock().unwrap().forget();
        }
    }
}

impl Peer {
    fn serve(mut self) {
        // No scenario takes longer.
        self.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        self.stream.set_nodelay(true).unwrap();
        if self.happens(self.server.faults.connection_one_in) {
            return self.be_of_no_use();
        }
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = self.stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
            let mut used = 0;
            while let ParsedRequest::Request { request, consumed } = parse_request(&bytes[used..], &Limits::default()) {
                used += consumed;
                if self.hesitate().is_err() {
                    return;
                }
                let Some(reply) = self.execute(&request) else { return };
                if self.deliver(&reply, used == bytes.len()).is_err() {
                    return;
                }
                if self.happens(self.server.faults.outage_one_in) {
                    let length = self.server.faults.outage.mul_f64(self.random.below(1000) as f64 / 1000.0);
                    self.server.cut_off(length);
                }
            }
            bytes.drain(..used);
            if self.send_ready().is_err() {
                return;
            }
        }
    }

    /// For some of the faults, applies the next request late or never.
    fn hesitate(&mut self) -> Result<(), Over> {
        if !self.happens(4 * self.server.faults.one_in) {
            return Ok(());
        }
        self.send_ready()?;
        let is_last = self.random.one_in(2);
        if self.stalls < STALLS_MAX && self.random.one_in(2) {
            self.stalls += 1;
            std::thread::sleep(self.server.faults.stall);
        }
        if is_last { Err(Over) } else { Ok(()) }
    }

    fn execute(&mut self, request: &Request<'_>) -> Option<Vec<u8>> {
        if let Some(reply) = self.log_in(request) {
            return Some(reply.into());
        }
        let mut store = self.server.store.lock().unwrap();
        let mut reply = Vec::new();
        let origin = format!("{} on {}", self.server.clock.now().0 / 1000, self.number);
        (store.life == self.life).then(|| store.execute(request, &origin, &mut reply))?;
        Some(reply)
    }

    /// The reply to a login, which is refused now and then, and to requests without one.
    fn log_in(&mut self, request: &Request<'_>) -> Option<&'static [u8]> {
        if !self.server.faults.requires_login {
            return None;
        }
        match (request, self.login) {
            (Request::Store { key: b"auth", value, .. }, Login::None) => {
                let is_refused = *value != LOGIN || self.happens(self.server.faults.one_in);
                self.login = if is_refused { Login::Refused } else { Login::Accepted };
                Some(if is_refused { b"CLIENT_ERROR authentication failure\r\n" } else { b"STORED\r\n" })
            }
            (_, Login::Accepted) => None,
            (_, Login::Refused) => Some(b"CLIENT_ERROR unauthenticated\r\n"),
            (_, Login::None) => {
                let complaint = || format!("a backend was sent {:?} before a login", request.verb());
                self.server.store.lock().unwrap().complaint.get_or_insert_with(complaint);
                Some(b"CLIENT_ERROR unauthenticated\r\n")
            }
        }
    }

    /// Whether an event with this frequency happens now.
    fn happens(&mut self, one_in: usize) -> bool {
        one_in > 0 && self.random.one_in(one_in) && !self.server.is_calm()
    }

    /// Refuses, does not reply, or sends an invalid reply.
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

    /// Sends a reply, now or together with others, completely or in part.
    fn deliver(&mut self, reply: &[u8], is_last: bool) -> Result<(), Over> {
        if !self.happens(self.server.faults.one_in) {
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
            6 if self.stalls < STALLS_MAX => {
                self.stalls += 1;
                self.send_ready()?;
                std::thread::sleep(self.server.faults.stall);
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
