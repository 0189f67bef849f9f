//! When a client is closed because nothing happens on its connection. The event loop asks from time to time; no request sets a
//! timer.

use crate::path::core::Core;
use crate::path::session::Session;
use clock::Nanos;

/// Why a client is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    Idle,
    Request,
    Unread,
}

impl Session {
    /// Whether the client must be closed because a timeout has passed, which is counted.
    pub(crate) fn is_overdue(&self, core: &Core) -> bool {
        let Some((overdue, since)) = self.waits(core) else { return false };
        let (limits, counters) = (&core.settings.limits, &core.journal.counters);
        let (timeout, counter) = match overdue {
            Overdue::Idle => (limits.idle_timeout, &counters.clients_closed_idle),
            Overdue::Request => (limits.request_timeout, &counters.clients_closed_request),
            Overdue::Unread => (limits.unread_timeout, &counters.clients_closed_unread),
        };
        let is_overdue = !timeout.is_zero() && since + timeout <= core.turn;
        counter.add(u64::from(is_overdue));
        is_overdue
    }

    /// What the proxy waits for, and since when; none if it waits for a backend, or has limits of its own for this state.
    fn waits(&self, core: &Core) -> Option<(Overdue, Nanos)> {
        if self.awaits_header() || self.connection.is_handshaking() || self.is_closing {
            return None;
        }
        if !self.connection.outbox.is_empty() {
            return Some((Overdue::Unread, self.delivered));
        }
        if !self.queue.is_empty() {
            return None;
        }
        // A request that was blocked or has no room is taken as soon as the earlier ones are answered.
        // So is the authentication, even if no byte of it has arrived.
        let has_part = self.rare.is_in_request() || !self.connection.inbox.filled().is_empty();
        let is_within = has_part || self.must_authenticate(core);
        let overdue = if is_within { Overdue::Request } else { Overdue::Idle };
        Some((overdue, self.received.max(self.delivered)))
    }
}
