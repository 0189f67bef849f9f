//! One pending invalidation: when its next delete is due, and whether that one will be the last.

use crate::path::late::{Fate, LateRequest};
use clock::Nanos;
use std::time::Duration;

/// How long a delete that has failed waits before it is sent again. The wait doubles with each failure, up to the second value.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The wait for the fate of a late request doubles this often, up to 160 ms.
const POLLS_MAX: u8 = 4;
/// How long a server may still apply a request after its connection was closed.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// One pending invalidation.
#[derive(Clone, Debug)]
pub(super) struct PendingInvalidation {
    /// The earliest time to send the delete.
    pub(super) due: Nanos,
    /// If set, a second delete is sent this long after the first one was answered.
    pub(super) linger: Option<Duration>,
    /// Requests that the server may still apply. No delete is sent before their fate is known.
    late: Vec<LateRequest>,
    /// How often their fate was not known when the delete was due.
    polls: u8,
    /// A delete has been sent and is not answered yet.
    is_in_flight: bool,
    /// The key was added again while a delete was in flight.
    is_renewed: bool,
    /// How often the delete has failed since it was last answered.
    failures: u8,
}

impl PendingInvalidation {
    pub(super) fn new(now: Nanos, linger: Option<Duration>) -> PendingInvalidation {
        let late = Vec::new();
        PendingInvalidation { due: now, linger, late, polls: 0, is_in_flight: false, is_renewed: false, failures: 0 }
    }

    /// The delete must be the last request that the server applies, also if it applies this one late.
    pub(super) fn follow(&mut self, late: &LateRequest) {
        self.late.retain(|known| known.fate() == Fate::InFlight && !known.is(late));
        self.late.push(late.clone());
    }

    /// Whether the fate of all late requests is known. If not, the delete is due later.
    pub(super) fn is_settled(&mut self, now: Nanos) -> bool {
        let is_lost = self.late.iter().any(|late| late.fate() == Fate::Lost);
        self.linger = self.linger.max(is_lost.then_some(LINGER));
        self.late.retain(|late| late.fate() == Fate::InFlight);
        if self.late.is_empty() {
            self.polls = 0;
            return true;
        }
        self.due = now + retry_pause(self.polls.min(POLLS_MAX).into());
        self.polls = self.polls.saturating_add(1);
        false
    }

    /// Adds the same key again.
    pub(super) fn renew(&mut self, linger: Option<Duration>) {
        self.is_renewed |= self.is_in_flight;
        self.linger = self.linger.max(linger);
    }

    /// Records the result of a delete. Returns true when the invalidation is complete.
    pub(super) fn record_result(&mut self, is_answered: bool, now: Nanos) -> bool {
        self.is_in_flight = false;
        let is_renewed = std::mem::take(&mut self.is_renewed);
        if !is_answered {
            self.due = now + retry_pause(self.failures.into());
            self.failures = self.failures.saturating_add(1);
            return false;
        }
        self.failures = 0;
        if is_renewed {
            self.due = now;
            return false;
        }
        let linger = self.linger.take();
        self.due = now + linger.unwrap_or_default();
        linger.is_none()
    }

    /// The same invalidation in the list of another configuration, whose connections send their own delete.
    pub(super) fn passed_on(&self, now: Nanos) -> PendingInvalidation {
        let due = if self.is_in_flight { now } else { self.due };
        PendingInvalidation { late: self.late.clone(), ..PendingInvalidation::new(due, self.linger) }
    }

    /// The same, with a second delete `LINGER` after the first one at least.
    pub(super) fn lingering(self) -> PendingInvalidation {
        PendingInvalidation { linger: self.linger.max(Some(LINGER)), ..self }
    }

    /// Makes one invalidation of two of the same key. The last delete is sent no earlier than either would have sent it, which
    /// is not before `now`, however long they have been due.
    pub(super) fn merge(&mut self, other: &PendingInvalidation, now: Nanos) {
        let (first, last) = (self.due.min(other.due).max(now), self.due.max(other.due).max(now));
        let between = Some(last.after(first)).filter(|between| !between.is_zero());
        self.linger = self.linger.max(other.linger).max(between);
        let new = |late: &&LateRequest| late.fate() != Fate::Answered && !self.late.iter().any(|known| known.is(late));
        let added: Vec<LateRequest> = other.late.iter().filter(new).cloned().collect();
        self.late.extend(added);
        self.due = first;
    }

    /// Whether a delete waits to be sent. Otherwise one is in flight.
    pub(super) fn is_queued(&self) -> bool {
        !self.is_in_flight
    }

    /// Returns true, and marks the delete as in flight, if it can be sent now.
    pub(super) fn take_if_due(&mut self, now: Nanos) -> bool {
        let is_due = !self.is_in_flight && self.due <= now;
        self.is_in_flight |= is_due;
        is_due
    }
}

/// How long to wait after so many failures and one more.
pub(super) fn retry_pause(failures: u32) -> Duration {
    RETRY_MAX.min(RETRY_FIRST * (1 << failures.min(10)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::late::LateEntry;

    #[test]
    fn a_delete_waits_for_late_requests_and_lingers_if_one_was_lost() {
        for (is_lost, linger) in [(false, None), (true, Some(LINGER))] {
            let (entry, mut pending) = (LateEntry::new(), PendingInvalidation::new(Nanos(0), None));
            pending.follow(&entry.request());
            let waits: Vec<u64> = (0..6)
                .map(|_| {
                    let now = pending.due;
                    assert!(!pending.is_settled(now));
                    pending.due.since(now) / 1_000_000
                })
                .collect();
            assert_eq!(waits, [10, 20, 40, 80, 160, 160]);
            if is_lost {
                drop(entry)
            } else {
                entry.answered()
            }
            assert!(pending.is_settled(pending.due) && pending.linger == linger);
        }
    }

    #[test]
    fn a_delete_that_fails_is_sent_again_after_longer_and_longer_waits() {
        let mut pending = PendingInvalidation::new(Nanos(0), None);
        let mut now = Nanos(0);
        let waits: Vec<u128> = (0..300)
            .map(|_| {
                assert!(pending.take_if_due(now) && !pending.record_result(false, now));
                let wait = pending.due.since(now);
                now = pending.due;
                u128::from(wait) / 1_000_000
            })
            .collect();
        assert_eq!((&waits[..8], waits[299]), (&[10, 20, 40, 80, 160, 320, 640, 1000][..], 1000));
        assert!(pending.take_if_due(now) && pending.record_result(true, now));
    }
}
