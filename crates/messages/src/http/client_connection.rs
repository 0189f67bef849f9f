//! Step 8. One client connection: its number and port, how many bytes passed when, and the requests whose replies the kernel has not
//! accepted yet. A request ends here, when the kernel has its whole reply. `ObservedStream` reports the bytes; `deadline` returns when a
//! timeout expires.

use crate::config::ClientLimits;
use crate::http::pipelined::ReadAhead;
use crate::observe::client_connections::{HEAD, IDLE, RATE, UNREAD};
use crate::observe::journal::Journal;
use crate::observe::measurements::AnsweredRequest;
use crate::path::caller::Caller;
use axum::http::Request;
use clock::{Clock, Nanos};
use records::Outcome;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of replies that the kernel takes before it sends them. The timeouts for slow readers see that a client reads when it has read about
/// as much.
pub(crate) const UNSENT_BYTES: u32 = 16 << 10;

/// One client connection, shared by its task and the handlers of its requests.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) number: u32,
    /// The client's TCP port.
    pub(crate) port: u16,
    pub(crate) caller: Caller,
    clock: Clock,
    journal: Arc<Journal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: u32,
    read_bytes: u64,
    /// The part of `read_bytes` that belongs to complete requests.
    counted_bytes: u64,
    read_at: Nanos,
    written_bytes: u64,
    /// When the kernel stopped accepting bytes; unset while it accepts them.
    blocked_since: Nanos,
    /// The start of the interval in which the client must read at the minimum rate; unset while the kernel has accepted all bytes.
    measured_since: Nanos,
    /// `written_bytes` at that time.
    measured_from: u64,
    is_serving: bool,
    read_ahead: ReadAhead,
    /// The announced size of the current request's body; none if it is chunked.
    body_bytes: Option<u64>,
    expected: Expected,
    unsent: Vec<UnsentReply>,
}

/// What the service waits for between two requests, and since when.
#[derive(Debug)]
enum Expected {
    Request(Nanos),
    Head(Nanos),
}

/// A request whose reply hyper has, but not yet the kernel.
#[derive(Debug)]
struct UnsentReply {
    request: AnsweredRequest,
    /// Bytes written before this reply, and the number of written bytes at which the reply must have been sent.
    written_before: u64,
    sent_at_bytes: u64,
}

impl Default for Expected {
    fn default() -> Expected {
        Expected::Request(Nanos::UNSET)
    }
}

impl ClientConnection {
    pub(crate) fn new(number: u32, port: u16, caller: Caller, clock: Clock, journal: Arc<Journal>) -> ClientConnection {
        let now = clock.now();
        let state = State { expected: Expected::Request(now), read_at: now, ..State::default() };
        ClientConnection { number, port, caller, clock, journal, state: Mutex::new(state) }
    }

    /// The head of a request is complete. Its body has this size; none if it is chunked. Returns the number of the request on this
    /// connection.
    pub(crate) fn request_began<B>(&self, request: &Request<B>, body_bytes: Option<u64>) -> u32 {
        let mut state = self.lock();
        state.read_ahead.begin(request);
        state.body_bytes = body_bytes;
        let sequence = state.requests;
        state.requests = state.requests.wrapping_add(1);
        state.is_serving = true;
        sequence
    }

    /// When bytes were last read.
    pub(crate) fn last_read(&self) -> Nanos {
        self.lock().read_at
    }

    /// The request is complete. Returns when its last bytes were read, and its size. Pipelined bytes count for this request.
    pub(crate) fn received(&self) -> (Nanos, u32) {
        let mut state = self.lock();
        let bytes = state.read_bytes - state.counted_bytes;
        state.counted_bytes = state.read_bytes;
        (state.read_at, u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// The reply, with this many bytes of body, was handed to hyper. The request ends when the kernel has accepted the reply.
    pub(crate) fn hand_over(&self, request: AnsweredRequest, body_bytes: u64) {
        let mut state = self.lock();
        let written_before = state.written_bytes;
        // The head of a reply has at least one byte.
        state.unsent.push(UnsentReply { request, written_before, sent_at_bytes: written_before + body_bytes + 1 });
    }

    /// Whether the kernel has not yet accepted all bytes of the replies.
    pub(crate) fn has_unsent_reply(&self) -> bool {
        !self.lock().unsent.is_empty()
    }

    /// The HTTP library refused a head with this status.
    pub(crate) fn note_refused_head(&self, status: u16) {
        self.journal.count_refused_head(status);
    }

    /// The client closed the connection before its request was answered.
    pub(crate) fn abandon(&self, request: AnsweredRequest) {
        request.finish(&self.journal, self.clock.now(), 0, Some(Outcome::ClientGone));
    }

    /// No request is in progress.
    pub(crate) fn request_ended(&self) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.is_serving = false;
        let body_bytes = state.body_bytes;
        let is_next = state.read_ahead.end(body_bytes);
        state.expected = if is_next { Expected::Head(now) } else { Expected::Request(now) };
    }

    pub(crate) fn note_read(&self, bytes: &[u8]) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.read_bytes += bytes.len() as u64;
        state.read_ahead.read(bytes);
        state.read_at = now;
        if !state.is_serving
            && let Expected::Request(_) = state.expected
        {
            state.expected = Expected::Head(now);
        }
    }

    /// The kernel accepted this many bytes, or no more for now.
    pub(crate) fn note_written(&self, bytes: Option<usize>) {
        let mut state = self.lock();
        match bytes {
            Some(bytes) => {
                state.written_bytes += bytes as u64;
                state.blocked_since = Nanos::UNSET;
            }
            None if !state.blocked_since.is_set() => {
                state.blocked_since = self.clock.now();
                if !state.measured_since.is_set() {
                    (state.measured_since, state.measured_from) = (state.blocked_since, state.written_bytes);
                }
            }
            None => {}
        }
    }

    /// The kernel has accepted everything that was handed to hyper.
    pub(crate) fn note_flushed(&self) {
        let mut state = self.lock();
        state.measured_since = Nanos::UNSET;
        if state.unsent.is_empty() {
            return;
        }
        let now = self.clock.now();
        let written = state.written_bytes;
        let gone = state.unsent.iter().take_while(|unsent| unsent.sent_at_bytes <= written).count();
        for unsent in state.unsent.drain(..gone) {
            let bytes = u32::try_from(written - unsent.written_before).unwrap_or(u32::MAX);
            unsent.request.finish(&self.journal, now, bytes, None);
        }
    }

    /// When the next timeout of this client expires if nothing happens, and its index in `TIMEOUTS`. None while the service works on a
    /// request.
    pub(crate) fn deadline(&self, clients: &ClientLimits) -> Option<(Nanos, usize)> {
        let mut state = self.lock();
        let rate = state.rate_deadline(clients, &self.clock);
        if state.blocked_since.is_set() {
            let unread = (state.blocked_since + clients.unread_timeout, UNREAD);
            return Some(rate.map_or(unread, |rate| unread.min(rate)));
        }
        match state.expected {
            _ if rate.is_some() => rate,
            _ if state.is_serving => None,
            Expected::Request(since) => Some((since + clients.idle_timeout, IDLE)),
            Expected::Head(since) => Some((since + clients.head_timeout, HEAD)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time by which the client must have read enough of its replies. If it has, the next interval begins.
    fn rate_deadline(&mut self, clients: &ClientLimits, clock: &Clock) -> Option<(Nanos, usize)> {
        if !self.measured_since.is_set() {
            return None;
        }
        let now = clock.now();
        // The kernel takes more only after the client has read some of this.
        let read = (self.written_bytes - self.measured_from) as f64 + f64::from(UNSENT_BYTES);
        let is_over = now >= self.measured_since + clients.unread_timeout;
        if is_over && read >= clients.reply_rate_min as f64 * clients.unread_timeout.as_secs_f64() {
            (self.measured_since, self.measured_from) = (now, self.written_bytes);
        }
        Some((self.measured_since + clients.unread_timeout, RATE))
    }
}

impl Drop for ClientConnection {
    /// Requests whose replies were not sent completely end as `ClientGone`.
    fn drop(&mut self) {
        let now = self.clock.now();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for unsent in state.unsent.drain(..) {
            unsent.request.finish(&self.journal, now, 0, Some(Outcome::ClientGone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::record_file::RecordSink;
    use std::time::Duration;

    const WINDOW: Duration = Duration::from_secs(10);

    #[test]
    fn a_client_that_sips_a_reply_has_a_deadline_and_one_that_reads_it_has_another_interval() {
        let (clock, manual) = Clock::manual(Nanos(1));
        let journal = Arc::new(Journal::new(RecordSink::default(), Arc::default()));
        let client = ClientConnection::new(0, 1, Caller::default(), clock.clone(), journal);
        let clients =
            ClientLimits { unread_timeout: WINDOW, reply_rate_min: 10_000, ..crate::config::Config::default().clients };
        client.request_began(&Request::new(()), Some(0));
        client.note_written(None);
        let began = clock.now();
        // Each second the client reads some bytes, and the kernel is full again.
        let sip = |bytes: usize| {
            for _ in 0..10 {
                manual.advance(Duration::from_secs(1));
                client.note_written(Some(bytes));
                client.note_written(None);
            }
        };
        sip(9000);
        assert_eq!(client.deadline(&clients), Some((clock.now() + WINDOW, UNREAD)), "it has read enough");
        sip(8000);
        assert_eq!(client.deadline(&clients), Some((began + 2 * WINDOW, RATE)), "it has read too little");
        assert!(began + 2 * WINDOW <= clock.now());
        client.note_written(Some(1));
        client.note_flushed();
        assert_eq!(client.deadline(&clients), None, "the kernel has everything");
    }
}
