//! A request that has timed out on a connection that stays open. It has failed for its client, but the server may still apply it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What has become of a late request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in flight: the server may apply it at any time.
    InFlight,
    /// Its late reply has arrived: the server has applied or refused it.
    Answered,
    /// Its connection was closed: the server may still have it in its buffers.
    Lost,
}

/// A late request. Any thread may read its fate.
#[derive(Clone, Debug)]
pub(crate) struct LateRequest(Arc<AtomicU8>);

/// The connection's end of a late request. If it is dropped before the late reply arrives, the request is lost.
#[derive(Debug)]
pub(crate) struct LateEntry(LateRequest);

const IN_FLIGHT: u8 = 0;
const ANSWERED: u8 = 1;
const LOST: u8 = 2;

impl LateRequest {
    /// Whether both are the same request.
    pub(crate) fn is(&self, other: &LateRequest) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What has become of it.
    pub(crate) fn fate(&self) -> Fate {
        match self.0.load(Ordering::Acquire) {
            IN_FLIGHT => Fate::InFlight,
            ANSWERED => Fate::Answered,
            _ => Fate::Lost,
        }
    }

    fn settle(&self, fate: u8) {
        // The first fate is the final one.
        let _ = self.0.compare_exchange(IN_FLIGHT, fate, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl LateEntry {
    /// A request that is late from now on.
    pub(crate) fn new() -> LateEntry {
        LateEntry(LateRequest(Arc::new(AtomicU8::new(IN_FLIGHT))))
    }

    /// The request, for those who must know its fate.
    pub(crate) fn request(&self) -> LateRequest {
        self.0.clone()
    }

    /// Records that its reply has arrived.
    pub(crate) fn answered(self) {
        self.0.settle(ANSWERED);
    }
}

impl Drop for LateEntry {
    fn drop(&mut self) {
        self.0.settle(LOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_is_answered_or_lost() {
        let (first, second) = (LateEntry::new(), LateEntry::new());
        let (answered, lost) = (first.request(), second.request());
        assert_eq!((answered.fate(), lost.fate()), (Fate::InFlight, Fate::InFlight));
        first.answered();
        drop(second);
        assert_eq!((answered.fate(), lost.fate()), (Fate::Answered, Fate::Lost));
    }
}
