//! A tiny message service with a script of faults: for tests that want a service to misbehave in one exact way.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, missing_docs, reason = "for tests")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clock::{Clock, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The fault in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Does it, and replies with this status only.
    DoneAndStatus(u16),
    /// Does nothing, and replies with this problem; 503 has Retry-After: 1.
    Problem(u16, &'static str),
    /// Does it, and replies with this problem.
    DoneAndProblem(u16, &'static str),
    /// Does it, sends half of the reply, and closes the connection.
    Cut,
    /// Does it, replies, and announces the end of the connection.
    Close,
    /// Does it, and replies in chunks.
    Chunked,
    /// Does it, and never replies.
    Silence,
    /// Send: acknowledges the message and drops it.
    Lose,
    /// Send: stores the message twice.
    Double,
    /// Pop: damages the body.
    Tear,
    /// Pop: returns the second oldest message of this receiver.
    Overtake,
    /// Pop: returns the oldest message, for any receiver.
    Misdeliver,
    /// Pop: returns a message that was never sent.
    Invent,
    /// Receive: returns a message although a lease on it is valid.
    LeaseAgain,
    /// Acknowledgement: succeeds, and the message stays.
    Keep,
    /// Receive: hides the message for this many milliseconds more than its lease.
    Hide(u64),
}

/// A request as the script sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: String,
    /// The number of earlier requests of this kind, over all connections.
    pub sends: u64,
    pub pops: u64,
    pub receives: u64,
    pub acknowledgements: u64,
}

impl Seen {
    pub fn is_receive(&self) -> bool {
        self.path.contains("messages:receive")
    }

    pub fn is_acknowledgement(&self) -> bool {
        self.path.ends_with("/acknowledge")
    }

    pub fn is_send(&self) -> bool {
        self.method == "POST" && self.path.contains("/messages") && !self.is_pop() && !self.is_receive()
    }

    /// A pop of a single message, which the drain does not use.
    pub fn is_pop(&self) -> bool {
        self.path.contains("messages:pop")
    }

    pub fn is_drain(&self) -> bool {
        self.is_pop() && self.path.contains("max=")
    }

    fn queue(&self) -> String {
        self.path.split(['/', '?']).nth(3).unwrap_or_default().to_owned()
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let query = self.path.split_once('?')?.1;
        query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")).map(String::from))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

#[derive(Clone, Debug)]
struct Message {
    sender: String,
    receiver: Option<String>,
    body: Vec<u8>,
    id: u64,
    attempt: u32,
    /// It is invisible until then, under this token.
    lease: Option<(Nanos, String)>,
}

type Queues = BTreeMap<String, VecDeque<Message>>;
type Script = dyn Fn(&Seen) -> Fault + Send + Sync;

/// A running service, which stops on drop.
pub struct TinyService {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    queues: Mutex<Queues>,
    /// The method and path of every request.
    requests_seen: Mutex<Vec<String>>,
    streams: Mutex<Vec<TcpStream>>,
    sends: AtomicU64,
    pops: AtomicU64,
    receives: AtomicU64,
    acknowledgements: AtomicU64,
    connections: AtomicU64,
    stopped: AtomicBool,
}

impl TinyService {
    pub fn start(script: impl Fn(&Seen) -> Fault + Send + Sync + 'static) -> TinyService {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            queues: Mutex::default(),
            requests_seen: Mutex::default(),
            streams: Mutex::default(),
            sends: AtomicU64::new(0),
            pops: AtomicU64::new(0),
            receives: AtomicU64::new(0),
            acknowledgements: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                accepting.streams.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = accepting.clone();
                thread::spawn(move || shared.serve(&stream));
            }
        });
        TinyService { address, shared }
    }

    pub fn healthy() -> TinyService {
        TinyService::start(|_| Fault::None)
    }

    pub fn queues(&self) -> Vec<String> {
        self.shared.queues.lock().unwrap().keys().cloned().collect()
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub fn requests_seen(&self) -> Vec<String> {
        self.shared.requests_seen.lock().unwrap().clone()
    }
}

impl Drop for TinyService {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then drops the listener.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((seen, body)) = self.read(&mut reader) {
            let fault = (self.script)(&seen);
            let reply = match fault {
                Fault::Problem(status, kind) => problem(status, kind),
                fault => {
                    let reply = self.answer(&seen, &body, fault);
                    match fault {
                        Fault::DoneAndStatus(status) => respond(status, "", b""),
                        Fault::DoneAndProblem(status, kind) => problem(status, kind),
                        _ => reply,
                    }
                }
            };
            let mut stream = stream;
            match fault {
                Fault::Silence => {
                    let _ = std::io::copy(&mut reader, &mut std::io::sink());
                    return;
                }
                Fault::Cut => {
                    let _ = stream.write_all(&reply[..reply.len() - 1]);
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                _ => {
                    if stream.write_all(&reply).is_err() {
                        return;
                    }
                }
            }
            if fault == Fault::Close {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn read(&self, reader: &mut BufReader<&TcpStream>) -> Option<(Seen, Vec<u8>)> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let mut words = line.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = String::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok().filter(|count| *count > 0)?;
            if header.trim().is_empty() {
                break;
            }
            headers += &header;
        }
        self.requests_seen.lock().unwrap().push(format!("{method} {path}"));
        let mut seen = Seen { method, path, headers, sends: 0, pops: 0, receives: 0, acknowledgements: 0 };
        let bytes = seen.header("content-length").unwrap_or("0").parse().unwrap();
        let mut body = vec![0; bytes];
        reader.read_exact(&mut body).ok()?;
        let count = |counter: &AtomicU64, is: bool| counter.fetch_add(u64::from(is), Ordering::Relaxed);
        (seen.sends, seen.pops) = (count(&self.sends, seen.is_send()), count(&self.pops, seen.is_pop()));
        seen.receives = count(&self.receives, seen.is_receive());
        seen.acknowledgements = count(&self.acknowledgements, seen.is_acknowledgement());
        Some((seen, body))
    }

    fn answer(&self, seen: &Seen, body: &[u8], fault: Fault) -> Vec<u8> {
        let mut queues = self.queues.lock().unwrap();
        let name = seen.queue();
        let extra = match fault {
            Fault::Close => "Connection: close\r\n",
            Fault::Chunked => "Transfer-Encoding: chunked\r\n",
            _ => "",
        };
        if seen.path.starts_with("/v1/leases/") {
            return respond(on_lease(&mut queues, seen, fault), extra, b"");
        }
        if let (true, Some(messages)) = (seen.is_receive(), queues.get_mut(&name)) {
            return receive(messages, seen, fault);
        }
        let (status, body) = match (seen.method.as_str(), queues.get_mut(&name)) {
            ("PUT", there) => {
                let status = if there.is_some() { 204 } else { 201 };
                queues.entry(name).or_default();
                (status, Vec::new())
            }
            ("DELETE", there) => {
                let status = if there.is_some() { 204 } else { 404 };
                queues.remove(&name);
                (status, Vec::new())
            }
            ("GET", _) if seen.path.starts_with("/v1/receivers/") => {
                let me = seen.path.split('/').nth(3).unwrap().to_owned();
                let mine = |messages: &VecDeque<Message>| {
                    messages.iter().any(|message| message.receiver.as_deref() == Some(&me))
                };
                let names: Vec<String> =
                    queues.iter().filter(|(_, messages)| mine(messages)).map(|(name, _)| format!("{name:?}")).collect();
                (200, format!("{{\"queues\":[{}]}}", names.join(",")).into_bytes())
            }
            ("GET", _) if seen.path.starts_with("/v1/messages/head") => {
                let found = queues.values().flatten().find(|message| is_wanted(message, seen));
                found.map_or((204, Vec::new()), |message| (200, message.body.clone()))
            }
            (_, None) => return problem(404, "unknown-queue"),
            ("GET", Some(messages)) => {
                let found = messages.iter().find(|message| is_wanted(message, seen));
                found.map_or((204, Vec::new()), |message| (200, message.body.clone()))
            }
            (_, Some(messages)) if seen.is_drain() => {
                let mut taken = Vec::new();
                while let Some(at) = messages.iter().position(|message| is_wanted(message, seen)) {
                    let body = STANDARD.encode(messages.remove(at).unwrap().body);
                    taken.push(format!("{{\"body_base64\":\"{body}\"}}"));
                }
                let status = if taken.is_empty() { 204 } else { 200 };
                (status, format!("{{\"messages\":[{}]}}", taken.join(",")).into_bytes())
            }
            (_, Some(messages)) if seen.is_pop() => pop(messages, seen, fault),
            (_, Some(messages)) => send(messages, seen, body, fault),
        };
        respond(status, extra, if status == 204 { b"" } else { &body })
    }
}

fn send(messages: &mut VecDeque<Message>, seen: &Seen, body: &[u8], fault: Fault) -> (u16, Vec<u8>) {
    let sender = seen.header("waystage-sender").unwrap_or("").to_owned();
    let receiver = seen.parameter("to");
    let mut bodies = vec![body.to_vec()];
    if seen.path.contains(":batch") {
        let document: serde_json::Value = serde_json::from_slice(body).unwrap();
        let decode = |message: &serde_json::Value| STANDARD.decode(message["body_base64"].as_str().unwrap()).unwrap();
        bodies = document["messages"].as_array().unwrap().iter().map(decode).collect();
    }
    for body in bodies.into_iter().filter(|_| fault != Fault::Lose) {
        let id = 1 + messages.back().map_or(0, |last| last.id);
        let (sender, receiver) = (sender.clone(), receiver.clone());
        let message = Message { sender, receiver, body, id, attempt: 0, lease: None };
        if fault == Fault::Double {
            messages.push_back(message.clone());
        }
        messages.push_back(message);
    }
    (201, b"{\"id\": 7}".to_vec())
}

fn now() -> Nanos {
    Clock::monotonic().now()
}

/// The time of a lease: `lease=300ms`.
fn lease_time(seen: &Seen) -> Duration {
    Duration::from_millis(seen.parameter("lease").unwrap().trim_end_matches("ms").parse().unwrap())
}

fn receive(messages: &mut VecDeque<Message>, seen: &Seen, fault: Fault) -> Vec<u8> {
    let found = messages.iter_mut().find(|message| match fault {
        Fault::LeaseAgain => message.lease.as_ref().is_some_and(|(end, _)| *end > now()),
        _ => is_wanted(message, seen),
    });
    let Some(message) = found else { return respond(204, "", b"") };
    message.attempt += 1;
    let token = format!("{}-{}-{}", seen.queue(), message.id, message.attempt);
    let more = if let Fault::Hide(ms) = fault { Duration::from_millis(ms) } else { Duration::ZERO };
    message.lease = Some((now() + lease_time(seen) + more, token.clone()));
    let extra = format!(
        "Waystage-Lease-Token: {token}\r\nWaystage-Message: {}\r\nWaystage-Attempt: {}\r\n",
        message.id, message.attempt
    );
    respond(200, &extra, &message.body)
}

/// Acknowledges, extends or nacks, and returns the status.
fn on_lease(queues: &mut Queues, seen: &Seen, fault: Fault) -> u16 {
    let token = seen.path.split(['/', '?']).nth(3).unwrap_or_default();
    let is_it = |message: &Message| message.lease.as_ref().is_some_and(|(_, own)| own == token);
    for messages in queues.values_mut() {
        let Some(at) = messages.iter().position(is_it) else { continue };
        if seen.is_acknowledgement() && fault != Fault::Keep {
            messages.remove(at);
        } else if seen.path.contains("/extend") {
            messages[at].lease = Some((now() + lease_time(seen), token.to_owned()));
        } else {
            messages[at].lease = None;
        }
        return 204;
    }
    410
}

fn pop(messages: &mut VecDeque<Message>, seen: &Seen, fault: Fault) -> (u16, Vec<u8>) {
    if fault == Fault::Invent {
        return (200, vec![7; 200]);
    }
    let mut wanted = (0..messages.len()).filter(|at| fault == Fault::Misdeliver || is_wanted(&messages[*at], seen));
    let at = if fault == Fault::Overtake { wanted.nth(1) } else { wanted.next() };
    let Some(mut message) = at.and_then(|at| messages.remove(at)) else { return (204, Vec::new()) };
    if fault == Fault::Tear {
        let half = message.body.len() / 2;
        message.body[half] ^= 1;
    }
    (200, message.body)
}

fn is_wanted(message: &Message, seen: &Seen) -> bool {
    let is_mine = message.receiver.is_none() || message.receiver == seen.parameter("for");
    let is_visible = message.lease.as_ref().is_none_or(|(end, _)| *end <= now());
    is_mine && is_visible && seen.parameter("from").is_none_or(|sender| sender == message.sender)
}

fn respond(status: u16, extra: &str, body: &[u8]) -> Vec<u8> {
    let mut reply = format!(
        "HTTP/1.1 {status} Word\r\n{extra}Server-Timing: queue;dur=0.1\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    reply.extend_from_slice(body);
    reply
}

fn problem(status: u16, kind: &str) -> Vec<u8> {
    let extra = if status == 503 { "Retry-After: 1\r\n" } else { "" };
    respond(status, extra, format!("{{\"type\":\"urn:waystage:problem:{kind}\",\"status\":{status}}}").as_bytes())
}
