//! Whether the service can do its work: the state of the database, the connections of the lanes, and how long ago each background loop
//! finished a round. `/readyz` and the metrics read this state, so they cause no request to the database.

use crate::path::failure::Failure;
use crate::path::lane_connections::{LaneConnections, LaneState};
use clock::{Clock, Nanos};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A background loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundLoop {
    Redelivery,
    Cleanup,
    LowWater,
    Peers,
}

/// The label `loop` of each loop.
pub(crate) const LOOP_LABELS: [&str; 4] = ["redelivery", "cleanup", "low_water", "peers"];
/// A loop without a finished round for this long makes the service not ready. Each round and each pause is much shorter.
const ROUND_MAX: Duration = Duration::from_secs(60);
/// The same limit for a loop whose rounds fail, from the first failure on.
const FAILING_MAX: Duration = Duration::from_secs(5);

/// The state of the database and of the loops.
#[derive(Debug)]
pub(crate) struct Health {
    clock: Clock,
    database: Mutex<Result<(), Failure>>,
    /// The connections of each job queue.
    lanes: Mutex<Vec<Arc<LaneConnections>>>,
    /// When each loop last finished a round.
    rounds: [AtomicU64; LOOP_LABELS.len()],
    /// Since when each loop fails, and why its latest round did, until the loop finishes one.
    failures: Mutex<[Option<(Nanos, String)>; LOOP_LABELS.len()]>,
    has_loops: bool,
}

impl Health {
    /// A service with this database; without one it is always ready.
    pub(crate) fn new(clock: Clock, has_database: bool, is_reachable: bool) -> Health {
        let now = clock.now();
        let database = if is_reachable { Ok(()) } else { Err(Failure::DatabaseDown) };
        Health {
            clock,
            database: Mutex::new(database),
            lanes: Mutex::default(),
            rounds: std::array::from_fn(|_| AtomicU64::new(now.0)),
            failures: Mutex::default(),
            has_loops: has_database,
        }
    }

    /// Records the state of the database.
    pub(crate) fn set_database(&self, state: Result<(), Failure>) {
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Adds a job queue, whose lanes have no connection yet.
    pub(crate) fn add_lanes(&self, label: &str) -> Arc<LaneConnections> {
        let lanes = Arc::new(LaneConnections::new(label, self.clock.clone()));
        self.lanes().push(lanes.clone());
        lanes
    }

    /// The label and the state of each job queue's lanes.
    pub(crate) fn lane_states(&self) -> Vec<(String, LaneState)> {
        self.lanes().iter().map(|lanes| lanes.state()).collect()
    }

    /// What the database refused before is there again.
    pub(crate) fn forget_refusals(&self) {
        self.lanes().iter().for_each(|lanes| lanes.forget_refusal());
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Arc<LaneConnections>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A loop has finished a round, or a part of one.
    pub(crate) fn note_round(&self, which: BackgroundLoop) {
        self.rounds[which as usize].store(self.clock.now().0, Ordering::Relaxed);
        self.failures()[which as usize] = None;
    }

    /// A round of a loop has failed.
    pub(crate) fn note_failure(&self, which: BackgroundLoop, reason: String) {
        let now = self.clock.now();
        let failure = &mut self.failures()[which as usize];
        *failure = Some((failure.as_ref().map_or(now, |(since, _)| *since), reason));
    }

    fn failures(&self) -> MutexGuard<'_, [Option<(Nanos, String)>; LOOP_LABELS.len()]> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since each loop last finished a round, in the order of [`LOOP_LABELS`].
    pub(crate) fn ages(&self) -> Option<[Duration; LOOP_LABELS.len()]> {
        let now = self.clock.now();
        let age = |round: &AtomicU64| now.after(Nanos(round.load(Ordering::Relaxed)));
        self.has_loops.then(|| self.rounds.each_ref().map(age))
    }

    /// Whether requests can be served; if not, the reason.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        self.lanes().iter().try_for_each(|lanes| lanes.check()).map_err(Failure::NotReady)?;
        let ages = self.ages().unwrap_or_default();
        let now = self.clock.now();
        for (name, failure) in LOOP_LABELS.iter().zip(self.failures().iter()) {
            if let Some((_, reason)) = failure.as_ref().filter(|(since, _)| now.after(*since) > FAILING_MAX) {
                return Err(Failure::NotReady(format!("the background loop {name} fails: {reason}")));
            }
        }
        match LOOP_LABELS.iter().zip(ages).find(|(_, age)| *age > ROUND_MAX) {
            Some((name, age)) => {
                Err(Failure::NotReady(format!("{name} has not finished a round for {} s", age.as_secs())))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_is_stuck_makes_the_service_not_ready() {
        let (clock, manual) = Clock::manual(Nanos(1));
        let health = Health::new(clock, true, true);
        assert_eq!(health.check(), Ok(()));
        manual.advance(ROUND_MAX);
        health.note_round(BackgroundLoop::Redelivery);
        manual.advance(Duration::from_secs(2));
        assert_eq!(health.check(), Err(Failure::NotReady("cleanup has not finished a round for 62 s".into())));
        for which in [BackgroundLoop::Cleanup, BackgroundLoop::LowWater, BackgroundLoop::Peers] {
            health.note_round(which);
        }
        assert_eq!(health.check(), Ok(()));
        assert_eq!(health.ages().unwrap()[0], Duration::from_secs(2));
        manual.advance(2 * FAILING_MAX);
        health.note_failure(BackgroundLoop::Peers, "connection reset".into());
        assert_eq!(health.check(), Ok(()), "a single failure is ignored, also after a long pause");
        manual.advance(2 * FAILING_MAX);
        health.note_failure(BackgroundLoop::Peers, "too many connections".into());
        assert_eq!(
            health.check(),
            Err(Failure::NotReady("the background loop peers fails: too many connections".into()))
        );
        health.note_round(BackgroundLoop::Peers);
        assert_eq!(health.check(), Ok(()));
        health.set_database(Err(Failure::DatabaseDown));
        assert_eq!(health.check(), Err(Failure::DatabaseDown));
    }
}
