//! The way of one request from its head to its reply, which ends exactly once: with a reply, or because the client gave up.

use crate::accept::Origin;
use crate::ended::{self, Ended};
use crate::journal::kind;
use crate::journey::Journey;
use crate::problem::Problem;
use crate::work::{Answer, Work};
use axum::http::StatusCode;
use clock::StageClock;
use records::Row;
use std::sync::Arc;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Passage {
    origin: Arc<Origin>,
    kind: &'static str,
    row: Row,
    pub(crate) journey: Journey,
    is_over: bool,
}

impl Passage {
    /// The head of the request is there.
    pub(crate) fn begin(origin: Arc<Origin>) -> Passage {
        let row = ended::row(origin.client.number, origin.client.port, origin.sequence);
        let now = origin.client.last_read();
        Passage { origin, kind: "other", row, journey: StageClock::started(now).into(), is_over: false }
    }

    /// All of it is there.
    pub(crate) fn received(&mut self) {
        let (now, bytes) = self.origin.client.received();
        self.journey = StageClock::started(now).into();
        self.row.request_bytes = bytes;
    }

    /// What it asks for is known.
    pub(crate) fn asks(&mut self, work: &Work) {
        self.kind = kind(work);
        self.row.operation = ended::operation(work);
        self.row.keys = u16::try_from(work.messages()).unwrap_or(u16::MAX);
    }

    /// How it was answered.
    pub(crate) fn answered(&mut self, outcome: Result<&Answer, &Problem>) {
        match outcome {
            Ok(answer) => self.row.hits = ended::hits(answer, self.row.keys),
            Err(problem) => self.row.outcome = ended::outcome(problem) as u8,
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

impl Drop for Passage {
    fn drop(&mut self) {
        if !self.is_over {
            self.origin.client.abandon(self.ended(0));
        }
    }
}
