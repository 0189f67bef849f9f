//! One loop: its clients, its own connections to all backends, its jobs. Nothing is shared with other loops on the path of a request.
//!
//! ```text
//!  a turn:   wait -> backends read -> timers -> clients read -> [ backends write -> clients write ] until nothing is left to do
//! ```
//! Everything that is readable is read before anything is written, so what is pending for one socket leaves in one call.

use crate::path::core::{Core, give_back};
use crate::path::messages::{AcceptMessage, LoopMessage};
use crate::path::session::{Gone, Progress, Session};
use clock::Nanos;
use net::{Buffers, Connection, Mailbox, Poller, Post, Ready, Token};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Tokens below are connections to backends: more than any configuration that passes its check can have.
pub(crate) const MAILBOX: Token = Token((1 << 20) - 1);
/// Tokens from here on are sessions.
const FIRST_SESSION: usize = 1 << 20;
/// Rounds of writing in one turn: readiness must be looked at even when clients pipeline without end.
const ROUNDS_PER_TURN: usize = 4;
/// How long a client that has got its last reply may take to close its side.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
/// How many milliseconds an heir may have no room for a client.
const HEIR_TRIES: usize = 2000;
/// How long a record may wait for its batch to fill, and a hot key for its copy, when nothing happens.
const ROWS_WAIT: Duration = Duration::from_millis(100);

/// One event loop; `run` is its thread.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poller: Poller,
    mailbox: Mailbox<LoopMessage>,
    buffers: Buffers,
    core: Core,
    sessions: Slab<Session>,
    /// Sessions with a reply to write or something to settle.
    touched: Vec<usize>,
    /// Sessions that may have more to read.
    again: Vec<usize>,
    /// Sessions that have nothing left to say and wait for the client to close: until when, slot and number.
    leaving: VecDeque<(Nanos, usize, u32)>,
    /// Sessions of TLS whose two sides have not agreed when they came: until when they must, slot and number.
    handshakes: VecDeque<(Nanos, usize, u32)>,
    clients_open: Arc<AtomicUsize>,
    drain_until: Option<Nanos>,
    /// Who takes the clients that are let go of.
    heir: Option<Post<AcceptMessage>>,
}

impl EventLoop {
    pub(crate) fn new(
        poller: Poller,
        mailbox: Mailbox<LoopMessage>,
        core: Core,
        clients_open: Arc<AtomicUsize>,
    ) -> EventLoop {
        EventLoop {
            poller,
            mailbox,
            buffers: Buffers::default(),
            core,
            sessions: Slab::new(),
            touched: Vec::new(),
            again: Vec::new(),
            leaving: VecDeque::new(),
            handshakes: VecDeque::new(),
            clients_open,
            drain_until: None,
            heir: None,
        }
    }

    /// Serves until drained. Returns how many jobs were lost, which is always none.
    pub(crate) fn run(mut self) -> io::Result<u64> {
        let mut ready = Vec::new();
        self.core.turn = self.core.clock.now();
        self.tick();
        while !self.is_drained() {
            let timeout = self.timeout();
            self.poller.wait(timeout, &mut ready)?;
            self.core.turn = self.core.clock.now();
            if ready.is_empty() {
                self.core.journal.flush();
            }
            self.turn(&ready);
        }
        Ok(self.close())
    }

    fn turn(&mut self, ready: &[Ready]) {
        for event in ready.iter().filter(|event| event.token < MAILBOX) {
            self.note_backend(*event);
        }
        self.tick();
        let mut again = std::mem::take(&mut self.again);
        for slot in again.drain(..) {
            self.receive(slot);
        }
        self.again = give_back(again, &mut self.again);
        for event in ready.iter().filter(|event| event.token >= MAILBOX) {
            match event.token {
                MAILBOX => self.read_mail(),
                Token(token) => self.note_session(token - FIRST_SESSION, *event),
            }
        }
        for _ in 0..ROUNDS_PER_TURN {
            self.flush_backends();
            self.complete_jobs();
            if self.touched.is_empty() && self.core.answered.is_empty() {
                break;
            }
            self.reply();
        }
        // Jobs that go on have been given new legs.
        self.flush_backends();
        self.publish();
    }

    /// How long to wait: not at all when there is something left to do, else until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let is_busy = !self.again.is_empty()
            || !self.touched.is_empty()
            || !self.core.answered.is_empty()
            || self.core.dispatcher.is_readable();
        if is_busy {
            return Some(Duration::ZERO);
        }
        let mut next = self.drain_until.unwrap_or(Nanos::NEVER);
        next = next.min(self.leaving.front().map_or(Nanos::NEVER, |&(until, _, _)| until));
        next = next.min(self.handshakes.front().map_or(Nanos::NEVER, |&(until, _, _)| until));
        next = next.min(self.core.dispatcher.deadline());
        if self.core.journal.has_news() {
            next = next.min(self.core.turn + ROWS_WAIT);
        }
        // The kernel counts milliseconds and rounds up, so a deadline is never met too early.
        (next != Nanos::NEVER).then(|| next.after(self.core.clock.now()))
    }

    fn note_backend(&mut self, event: Ready) {
        let (dispatcher, mut answered, time) = self.core.parts();
        dispatcher.connections().on_ready(event, &mut answered, time.turn);
    }

    /// Reads from backends that may have something, does what is due, and lets requests take the places of those answered.
    fn tick(&mut self) {
        let (dispatcher, mut answered, time) = self.core.parts();
        dispatcher.connections().receive(&mut self.buffers, &mut answered, time.clock);
        dispatcher.connections().tick(&self.poller, &mut answered, time.turn);
        dispatcher.tick(&mut answered, time);
        self.end_leaving();
        self.end_handshakes();
    }

    /// Breaks off clients that have got everything and did not close their side in time.
    fn end_leaving(&mut self) {
        while let Some(&(until, slot, number)) = self.leaving.front() {
            if until > self.core.turn {
                return;
            }
            self.leaving.pop_front();
            if self.sessions.get(slot).is_some_and(|session| session.number() == number) {
                self.remove(slot);
            }
        }
    }

    /// Breaks off clients that have not come to an agreement about TLS in time.
    fn end_handshakes(&mut self) {
        while let Some(&(until, slot, number)) = self.handshakes.front() {
            if until > self.core.turn {
                return;
            }
            self.handshakes.pop_front();
            let session = self.sessions.get_mut(slot).filter(|session| session.number() == number);
            if session.is_some_and(|session| session.connection().is_handshaking()) {
                self.core.journal.counters.clients_tls_failed.add(1);
                self.remove(slot);
            }
        }
    }

    fn flush_backends(&mut self) {
        let (dispatcher, mut answered, time) = self.core.parts();
        dispatcher.flush(&mut answered, time);
    }

    fn read_mail(&mut self) {
        while let Some(message) = self.mailbox.take() {
            match message {
                LoopMessage::Client { connection, number } => self.admit(*connection, number),
                LoopMessage::Moved { backend, endpoint } => {
                    let (dispatcher, mut answered, time) = self.core.parts();
                    dispatcher.connections().move_to(backend, &endpoint, &self.poller, &mut answered, time.turn);
                }
                LoopMessage::Histograms(sender) => {
                    self.core.journal.flush();
                    // Whoever asked may have given up waiting.
                    let _ = sender.try_send(self.core.journal.histograms());
                }
                LoopMessage::Move(heir) => {
                    self.heir = Some(heir);
                    self.core.settings.is_moving = true;
                    self.touched.extend(self.sessions.iter().map(|(slot, _)| slot));
                }
                LoopMessage::Drain { until } => self.drain(until),
            }
        }
    }

    fn admit(&mut self, mut connection: Connection, number: u32) {
        let entry = self.sessions.vacant_entry();
        let slot = entry.key();
        let is_welcome = self.drain_until.is_none();
        if is_welcome && self.poller.add(&mut connection, Token(FIRST_SESSION + slot)).is_ok() {
            if connection.is_handshaking() {
                self.handshakes.push_back((self.core.turn + self.core.settings.handshake_timeout, slot, number));
            }
            let mut session = Session::new(connection, slot as u32, number);
            session.begin_paused();
            entry.insert(session);
            self.touched.push(slot);
            self.core.journal.counters.clients_accepted.add(1);
        } else {
            self.clients_open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn drain(&mut self, until: Nanos) {
        self.drain_until = Some(until);
        let slots: Vec<usize> = self.sessions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.receive(slot);
            if let Some(session) = self.sessions.get_mut(slot) {
                session.stop_reading(&mut self.core);
                self.touched.push(slot);
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.drain_until.is_some_and(|until| self.sessions.is_empty() || self.core.turn >= until)
    }

    fn note_session(&mut self, slot: usize, event: Ready) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        session.connection().on_ready(event.readable, event.writable, event.closing);
        if event.writable {
            self.touched.push(slot);
        }
        if session.connection().is_readable() {
            self.receive(slot);
        }
    }

    fn receive(&mut self, slot: usize) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        match session.receive(&mut self.buffers, &mut self.core) {
            Ok(Progress::More) => self.again.push(slot),
            Ok(_) => {}
            Err(Gone) => return self.remove(slot),
        }
        self.touched.push(slot);
    }

    /// Joins the replies of answered jobs and notes whose turn it may be.
    fn complete_jobs(&mut self) {
        let mut answered = std::mem::take(&mut self.core.answered);
        if self.core.settings.is_moving && !answered.is_empty() {
            // A client may have waited for no more than a late copy.
            self.touched.extend(self.sessions.iter().map(|(slot, _)| slot));
        }
        for id in answered.drain(..) {
            let Some(session) = self.core.complete(id) else { continue };
            let slot = session.slot as usize;
            if self.sessions.get(slot).is_some_and(|candidate| candidate.number() == session.connection) {
                self.touched.push(slot);
            } else {
                let now = self.core.clock.now();
                self.core.journal.end_undelivered(&mut self.core.jobs, id, now);
            }
        }
        self.core.answered = give_back(answered, &mut self.core.answered);
    }

    /// Writes replies, goes on with sessions that had to wait, ends those that are over.
    fn reply(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for slot in touched.drain(..) {
            let Some(session) = self.sessions.get_mut(slot) else { continue };
            let progress = match session.reply(&mut self.core) {
                Ok(()) => session.resume(&mut self.buffers, &mut self.core),
                Err(Gone) => Err(Gone),
            };
            match progress {
                Ok(Progress::Nothing) => {}
                Ok(Progress::Taken) => self.touched.push(slot),
                Ok(Progress::More) => {
                    self.touched.push(slot);
                    self.again.push(slot);
                }
                Err(Gone) => {
                    self.remove(slot);
                    continue;
                }
            }
            if session.is_over() {
                self.leave(slot);
            } else if session.may_move(&self.core) {
                self.let_go(slot);
            }
        }
        self.touched = give_back(touched, &mut self.touched);
    }

    /// Says goodbye to a client that has got everything. Its connection stays a little while if it may still be sending:
    /// to close on bytes that nobody reads would reset it, and take away replies that it has not read yet.
    fn leave(&mut self, slot: usize) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if session.has_peer_closed() {
            return self.remove(slot);
        }
        if session.start_leaving() {
            self.leaving.push_back((self.core.turn + LEAVE_WAIT, slot, session.number()));
            self.receive(slot);
        }
    }

    /// Gives a client to the heir.
    fn let_go(&mut self, slot: usize) {
        let mut connection = self.sessions.remove(slot).into_connection();
        self.clients_open.fetch_sub(1, Ordering::Relaxed);
        let (Ok(()), Some(heir)) = (self.poller.remove(&mut connection), &self.heir) else { return };
        let mut message = AcceptMessage::Adopt(Box::new(connection));
        // A mailbox that is full empties, unless its thread is gone.
        for _ in 0..HEIR_TRIES {
            match heir.send(message) {
                Ok(()) => return,
                Err(refused) => message = refused,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn remove(&mut self, slot: usize) {
        self.sessions.remove(slot).abandon(&mut self.core);
        self.clients_open.fetch_sub(1, Ordering::Relaxed);
    }

    fn publish(&mut self) {
        self.core.journal.counters.clients_open.set(self.sessions.len() as u64);
        self.core.dispatcher.end_turn();
        self.core.journal.end_turn(self.core.turn);
    }

    /// Ends everything that is left when the time to drain is over.
    fn close(mut self) -> u64 {
        let slots: Vec<usize> = self.sessions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.remove(slot);
        }
        loop {
            let (dispatcher, mut answered, time) = self.core.parts();
            dispatcher.close(&mut answered, time);
            // Those that could go on elsewhere do so in vain.
            if self.core.answered.is_empty() {
                break;
            }
            self.complete_jobs();
        }
        self.publish();
        self.core.jobs.live() as u64
    }
}
