//! What backends hand back to their loop: the jobs, and the list of those that have just been answered.

use crate::jobs::{JobId, Jobs};
use crate::leg::LegRef;
use clock::Nanos;
use records::Outcome;

/// Where a backend puts its answers.
#[derive(Debug)]
pub(crate) struct Finished<'l> {
    pub(crate) jobs: &'l mut Jobs,
    /// Jobs that something has happened to, and that are to be looked at.
    pub(crate) list: &'l mut Vec<JobId>,
}

impl Finished<'_> {
    /// Completes the reply of a leg with its last line.
    pub(crate) fn leg_answered(&mut self, leg: LegRef, last_line: &[u8], outcome: Outcome, now: Nanos) {
        let job = self.jobs.get(leg.job);
        let backend = job.leg(leg.leg).backend;
        if job.leg_answered(leg.leg, last_line, outcome, now) && !job.is_listed {
            job.is_listed = true;
            self.list.push(leg.job);
        }
        self.jobs.outstanding.remove(backend);
    }

    /// Fails a leg with an error line that names the backend.
    pub(crate) fn leg_failed(&mut self, leg: LegRef, backend: &str, outcome: Outcome, now: Nanos) {
        let what = match outcome {
            Outcome::Timeout => "timed out",
            Outcome::BackendDown => "is down",
            Outcome::Overloaded => "has too much waiting",
            _ => "lost the connection",
        };
        let line = format!("SERVER_ERROR backend {backend} {what}\r\n");
        self.leg_answered(leg, line.as_bytes(), outcome, now);
    }

    /// Fails a leg because the queue that all backends share is full.
    pub(crate) fn queue_full(&mut self, leg: LegRef, now: Nanos) {
        self.leg_answered(leg, b"SERVER_ERROR the proxy has too much waiting\r\n", Outcome::Overloaded, now);
    }
}
