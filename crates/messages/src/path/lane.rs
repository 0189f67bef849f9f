//! Step 5. The loop that owns a database connection: takes the waiting jobs and has them answered as one batch, without waiting for more
//! jobs. A lane whose connection broke reconnects, also without a job; until then its jobs fail at once, so that clients can decide what
//! to do.

use crate::database::connection::{Database, DatabaseSession};
use crate::database::connection_driver::ConnectionDriver;
use crate::database::error::DatabaseError;
use crate::database::liveness::LockWait;
use crate::database::low_water::LowWaterMarks;
use crate::observe::journal::Journal;
use crate::observe::limits::Limit;
use crate::path::answer;
use crate::path::batch::JobBatch;
use crate::path::failure::Failure;
use crate::path::lane_connections::{LaneConnections, OpenLane};
use crate::path::memory::{ExpectedReplies, Memory, Room};
use crate::path::queue::JobQueue;
use crate::path::work::Job;
use clock::{Clock, Nanos, Stage};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

#[cfg(test)]
mod tests;

/// Pause between two attempts to connect, if there are jobs.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The same without jobs.
const IDLE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Pause of a lane that has only fetches for whose replies there may be no room.
const POSTPONED_PAUSE: Duration = Duration::from_millis(1);
/// A fetch is postponed for no longer than this because of other fetches of its client.
const POSTPONED_FOR: Duration = Duration::from_secs(5);

/// Why a lane is stuck that waits for no lock.
const SLOW: &str = "the server still runs its statement";

/// A connection with the part that transfers its bytes.
struct LaneSession {
    session: DatabaseSession,
    driver: ConnectionDriver,
    open: OpenLane,
}

/// What a lane does next.
enum Next {
    Serve(Vec<Job>),
    /// There is no connection, and no job that waits for one.
    Connect,
    Stop,
}

/// The loop of one connection.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its number among all connections.
    pub(crate) number: u16,
    pub(crate) queue: Arc<JobQueue>,
    /// The connections of all lanes of this queue.
    pub(crate) connections: Arc<LaneConnections>,
    pub(crate) database: Database,
    pub(crate) low_water_marks: Arc<LowWaterMarks>,
    pub(crate) memory: Arc<Memory>,
    /// Limit of a message's body.
    pub(crate) body_bytes: usize,
    pub(crate) clock: Clock,
    pub(crate) journal: Arc<Journal>,
    /// How long a statement waits for another transaction's lock, in PostgreSQL's notation, and how this limit is counted.
    pub(crate) lock_timeout: (&'static str, Limit),
    /// Whether statements can take long without waiting for a lock.
    pub(crate) has_long_statements: bool,
}

/// Why requests fail if a connection could not be made.
fn failure_without(error: &DatabaseError) -> Failure {
    match error.refusal() {
        _ if error.is_about_tables() => Failure::Refused(error.to_string()),
        Some(reason) => Failure::ConnectionRefused(reason),
        None => Failure::DatabaseDown,
    }
}

impl Lane {
    /// Refuses the jobs for whose answers there is no room, and returns the others. If their messages could exceed the memory, the later
    /// fetches are left for the next batch. If those of one client could exceed its share, its fetches wait behind those of others.
    fn refuse_without_room(&self, jobs: Vec<Job>, now: Nanos) -> (Vec<Job>, ExpectedReplies) {
        let mut expected = self.memory.expect();
        let (mut admitted, mut postponed, mut of_client) = (Vec::with_capacity(jobs.len()), Vec::new(), Vec::new());
        for job in jobs {
            match job.work.has_large_answer().then(|| self.memory.check_room(&job.caller.share)) {
                Some(Err(limit)) => job.end(Err(limit)),
                Some(Ok(())) if !postponed.is_empty() => postponed.push(job),
                Some(Ok(())) => {
                    let is_urgent = now.after(job.measurements.clock.at(Stage::Enqueued)) > POSTPONED_FOR;
                    match expected.add(&job.caller.share, job.work.fetched_bytes(self.body_bytes), is_urgent) {
                        Room::Enough => admitted.push(job),
                        Room::NoneOfClient => of_client.push(job),
                        Room::None => postponed.push(job),
                    }
                }
                None => admitted.push(job),
            }
        }
        if !postponed.is_empty() {
            self.journal.limits.reach_for(Limit::Memory, postponed.len());
            self.queue.put_back(postponed);
        }
        if !of_client.is_empty() {
            self.journal.limits.reach_for(Limit::MemoryPerClient, of_client.len());
            self.queue.put_at_end(of_client);
        }
        (admitted, expected)
    }

    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(self) {
        let opened = self.open().await.inspect_err(|error| self.connections.note_failure(&error.to_string()));
        // Why requests fail while there is no connection.
        let mut down = opened.as_ref().err().map_or(Failure::DatabaseDown, failure_without);
        let mut session = opened.ok();
        // The end of the latest attempt to connect, if it failed.
        let mut failed = if session.is_some() { Nanos::UNSET } else { self.clock.now() };
        let mut batch: u32 = 0;
        let mut answered = Instant::now();
        loop {
            let mut jobs = match self.next(&mut session).await {
                Next::Serve(jobs) => jobs,
                Next::Stop => return,
                Next::Connect => {
                    session = tokio::select! {
                        session = self.connect(&mut down) => session,
                        () = self.queue.closed() => None,
                    };
                    failed = if session.is_some() { Nanos::UNSET } else { self.clock.now() };
                    answered = Instant::now();
                    continue;
                }
            };
            let now = self.clock.now();
            for job in &mut jobs {
                job.measurements.stamp(Stage::Dispatched, now);
                (job.measurements.lane, job.measurements.batch) = (self.number, batch);
            }
            batch = batch.wrapping_add(1);
            let is_closed = session.as_ref().is_none_or(|open| open.session.client.is_closed());
            let is_outdated =
                session.as_ref().is_some_and(|open| self.database.liveness.is_outdated(open.session.epoch));
            if is_closed || is_outdated || self.database.liveness.is_suspect(answered) {
                session = None;
                if !failed.is_set() || now >= failed + RETRY_AFTER {
                    session = self.connect(&mut down).await;
                    failed = if session.is_some() { Nanos::UNSET } else { self.clock.now() };
                    answered = Instant::now();
                }
            }
            // As late as possible, because a message that is popped for a client that has left is lost.
            let now = self.clock.now();
            for job in jobs.extract_if(.., |job| job.is_abandoned(now)) {
                job.end(Err(Failure::ClientClosed));
            }
            // The jobs were admitted when there was memory. Since then, other lanes may have fetched messages.
            let mut _expected = None;
            if jobs.iter().any(|job| job.work.has_large_answer()) {
                let (admitted, expected) = self.refuse_without_room(jobs, now);
                if admitted.is_empty() {
                    // Fetches of the same client are in progress on other lanes.
                    tokio::time::sleep(POSTPONED_PAUSE).await;
                    continue;
                }
                (jobs, _expected) = (admitted, Some(expected));
            }
            let mut is_over = false;
            match &mut session {
                Some(LaneSession { session, driver, open }) => {
                    self.journal.count_batch(jobs.len());
                    let sent_bytes = jobs.iter().map(|job| job.work.body_bytes()).sum();
                    let batch = JobBatch::of(jobs);
                    // Pinned here, so that the functions below do not copy it several times.
                    let limits = (&*self.journal.limits, self.lock_timeout.1);
                    let (marks, memory, clock) = (&self.low_water_marks, &self.memory, &self.clock);
                    let serving = pin!(answer::serve(session, marks, memory, batch, clock, limits));
                    let mut report = |wait: Option<LockWait>| match wait {
                        Some(wait) if !wait.is_for_rows() => open.note_slow(now, wait.to_string()),
                        None if !self.has_long_statements => open.note_slow(now, SLOW.into()),
                        _ => {}
                    };
                    let liveness = &self.database.liveness;
                    let serving = driver.drive(serving);
                    let served = liveness.attend_and_report(sent_bytes, &session.process, &mut report, serving).await;
                    // The jobs of a silent server are in doubt, which `admit` concludes from their dropped channels.
                    is_over = served.map_or_else(
                        |error| {
                            if matches!(error, DatabaseError::Unreplicated) {
                                self.journal.count_replication_timeout();
                                self.connections.note_unreplicated(now, &error);
                            }
                            self.journal.note_connect_failure(&error.to_string());
                            true
                        },
                        |served| {
                            if let Some(wait) = served.table_lock {
                                open.note_slow(now, wait.to_string());
                            }
                            open.note_end(served.has_timed_out);
                            if let Some(reason) = &served.refusal {
                                self.journal.note_table_error(reason);
                            }
                            open.note_refusal(served.refusal);
                            if let Some((fault, reason)) = &served.storage {
                                self.journal.note_storage_error(*fault, reason);
                            }
                            served.is_over
                        },
                    );
                    answered = Instant::now();
                }
                // The other lanes of the queue can serve them.
                None if self.connections.open() > 0 => self.queue.put_back(jobs),
                None => jobs.into_iter().for_each(|job| job.end(Err(down.clone()))),
            }
            if is_over {
                session = None;
            }
        }
    }

    /// Waits for jobs and takes them. The connection is driven meanwhile, so that its end is noticed.
    async fn next(&self, session: &mut Option<LaneSession>) -> Next {
        let taken = match session {
            Some(open) => open.driver.drive_until_closed(self.queue.take()).await,
            // The others can serve the jobs.
            None if self.connections.open() > 0 => {
                timeout(IDLE_RETRY_AFTER, self.queue.closed()).await.ok().map(|()| None)
            }
            None => timeout(IDLE_RETRY_AFTER, self.queue.take()).await.ok(),
        };
        match taken {
            Some(Some(jobs)) => Next::Serve(jobs),
            Some(None) => Next::Stop,
            None => {
                *session = None;
                Next::Connect
            }
        }
    }

    async fn open(&self) -> Result<LaneSession, DatabaseError> {
        let (session, mut driver) = self.database.connect(&self.clock).await?;
        let text = format!("SET lock_timeout = '{}'", self.lock_timeout.0);
        let set = driver.drive(session.client.batch_execute(&text));
        self.database.liveness.attend(&session.process, set).await??;
        Ok(LaneSession { session, driver, open: self.connections.enter() })
    }

    /// Connects. If it fails, `down` is the reason for requests.
    async fn connect(&self, down: &mut Failure) -> Option<LaneSession> {
        match self.open().await {
            Ok(session) => {
                self.journal.count_connect();
                Some(session)
            }
            Err(error) => {
                let reason = error.to_string();
                self.journal.note_connect_failure(&reason);
                self.connections.note_failure(&reason);
                *down = failure_without(&error);
                None
            }
        }
    }
}
