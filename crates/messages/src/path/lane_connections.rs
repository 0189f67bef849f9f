//! The database connections of the lanes that share one job queue. `/readyz` and the metrics read them. Lanes change them only when a
//! connection begins or ends, so they cost requests nothing.

use clock::{Clock, Nanos};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue without a connection for this long makes the service not ready. A lane that lost its connection usually has a new one sooner.
const MISSING_MAX: Duration = Duration::from_secs(2);

/// The connections of one job queue.
#[derive(Debug)]
pub(crate) struct LaneConnections {
    /// The label of the queue.
    label: String,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: usize,
    /// When the last connection ended, if none is open.
    missing_since: Nanos,
    /// Why the latest attempt to connect failed, if no connection was made since.
    failure: Option<String>,
    is_logged: bool,
}

/// An open connection. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenLane(Arc<LaneConnections>);

impl LaneConnections {
    pub(crate) fn new(label: &str, clock: Clock) -> LaneConnections {
        let state = Mutex::new(State { open: 0, missing_since: clock.now(), failure: None, is_logged: false });
        LaneConnections { label: label.to_string(), clock, state }
    }

    /// A lane has connected.
    pub(crate) fn enter(self: &Arc<LaneConnections>) -> OpenLane {
        let mut state = self.lock();
        state.failure = None;
        if std::mem::take(&mut state.is_logged) {
            eprintln!("waystage: messages: lane {} has a connection to the database again", self.label);
        }
        state.open += 1;
        OpenLane(self.clone())
    }

    /// A lane could not connect. Logs it if no lane of the queue has a connection; once, until a lane has one again.
    pub(crate) fn note_failure(&self, reason: &str) {
        let mut state = self.lock();
        if state.open == 0 && !std::mem::replace(&mut state.is_logged, true) {
            eprintln!("waystage: messages: lane {} has no connection to the database: {reason}", self.label);
        }
        state.failure = Some(reason.to_string());
    }

    /// The label of the queue, and the number of its open connections.
    pub(crate) fn count(&self) -> (String, usize) {
        (self.label.clone(), self.open())
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.lock().open
    }

    /// Fails with the reason if the queue has had no connection for a while.
    pub(crate) fn check(&self) -> Result<(), String> {
        let state = self.lock();
        if state.open > 0 || self.clock.now().after(state.missing_since) <= MISSING_MAX {
            return Ok(());
        }
        let reason = state.failure.as_deref().unwrap_or("the attempt to connect has not ended");
        Err(format!("lane {} has no connection to the database: {reason}", self.label))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenLane {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        state.missing_since = self.0.clock.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_a_connection_is_reported_after_a_while() {
        let (clock, manual) = Clock::manual(Nanos(1));
        let lanes = Arc::new(LaneConnections::new("keyed", clock));
        let [first, second] = [(); 2].map(|()| lanes.enter());
        manual.advance(2 * MISSING_MAX);
        drop(first);
        manual.advance(2 * MISSING_MAX);
        lanes.note_failure("too many connections");
        assert_eq!((lanes.check(), lanes.count()), (Ok(()), ("keyed".into(), 1)), "the other one is open");
        drop(second);
        assert_eq!(lanes.check(), Ok(()), "a short interruption");
        manual.advance(MISSING_MAX + Duration::from_secs(1));
        assert_eq!(lanes.check(), Err("lane keyed has no connection to the database: too many connections".into()));
        let again = lanes.enter();
        assert_eq!(lanes.check(), Ok(()));
        drop(again);
        manual.advance(2 * MISSING_MAX);
        assert!(lanes.check().unwrap_err().ends_with("the attempt to connect has not ended"));
    }
}
