//! The loop that owns a connection: take what waits, do it, answer. Nothing sleeps to collect. A lane whose connection broke connects
//! again; meanwhile its jobs fail at once, so that clients can decide.

use crate::database::connection::{Database, Session, Wire};
use crate::database::low_water::LowWaters;
use crate::observe::journal::Journal;
use crate::path::answer;
use crate::path::batch::Batch;
use crate::path::failure::Failure;
use crate::path::memory::Memory;
use crate::path::queue::JobQueue;
use crate::path::work::Job;
use clock::{Clock, Nanos, Stage};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Time between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The server ends a statement after half of this; whoever says nothing for so long is not there, or stopped.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// A connection's loop.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its number among all.
    pub(crate) number: u16,
    pub(crate) queue: Arc<JobQueue>,
    pub(crate) database: Database,
    pub(crate) low_waters: Arc<LowWaters>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) clock: Clock,
    pub(crate) journal: Arc<Journal>,
}

impl Lane {
    /// Works until the queue is closed and empty.
    pub(crate) async fn run(self) {
        let mut session = self.database.connect(&self.clock).await.ok();
        let mut failed = Nanos::UNSET;
        let mut batch: u32 = 0;
        while let Some(mut jobs) = self.take(&mut session).await {
            let now = self.clock.now();
            for job in &mut jobs {
                job.journey.stamp(Stage::Dispatched, now);
                (job.journey.lane, job.journey.batch) = (self.number, batch);
            }
            batch = batch.wrapping_add(1);
            if session.as_ref().is_none_or(|(session, _)| session.client.is_closed()) {
                session = None;
                if !failed.is_set() || now >= failed + RETRY_AFTER {
                    session = self.connect().await;
                    failed = if session.is_some() { Nanos::UNSET } else { self.clock.now() };
                }
            }
            // They were let in when there was room; since then others may have come out of the database.
            if !self.memory.is_free() {
                for job in jobs.extract_if(.., |job| job.work.hands_out()) {
                    job.end(Err(Failure::OutOfMemory));
                }
            }
            let mut is_over = false;
            match &mut session {
                Some((session, wire)) => {
                    self.journal.count_batch(jobs.len());
                    let serving = answer::serve(session, &self.low_waters, &self.memory, Batch::of(jobs), &self.clock);
                    let served = tokio::time::timeout(SILENT_FOR, wire.drive(serving)).await;
                    // What a silent server had in hand is in doubt: `admit` says so.
                    is_over = served.unwrap_or_else(|_| {
                        self.journal.note_connect_failure("it does not answer");
                        true
                    });
                }
                None => jobs.into_iter().for_each(|job| job.end(Err(Failure::DatabaseDown))),
            }
            if is_over {
                session = None;
            }
        }
    }

    /// Takes what waits; meanwhile the connection is driven, so that its end is noticed.
    async fn take(&self, session: &mut Option<(Session, Wire)>) -> Option<Vec<Job>> {
        match session {
            Some((_, wire)) => wire.drive(self.queue.take()).await,
            None => self.queue.take().await,
        }
    }

    async fn connect(&self) -> Option<(Session, Wire)> {
        match self.database.connect(&self.clock).await {
            Ok(session) => {
                self.journal.count_connect();
                Some(session)
            }
            Err(error) => {
                self.journal.note_connect_failure(&error.to_string());
                None
            }
        }
    }
}
