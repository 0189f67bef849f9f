//! What is known of a client's connection: its number and port, what has come and gone when, and the requests whose replies are not
//! with the kernel yet. A stream tells it what passes; it says when the client's time is up.

use crate::config::Clients;
use crate::observe::client_connections::{HEAD, IDLE, UNREAD};
use crate::observe::journal::Journal;
use crate::observe::measurements::Ended;
use clock::{Clock, Nanos};
use records::Outcome;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One connection. Its task and the handlers of its requests share it; nobody else does.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u32,
    /// TCP port of its end.
    pub(crate) port: u16,
    clock: Clock,
    journal: Arc<Journal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: u32,
    read_bytes: u64,
    /// Of those, bytes of requests that are complete.
    counted_bytes: u64,
    read_at: Nanos,
    written_bytes: u64,
    /// Since when the kernel takes nothing more; unset: it does.
    stuck_at: Nanos,
    is_serving: bool,
    waits: Waits,
    ends: Vec<Waiting>,
}

/// What is waited for between two requests, and since when.
#[derive(Debug)]
enum Waits {
    Request(Nanos),
    Head(Nanos),
}

/// A request whose reply was handed over.
#[derive(Debug)]
struct Waiting {
    ended: Ended,
    /// What had been written before, and what must have been written when the reply has gone, at least.
    written_before: u64,
    gone_at: u64,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits::Request(Nanos::UNSET)
    }
}

impl Client {
    /// A new connection.
    pub(crate) fn new(number: u32, port: u16, clock: Clock, journal: Arc<Journal>) -> Client {
        let now = clock.now();
        let state = State { waits: Waits::Request(now), read_at: now, ..State::default() };
        Client { number, port, clock, journal, state: Mutex::new(state) }
    }

    /// The head of a request is complete: its number on this connection.
    pub(crate) fn begin(&self) -> u32 {
        let mut state = self.lock();
        let sequence = state.requests;
        state.requests = state.requests.wrapping_add(1);
        state.is_serving = true;
        sequence
    }

    /// When something was read for the last time.
    pub(crate) fn last_read(&self) -> Nanos {
        self.lock().read_at
    }

    /// The request is complete: when its last bytes were read, and how many bytes it had. What the client sent ahead counts
    /// for this one.
    pub(crate) fn received(&self) -> (Nanos, u32) {
        let mut state = self.lock();
        let bytes = state.read_bytes - state.counted_bytes;
        state.counted_bytes = state.read_bytes;
        (state.read_at, u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// The reply, with a body of so many bytes, was handed over; the request ends when the kernel has taken it.
    pub(crate) fn hand_over(&self, ended: Ended, body_bytes: u64) {
        let mut state = self.lock();
        let written_before = state.written_bytes;
        // A reply has a head.
        state.ends.push(Waiting { ended, written_before, gone_at: written_before + body_bytes + 1 });
    }

    /// The client gave up while its request was served.
    pub(crate) fn abandon(&self, ended: Ended) {
        ended.finish(&self.journal, self.clock.now(), 0, Some(Outcome::ClientGone));
    }

    /// No request is served any more.
    pub(crate) fn rest(&self) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.is_serving = false;
        state.waits = Waits::Request(now);
    }

    /// So many bytes were read.
    pub(crate) fn note_read(&self, bytes: usize) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.read_bytes += bytes as u64;
        state.read_at = now;
        if !state.is_serving
            && let Waits::Request(_) = state.waits
        {
            state.waits = Waits::Head(now);
        }
    }

    /// The kernel took so many bytes, or takes nothing more.
    pub(crate) fn note_written(&self, bytes: Option<usize>) {
        let mut state = self.lock();
        match bytes {
            Some(bytes) => {
                state.written_bytes += bytes as u64;
                state.stuck_at = Nanos::UNSET;
            }
            None if !state.stuck_at.is_set() => state.stuck_at = self.clock.now(),
            None => {}
        }
    }

    /// Everything that was handed over is with the kernel.
    pub(crate) fn note_flushed(&self) {
        let mut state = self.lock();
        if state.ends.is_empty() {
            return;
        }
        let now = self.clock.now();
        let written = state.written_bytes;
        let gone = state.ends.iter().take_while(|waiting| waiting.gone_at <= written).count();
        for waiting in state.ends.drain(..gone) {
            let bytes = u32::try_from(written - waiting.written_before).unwrap_or(u32::MAX);
            waiting.ended.finish(&self.journal, now, bytes, None);
        }
    }

    /// When the client's time is up, as things stand, and for what, by its place among those that are counted; none while it waits for us.
    pub(crate) fn deadline(&self, clients: &Clients) -> Option<(Nanos, usize)> {
        let state = self.lock();
        if state.stuck_at.is_set() {
            return Some((state.stuck_at + clients.unread_timeout, UNREAD));
        }
        match state.waits {
            _ if state.is_serving => None,
            Waits::Request(since) => Some((since + clients.idle_timeout, IDLE)),
            Waits::Head(since) => Some((since + clients.head_timeout, HEAD)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Client {
    /// What nobody was left to hear.
    fn drop(&mut self) {
        let now = self.clock.now();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for waiting in state.ends.drain(..) {
            waiting.ended.finish(&self.journal, now, 0, Some(Outcome::ClientGone));
        }
    }
}
