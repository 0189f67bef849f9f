//! The database connections of the lanes that share one job queue. `/readyz` and the metrics read them. Lanes change them only when a
//! connection begins or ends, or when a statement takes long, so they cost requests nothing.

use crate::database::error::DatabaseError;
use clock::{Clock, Nanos};
use records::report;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue without a connection for this long makes the service not ready. A lane that lost its connection usually has a new one sooner.
const MISSING_MAX: Duration = Duration::from_secs(2);
/// A queue all of whose lanes are stuck for longer than this makes the service not ready.
const STUCK_MAX: Duration = Duration::from_secs(10);
/// A lane without requests for this long counts as not stuck: only a request can find out.
const STUCK_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

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
    /// The lanes that are stuck, by the number of their connection.
    stuck: HashMap<u64, Stuck>,
    is_stuck_logged: bool,
    /// Why a batch failed, if the next ones will probably fail as well, and until when this counts without a batch that succeeds.
    refusal: Option<(Nanos, String)>,
    /// The number of the next connection.
    next_number: u64,
}

/// A lane whose batch does not end. Batches that end only because the server cancels their statements count as one.
#[derive(Debug)]
struct Stuck {
    /// The start of the first of these batches.
    since: Nanos,
    /// When the server last ran or cancelled one of their statements.
    seen: Nanos,
    reason: String,
}

/// An open connection. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenLane {
    connections: Arc<LaneConnections>,
    number: u64,
    is_stuck: bool,
    is_refused: bool,
}

/// The state of the lanes of one job queue, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneState {
    /// Open connections.
    pub(crate) open: usize,
    /// The longest time that one of the lanes has been stuck for.
    pub(crate) stuck_for: Duration,
}

impl LaneConnections {
    pub(crate) fn new(label: &str, clock: Clock) -> LaneConnections {
        let state = State {
            open: 0,
            missing_since: clock.now(),
            failure: None,
            is_logged: false,
            stuck: HashMap::new(),
            is_stuck_logged: false,
            refusal: None,
            next_number: 0,
        };
        LaneConnections { label: label.to_string(), clock, state: Mutex::new(state) }
    }

    /// A lane has connected.
    pub(crate) fn enter(self: &Arc<LaneConnections>) -> OpenLane {
        let mut state = self.lock();
        state.failure = None;
        if std::mem::take(&mut state.is_logged) {
            report(format_args!("waystage: messages: lane {} has a connection to the database again", self.label));
        }
        state.open += 1;
        state.next_number += 1;
        // The lane may have connected again because its last batch failed.
        let is_refused = state.refusal.is_some();
        OpenLane { connections: self.clone(), number: state.next_number, is_stuck: false, is_refused }
    }

    /// A lane could not connect. Logs it if no lane of the queue has a connection; once, until a lane has one again.
    pub(crate) fn note_failure(&self, reason: &str) {
        let mut state = self.lock();
        if state.open == 0 && !std::mem::replace(&mut state.is_logged, true) {
            report(format_args!("waystage: messages: lane {} has no connection to the database: {reason}", self.label));
        }
        state.failure = Some(reason.to_string());
    }

    /// The label of the queue, and the state of its lanes.
    pub(crate) fn state(&self) -> (String, LaneState) {
        let (now, state) = (self.clock.now(), self.lock());
        let stuck_for = state.stuck_at(now).map(|stuck| now.after(stuck.since)).max().unwrap_or_default();
        (self.label.clone(), LaneState { open: state.open, stuck_for })
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.lock().open
    }

    /// Fails with the reason if the queue has had no connection for a while, if all its lanes are stuck, or if the latest statement of a
    /// lane failed because a privilege or a table is missing, or because its commit waited too long for a synchronous standby.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (now, state) = (self.clock.now(), self.lock());
        if let Some(text) = self.describe_stuck(&state, now) {
            return Err(text);
        }
        if let Some((_, text)) = state.refusal.as_ref().filter(|(until, _)| now <= *until) {
            return Err(text.clone());
        }
        if state.open > 0 || now.after(state.missing_since) <= MISSING_MAX {
            return Ok(());
        }
        let reason = state.failure.as_deref().unwrap_or("the attempt to connect has not ended");
        Err(format!("lane {} has no connection to the database: {reason}", self.label))
    }

    /// The batch that began at this time was given up because its commit waits for a synchronous standby. The next batch probably takes as
    /// long.
    pub(crate) fn note_unreplicated(&self, began: Nanos, reason: &DatabaseError) {
        let now = self.clock.now();
        let text = format!("lane {} has completed no batch of requests: {reason}", self.label);
        self.lock().refusal = Some((now + now.after(began) + STUCK_FORGOTTEN_AFTER, text));
    }

    /// The privilege or the table whose absence made a statement fail is there again.
    pub(crate) fn forget_refusal(&self) {
        self.lock().refusal = None;
    }

    /// Which lane is stuck and why, if all of them have been for a while.
    fn describe_stuck(&self, state: &State, now: Nanos) -> Option<String> {
        let stuck: Vec<&Stuck> = state.stuck_at(now).filter(|stuck| now.after(stuck.since) > STUCK_MAX).collect();
        if state.open == 0 || stuck.len() < state.open {
            return None;
        }
        // Since this time all of them are stuck.
        let Stuck { since, reason, .. } = stuck.into_iter().max_by_key(|stuck| stuck.since)?;
        let seconds = now.after(*since).as_secs();
        Some(format!("lane {} has completed no batch of requests for {seconds} s: {reason}", self.label))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn stuck_at(&self, now: Nanos) -> impl Iterator<Item = &Stuck> {
        self.stuck.values().filter(move |stuck| now.after(stuck.seen) <= STUCK_FORGOTTEN_AFTER)
    }
}

impl OpenLane {
    /// The server still runs a statement of the batch that began at this time. Logs it if the queue is stuck; once, until a batch ends.
    pub(crate) fn note_slow(&mut self, began: Nanos, reason: String) {
        self.is_stuck = true;
        let (connections, mut state) = (&self.connections, self.connections.lock());
        let now = connections.clock.now();
        let earlier = state.stuck.get(&self.number).filter(|stuck| now.after(stuck.seen) <= STUCK_FORGOTTEN_AFTER);
        let since = earlier.map_or(began, |stuck| stuck.since);
        state.stuck.insert(self.number, Stuck { since, seen: now, reason });
        if !state.is_stuck_logged
            && let Some(text) = connections.describe_stuck(&state, now)
        {
            state.is_stuck_logged = true;
            report(format_args!("waystage: messages: {text}"));
        }
    }

    /// A batch has ended. If it ended only because the server cancelled a statement, the next batch is probably stuck, too.
    pub(crate) fn note_end(&mut self, has_timed_out: bool) {
        if !self.is_stuck {
            return;
        }
        let (connections, mut state) = (&self.connections, self.connections.lock());
        if has_timed_out {
            let now = connections.clock.now();
            state.stuck.entry(self.number).and_modify(|stuck| stuck.seen = now);
            return;
        }
        self.is_stuck = false;
        state.stuck.remove(&self.number);
        if std::mem::take(&mut state.is_stuck_logged) {
            report(format_args!("waystage: messages: lane {} completes batches of requests again", connections.label));
        }
    }
}

impl OpenLane {
    /// A batch has ended, and a statement of it failed for this reason, or none did.
    pub(crate) fn note_refusal(&mut self, reason: Option<String>) {
        let was_refused = std::mem::replace(&mut self.is_refused, reason.is_some());
        if was_refused || self.is_refused {
            let until = self.connections.clock.now() + STUCK_FORGOTTEN_AFTER;
            let label = &self.connections.label;
            self.connections.lock().refusal =
                reason.map(|reason| (until, format!("the database refuses a statement of lane {label}: {reason}")));
        }
    }
}

impl Drop for OpenLane {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        state.open -= 1;
        state.missing_since = self.connections.clock.now();
        state.stuck.remove(&self.number);
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
        let one_open = LaneState { open: 1, stuck_for: Duration::ZERO };
        assert_eq!((lanes.check(), lanes.state()), (Ok(()), ("keyed".into(), one_open)), "the other one is open");
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

    #[test]
    fn a_refused_statement_is_reported_until_a_batch_succeeds_or_for_a_while() {
        let (clock, manual) = Clock::manual(Nanos(1));
        let lanes = Arc::new(LaneConnections::new("0", clock));
        let mut lane = lanes.enter();
        let refused = Err("the database refuses a statement of lane 0: no privilege".to_string());
        lane.note_refusal(Some("no privilege".into()));
        assert_eq!(lanes.check(), refused);
        lane.note_refusal(None);
        assert_eq!(lanes.check(), Ok(()));
        lane.note_refusal(Some("no privilege".into()));
        manual.advance(STUCK_FORGOTTEN_AFTER);
        assert_eq!(lanes.check(), refused);
        manual.advance(Duration::from_secs(1));
        assert_eq!(lanes.check(), Ok(()), "no request has tried it since");
    }

    #[test]
    fn a_commit_without_a_standby_is_reported_until_the_next_batch_has_had_time_to_succeed() {
        let (clock, manual) = Clock::manual(Nanos(1));
        let lanes = Arc::new(LaneConnections::new("0", clock.clone()));
        let began = clock.now();
        let fail = || {
            manual.advance(Duration::from_secs(30));
            lanes.note_unreplicated(began, &DatabaseError::Unreplicated);
        };
        fail();
        let mut again = lanes.enter();
        assert!(lanes.check().unwrap_err().starts_with("lane 0 has completed no batch of requests: a commit waited"));
        manual.advance(Duration::from_secs(30));
        assert!(lanes.check().is_err(), "the next batch is not over");
        again.note_refusal(None);
        assert_eq!(lanes.check(), Ok(()));
        fail();
        manual.advance(Duration::from_secs(101));
        assert_eq!(lanes.check(), Ok(()), "no request has tried it since");
    }

    #[test]
    fn a_queue_whose_lanes_are_all_stuck_is_reported_until_a_batch_ends() {
        let (clock, manual) = Clock::manual(Nanos(1));
        let lanes = Arc::new(LaneConnections::new("0", clock.clone()));
        let [mut first, mut second] = [(); 2].map(|()| lanes.enter());
        let stuck_for = || lanes.state().1.stuck_for.as_secs();
        // Two batches, the first of which the server cancels.
        for seconds in [5, 6] {
            let began = clock.now();
            for _ in 0..seconds {
                manual.advance(Duration::from_secs(1));
                first.note_slow(began, "it waits".into());
            }
            first.note_end(true);
        }
        assert_eq!((lanes.check(), stuck_for()), (Ok(()), 11), "the other one works");
        second.note_slow(Nanos(1), "it waits".into());
        assert_eq!(lanes.check(), Err("lane 0 has completed no batch of requests for 11 s: it waits".into()));
        second.note_end(false);
        assert_eq!(lanes.check(), Ok(()));
        drop(second);
        assert!(lanes.check().is_err());
        manual.advance(STUCK_FORGOTTEN_AFTER + Duration::from_secs(1));
        assert_eq!((lanes.check(), stuck_for()), (Ok(()), 0), "no request has tried it since");
        first.note_slow(clock.now(), "it waits again".into());
        assert_eq!((lanes.check(), stuck_for()), (Ok(()), 0), "since now");
        for _ in 0..=STUCK_MAX.as_secs() {
            manual.advance(Duration::from_secs(1));
            first.note_slow(clock.now(), "it waits again".into());
        }
        assert!(lanes.check().unwrap_err().ends_with("it waits again"));
        first.note_end(false);
        assert_eq!(lanes.check(), Ok(()));
    }
}
