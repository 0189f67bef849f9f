//! Step 5. A published fault, for experiments: a write holds its worker for at least a fixed time, even if all replies arrive earlier.
//!
//! The client receives its reply as usual. Only the next request waits for the worker.

use clock::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// The workers of one loop that a write holds.
#[derive(Debug)]
pub(crate) struct WriteHold {
    time: Duration,
    /// The ends of the holds in their order, because all holds have the same length.
    ends: VecDeque<(Nanos, usize)>,
    /// By worker.
    is_held: Vec<bool>,
}

impl WriteHold {
    /// No worker is held.
    pub(crate) fn new(time: Duration, workers: usize) -> WriteHold {
        WriteHold { time, ends: VecDeque::new(), is_held: vec![false; workers] }
    }

    /// Holds a worker that sends a write.
    pub(crate) fn hold(&mut self, worker: usize, now: Nanos) {
        assert!(!std::mem::replace(&mut self.is_held[worker], true), "a held worker sends nothing");
        self.ends.push_back((now + self.time, worker));
    }

    /// Whether a write holds this worker.
    pub(crate) fn is_held(&self, worker: usize) -> bool {
        self.is_held[worker]
    }

    /// Releases a worker whose time is over. Call it until it returns none.
    pub(crate) fn release(&mut self, now: Nanos) -> Option<usize> {
        let &(_, worker) = self.ends.front().filter(|(end, _)| *end <= now)?;
        self.ends.pop_front();
        self.is_held[worker] = false;
        Some(worker)
    }

    /// When the next worker is released.
    pub(crate) fn deadline(&self) -> Nanos {
        self.ends.front().map_or(Nanos::NEVER, |(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_released_in_their_order_when_their_time_is_over() {
        let start = Nanos::UNSET + Duration::from_secs(5);
        let at = |ms| start + Duration::from_millis(ms);
        let mut hold = WriteHold::new(Duration::from_millis(3), 4);
        assert_eq!((hold.release(at(100)), hold.deadline()), (None, Nanos::NEVER));
        hold.hold(2, at(0));
        hold.hold(0, at(1));
        assert_eq!((hold.deadline(), hold.release(at(2))), (at(3), None));
        assert!(hold.is_held(2) && hold.is_held(0) && !hold.is_held(1));
        assert_eq!((hold.release(at(4)), hold.release(at(4)), hold.release(at(4))), (Some(2), Some(0), None));
        assert_eq!((hold.is_held(2), hold.deadline()), (false, Nanos::NEVER));
        hold.hold(2, at(5));
        assert_eq!(hold.deadline(), at(8));
    }
}
