//! The loop that owns a connection: take what waits, do it, answer. Nothing sleeps to collect. A lane whose connection broke connects
//! again; meanwhile its jobs fail at once, so that clients can decide.

use crate::answer;
use crate::batch::Batch;
use crate::connection::{Database, Session};
use crate::failure::Failure;
use crate::journal::Journal;
use crate::queue::JobQueue;
use clock::{Clock, Nanos, Stage};
use std::sync::Arc;
use std::time::Duration;

/// Time between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A connection's loop.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Arc<JobQueue>,
    pub(crate) database: Database,
    pub(crate) clock: Clock,
    pub(crate) journal: Arc<Journal>,
}

impl Lane {
    /// Works until the queue is closed and empty.
    pub(crate) async fn run(self) {
        let mut session = self.database.connect().await.ok();
        let mut failed = Nanos::UNSET;
        while let Some(mut jobs) = self.queue.take().await {
            let now = self.clock.now();
            jobs.iter_mut().for_each(|job| job.clock.stamp(Stage::Dispatched, now));
            if session.as_ref().is_none_or(|session: &Session| session.client.is_closed()) {
                session = None;
                if !failed.is_set() || now >= failed + RETRY_AFTER {
                    session = self.connect().await;
                    failed = if session.is_some() { Nanos::UNSET } else { self.clock.now() };
                }
            }
            match &session {
                Some(session) => {
                    self.journal.count_batch(&jobs);
                    answer::serve(session, Batch::of(jobs), &self.clock).await;
                }
                None => jobs.into_iter().for_each(|job| job.end(Err(Failure::DatabaseDown))),
            }
        }
    }

    async fn connect(&self) -> Option<Session> {
        match self.database.connect().await {
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
