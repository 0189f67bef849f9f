//! What backends hand back to their loop: the jobs, and the list of those that have just been answered.

use crate::job::{JobId, Jobs, LegRef};
use clock::Nanos;
use records::Outcome;

/// Where a backend puts its answers.
#[derive(Debug)]
pub(crate) struct Finished<'l> {
    pub(crate) jobs: &'l mut Jobs,
    /// Jobs whose last leg has been answered and whose reply is still to be joined.
    pub(crate) list: &'l mut Vec<JobId>,
}

impl Finished<'_> {
    /// Completes the reply of a leg with its last line.
    pub(crate) fn leg_answered(&mut self, leg: LegRef, last_line: &[u8], outcome: Outcome, now: Nanos) {
        if self.jobs.get(leg.job).leg_answered(leg.leg, last_line, outcome, now) {
            self.list.push(leg.job);
        }
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
