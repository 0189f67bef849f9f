//! The way of one request from its head to its reply, which ends exactly once: with a reply, or because the client gave up.

use crate::http::accept::Origin;
use crate::http::problem::Problem;
use crate::observe::measurements::{self, Ended, Journey};
use crate::path::work::{Answer, Work};
use axum::http::StatusCode;
use clock::StageClock;
use records::Row;
use std::sync::Arc;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    origin: Arc<Origin>,
    kind: &'static str,
    row: Row,
    pub(crate) journey: Journey,
    is_over: bool,
}

impl ActiveRequest {
    /// The head of the request is there.
    pub(crate) fn begin(origin: Arc<Origin>) -> ActiveRequest {
        let row = measurements::row(origin.client.number, origin.client.port, origin.sequence);
        let now = origin.client.last_read();
        ActiveRequest { origin, kind: "other", row, journey: StageClock::started(now).into(), is_over: false }
    }

    /// All of it is there.
    pub(crate) fn received(&mut self) {
        let (now, bytes) = self.origin.client.received();
        self.journey = StageClock::started(now).into();
        self.row.request_bytes = bytes;
    }

    /// What it asks for is known.
    pub(crate) fn asks(&mut self, work: &Work) {
        self.kind = work.kind();
        self.row.operation = work.record_operation();
        self.row.keys = u16::try_from(work.messages()).unwrap_or(u16::MAX);
    }

    /// How it was answered.
    pub(crate) fn answered(&mut self, outcome: Result<&Answer, &Problem>) {
        match outcome {
            Ok(answer) => self.row.hits = answer.hits(self.row.keys),
            Err(problem) => self.row.outcome = problem.record_outcome() as u8,
        }
    }

    /// The reply is handed over.
    pub(crate) fn end(mut self, status: StatusCode, body_bytes: u64) {
        self.is_over = true;
        self.origin.client.hand_over(self.ended(status.as_u16()), body_bytes);
    }

    fn ended(&self, status: u16) -> Ended {
        let Journey { queue_length, lane, batch, .. } = self.journey;
        let row = Row { queue_length, backend: lane, backend_sequence: batch, ..self.row };
        Ended { kind: self.kind, status, journey: self.journey, row }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if !self.is_over {
            self.origin.client.abandon(self.ended(0));
        }
    }
}
