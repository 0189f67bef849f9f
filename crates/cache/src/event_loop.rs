//! The one thread: waits for clients and for the end of service times, and gives every session its turn.
//!
//! The loop sleeps until shortly before the next request is served, and then polls the kernel and the clock, so that replies
//! leave within microseconds of their computed time. It polls for a short time only: on a host with a small share of a CPU,
//! polling would use up the share, and the kernel would stop the cache. An idle cache, or one without a service time, sleeps.

use crate::config::Stall;
use crate::handler::Handler;
use crate::session::{Next, Session};
use clock::Nanos;
use mio::net::TcpListener;
use net::{Connection, Mailbox, Poller, Ready, Timer, Token};
use slab::Slab;
use std::io;
use std::time::Duration;

/// The message to the loop: stop.
#[derive(Debug)]
pub(crate) struct Stop;

/// The token of the listening socket.
pub(crate) const LISTENER: Token = Token(0);
/// The token of the mailbox.
pub(crate) const MAILBOX: Token = Token(1);
/// The token of the timer.
pub(crate) const TIMER: Token = Token(2);
/// The first token of a session.
const SESSIONS_FROM: usize = 3;
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// The pause before the next accept after the process ran out of descriptors or connections.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// A sleep ends this long before the next request is served, because timers are late and never early.
const WAKE_EARLY: Duration = Duration::from_micros(50);
/// The time that clients have to read their last replies when the cache stops.
const DRAIN_MAXIMUM: Duration = Duration::from_secs(5);

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poller: Poller,
    /// Wakes the loop for the next request that is served; the poller's timeout is in whole milliseconds.
    timer: Timer,
    /// `None` once the cache is stopping.
    listener: Option<TcpListener>,
    mailbox: Mailbox<Stop>,
    sessions: Slab<Session>,
    handler: Handler,
    /// Sessions that are to get a turn.
    active: Vec<usize>,
    /// The number of the next connection.
    next_number: u32,
    /// When to accept again; readiness reports only the first waiting client.
    accept_at: Nanos,
    /// When every session is closed, whether its replies were read or not.
    drained_by: Option<Nanos>,
    /// The regular pauses, counted from the start.
    stall: Option<Stall>,
    start: Nanos,
}

impl EventLoop {
    pub(crate) fn new(
        poller: Poller,
        timer: Timer,
        listener: TcpListener,
        mailbox: Mailbox<Stop>,
        handler: Handler,
        stall: Option<Stall>,
    ) -> EventLoop {
        EventLoop {
            start: handler.clock.now(),
            stall,
            poller,
            timer,
            listener: Some(listener),
            mailbox,
            sessions: Slab::new(),
            handler,
            active: Vec::new(),
            next_number: 0,
            accept_at: Nanos::NEVER,
            drained_by: None,
        }
    }

    /// Serves until it is stopped, and returns the shared state.
    pub(crate) fn run(mut self) -> io::Result<Handler> {
        let mut ready = Vec::new();
        while !self.is_done() {
            let timeout = self.timeout()?;
            self.poller.wait(timeout, &mut ready)?;
            if let Some(stall) = self.stall {
                std::thread::sleep(stall.left(self.start, self.handler.clock.now()));
            }
            self.deliver_served();
            for event in &ready {
                self.note(event);
            }
            if self.accept_at <= self.handler.clock.now() {
                self.accept();
            }
            self.take_turns();
            self.handler.journal.hand_over();
        }
        for session in self.sessions.drain() {
            session.abandon(&mut self.handler);
        }
        Ok(self.handler)
    }

    fn is_done(&self) -> bool {
        self.drained_by.is_some_and(|by| self.sessions.is_empty() || by <= self.handler.clock.now())
    }

    /// The longest time that the loop may sleep. Sets the timer if a request is served before.
    fn timeout(&mut self) -> io::Result<Option<Duration>> {
        if !self.active.is_empty() {
            return Ok(Some(Duration::ZERO));
        }
        let now = self.handler.clock.now();
        let others = [self.drained_by.unwrap_or(Nanos::NEVER), self.accept_at, self.handler.journal.hand_over_at()];
        let other = others.into_iter().filter(|&at| at != Nanos::NEVER).min().map(|at| at.after(now));
        let Some(served) = self.handler.service.next_served() else { return Ok(other) };
        let wake_at = served - WAKE_EARLY;
        if wake_at <= now {
            return Ok(Some(Duration::ZERO));
        }
        self.timer.set(wake_at.0)?;
        // The timer does not follow a clock that a test moves.
        let at_most = wake_at.after(now).max(Duration::from_millis(1));
        Ok(Some(other.map_or(at_most, |other| other.min(at_most))))
    }

    fn note(&mut self, event: &Ready) {
        match event.token {
            LISTENER => self.accept_at = Nanos::UNSET,
            MAILBOX => {
                if self.mailbox.take().is_some() && self.drained_by.is_none() {
                    self.stop();
                }
            }
            TIMER => {}
            Token(token) => {
                if let Some(session) = self.sessions.get_mut(token - SESSIONS_FROM) {
                    session.connection.on_ready(event.readable, event.writable, event.closing);
                    self.activate(token - SESSIONS_FROM);
                }
            }
        }
    }

    fn activate(&mut self, key: usize) {
        if let Some(session) = self.sessions.get_mut(key)
            && !session.is_active
        {
            session.is_active = true;
            self.active.push(key);
        }
    }

    fn take_turns(&mut self) {
        for key in std::mem::take(&mut self.active) {
            // Replies that are due come before new requests.
            self.deliver_served();
            if let Some(session) = self.sessions.get_mut(key) {
                session.is_active = false;
                let outcome = session.turn(key, &mut self.handler);
                self.after(key, &outcome);
            }
        }
    }

    /// Sends the replies of all requests that have been served by now.
    fn deliver_served(&mut self) {
        if self.handler.service.next_served().is_none() {
            return;
        }
        let now = self.handler.clock.now();
        while let Some(key) = self.handler.service.take_served(now) {
            // The session may have been closed; a new one with the same key gets one turn more than it needs.
            if let Some(session) = self.sessions.get_mut(key) {
                let outcome = session.deliver(&mut self.handler);
                self.after(key, &outcome);
            }
        }
    }

    fn after(&mut self, key: usize, outcome: &io::Result<()>) {
        match (outcome, self.sessions.get(key).map(Session::next)) {
            (Ok(()), Some(Next::Wait)) | (_, None) => {}
            (Ok(()), Some(Next::Again)) => self.activate(key),
            (Err(_), Some(_)) | (Ok(()), Some(Next::Close)) => self.close(key),
        }
    }

    fn close(&mut self, key: usize) {
        self.sessions.remove(key).abandon(&mut self.handler);
        self.handler.connections = self.sessions.len();
        if self.accept_at != Nanos::NEVER {
            self.accept_at = Nanos::UNSET;
        }
    }

    /// Accepts waiting clients. Without a free descriptor or connection they keep waiting.
    fn accept(&mut self) {
        self.accept_at = Nanos::NEVER;
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPTS_PER_TURN {
            if self.sessions.len() >= self.handler.connections_maximum {
                return self.defer_accepting();
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    let mut connection = Connection::new(stream);
                    let entry = self.sessions.vacant_entry();
                    let token = Token(entry.key() + SESSIONS_FROM);
                    if self.poller.add(&mut connection, token).is_ok() {
                        entry.insert(Session::new(connection, self.next_number));
                        self.next_number = self.next_number.wrapping_add(1);
                        self.handler.counters.total_connections += 1;
                        self.handler.connections = self.sessions.len();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_about_one_client(&error) => {}
                Err(_) => return self.defer_accepting(),
            }
        }
        self.accept_at = Nanos::UNSET;
    }

    /// Pauses accepting until a client disconnects, or for a while.
    fn defer_accepting(&mut self) {
        self.handler.counters.accepts_deferred += 1;
        self.accept_at = self.handler.clock.now() + ACCEPT_RETRY;
    }

    /// Accepts no more clients and requests; answers the requests that have arrived.
    fn stop(&mut self) {
        self.listener = None;
        self.accept_at = Nanos::NEVER;
        self.drained_by = Some(self.handler.clock.now() + DRAIN_MAXIMUM);
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Err(error) = self.sessions[key].stop(&mut self.handler) {
                self.after(key, &Err(error));
            }
            self.activate(key);
        }
    }
}

/// Whether accepting failed because of the first waiting client, so that the next one may succeed.
fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
