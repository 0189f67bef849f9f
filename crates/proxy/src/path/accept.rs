//! Before step 1. Accepts connections, numbers them and gives them to the event loops in turn. It runs on its own thread, so it may
//! pause when the process has no file descriptor left.

use crate::config::ClientLimits;
use crate::observe::counters::AcceptCounters;
use crate::path::addresses::Addresses;
use crate::path::listeners::{Listener, Listeners};
use crate::path::messages::{AcceptMessage, ClientOrigin, LoopMessage, Moving};
use net::{ClientAddress, Connection, Listening, Mailbox, Network, Poller, Post, Ready, Refused, Token};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The token of the acceptor's mailbox. Lower tokens are listening sockets.
pub(crate) const MAILBOX: Token = Token(1 << 20);
/// The most clients accepted on one socket before the other sockets get their turn.
const ACCEPTED_PER_TURN: usize = 256;
/// The pause after the kernel had no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause before clients are given again to a loop whose mailbox was full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// The accepting thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) listeners: Vec<Listening>,
    pub(crate) poller: Poller,
    pub(crate) mailbox: Mailbox<AcceptMessage>,
    pub(crate) loops: Vec<LoopPost>,
    pub(crate) clients_open: Arc<AtomicUsize>,
    pub(crate) clients_max: usize,
    pub(crate) limits: ClientLimits,
    pub(crate) configured: Listeners,
    pub(crate) relays: Relays,
    pub(crate) addresses: Addresses,
    pub(crate) counters: Arc<AcceptCounters>,
}

/// The load balancers that report the addresses of their clients.
#[derive(Debug)]
pub(crate) struct Relays {
    /// By listener: whether connections to it come from load balancers.
    pub(crate) listeners: Vec<bool>,
    /// Their networks. If there are none, every connection may be one of theirs.
    pub(crate) networks: Vec<Network>,
}

impl Relays {
    /// Whether a connection may be one of theirs. Who can connect to a unix socket is decided by its file.
    fn allow(&self, connection: &Connection, is_unix: bool) -> bool {
        let is_known = |address: IpAddr| self.networks.iter().any(|network| network.contains(address));
        is_unix || self.networks.is_empty() || connection.peer_address().is_some_and(|address| is_known(address.ip()))
    }
}

/// The way to one loop.
#[derive(Debug)]
pub(crate) struct LoopPost {
    post: Post<LoopMessage>,
    /// Clients for which its mailbox had no room, as when thousands move at once.
    waiting: VecDeque<LoopMessage>,
}

impl LoopPost {
    /// The way to the loop with this mailbox.
    pub(crate) fn new(post: Post<LoopMessage>) -> LoopPost {
        LoopPost { post, waiting: VecDeque::new() }
    }

    /// Sends the waiting messages, as many as fit. Returns the number of those that cannot be sent, because the loop has ended.
    fn send_waiting(&mut self) -> usize {
        while let Some(message) = self.waiting.pop_front() {
            match self.post.try_send(message) {
                Ok(()) => {}
                Err(Refused::Full(message)) => {
                    self.waiting.push_front(message);
                    return 0;
                }
                Err(Refused::Ended(_)) => return 1 + std::mem::take(&mut self.waiting).len(),
            }
        }
        0
    }
}

impl Acceptor {
    /// Accepts until it receives `Retire`, and gives clients to the loops until it receives `Stop`.
    pub(crate) fn run(mut self) -> io::Result<()> {
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            self.poller.add_listening(listening, Token(index))?;
            // If this fails, the file does not exist any more.
            let _ = listening.own_file();
        }
        let mut ready: Vec<Ready> = Vec::new();
        // Sockets on which a client may be waiting. The kernel reports readiness only when it changes.
        let mut waiting = vec![false; self.listeners.len()];
        let mut number = 0u32;
        let mut pause = None;
        loop {
            let is_full = self.loops.iter().any(|to| !to.waiting.is_empty());
            self.poller.wait(if is_full { Some(FULL_PAUSE) } else { pause }, &mut ready)?;
            self.give_waiting();
            while let Some(message) = self.mailbox.take() {
                match message {
                    AcceptMessage::Stop => {
                        self.end();
                        return Ok(());
                    }
                    AcceptMessage::Retire(sender) => {
                        for mut listening in self.listeners.drain(..) {
                            listening.keep_file();
                            self.poller.remove_listening(&mut listening)?;
                        }
                        waiting.clear();
                        // Nobody listens any more when the sender is dropped.
                        drop(sender);
                    }
                    AcceptMessage::Adopt(client) => {
                        let Moving { connection, listener, address, admission } = *client;
                        // The former listener does not matter to a client that leaves: it sends no more requests.
                        let (listener, origin) = match self.configured.adopt(&connection, listener) {
                            Some(listener) => (listener, ClientOrigin::Moved(admission)),
                            None => (listener, ClientOrigin::Leaving),
                        };
                        self.hand_over(connection, address, number, listener, origin);
                        number = number.wrapping_add(1);
                    }
                    AcceptMessage::Lend(sender) => {
                        // The receiver may have given up.
                        let _ = sender.try_send(self.listeners.iter().map(Listening::lend).collect());
                    }
                }
            }
            for event in ready.iter().filter(|event| event.token.0 < self.listeners.len()) {
                waiting[event.token.0] = true;
            }
            pause = None;
            for (index, waiting) in waiting.iter_mut().enumerate().filter(|(_, waiting)| **waiting) {
                let again = self.accept_some(index, &mut number);
                *waiting = again.is_some();
                pause = pause.max(again);
            }
        }
    }

    /// Stops accepting, and hands the waiting clients to their loops, which have not been stopped yet.
    fn end(&mut self) {
        self.listeners.clear();
        while self.loops.iter().any(|to| !to.waiting.is_empty()) {
            std::thread::sleep(FULL_PAUSE);
            self.give_waiting();
        }
    }

    /// Accepts from one socket. Returns a pause if the socket must be tried again although no readiness is reported.
    fn accept_some(&mut self, index: usize, number: &mut u32) -> Option<Duration> {
        for _ in 0..ACCEPTED_PER_TURN {
            match self.listeners[index].accept() {
                Ok(connection) => {
                    let is_relayed = self.relays.listeners[index];
                    let is_unix = self.listeners[index].address().host_port().is_none();
                    // Beyond the limit a client is closed at once, so that it can try elsewhere instead of waiting.
                    if self.clients_open.load(Ordering::Relaxed) >= self.clients_max {
                        self.counters.refused.add(1);
                    } else if is_relayed && !self.relays.allow(&connection, is_unix) {
                        self.counters.refused_relay.add(1);
                    } else if !is_relayed && self.has_too_many(&connection) {
                        self.counters.refused_address.add(1);
                    } else {
                        let origin = if is_relayed { ClientOrigin::Relayed } else { ClientOrigin::New };
                        self.hand_over(connection, ClientAddress::OfPeer, *number, self.configured.at(index), origin);
                        *number = number.wrapping_add(1);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The client has already closed its connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.counters.pauses.add(1);
                    return Some(PAUSE);
                }
            }
        }
        Some(Duration::ZERO)
    }

    /// Gives a client to a loop. If the mailbox is full, the client waits.
    fn hand_over(
        &mut self,
        connection: Connection,
        address: ClientAddress,
        number: u32,
        listener: Listener,
        origin: ClientOrigin,
    ) {
        let index = number as usize % self.loops.len();
        if !self.limits.keepalive.is_zero() {
            connection.set_keepalive(self.limits.keepalive);
        }
        // The address of a client behind a load balancer is not known yet.
        let is_counted = self.limits.per_address > 0 && origin != ClientOrigin::Relayed;
        let counted = connection.client_address(address).filter(|_| is_counted);
        let permit = counted.map(|address| self.addresses.enter(address.ip()));
        self.clients_open.fetch_add(1, Ordering::Relaxed);
        let connection = Box::new(connection);
        let message = LoopMessage::Client { connection, number, address, permit, listener, origin };
        self.loops[index].waiting.push_back(message);
        self.give(index);
    }

    /// Whether the address of a client already has as many connections as it may.
    fn has_too_many(&self, connection: &Connection) -> bool {
        let most = self.limits.per_address;
        most > 0 && connection.peer_address().is_some_and(|address| self.addresses.count(address.ip()) >= most)
    }

    fn give_waiting(&mut self) {
        (0..self.loops.len()).for_each(|index| self.give(index));
    }

    fn give(&mut self, index: usize) {
        let lost = self.loops[index].send_waiting();
        self.clients_open.fetch_sub(lost, Ordering::Relaxed);
        self.counters.refused.add(lost as u64);
    }
}
