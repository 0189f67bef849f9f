//! Step 1. One event loop: a thread with its own clients, jobs and connections to all backends. On the path of a request, loops share only
//! the pending invalidations of pools with replicas, whose locks are taken for keys that are pending and for few others.
//!
//! ```text
//!  a turn:  wait -> read backends -> timers -> read clients -> [ write backends -> write clients ] until nothing is left to write
//! ```
//! Everything that is readable is read before anything is written, so all bytes for one socket are written with one call.

mod header;
mod openings;
mod pace;

use crate::observe::histograms::StageHistograms;
use crate::observe::watchdog::Heartbeat;
use crate::path::addresses::{Addresses, Permit};
use crate::path::core::Core;
use crate::path::event_loop::openings::Openings;
use crate::path::event_loop::pace::Pace;
use crate::path::job::{JobId, SessionRef};
use crate::path::listeners::Listener;
use crate::path::messages::{AcceptMessage, ClientOrigin, DrainLimits, LoopMessage, Moving, NewestAcceptor};
use crate::path::session::{Gone, Progress, Session};
use clock::Nanos;
use net::{Buffers, ClientAddress, Connection, Mailbox, Poller, Ready, Refused, Token};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Lower tokens are connections to backends, of which no valid configuration has as many.
pub(crate) const MAILBOX: Token = Token((1 << 20) - 1);
/// The token of the first session.
const FIRST_SESSION: usize = 1 << 20;
/// The most rounds of writing in one turn: new readiness must be noticed even when clients pipeline without end.
const ROUNDS_PER_TURN: usize = 4;
/// How long a client may take to close its side after its last reply.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The pause until the loop tries again to give a client to an acceptor whose mailbox is full.
const ADOPT_PAUSE: Duration = Duration::from_millis(1);
/// How often the loop looks at the bytes that the others hold.
const MEMORY_LOOK: Duration = Duration::from_millis(1);
/// How often a session is checked in the time of the shortest timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;
/// The longest time until buffered records and hot keys are published when the loop is idle.
const PUBLISH_WAIT: Duration = Duration::from_millis(100);

/// One event loop; `run` is its thread.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poller: Poller,
    mailbox: Mailbox<LoopMessage>,
    buffers: Buffers,
    core: Core,
    sessions: Slab<Session>,
    /// Sessions that may have a reply to write, or may read again. Each is listed once.
    touched: Vec<usize>,
    /// Sessions that may have more to read.
    again: Vec<usize>,
    /// Sessions whose replies are delivered and whose client has not closed yet: the deadline, slot and number of each.
    closing: VecDeque<(Nanos, usize, u32)>,
    /// Sessions in the order in which they are next checked for a timeout: the time, slot and number of each.
    checks: VecDeque<(Nanos, u32, u32)>,
    /// The time between two checks of a session, if any timeout is on.
    check_interval: Option<Duration>,
    /// Sessions before their first request.
    openings: Openings,
    clients_open: Arc<AtomicUsize>,
    /// Counts the clients of each address, together with the acceptor and the other loops.
    addresses: Addresses,
    /// Shows the service manager that the loop turns, if it expects that.
    heartbeat: Option<Heartbeat>,
    draining: Option<DrainLimits>,
    /// No timeout of a client is checked before.
    next_check: Nanos,
    /// When to look again at the bytes that the other loops hold.
    next_memory_look: Nanos,
    /// The acceptor of the new configuration, while clients move there.
    successor: Option<NewestAcceptor>,
    /// Clients on their way to that acceptor, with their numbers.
    moving: VecDeque<(u32, AcceptMessage)>,
}

/// What a loop leaves at its end.
#[derive(Debug)]
pub(crate) struct LoopEnd {
    /// The number of lost jobs, which is zero unless there is a bug.
    pub(crate) lost: u64,
    /// The times of requests that no scrape has taken.
    pub(crate) histograms: StageHistograms,
}

impl EventLoop {
    pub(crate) fn new(
        poller: Poller,
        mailbox: Mailbox<LoopMessage>,
        core: Core,
        (clients_open, addresses): (Arc<AtomicUsize>, Addresses),
        heartbeat: Option<Heartbeat>,
    ) -> EventLoop {
        let check_interval = core.settings.limits.shortest_timeout().map(|timeout| timeout / CHECKS_PER_TIMEOUT);
        EventLoop {
            poller,
            mailbox,
            buffers: Buffers::default(),
            core,
            sessions: Slab::new(),
            touched: Vec::new(),
            again: Vec::new(),
            closing: VecDeque::new(),
            checks: VecDeque::new(),
            check_interval,
            openings: Openings::default(),
            clients_open,
            addresses,
            heartbeat,
            draining: None,
            next_check: Nanos::UNSET,
            next_memory_look: Nanos::UNSET,
            successor: None,
            moving: VecDeque::new(),
        }
    }

    /// Serves until the loop is drained.
    pub(crate) fn run(mut self) -> io::Result<LoopEnd> {
        let mut ready = Vec::new();
        self.core.turn = self.core.clock.now();
        let mut pace = self.core.settings.slow_down.map(Pace::new).transpose()?;
        self.tick();
        while !self.is_drained() {
            let (before, timeout) = (self.core.turn, self.timeout());
            self.poller.wait(timeout, &mut ready)?;
            self.core.turn = self.core.clock.now();
            self.postpone_checks(before, timeout);
            if ready.is_empty() {
                self.core.journal.flush();
            }
            self.turn(&ready);
            if let Some(pace) = &mut pace {
                pace.rest(&self.core.clock);
            }
        }
        Ok(self.close())
    }

    fn turn(&mut self, ready: &[Ready]) {
        self.look_at_memory();
        for event in ready.iter().filter(|event| event.token < MAILBOX) {
            self.on_backend_ready(*event);
        }
        self.tick();
        let count = self.again.len();
        for index in 0..count {
            self.receive(self.again[index]);
        }
        self.again.drain(..count);
        for event in ready.iter().filter(|event| event.token >= MAILBOX) {
            match event.token {
                MAILBOX => self.handle_messages(),
                Token(token) => self.on_session_ready(token - FIRST_SESSION, *event),
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
        // After all events, because clients may have sent and read data while this process was stopped.
        self.check_timeouts();
        // Jobs may have been given more legs.
        self.flush_backends();
        if self.draining.is_some() && self.core.jobs.outstanding.has_clients() {
            self.core.progressed = self.core.turn;
        }
        self.send_moving();
        self.publish();
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.beat(self.core.turn);
        }
    }

    /// How long to wait for readiness: not at all if there is work left, otherwise until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let is_busy = !self.again.is_empty()
            || !self.touched.is_empty()
            || !self.core.answered.is_empty()
            || self.core.dispatcher.is_readable();
        if is_busy {
            return Some(Duration::ZERO);
        }
        let mut next = self.drain_deadline();
        next = next.min(self.closing.front().map_or(Nanos::NEVER, |&(until, _, _)| until));
        next = next.min(self.checks.front().map_or(Nanos::NEVER, |&(at, _, _)| at.max(self.next_check)));
        next = next.min(self.openings.deadline());
        next = next.min(self.core.dispatcher.deadline());
        next = next.min(self.heartbeat.as_ref().map_or(Nanos::NEVER, Heartbeat::due));
        if !self.moving.is_empty() {
            next = next.min(self.core.turn + ADOPT_PAUSE);
        }
        if self.core.journal.has_news() {
            next = next.min(self.core.turn + PUBLISH_WAIT);
        }
        // The timeout is rounded up to milliseconds, so a deadline has passed when the wait ends.
        (next != Nanos::NEVER).then(|| next.after(self.core.clock.now()))
    }

    fn on_backend_ready(&mut self, event: Ready) {
        let (dispatcher, mut answered, time) = self.core.parts();
        dispatcher.connections().on_ready(event, &mut answered, time.turn);
    }

    /// Reads from readable backends, runs the timers, and lets queued requests take free slots.
    fn tick(&mut self) {
        let (dispatcher, mut answered, time) = self.core.parts();
        dispatcher.connections().receive(&mut self.buffers, &mut answered, time.clock);
        dispatcher.connections().tick(&self.poller, &mut answered, time.turn);
        dispatcher.tick(&mut answered, time);
        self.end_closing();
        self.end_openings();
    }

    /// If this process was stopped during the turn that began then, or the wait after it, clients may have sent something that the loop
    /// reads in the next turns only. They get time for it.
    fn postpone_checks(&mut self, before: Nanos, timeout: Option<Duration>) {
        if let (Some(interval), Some(timeout)) = (self.check_interval, timeout)
            && before + timeout + interval < self.core.turn
        {
            self.next_check = self.core.turn + interval;
        }
    }

    /// Closes the connections of clients on which nothing has happened for too long.
    fn check_timeouts(&mut self) {
        let Some(interval) = self.check_interval.filter(|_| self.core.turn >= self.next_check) else { return };
        while let Some(&(at, slot, number)) = self.checks.front() {
            if at > self.core.turn {
                return;
            }
            self.checks.pop_front();
            let session = self.sessions.get(slot as usize).filter(|session| session.number() == number);
            match session.map(|session| session.is_overdue(&self.core)) {
                Some(true) => self.remove(slot as usize),
                Some(false) => self.checks.push_back((self.core.turn + interval, slot, number)),
                None => {}
            }
        }
    }

    /// Closes the connections of clients that did not close their side in time.
    fn end_closing(&mut self) {
        while let Some(&(until, slot, number)) = self.closing.front() {
            if until > self.core.turn {
                return;
            }
            self.closing.pop_front();
            if self.sessions.get(slot).is_some_and(|session| session.number() == number) {
                self.remove(slot);
            }
        }
    }

    fn flush_backends(&mut self) {
        let (dispatcher, mut answered, time) = self.core.parts();
        dispatcher.flush(&mut answered, time);
    }

    fn handle_messages(&mut self) {
        while let Some(message) = self.mailbox.take() {
            match message {
                LoopMessage::Client { connection, number, address, permit, listener, origin } => {
                    // A client that moves was counted when it was accepted.
                    let is_new = matches!(origin, ClientOrigin::New | ClientOrigin::Relayed);
                    self.core.journal.counters.clients_accepted.add(u64::from(is_new));
                    self.add_client(*connection, (number, listener), (address, permit), origin);
                }
                LoopMessage::BackendMoved { backend, endpoint } => {
                    let (dispatcher, mut answered, time) = self.core.parts();
                    dispatcher.connections().move_to(backend, &endpoint, &self.poller, &mut answered, time.turn);
                }
                LoopMessage::Histograms(request) => {
                    self.core.journal.flush();
                    self.core.journal.send_histograms(*request);
                }
                LoopMessage::MoveClients(successor) => {
                    self.successor = Some(successor);
                    // The loops of the new configuration show that the process serves.
                    self.end_heartbeat();
                    self.core.settings.is_moving = true;
                    self.core.jobs.clients.notes_idle = true;
                    let listed =
                        self.sessions.iter_mut().filter_map(|(slot, session)| session.mark_listed().then_some(slot));
                    self.touched.extend(listed);
                }
                LoopMessage::Drain(limits) => self.drain(limits),
            }
        }
    }

    fn add_client(
        &mut self,
        mut connection: Connection,
        (number, listener): (u32, Listener),
        (address, permit): (ClientAddress, Option<Permit>),
        origin: ClientOrigin,
    ) {
        let entry = self.sessions.vacant_entry();
        let slot = entry.key();
        let is_logged = self.core.journal.shows_clients();
        let logged = connection.client_address(address).filter(|_| is_logged).map(|address| address.ip());
        if self.poller.add(&mut connection, Token(FIRST_SESSION + slot)).is_ok() {
            let name = (slot as u32, number, listener);
            let mut session = Session::new(connection, name, (address, permit), self.core.turn);
            self.openings.begin(&mut session, origin, &self.core);
            session.begin_paused();
            self.core.jobs.clients.open(session.reference(), logged);
            if self.core.jobs.clients.is_crowded() {
                self.core.dispatcher.open_bulk(self.core.turn);
            }
            entry.insert(session);
            if let Some(interval) = self.check_interval {
                self.checks.push_back((self.core.turn + interval, slot as u32, number));
            }
            self.touch(slot);
            if self.draining.is_some() {
                self.stop_reading(slot);
            }
        } else {
            self.clients_open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn drain(&mut self, limits: DrainLimits) {
        self.draining = Some(limits);
        self.core.progressed = self.core.turn;
        let slots: Vec<usize> = self.sessions.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.stop_reading(slot));
    }

    /// Reads from a client for the last time. The requests that have arrived are still answered.
    fn stop_reading(&mut self, slot: usize) {
        self.receive(slot);
        if let Some(session) = self.sessions.get_mut(slot) {
            session.stop_reading(&mut self.core);
            self.touch(slot);
        }
    }

    fn is_drained(&self) -> bool {
        let is_empty = self.sessions.is_empty() && self.moving.is_empty();
        self.draining.is_some() && (is_empty || self.core.turn >= self.drain_deadline())
    }

    /// When the loop ends although it has clients.
    fn drain_deadline(&self) -> Nanos {
        let deadline = |limits: DrainLimits| limits.until.min(self.core.progressed + limits.patience);
        self.draining.map_or(Nanos::NEVER, deadline)
    }

    fn on_session_ready(&mut self, slot: usize, event: Ready) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        session.connection().on_ready(event.readable, event.writable, event.closing);
        let is_readable = session.connection().is_readable();
        if event.writable {
            self.touch(slot);
        }
        if is_readable {
            self.receive(slot);
        }
    }

    /// Lists a session, if it is still there.
    fn touch(&mut self, slot: usize) {
        if self.sessions.get_mut(slot).is_some_and(Session::mark_listed) {
            self.touched.push(slot);
        }
    }

    fn receive(&mut self, slot: usize) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if session.awaits_header() {
            return self.receive_header(slot);
        }
        match session.receive(&mut self.buffers, &mut self.core) {
            Ok(Progress::More) => self.again.push(slot),
            Ok(_) => {}
            Err(Gone) => return self.remove(slot),
        }
        self.touch(slot);
    }

    /// Completes the jobs with answered legs, and lists their sessions.
    fn complete_jobs(&mut self) {
        if self.core.settings.has_steps {
            // Two writes of a client that fail in the same turn fail over in their order.
            let Core { answered, jobs, .. } = &mut self.core;
            answered.sort_by_key(|&id| jobs.get(id).sequence);
        }
        let count = self.core.answered.len();
        for index in 0..count {
            let id = self.core.answered[index];
            if self.core.settings.has_steps {
                self.note_overtaken(id);
            }
            let Some(session) = self.core.complete(id) else { continue };
            let slot = session.slot as usize;
            if self.sessions.get(slot).is_some_and(|candidate| candidate.number() == session.connection) {
                self.touch(slot);
            } else {
                let now = self.core.clock.now();
                self.core.journal.end_undelivered(&mut self.core.jobs, id, now);
            }
        }
        self.core.answered.drain(..count);
        // The job of a slow replica may have been the last that kept a client from moving.
        while let Some(client) = self.core.jobs.clients.take_idle_or_unblocked() {
            self.touch(client.slot as usize);
        }
    }

    /// Records whether a later write of the same client has overtaken a write that may fail over. Writes of a client that has
    /// disconnected do not fail over, because their order is no longer known.
    fn note_overtaken(&mut self, id: JobId) {
        let jobs = &mut self.core.jobs;
        let job = jobs.get(id);
        let (client, sequence, may_fail_over) = (job.session, job.sequence, job.may_fail_over_late());
        let session = self.sessions.get_mut(client.slot as usize);
        let Some(session) = session.filter(|session| session.number() == client.connection) else {
            jobs.get(id).is_overtaken = client != SessionRef::NONE;
            return;
        };
        if may_fail_over && session.has_answer_after(sequence) {
            jobs.get(id).is_overtaken = jobs.is_overtaken(id, session.latest_jobs());
        }
        session.note_answer(sequence);
    }

    /// Writes replies, resumes sessions that were paused or blocked, and closes those that are finished.
    fn reply(&mut self) {
        let count = self.touched.len();
        for index in 0..count {
            let slot = self.touched[index];
            let Some(session) = self.sessions.get_mut(slot) else { continue };
            let progress = match session.reply(&mut self.core) {
                Ok(()) => session.resume(&mut self.buffers, &mut self.core),
                Err(Gone) => Err(Gone),
            };
            match progress {
                Ok(Progress::Nothing) => {}
                Ok(progress) => {
                    if session.mark_listed() {
                        self.touched.push(slot);
                    }
                    if progress == Progress::More {
                        self.again.push(slot);
                    }
                }
                Err(Gone) => {
                    self.remove(slot);
                    continue;
                }
            }
            if session.is_finished() {
                self.close_session(slot);
            } else if session.may_move(&mut self.core) {
                self.hand_to_successor(slot);
            }
        }
        self.touched.drain(..count);
    }

    /// Closes the connection of a client whose replies are all delivered. If the client may still be sending, only the sending side
    /// is closed at first: closing a socket with unread input resets the connection, and the client may lose replies.
    fn close_session(&mut self, slot: usize) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if session.has_peer_closed() {
            return self.remove(slot);
        }
        if session.start_closing() {
            self.closing.push_back((self.core.turn + CLOSE_WAIT, slot, session.number()));
            self.receive(slot);
        }
    }

    /// Gives a client to the acceptor of the new configuration.
    fn hand_to_successor(&mut self, slot: usize) {
        let session = self.sessions.remove(slot);
        self.core.jobs.clients.close(session.reference());
        let number = session.number();
        let (listener, address, admission) = (session.listener(), session.reported_address(), session.admission());
        let mut connection = session.into_connection();
        match self.poller.remove(&mut connection) {
            Ok(()) => {
                let client = Box::new(Moving { connection, listener, address, admission });
                self.moving.push_back((number, AcceptMessage::Adopt(client)));
            }
            Err(_) => _ = self.clients_open.fetch_sub(1, Ordering::Relaxed),
        }
    }

    /// Sends the clients that move to the new acceptor. Those for which its mailbox has no room wait for the next turn. If the
    /// acceptor has ended, the whole process ends. Then the clients stay, so that they receive their last replies.
    fn send_moving(&mut self) {
        let Some(successor) = &self.successor else { return };
        while let Some((number, message)) = self.moving.pop_front() {
            match successor.try_send(message) {
                Ok(()) => _ = self.clients_open.fetch_sub(1, Ordering::Relaxed),
                Err(Refused::Full(message)) => return self.moving.push_front((number, message)),
                Err(Refused::Ended(message)) => {
                    self.moving.push_front((number, message));
                    return self.stay();
                }
            }
        }
    }

    /// Moves no more clients.
    fn stay(&mut self) {
        self.successor = None;
        self.core.settings.is_moving = false;
        self.core.jobs.clients.notes_idle = false;
        for (number, message) in std::mem::take(&mut self.moving) {
            let AcceptMessage::Adopt(client) = message else { continue };
            let Moving { connection, listener, address, admission } = *client;
            self.add_client(connection, (number, listener), (address, None), ClientOrigin::Moved(admission));
        }
    }

    fn remove(&mut self, slot: usize) {
        let mut session = self.sessions.remove(slot);
        session.abandon(&mut self.core);
        self.core.jobs.clients.close(session.reference());
        self.clients_open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Updates the number of bytes that the other loops hold.
    fn look_at_memory(&mut self) {
        if self.next_memory_look <= self.core.turn {
            self.next_memory_look = self.core.turn + MEMORY_LOOK;
            let held: u64 = self.core.stats.tally.loops.iter().map(|counters| counters.held_bytes.get()).sum();
            let own = self.core.journal.counters.held_bytes.get();
            self.core.jobs.clients.held_by_others = held.saturating_sub(own) as usize;
        }
    }

    fn publish(&mut self) {
        self.core.dispatcher.end_turn();
        self.publish_clients();
    }

    fn publish_clients(&mut self) {
        self.core.journal.counters.held_bytes.set(self.core.jobs.clients.held_bytes as u64);
        self.core.journal.counters.clients_open.set(self.sessions.len() as u64);
        self.core.end_turn();
    }

    fn end_heartbeat(&mut self) {
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.end();
        }
    }

    /// Fails the requests that are left when the time to drain is over, and ends all sessions.
    fn close(mut self) -> LoopEnd {
        self.end_heartbeat();
        let until = self.core.turn + CLOSE_WAIT;
        loop {
            let (dispatcher, mut answered, time) = self.core.parts();
            dispatcher.close(&mut answered, time);
            // A job may get legs to other backends, which fail in the next round. So does the next request of a client that was
            // blocked by its last one.
            if self.core.answered.is_empty() && self.touched.is_empty() {
                break;
            }
            self.complete_jobs();
            if self.core.clock.now() < until {
                self.reply();
            } else {
                self.remove_all();
            }
        }
        self.remove_all();
        // Connections to backends that close now are no ejections.
        self.publish_clients();
        LoopEnd { lost: self.core.jobs.live() as u64, histograms: self.core.journal.into_histograms() }
    }

    fn remove_all(&mut self) {
        self.touched.clear();
        let slots: Vec<usize> = self.sessions.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.remove(slot));
    }
}
