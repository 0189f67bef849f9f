//! Serves the metrics over HTTP on one thread of its own, one request for each connection. Clients that are slow to send or to
//! read delay no other client: connections are non-blocking, limited in number and limited in time.

use crate::observe::health::Health;
use crate::observe::metrics::Subject;
use crate::observe::metrics_text::classic;
use crate::observe::scrape_request::ScrapeRequest;
use crate::observe::scraper::{RequestHistograms, Scraper};
use clock::{Clock, Nanos};
use net::{
    Address, BindError, Buffers, Connection, Filled, Flushed, Inherited, Listening, Mailbox, Poller, Post, Ready,
    Token, mailbox,
};
use slab::Slab;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a loop may take to send its histograms. If it takes longer, its last copy is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a client may take to close its side after it has received its reply.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The pause before accepting again after the kernel had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// The most bytes read from a client at once.
const READ_BYTES: usize = 64 * 1024;
const LISTENER: Token = Token(0);
const STOP: Token = Token(1);
/// The token of the first connection.
const FIRST: usize = 2;

/// The limits of the metrics port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScrapeLimits {
    /// How long a client may take to send its request, and then to read the reply.
    pub(crate) time: Duration,
    /// The most connections. One more closes the oldest.
    pub(crate) connections: usize,
}

/// The server, as other threads see it.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: Option<SocketAddr>,
    stop: Post<()>,
    /// A duplicate of the socket, for a successor.
    copy: OwnedFd,
}

/// The work of the server's thread.
pub(crate) struct Serving {
    listening: Listening,
    poller: Poller,
    stop: Mailbox<()>,
    buffers: Buffers,
    clients: Slab<Client>,
    limits: ScrapeLimits,
    /// When to accept again although no readiness is reported.
    accept_at: Nanos,
    scraper: Scraper,
    health: Health,
    clock: Clock,
}

/// One connection.
struct Client {
    connection: Connection,
    state: State,
    since: Nanos,
    until: Nanos,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Request,
    /// The client has not read its reply.
    Reading,
    /// The client has not closed its side.
    Closing,
}

impl MetricsServer {
    /// Listens on `address`, with the inherited socket if it has this address.
    pub(crate) fn listen(address: &str, handed: Option<OwnedFd>) -> Result<Listening, String> {
        let failed = |error: &dyn Display| format!("cannot serve metrics on {address}: {error}");
        let parsed: Address = address.parse().map_err(|error| failed(&error))?;
        listen(&parsed, handed).map_err(|error| failed(&error))
    }

    /// The server on this socket, and the work of its thread.
    pub(crate) fn new(
        mut listening: Listening,
        limits: ScrapeLimits,
        subject: Subject,
        requests: Vec<RequestHistograms>,
        health: Health,
        clock: Clock,
    ) -> io::Result<(MetricsServer, Serving)> {
        let poller = Poller::new()?;
        poller.add_listening(&mut listening, LISTENER)?;
        let (post, stop) = mailbox(&poller, STOP)?;
        let copy = listening.lend()?.socket;
        let address = listening.address().host_port().and_then(|host_port| host_port.number());
        let serving = Serving {
            listening,
            poller,
            stop,
            buffers: Buffers::default(),
            clients: Slab::new(),
            limits,
            // A client of an inherited socket may be waiting already.
            accept_at: clock.now(),
            scraper: Scraper::new(subject, requests),
            health,
            clock,
        };
        Ok((MetricsServer { address, stop: post, copy }, serving))
    }

    /// The address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// A duplicate of the socket, for a successor.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.copy.try_clone()
    }

    /// Lets the thread end. A scrape that is being collected ends first.
    pub(crate) fn stop(&self) {
        // If this fails, the thread has ended already.
        let _ = self.stop.send(());
    }
}

/// Listens with the inherited socket if it has this address, otherwise with a new one. Port 0 stands for any port.
fn listen(address: &Address, handed: Option<OwnedFd>) -> io::Result<Listening> {
    // Under this name, port 0 stands for any port.
    let inherited = |socket| Inherited { name: address.to_string(), owns_file: false, is_activated: false, socket };
    let handed = handed.map(inherited);
    if let Some(inherited) = handed.filter(|inherited| inherited.is_at(address)) {
        return Listening::adopt(address, inherited);
    }
    Listening::bind(address).map_err(|error| match error {
        BindError::Resolve { source, .. } | BindError::Listen { source, .. } | BindError::Address { source, .. } => {
            source
        }
    })
}

impl Serving {
    /// Serves until it is stopped.
    pub(crate) fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            let now = self.clock.now();
            let next = self.clients.iter().map(|(_, client)| client.until).min().unwrap_or(Nanos::NEVER);
            let next = next.min(self.accept_at);
            let timeout = (next != Nanos::NEVER).then(|| next.after(now));
            // The kernel refuses only what is a bug here. Without metrics the proxy still serves.
            if self.poller.wait(timeout, &mut ready).is_err() || self.stop.take().is_some() {
                return;
            }
            let is_waiting = ready.iter().any(|event| event.token == LISTENER) || self.accept_at <= self.clock.now();
            for event in ready.iter().filter(|event| event.token.0 >= FIRST) {
                let slot = event.token.0 - FIRST;
                if let Some(client) = self.clients.get_mut(slot) {
                    client.connection.on_ready(event.readable, event.writable, event.closing);
                    self.serve(slot);
                }
            }
            self.end_late();
            if is_waiting {
                self.accept();
            }
        }
    }

    /// Accepts every client that waits.
    fn accept(&mut self) {
        self.accept_at = Nanos::NEVER;
        // At most as many as may be open, so that clients that connect without end do not keep the others from being served.
        for _ in 0..self.limits.connections {
            match self.listening.accept() {
                Ok(connection) => self.add(connection),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accept_at = self.clock.now() + ACCEPT_PAUSE;
                    return;
                }
            }
        }
        self.accept_at = self.clock.now();
    }

    fn add(&mut self, mut connection: Connection) {
        if self.clients.len() >= self.limits.connections {
            // The newest is served, so that a scrape succeeds even if other clients take all connections.
            let oldest = self.clients.iter().min_by_key(|(_, client)| client.since).map(|(slot, _)| slot);
            if let Some(client) = oldest.and_then(|slot| self.clients.try_remove(slot)) {
                self.scraper.counters().closed_limit.add(u64::from(client.state != State::Closing));
            }
        }
        let entry = self.clients.vacant_entry();
        let now = self.clock.now();
        if self.poller.add(&mut connection, Token(FIRST + entry.key())).is_ok() {
            entry.insert(Client { connection, state: State::Request, since: now, until: now + self.limits.time });
        }
    }

    fn end_late(&mut self) {
        let (now, closed) = (self.clock.now(), &self.scraper.counters().closed_timeout);
        self.clients.retain(|_, client| {
            closed.add(u64::from(client.until <= now && client.state != State::Closing));
            client.until > now
        });
    }

    /// Continues with a client that is ready, and closes the connection if it is finished.
    fn serve(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let is_open = match client.state {
            State::Request => self.receive(slot),
            State::Reading => self.reply(slot),
            State::Closing => self.wait_for_close(slot),
        };
        if !is_open {
            self.clients.remove(slot);
        }
    }

    /// Reads the request. Returns whether the connection stays open.
    fn receive(&mut self, slot: usize) -> bool {
        let client = &mut self.clients[slot];
        let Ok(filled) = client.connection.fill(&mut self.buffers, READ_BYTES) else { return false };
        let request = ScrapeRequest::parse(client.connection.inbox.filled());
        match request {
            ScrapeRequest::Incomplete => return filled != Filled::Closed,
            ScrapeRequest::TooLarge => {
                self.scraper.counters().closed_size.add(1);
                return false;
            }
            _ => {}
        }
        let received = client.connection.inbox.filled().len();
        client.connection.inbox.consume(received);
        client.connection.inbox.release(&mut self.buffers);
        let (status, kind, page) = self.page(request);
        let length = page.len();
        let client = &mut self.clients[slot];
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        client.connection.outbox.append_owned(head.into_bytes());
        client.connection.outbox.append_owned(page.into_bytes());
        (client.state, client.until) = (State::Reading, self.clock.now() + self.limits.time);
        self.reply(slot)
    }

    /// The status, the type and the text of the reply to a request.
    fn page(&mut self, request: ScrapeRequest) -> (&'static str, &'static str, String) {
        const PLAIN: &str = "text/plain; charset=utf-8";
        match request {
            ScrapeRequest::Metrics { is_open_metrics } => {
                let text = self.scraper.snapshot(PATIENCE).render();
                match is_open_metrics {
                    true => ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                    false => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", classic(&text)),
                }
            }
            ScrapeRequest::Health => ("200 OK", PLAIN, "ok\n".into()),
            ScrapeRequest::Ready => match self.health.reasons() {
                reasons if reasons.is_empty() => ("200 OK", PLAIN, "ready\n".into()),
                reasons => ("503 Service Unavailable", PLAIN, reasons.join("\n") + "\n"),
            },
            _ => ("404 Not Found", PLAIN, "the metrics are at /metrics, health at /healthz and /readyz\n".into()),
        }
    }

    /// Writes the reply. Returns whether the connection stays open.
    fn reply(&mut self, slot: usize) -> bool {
        let client = &mut self.clients[slot];
        match client.connection.flush() {
            Err(_) => false,
            Ok(Flushed::Blocked) => true,
            Ok(Flushed::All) => {
                // Closing a socket with unread input would reset the connection, and the client could lose the reply.
                client.connection.end_writing();
                (client.state, client.until) = (State::Closing, self.clock.now() + CLOSE_WAIT.min(self.limits.time));
                self.wait_for_close(slot)
            }
        }
    }

    /// Discards further requests. Returns whether the client is still there.
    fn wait_for_close(&mut self, slot: usize) -> bool {
        let dropped = self.clients[slot].connection.drop_input(&mut self.buffers, READ_BYTES);
        dropped.is_some_and(|dropped| dropped < READ_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inherited_socket_is_used_if_it_has_the_address() {
        let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = first.local_addr().unwrap();
        let at = |text: &str| {
            let listening = listen(&text.parse().unwrap(), Some(first.try_clone().unwrap().into())).unwrap();
            listening.address().host_port().unwrap().number().unwrap() == own
        };
        assert!(at(&own.to_string()) && at(&format!("localhost:{}", own.port())) && at("127.0.0.1:0"));
        assert!(!at("127.0.0.2:0"));
        assert!(listen(&own.to_string().parse().unwrap(), None).is_err());
    }
}
