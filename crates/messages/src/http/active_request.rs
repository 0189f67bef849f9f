//! A request from its head to its reply. It ends exactly once: with a reply, or because the client closed the connection.

use crate::http::origin::Origin;
use crate::http::problem::Problem;
use crate::observe::measurements::{self, AnsweredRequest, Measurements};
use crate::path::caller::Caller;
use crate::path::work::{Answer, Work};
use axum::http::StatusCode;
use clock::StageClock;
use records::Row;
use std::sync::Arc;

/// A request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    origin: Arc<Origin>,
    operation: &'static str,
    row: Row,
    pub(crate) measurements: Measurements,
    is_over: bool,
}

impl ActiveRequest {
    /// The head of the request has arrived.
    pub(crate) fn begin(origin: Arc<Origin>) -> ActiveRequest {
        let row = measurements::row(origin.client.number, origin.client.port, origin.sequence);
        let now = origin.client.last_read();
        ActiveRequest { origin, operation: "other", row, measurements: StageClock::started(now).into(), is_over: false }
    }

    /// The client.
    pub(crate) fn caller(&self) -> Caller {
        self.origin.client.caller.clone()
    }

    /// The whole request has arrived.
    pub(crate) fn received(&mut self) {
        let (now, bytes) = self.origin.client.received();
        self.measurements = StageClock::started(now).into();
        self.row.request_bytes = bytes;
    }

    /// The request has been parsed into work.
    pub(crate) fn parsed(&mut self, work: &Work) {
        self.operation = work.operation_label();
        self.row.operation = work.record_operation();
        self.row.keys = u16::try_from(work.message_count()).unwrap_or(u16::MAX);
    }

    /// The result of the request is known.
    pub(crate) fn answered(&mut self, outcome: Result<&Answer, &Problem>) {
        match outcome {
            Ok(answer) => self.row.hits = answer.hits(self.row.keys),
            Err(problem) => self.row.outcome = problem.record_outcome() as u8,
        }
    }

    /// The reply has been handed to hyper.
    pub(crate) fn end(mut self, status: StatusCode, body_bytes: u64) {
        self.is_over = true;
        self.origin.client.hand_over(self.ended(status.as_u16()), body_bytes);
    }

    fn ended(&self, status: u16) -> AnsweredRequest {
        let Measurements { queue_length, lane, batch, .. } = self.measurements;
        let row = Row { queue_length, backend: lane, backend_sequence: batch, ..self.row };
        AnsweredRequest { operation: self.operation, status, measurements: self.measurements, row }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if !self.is_over {
            self.origin.client.abandon(self.ended(0));
        }
    }
}
