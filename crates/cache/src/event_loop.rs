//! The one thread: waits until a client or a served request needs it, and gives every session its turn.
//!
//! The kernel's timers count milliseconds. When the next request is served within one and a half, the loop does not sleep: it
//! asks the kernel for events and looks at the clock again and again. That costs one processor and makes replies leave within
//! microseconds of the time that was computed for them. An idle cache, or one without a service time, sleeps.

use crate::config::Stall;
use crate::desk::Desk;
use crate::session::{Next, Session};
use clock::Nanos;
use mio::net::TcpListener;
use net::{Connection, Mailbox, Poller, Ready, Token};
use slab::Slab;
use std::io;
use std::time::Duration;

/// What the loop is told from outside: to finish.
#[derive(Debug)]
pub(crate) struct Stop;

/// The listening socket.
pub(crate) const LISTENER: Token = Token(0);
/// The mailbox.
pub(crate) const MAILBOX: Token = Token(1);
/// Sessions have the tokens from here on.
const SESSIONS_FROM: usize = 2;
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// How long nobody is accepted after the kernel had no descriptor, or all connections were taken.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// A sleep ends this long before the next request is served: timers and wakes are late, and never early.
const WAKE_EARLY: Duration = Duration::from_micros(500);
/// How long clients may take to read their last replies when the cache stops.
const DRAIN_MAXIMUM: Duration = Duration::from_secs(5);

/// Everything that the thread owns.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poller: Poller,
    /// None once the cache stops.
    listener: Option<TcpListener>,
    mailbox: Mailbox<Stop>,
    sessions: Slab<Session>,
    desk: Desk,
    /// Sessions whose turn comes.
    active: Vec<usize>,
    /// Number of the next connection.
    next_number: u32,
    /// When somebody may be waiting to be accepted; readiness tells only of the first.
    accept_at: Nanos,
    /// When the last session is closed, read or unread.
    drained_by: Option<Nanos>,
    /// When nothing is done, counted from the start.
    stall: Option<Stall>,
    start: Nanos,
}

impl EventLoop {
    pub(crate) fn new(
        poller: Poller,
        listener: TcpListener,
        mailbox: Mailbox<Stop>,
        desk: Desk,
        stall: Option<Stall>,
    ) -> EventLoop {
        EventLoop {
            start: desk.clock.now(),
            stall,
            poller,
            listener: Some(listener),
            mailbox,
            sessions: Slab::new(),
            desk,
            active: Vec::new(),
            next_number: 0,
            accept_at: Nanos::NEVER,
            drained_by: None,
        }
    }

    /// Serves until told to stop, and gives back what was shared.
    pub(crate) fn run(mut self) -> io::Result<Desk> {
        let mut ready = Vec::new();
        while !self.is_done() {
            self.poller.wait(self.timeout(), &mut ready)?;
            if let Some(stall) = self.stall {
                std::thread::sleep(stall.left(self.start, self.desk.clock.now()));
            }
            self.deliver_served();
            for event in &ready {
                self.note(event);
            }
            if self.accept_at <= self.desk.clock.now() {
                self.accept();
            }
            self.take_turns();
            self.desk.journal.hand_over();
        }
        for session in self.sessions.drain() {
            session.abandon(&mut self.desk);
        }
        Ok(self.desk)
    }

    fn is_done(&self) -> bool {
        self.drained_by.is_some_and(|by| self.sessions.is_empty() || by <= self.desk.clock.now())
    }

    /// How long the kernel may let the loop sleep.
    fn timeout(&self) -> Option<Duration> {
        if !self.active.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.desk.clock.now();
        let others = [self.drained_by.unwrap_or(Nanos::NEVER), self.accept_at, self.desk.journal.hand_over_at()];
        let other = others.into_iter().filter(|&at| at != Nanos::NEVER).min().map(|at| at.after(now));
        // Rounded down to what the kernel counts in: less than that is no sleep at all.
        let whole = |left: Duration| Duration::from_millis(left.as_millis() as u64);
        let served = self.desk.service.next_served().map(|at| whole((at - WAKE_EARLY).after(now)));
        other.into_iter().chain(served).min()
    }

    fn note(&mut self, event: &Ready) {
        match event.token {
            LISTENER => self.accept_at = Nanos::UNSET,
            MAILBOX => {
                if self.mailbox.take().is_some() && self.drained_by.is_none() {
                    self.stop();
                }
            }
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
            // Replies that are due come before requests that are new.
            self.deliver_served();
            if let Some(session) = self.sessions.get_mut(key) {
                session.is_active = false;
                let outcome = session.turn(key, &mut self.desk);
                self.after(key, &outcome);
            }
        }
    }

    /// Sends the replies of the requests that have been served by now.
    fn deliver_served(&mut self) {
        if self.desk.service.next_served().is_none() {
            return;
        }
        let now = self.desk.clock.now();
        while let Some(key) = self.desk.service.take_served(now) {
            // The client may have gone; the next one with its key only looks once more than it must.
            if let Some(session) = self.sessions.get_mut(key) {
                let outcome = session.deliver(&mut self.desk);
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
        self.sessions.remove(key).abandon(&mut self.desk);
        self.desk.connections = self.sessions.len();
        if self.accept_at != Nanos::NEVER {
            self.accept_at = Nanos::UNSET;
        }
    }

    /// Accepts who waits. Without a free descriptor or connection the others wait on, and are served.
    fn accept(&mut self) {
        self.accept_at = Nanos::NEVER;
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPTS_PER_TURN {
            if self.sessions.len() >= self.desk.connections_maximum {
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
                        self.desk.counters.total_connections += 1;
                        self.desk.connections = self.sessions.len();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_about_one_client(&error) => {}
                Err(_) => return self.defer_accepting(),
            }
        }
        self.accept_at = Nanos::UNSET;
    }

    /// Nobody is accepted until somebody leaves, or for a while.
    fn defer_accepting(&mut self) {
        self.desk.counters.accepts_deferred += 1;
        self.accept_at = self.desk.clock.now() + ACCEPT_RETRY;
    }

    /// No more clients, no more requests; what has come is answered.
    fn stop(&mut self) {
        self.listener = None;
        self.accept_at = Nanos::NEVER;
        self.drained_by = Some(self.desk.clock.now() + DRAIN_MAXIMUM);
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Err(error) = self.sessions[key].stop(&mut self.desk) {
                self.after(key, &Err(error));
            }
            self.activate(key);
        }
    }
}

/// Whether accepting failed because of the client that waited first, so that the next may be luckier.
fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
