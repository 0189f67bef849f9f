//! Dispatch without a database, for measuring all the rest: every request is answered at once. What is sent is forgotten.

use crate::path::failure::Failure;
use crate::path::lease::{Lease, Leased};
use crate::path::memory::Memory;
use crate::path::work::{Answer, Job, Message, Scope, Work};
use crate::path::work::{QueueState, Settings};
use clock::{Clock, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Answers in place of a database.
#[derive(Debug)]
pub(crate) struct Null {
    next_id: AtomicI64,
    /// What every pop and peek gets; none: there is never a message.
    body: Option<Vec<u8>>,
    memory: Arc<Memory>,
    clock: Clock,
}

impl Null {
    /// Messages that are read have a body of so many bytes; without it there are none.
    pub(crate) fn new(body_bytes: Option<usize>, memory: Arc<Memory>, clock: Clock) -> Null {
        Null { next_id: AtomicI64::new(1), body: body_bytes.map(|bytes| vec![b'x'; bytes]), memory, clock }
    }

    /// Ends a job as if the database had done it in no time.
    pub(crate) fn end(&self, mut job: Job) {
        let now = self.clock.now();
        for stage in [Stage::Dispatched, Stage::Sent, Stage::Answered] {
            job.journey.stamp(stage, now);
        }
        match self.answer(&job.work) {
            Ok(Answer::Messages(messages)) => job.end_with(messages, &self.memory),
            answer => job.end(answer),
        }
    }

    fn answer(&self, work: &Work) -> Result<Answer, Failure> {
        Ok(match work {
            Work::Send(sending) => {
                let number = i64::try_from(sending.messages.len()).unwrap_or(i64::MAX);
                let first = self.next_id.fetch_add(number, Ordering::Relaxed);
                Answer::Stored((first..first + number).collect())
            }
            Work::Pop(wish) | Work::Peek(wish) => Answer::Messages(self.messages(&wish.scope, wish.wanted, false)),
            Work::Receive(wish, _) => Answer::Messages(self.messages(&wish.scope, wish.wanted, true)),
            Work::Settle(_) => Answer::Settled(Vec::new()),
            Work::Waiting(_) | Work::ListQueues => Answer::Queues(Vec::new()),
            Work::CreateQueue(..) => Answer::Created(true),
            Work::DeleteQueue(_) => Answer::Deleted,
            Work::ShowQueue(name) => {
                Answer::Queue(QueueState { name: name.clone(), settings: Settings::default(), waiting: 0, held: 0 })
            }
            Work::Probe => Answer::Present,
        })
    }

    fn messages(&self, scope: &Scope, wanted: usize, is_leased: bool) -> Vec<Message> {
        let Some(body) = &self.body else { return Vec::new() };
        let sender = if scope.sender.is_empty() { "null" } else { &scope.sender };
        let message = |_| Message {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            queue: scope.queue.clone(),
            sender: sender.to_string(),
            receiver: scope.receiver.clone(),
            sent_unix_us: i64::try_from(clock::unix_now() / 1000).unwrap_or(i64::MAX),
            body: body.clone(),
            leased: is_leased.then(|| Leased { lease: Lease::new(1, 1, "0".repeat(32)), attempt: 1 }),
        };
        (0..wanted).map(message).collect()
    }
}
