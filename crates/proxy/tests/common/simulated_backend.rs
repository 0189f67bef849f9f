//! A server for the simulation: it keeps what it is told in memory, delivers its replies as badly as its seed says, and is cut off
//! now and then. Nothing that it says out of turn can be taken for the reply to anything that the simulated clients ask.

use super::random::Random;
use super::simulated_promise::GatedServer;
use super::simulated_store::Store;
use clock::{Clock, Nanos};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{Limits, ParsedRequest, Request, parse_request};

/// How badly a server behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One reply in so many is not simply sent; none if it is zero.
    pub(crate) one_in: usize,
    /// One connection in so many is of no use from the beginning; none if it is zero.
    pub(crate) connection_one_in: usize,
    /// One request in so many is the last before nobody reaches the server for a while; none if it is zero.
    pub(crate) outage_one_in: usize,
    /// How long at most.
    pub(crate) outage: Duration,
    /// Whether it has forgotten everything then.
    pub(crate) forgets: bool,
    /// About as long as the proxy waits.
    pub(crate) stall: Duration,
}

/// A listening socket and what stands behind it; it ends with the scenario.
pub(crate) struct SimulatedBackend {
    pub(crate) address: SocketAddr,
    server: Arc<Server>,
    accepting: Option<JoinHandle<()>>,
}

/// What its connections share.
struct Server {
    clock: Clock,
    faults: Faults,
    store: Mutex<Store>,
    is_over: AtomicBool,
    /// From now on it behaves.
    is_calm: AtomicBool,
    /// Until when it is cut off.
    down_until: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
}

/// One connection.
struct Peer {
    stream: TcpStream,
    number: usize,
    random: Random,
    server: Arc<Server>,
    /// The server's at the beginning; one that has been restarted knows nothing of its connections.
    life: usize,
    /// Replies that are sent together.
    ready: Vec<u8>,
    stalls: usize,
}

/// The connection is at its end.
struct Over;

/// What no request of the simulation can be answered with.
const NONSENSE: &[&str] = &["HELLO\r\n", "VALUE a\r\n", "VALUE a 0 99999999999\r\n", "\0\n", "RESET\r\n", "\r\n", "x"];
/// On one connection. What lies in the buffers of one that was given up is carried out within a second, or never: the proxy
/// relies on it, as docs/consistency.md says.
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
            connections: Mutex::new(Vec::new()),
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
                shared.connections.lock().unwrap().extend(stream.try_clone());
                let (server, random, life) = (shared.clone(), Random(random.next()), shared.store.lock().unwrap().life);
                let peer = Peer { stream, number, random, server, life, ready: Vec::new(), stalls: 0 };
                std::thread::spawn(move || peer.serve());
            }
        });
        SimulatedBackend { address, server, accepting: Some(accepting) }
    }

    /// Ends its bad behaviour.
    pub(crate) fn calm_down(&self) {
        self.server.is_calm.store(true, Ordering::SeqCst);
    }

    /// What it ever held.
    pub(crate) fn held(&self) -> GatedServer {
        self.server.store.lock().unwrap().held()
    }

    /// What it was asked about a key.
    pub(crate) fn log(&self, key: &str) -> Vec<String> {
        self.server.store.lock().unwrap().log(key).to_vec()
    }

    /// The first thing that it should not have been asked.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.server.store.lock().unwrap().complaint.clone()
    }
}

impl Drop for SimulatedBackend {
    fn drop(&mut self) {
        self.server.is_over.store(true, Ordering::SeqCst);
        // It waits for somebody to come; a thread of it that is left ends when the proxy has closed its connection.
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

    /// Nobody reaches it for so long, and those who did are cut off. What they have sent may be carried out all the same.
    fn cut_off(&self, length: Duration) {
        self.down_until.store((self.clock.now() + length).0, Ordering::SeqCst);
        for connection in self.connections.lock().unwrap().drain(..) {
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

    /// Carries the next request out late or never, for some of the faults.
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

    fn execute(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let mut store = self.server.store.lock().unwrap();
        let mut reply = Vec::new();
        let origin = format!("{} on {}", self.server.clock.now().0 / 1000, self.number);
        (store.life == self.life).then(|| store.execute(request, &origin, &mut reply))?;
        Some(reply)
    }

    /// Whether what happens once in so many times happens now.
    fn happens(&mut self, one_in: usize) -> bool {
        one_in > 0 && self.random.one_in(one_in) && !self.server.is_calm()
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
