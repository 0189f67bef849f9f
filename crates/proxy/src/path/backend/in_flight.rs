//! The requests in flight on one connection to a backend, first in, first out, and the time at which they time out.
//!
//! ```text
//!   late: read and dropped     in flight             not written completely
//!   [ ................. ]  [ .................. ]  [ ...................... ]
//! ```

use crate::path::backend::match_reply::Expect;
use crate::path::backend::requested::Requested;
use crate::path::backend::server::BackendLimits;
use crate::path::job::LegRef;
use crate::path::jobs::Jobs;
use crate::path::late::LateEntry;
use clock::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The leg that it belongs to; none for a login, a probe and a late request.
    pub(crate) leg: Option<LegRef>,
    pub(crate) expect: Expect,
    /// The offsets in the output at which the request begins and ends.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// When the time for its whole reply began. This is when the request was given to the connection or, on a bulk connection, when
    /// the previous reply was complete.
    pub(crate) enqueued: Nanos,
    /// When the kernel last accepted bytes of it, or `enqueued` before that.
    pub(crate) accepted: Nanos,
    /// It was given to an earlier connection, which was lost before a byte of it was written.
    pub(crate) is_carried: bool,
    /// Set if it has timed out. Its reply is read and dropped.
    pub(crate) late: Option<Box<Late>>,
}

/// A request that has timed out on a connection that stays open.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) entry: LateEntry,
    /// What its late reply is compared with.
    pub(crate) requested: Requested,
}

/// Whether requests have timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// The backend was silent for longer than the oldest requests may wait.
    Silence,
    /// The oldest request has taken longer than a whole reply may take.
    Overdue,
}

/// The requests in flight, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pending: VecDeque<Pending>,
    /// The number of requests at the front that have timed out.
    late: usize,
    /// The number of requests at the end that the kernel has not accepted completely.
    unsent: usize,
    /// Bytes of the output that the kernel has accepted.
    written: u64,
    /// When the backend last sent a byte.
    received: Nanos,
    /// When a request last timed out.
    timed_out: Nanos,
}

impl Pending {
    /// A request whose bytes in the output begin and end at these offsets.
    pub(crate) fn new(leg: Option<LegRef>, expect: Expect, begin: u64, end: u64, now: Nanos) -> Pending {
        Pending { leg, expect, begin, end, enqueued: now, accepted: now, is_carried: false, late: None }
    }

    /// How long the backend may be silent while this request is the oldest. Only the first probe includes the time to connect.
    fn timeout(&self, limits: &BackendLimits) -> Duration {
        let is_later_probe = self.expect == Expect::Probe && self.begin > 0;
        if is_later_probe { limits.timeouts.read } else { limits.timeout(self.expect) }
    }
}

impl InFlight {
    /// The number of requests.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The number of requests at the front that open a connection: the login and the first probe.
    pub(crate) fn opening_len(&self) -> usize {
        let opens = |pending: &&Pending| matches!(pending.expect, Expect::Login | Expect::Probe);
        self.pending.iter().take(2).take_while(opens).count()
    }

    /// Whether there is no request.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether a request has timed out whose reply has not arrived.
    pub(crate) fn has_late(&self) -> bool {
        self.late > 0
    }

    /// Whether the newest request is a probe.
    pub(crate) fn ends_with_probe(&self) -> bool {
        self.pending.back().is_some_and(|newest| newest.expect == Expect::Probe)
    }

    /// The oldest request, whose reply is next.
    pub(crate) fn head(&mut self) -> Option<&mut Pending> {
        self.pending.front_mut()
    }

    /// Adds a request that is not written yet.
    pub(crate) fn push(&mut self, pending: Pending) {
        self.pending.push_back(pending);
        self.unsent += 1;
    }

    /// Removes the oldest request, whose reply is complete. Also returns whether it was answered before it was written completely:
    /// a backend may refuse a value before it has read it.
    pub(crate) fn pop(&mut self) -> Option<(Pending, bool)> {
        let is_unsent = self.unsent == self.pending.len();
        let head = self.pending.pop_front()?;
        self.unsent -= usize::from(is_unsent);
        self.late = self.late.saturating_sub(1);
        Some((head, is_unsent))
    }

    /// Starts the time for the whole reply of the oldest request, because the previous reply is complete.
    pub(crate) fn begin_next(&mut self, now: Nanos) {
        if let Some(head) = self.pending.front_mut() {
            head.enqueued = head.enqueued.max(now);
        }
    }

    /// Records that bytes have arrived: no request is late as long as they do, whichever reply they belong to.
    pub(crate) fn note_received(&mut self, now: Nanos) {
        self.received = now;
    }

    /// Stamps the requests among the first `written` bytes of the output as sent.
    pub(crate) fn mark_sent(&mut self, written: u64, jobs: &mut Jobs, now: Nanos) {
        let has_progress = written > std::mem::replace(&mut self.written, written);
        while self.unsent > 0 {
            let at = self.pending.len() - self.unsent;
            let pending = &mut self.pending[at];
            // The time to connect counts as time to answer the login or the probe.
            let opens = matches!(pending.expect, Expect::Login | Expect::Probe);
            if has_progress && pending.begin < written && !opens {
                pending.accepted = now;
            }
            if pending.end > written {
                return;
            }
            if let Some(leg) = pending.leg {
                jobs.get(leg.job).leg_sent(leg.leg, now);
            }
            self.unsent -= 1;
        }
    }

    /// Removes all requests, because the connection is lost. Also returns, for each, whether it has timed out.
    pub(crate) fn drain(&mut self, limits: &BackendLimits, now: Nanos) -> Vec<(Pending, bool)> {
        let InFlight { pending, received, .. } = std::mem::take(self);
        let is_due = |pending: &Pending| {
            pending.enqueued + limits.timeouts.reply <= now || silent_until(pending, received, limits) <= now
        };
        pending.into_iter().map(|pending| (is_due(&pending), pending)).map(|(due, pending)| (pending, due)).collect()
    }

    /// Removes the requests of which no byte is written, unless they were carried over before.
    pub(crate) fn take_unwritten(&mut self, written: u64) -> VecDeque<Pending> {
        let first = self.pending.partition_point(|pending| pending.begin < written || pending.is_carried);
        let unwritten = self.pending.split_off(first);
        self.unsent -= unwritten.len();
        unwritten
    }

    /// The time of the next timeout.
    pub(crate) fn deadline(&self, limits: &BackendLimits) -> Nanos {
        let Some(head) = self.pending.front() else { return Nanos::NEVER };
        self.silent_until(limits).min(head.enqueued + limits.timeouts.reply)
    }

    /// Whether requests have timed out.
    pub(crate) fn due(&self, limits: &BackendLimits, now: Nanos) -> Due {
        match self.pending.front() {
            Some(head) if head.enqueued + limits.timeouts.reply <= now => Due::Overdue,
            Some(_) if self.silent_until(limits) <= now => Due::Silence,
            _ => Due::Nothing,
        }
    }

    /// Until when the backend may be silent. If all requests are late already, the silence after the last timeout counts.
    fn silent_until(&self, limits: &BackendLimits) -> Nanos {
        match (self.pending.get(self.late), self.pending.front()) {
            (Some(oldest), _) => silent_until(oldest, self.received, limits),
            (None, Some(late)) => self.received.max(self.timed_out) + late.timeout(limits),
            (None, None) => Nanos::NEVER,
        }
    }

    /// The number of requests that have timed out since the last call of `time_out`; none if one of them is not written completely, so
    /// that a late request is always one that the server has received.
    pub(crate) fn count_timed_out(&self, limits: &BackendLimits, now: Nanos) -> Option<usize> {
        let silent = |pending: &&Pending| silent_until(pending, self.received, limits) <= now;
        let count = self.pending.iter().skip(self.late).take_while(silent).count();
        (self.late + count <= self.pending.len() - self.unsent).then_some(count)
    }

    /// Whether a request of a client is in flight that is not late, behind the next `count` that are not late.
    pub(crate) fn has_waiting_behind(&self, count: usize) -> bool {
        self.pending.iter().skip(self.late + count).any(|pending| pending.leg.is_some())
    }

    /// Whether a request of a client is among the next `count` that are not late.
    pub(crate) fn has_client_among(&self, count: usize) -> bool {
        self.pending.iter().skip(self.late).take(count).any(|pending| pending.leg.is_some())
    }

    /// Makes the oldest request that is not late so. The caller sets its `late`.
    pub(crate) fn time_out(&mut self, now: Nanos) -> Option<&mut Pending> {
        self.timed_out = now;
        self.late += 1;
        self.pending.get_mut(self.late - 1)
    }

    /// Records that the silence has gone on for another timeout.
    pub(crate) fn note_silence(&mut self, now: Nanos) {
        self.timed_out = now;
    }
}

/// Until when the backend may be silent before this request times out.
fn silent_until(pending: &Pending, received: Nanos, limits: &BackendLimits) -> Nanos {
    received.max(pending.accepted) + pending.timeout(limits)
}
