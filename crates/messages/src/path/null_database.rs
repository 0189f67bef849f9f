//! Answers every request at once without a database, to measure what the rest of the service costs. Messages that are sent are lost.

use crate::path::failure::Failure;
use crate::path::lease::{Lease, LeaseToken};
use crate::path::memory::Memory;
use crate::path::work::{Answer, Job, Message, Scope, Work};
use crate::path::work::{QueueSettings, QueueState};
use clock::{Clock, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Replaces the lanes and the database.
#[derive(Debug)]
pub(crate) struct NullDatabase {
    next_id: AtomicI64,
    /// The body of the message that every pop, receive and peek returns. None: no message.
    body: Option<Vec<u8>>,
    memory: Arc<Memory>,
    clock: Clock,
}

impl NullDatabase {
    /// With a number of bytes, every fetch returns messages of this size; otherwise none.
    pub(crate) fn new(body_bytes: Option<usize>, memory: Arc<Memory>, clock: Clock) -> NullDatabase {
        NullDatabase { next_id: AtomicI64::new(1), body: body_bytes.map(|bytes| vec![b'x'; bytes]), memory, clock }
    }

    /// Answers a job as if the database had needed no time.
    pub(crate) fn end(&self, mut job: Job) {
        let now = self.clock.now();
        for stage in [Stage::Dispatched, Stage::Sent, Stage::Answered] {
            job.measurements.stamp(stage, now);
        }
        match self.answer(&job.work) {
            Ok(Answer::Messages(messages)) => job.end_with(messages, &self.memory),
            answer => job.end(answer),
        }
    }

    fn answer(&self, work: &Work) -> Result<Answer, Failure> {
        Ok(match work {
            Work::Send(send) => {
                let number = i64::try_from(send.messages.len()).unwrap_or(i64::MAX);
                let first = self.next_id.fetch_add(number, Ordering::Relaxed);
                Answer::Stored((first..first + number).collect())
            }
            Work::Pop(fetch) | Work::Peek(fetch) => Answer::Messages(self.messages(&fetch.scope, fetch.count, false)),
            Work::Receive(fetch, _) => Answer::Messages(self.messages(&fetch.scope, fetch.count, true)),
            Work::Lease(_) => Answer::ExpiredLeases(Vec::new()),
            Work::WaitingQueues(..) | Work::ListQueues(_) => Answer::Queues { names: Vec::new(), next: None },
            Work::CreateQueue(..) => Answer::Created(true),
            Work::DeleteQueue(_) => Answer::Deleted,
            Work::ShowQueue(name) => Answer::Queue(QueueState {
                name: name.clone(),
                settings: QueueSettings::default(),
                visible: 0,
                invisible: 0,
            }),
        })
    }

    fn messages(&self, scope: &Scope, count: usize, is_leased: bool) -> Vec<Message> {
        let Some(body) = &self.body else { return Vec::new() };
        let sender = if scope.sender.is_empty() { "null" } else { &scope.sender };
        let message = |_| Message {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            queue: scope.queue.clone(),
            sender: sender.to_string(),
            receiver: scope.receiver.clone(),
            sent_unix_us: i64::try_from(clock::unix_now() / 1000).unwrap_or(i64::MAX),
            body: body.clone(),
            dead_letter: None,
            lease: is_leased.then(|| Lease { token: LeaseToken::new(1, 1, "0".repeat(32)), attempt: 1 }),
        };
        (0..count).map(message).collect()
    }
}
