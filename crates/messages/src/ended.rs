//! A request that has its reply: what the journal and the record will say of it. It ends when the kernel has the reply.

use crate::journal::Journal;
use crate::journey::Journey;
use crate::lease::Settlement;
use crate::problem::Problem;
use crate::work::{Answer, Work};
use axum::http::StatusCode;
use clock::{Nanos, Stage};
use records::{NO_BACKEND, Outcome, PARENT, Row};

/// What is known of a request when it has its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) kind: &'static str,
    pub(crate) status: u16,
    pub(crate) journey: Journey,
    /// Its record so far.
    pub(crate) row: Row,
}

impl Ended {
    /// The reply, so many bytes, is with the kernel; or nobody was left to take it.
    pub(crate) fn finish(mut self, journal: &Journal, now: Nanos, reply_bytes: u32, outcome: Option<Outcome>) {
        self.journey.stamp(Stage::Replied, now);
        self.journey.clock.finish();
        self.row.reply_bytes = reply_bytes;
        self.row.outcome = outcome.map_or(self.row.outcome, |outcome| outcome as u8);
        let status = if outcome == Some(Outcome::ClientGone) { CLIENT_GONE } else { self.status };
        journal.end(self.kind, status, &self.journey.clock);
        journal.rows.push(&self.row, &self.journey.clock.stamps());
    }
}

/// The number that servers of HTTP have come to use in their logs when nobody was left to hear the status.
const CLIENT_GONE: u16 = 499;

/// The row of a request of this connection, before anything is known of it.
pub(crate) fn row(connection: u32, port: u16, sequence: u32) -> Row {
    Row { connection, port, sequence, backend: NO_BACKEND, leg: PARENT, legs: 1, ..Row::default() }
}

/// The number of an operation; docs/record-format.md has them all.
pub(crate) fn operation(work: &Work) -> u8 {
    match work {
        Work::Send(_) => 27,
        Work::Pop(_) => 28,
        Work::Peek(_) => 29,
        Work::Waiting(_) => 30,
        Work::CreateQueue(..) => 31,
        Work::DeleteQueue(_) => 32,
        Work::ShowQueue(_) => 33,
        Work::ListQueues => 34,
        Work::Probe => 35,
        Work::Receive(..) => 36,
        Work::Settle(settling) => match settling.how {
            Settlement::Acknowledge => 37,
            Settlement::Extend => 38,
            Settlement::Return => 39,
        },
    }
}

/// How many messages came back, or were stored; of so many leases, how many held.
pub(crate) fn hits(answer: &Answer, asked: u16) -> u16 {
    let number = match answer {
        Answer::Stored(ids) | Answer::Replayed(ids) => ids.len(),
        Answer::Messages(messages) => messages.len(),
        Answer::Settled(lost) => usize::from(asked).saturating_sub(lost.len()),
        _ => 0,
    };
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// What a problem is called in records.
pub(crate) fn outcome(problem: &Problem) -> Outcome {
    match problem.kind {
        "overloaded" | "ending" => Outcome::Overloaded,
        "database-down" => Outcome::BackendDown,
        "in-doubt" => Outcome::BackendLost,
        _ if problem.status == StatusCode::REQUEST_TIMEOUT => Outcome::Timeout,
        _ if problem.status.is_client_error() => Outcome::ClientError,
        _ => Outcome::ServerError,
    }
}
