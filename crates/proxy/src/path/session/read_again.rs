//! Bounds the bytes that are held for a client. Requests are admitted by the expected size of their replies. A reply that does
//! not fit is dropped when it arrives, so that it delays no other client on the shared connection. It is read again when the
//! client has room: one request at a time, the oldest first, and only as many keys as there is room for.

use crate::path::core::{Core, ReadAgain};
use crate::path::job::JobId;
use crate::path::jobs::is_repeatable;
use crate::path::leg_request::{is_read, stores_value};
use crate::path::order::Access;
use crate::path::session::Session;
use crate::path::session::open_line::KEYS_MAX;
use records::Outcome;
use wire::{Request, Verb};

/// The reply to a read that was dropped and must not be sent again.
const SENT_LATER: &[u8] =
    b"SERVER_ERROR the client has too much unread, and has sent a write since; read the replies, or raise client-buffer\r\n";
/// The reply to a read that was dropped because the whole proxy holds as much as it may.
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory: the proxy holds as many bytes as memory allows\r\n";

impl Session {
    /// The bytes that are held for this client, or expected.
    fn expected_bytes(&self, core: &Core) -> usize {
        let (held, _) = core.jobs.clients.replies_of(self.reference());
        (self.keys_in_order as usize * self.key_bytes()).max(held) + self.unread_bytes()
    }

    /// The bytes that the client has not read, those of an incomplete reply included.
    pub(super) fn unread_bytes(&self) -> usize {
        self.connection.outbox.waiting_bytes() as usize + self.rare.held_bytes()
    }

    /// The expected size of a reply for each key.
    fn key_bytes(&self) -> usize {
        self.key_bytes as usize
    }

    /// Whether there is room for one more reply.
    pub(super) fn has_room(&self, core: &Core) -> bool {
        let settings = &core.settings;
        let (_, dropped) = core.jobs.clients.replies_of(self.reference());
        let client_bytes = settings.client_buffer_bytes as usize;
        // A client that moves does so after its line, however slowly it reads.
        if settings.is_moving && !self.is_input_done && self.rare.get().line.is_some() {
            return (self.keys_in_order as usize) < KEYS_MAX;
        }
        self.queue.len() < settings.client_window
            && dropped == 0
            && self.unread_bytes() < client_bytes
            && (self.queue.is_delivered()
                || self.keys_in_order < self.keys_max
                    && (self.keys_in_order == 0 || !self.must_go_alone(core))
                    && self.request_bytes < client_bytes
                    && self.expected_bytes(core) < client_bytes)
    }

    /// The number of keys for whose values there is room, at least one. A command that may need a value of the warm-up pool has
    /// one key.
    pub(super) fn keys_with_room(&self, verb: Verb, core: &Core) -> usize {
        if core.settings.has_warm_up && verb != Verb::Get {
            return 1;
        }
        if core.settings.is_moving && self.rare.get().line.is_some() {
            return KEYS_MAX;
        }
        let room = (core.settings.client_buffer_bytes as usize).saturating_sub(self.expected_bytes(core));
        let keys_max = if self.is_unknown(core) { core.jobs.clients.first_keys_left() } else { KEYS_MAX };
        (room / self.key_bytes()).clamp(1, keys_max.clamp(1, KEYS_MAX))
    }

    /// Whether the sizes of the client's values are unknown, because it has received and stored none.
    pub(super) fn is_unknown(&self, core: &Core) -> bool {
        core.jobs.clients.is_unknown(self.reference())
    }

    /// Whether the client must wait for its first value, because many keys of such clients are in flight.
    fn must_go_alone(&self, core: &Core) -> bool {
        self.is_unknown(core) && core.jobs.clients.first_keys_left() == 0
    }

    /// The access of a request, whose reply may be expected to be large. With `is_alone`, the client has sent nothing after it.
    pub(super) fn access_of(&self, request: &Request<'_>, is_alone: bool, core: &Core) -> Access {
        let keys = match request {
            Request::Get { keys, .. } if self.key_bytes() > 1024 => keys.count(),
            _ => 1,
        };
        let access = Access::of(request);
        let access = if core.settings.has_steps { access.with_steps(request) } else { access };
        // If many new clients request large values at the same time, they delay only each other.
        let reply_bytes = if self.must_go_alone(core) && !is_alone { usize::MAX } else { keys * self.key_bytes() };
        access.expecting(reply_bytes, core.settings.overlap)
    }

    /// Updates the estimate of the client's value sizes after a request, from the values that it read. Until it has read one, the
    /// size of a stored value is the estimate.
    pub(super) fn learn_from(&mut self, id: JobId, core: &mut Core) {
        let is_unknown = self.is_unknown(core);
        let job = core.jobs.get(id);
        if job.legs().is_empty() {
            // The proxy has answered it itself.
            return;
        }
        if is_read(job.verb) && !job.is_quiet {
            let bytes = match job.outcome {
                // A reply beyond `reply-max` was discarded. The next one may be as large.
                Outcome::Overloaded => job.legs().iter().map(|leg| leg.reply_bytes).sum(),
                _ => job.reply.len(),
            };
            self.learn(bytes, job.keys.into());
        } else if is_unknown && stores_value(job.verb) {
            self.learn(job.request_bytes as usize, 1);
        } else {
            return;
        }
        core.jobs.clients.learned(self.reference());
    }

    /// Learns from the size of a reply. The expectation rises at once and falls slowly, because a large value is often followed
    /// by others.
    pub(super) fn learn(&mut self, reply_bytes: usize, keys: usize) {
        let bytes = reply_bytes / keys.max(1);
        self.keys_max = KEYS_MAX as u32;
        self.key_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(self.key_bytes - self.key_bytes / 16).max(1);
    }

    /// Reads again what was dropped of the oldest request, if there is room. Returns true if the request now has a reply, an
    /// error.
    pub(super) fn read_again(&mut self, id: JobId, core: &mut Core) -> bool {
        let job = core.jobs.get(id);
        if self.rare.is_over(job.sequence) {
            return fail(id, b"", core);
        }
        let value_bytes = job.dropped_value.unwrap_or_default() as usize;
        let is_overtaken = self.has_written && self.last_write.wrapping_sub(job.sequence) as i32 > 0;
        // Only the size of one value is known, and the others may be larger. Each attempt therefore has at most half the
        // keys of the previous one.
        let keys_max = if job.is_repeated { usize::from(job.keys) / 2 } else { KEYS_MAX };
        let has_failed_alone = keys_max == 0 && job.may_exceed;
        let is_repeatable = is_repeatable(job) && !has_failed_alone;
        self.learn(value_bytes, 1);
        core.jobs.clients.learned(self.reference());
        if is_overtaken {
            core.journal.counters.replies_refused_order.add(1);
            return fail(id, SENT_LATER, core);
        }
        if !is_repeatable || core.jobs.clients.is_full(value_bytes) {
            core.journal.counters.replies_refused_memory.add(1);
            return fail(id, NO_MEMORY, core);
        }
        let (held, _) = core.jobs.clients.replies_of(self.reference());
        let used = held + self.unread_bytes();
        let room = (core.settings.client_buffer_bytes as usize).saturating_sub(used);
        // A client that moves takes all its replies with it, however slowly it reads. Only `memory` bounds them.
        let is_moving = core.settings.is_moving;
        let keys = if is_moving { KEYS_MAX } else { room / self.key_bytes() }.min(keys_max);
        if keys == 0 && !is_moving {
            self.send_held(core);
            if !self.connection.outbox.is_empty() {
                return false;
            }
        }
        // It waits for no late write, so it may need the connection of the writes.
        let access = Access::Read.expecting(used + value_bytes, core.settings.overlap);
        let is_bulk = access == Access::BulkRead && !core.jobs.clients.has_late_writes(self.reference());
        self.in_flight_access = access;
        let reader =
            core.read_again(id, keys.clamp(1, KEYS_MAX), ReadAgain { may_exceed: keys == 0 || is_moving, is_bulk });
        if reader != id {
            // The keys of the two jobs are those of the one before.
            self.queue.push_before(reader);
        }
        false
    }
}

/// Answers a job whose reply was dropped with an error.
fn fail(id: JobId, line: &[u8], core: &mut Core) -> bool {
    let job = core.jobs.take_dropped(id);
    (job.outcome, job.is_refusal) = (Outcome::Overloaded, true);
    job.reply.clear();
    job.reply.extend_from_slice(line);
    true
}
