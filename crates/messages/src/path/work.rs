//! What a request asks the service to do, and the answer: the types that pass between the steps. Knows neither HTTP nor SQL.

use crate::interface::documents::DeadLetter;
use crate::observe::measurements::Measurements;
use crate::path::caller::Caller;
use crate::path::failure::Failure;
use crate::path::lease::{Lease, LeaseAction, LeaseRequest};
use crate::path::memory::{Memory, Reservation};
use clock::{Nanos, Stage};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What is due later than this is found in time by the redelivery's own schedule.
const SOON_MS: i64 = 1000;

/// After waiting this long, a job is executed only if its client has not left.
const CHECKED_AFTER: Duration = Duration::from_secs(1);

/// A message to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewMessage {
    /// Empty: anyone.
    pub(crate) receiver: String,
    pub(crate) body: Vec<u8>,
    /// The message is invisible until then; 0: visible at once.
    pub(crate) delay_ms: i64,
    /// The message is deleted then; 0: after the queue's `expiry`.
    pub(crate) expiry_ms: i64,
}

/// Messages of one sender for one queue. All are stored, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendRequest {
    pub(crate) queue: String,
    pub(crate) sender: String,
    pub(crate) messages: Vec<NewMessage>,
    /// The idempotency key: sends with the same key are stored once. Empty: no key.
    pub(crate) key: String,
}

/// Which messages a fetch returns. Fetches with equal scopes can be merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Empty: all queues, which requires a sender.
    pub(crate) queue: String,
    /// Messages to this receiver and those to anyone; empty: only those to anyone.
    pub(crate) receiver: String,
    /// Empty: any sender.
    pub(crate) sender: String,
}

/// Asks for the oldest messages of a scope, up to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchRequest {
    pub(crate) scope: Scope,
    pub(crate) count: usize,
}

/// The highest count of a queue's messages.
pub(crate) const COUNT_MAX: i64 = 10_000;

/// The attempts of a queue that has a dead-letter queue and no `attempts`.
pub(crate) const DEFAULT_ATTEMPTS: i32 = 20;

/// The settings of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    /// How often a message can be received before it moves to the dead-letter queue. Only together with `dead_letter_queue`.
    pub(crate) attempts: Option<i32>,
    /// Where messages go after the last attempt.
    pub(crate) dead_letter_queue: Option<String>,
    /// The expiry of messages that are sent without one.
    pub(crate) expiry_ms: Option<i64>,
    /// The visibility timeout of receives without one.
    pub(crate) lease_ms: Option<i64>,
    /// The first pause before a redelivery; it doubles with each attempt.
    pub(crate) backoff_ms: Option<i64>,
}

/// A queue with its settings and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub(crate) name: String,
    pub(crate) settings: QueueSettings,
    /// Messages that can be received; at most [`COUNT_MAX`].
    pub(crate) visible: i64,
    /// Messages in flight (leased) or delayed; at most [`COUNT_MAX`].
    pub(crate) invisible: i64,
}

/// What a request asks the database to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Send(SendRequest),
    Pop(FetchRequest),
    /// Fetch with leases of this visibility timeout in milliseconds; 0: the queue's own.
    Receive(FetchRequest, i64),
    Lease(LeaseRequest),
    Peek(FetchRequest),
    /// List the queues that have messages addressed to this receiver.
    WaitingQueues(String, Page),
    CreateQueue(String, Option<QueueSettings>),
    DeleteQueue(String),
    ShowQueue(String),
    ListQueues(Page),
}

/// A part of an alphabetical list of queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Lists names after this one.
    pub(crate) after: String,
    pub(crate) max: usize,
    /// Lists only names with one of these prefixes; none: all names.
    pub(crate) prefixes: Option<Vec<String>>,
}

/// The lane that executes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The lane of the job's message queue.
    Queue,
    /// A lane for work that can take long, so that it does not delay messages.
    Lists,
    /// A lane for sends with idempotency keys, which can wait for other services.
    Keyed,
}

/// A message as clients receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) sender: String,
    /// Empty: anyone.
    pub(crate) receiver: String,
    /// Microseconds since 1970.
    pub(crate) sent_unix_us: i64,
    pub(crate) body: Vec<u8>,
    /// For a dead letter: its origin, and the reason for its move.
    pub(crate) dead_letter: Option<DeadLetter>,
    /// None if it was popped or peeked at.
    pub(crate) lease: Option<Lease>,
}

/// The database's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Ids of the stored messages, in the order of the request.
    Stored(Vec<i64>),
    /// The ids of the first send with the same key; nothing was stored now.
    Replayed(Vec<i64>),
    /// The oldest first; possibly none.
    Messages(Vec<Message>),
    Queues {
        names: Vec<String>,
        /// The name after which the next page begins; none on the last page.
        next: Option<String>,
    },
    /// Whether the queue is new.
    Created(bool),
    Deleted,
    Queue(QueueState),
    /// Done, except for these lease tokens, whose leases had expired.
    ExpiredLeases(Vec<String>),
    /// A nack has returned its message to this queue.
    Returned(String),
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) measurements: Measurements,
    pub(crate) result: Result<Answer, Failure>,
    /// Memory for the bodies of the messages in the answer.
    pub(crate) reservation: Option<Reservation>,
}

/// A request inside the service, with its measurements and the way back to its handler.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) measurements: Measurements,
    pub(crate) caller: Caller,
    /// Memory for the bodies in the request.
    pub(crate) _reservation: Option<Reservation>,
    pub(crate) back: oneshot::Sender<JobResult>,
}

impl Work {
    /// The number of the operation in records; docs/record-format.md lists all of them.
    pub(crate) fn record_operation(&self) -> u8 {
        match self {
            Work::Send(_) => 27,
            Work::Pop(_) => 28,
            Work::Peek(_) => 29,
            Work::WaitingQueues(..) => 30,
            Work::CreateQueue(..) => 31,
            Work::DeleteQueue(_) => 32,
            Work::ShowQueue(_) => 33,
            Work::ListQueues(_) => 34,
            Work::Receive(..) => 36,
            Work::Lease(request) => match request.action {
                LeaseAction::Acknowledge => 37,
                LeaseAction::Extend => 38,
                LeaseAction::Nack => 39,
            },
        }
    }

    /// The label `operation` in metrics.
    pub(crate) fn operation_label(&self) -> &'static str {
        match self {
            Work::Send(_) => "send",
            Work::Pop(_) => "pop",
            Work::Receive(..) => "receive",
            Work::Lease(_) => "lease",
            Work::Peek(_) => "peek",
            _ => "queues",
        }
    }

    /// Chooses the lane: work on the same queue has the same lane.
    pub(crate) fn lane_key(&self) -> &str {
        match self {
            Work::Send(send) => &send.queue,
            Work::Pop(fetch) | Work::Peek(fetch) if fetch.scope.queue.is_empty() => &fetch.scope.sender,
            Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => &fetch.scope.queue,
            // A lease token starts with the number of the queue.
            Work::Lease(request) => request.written.first().and_then(|token| token.get(..8)).unwrap_or_default(),
            Work::WaitingQueues(name, _)
            | Work::CreateQueue(name, _)
            | Work::DeleteQueue(name)
            | Work::ShowQueue(name) => name,
            Work::ListQueues(_) => "",
        }
    }

    /// How many messages the work stores or can return; at least one.
    pub(crate) fn message_count(&self) -> usize {
        match self {
            Work::Send(send) => send.messages.len(),
            Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => fetch.count,
            Work::Lease(request) => request.tokens.len(),
            _ => 1,
        }
    }

    /// The most bytes of messages that the work can return, if each has at most this many.
    pub(crate) fn fetched_bytes(&self, body_bytes: usize) -> usize {
        match self {
            Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => fetch.count.saturating_mul(body_bytes),
            _ => 0,
        }
    }

    /// Whether the work changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Work::Peek(_) | Work::WaitingQueues(..) | Work::ShowQueue(_) | Work::ListQueues(_))
    }

    /// Whether the answer can be large.
    pub(crate) fn has_large_answer(&self) -> bool {
        let lists = matches!(self, Work::WaitingQueues(..) | Work::ListQueues(_));
        lists || matches!(self, Work::Pop(_) | Work::Receive(..) | Work::Peek(_))
    }

    /// The lane for the work. The index by sender contains the messages of all queues, so fetches by sender can be slow.
    pub(crate) fn destination(&self) -> Destination {
        match self {
            Work::Send(send) if !send.key.is_empty() => Destination::Keyed,
            Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) if !fetch.scope.sender.is_empty() => {
                Destination::Lists
            }
            Work::Send(_) | Work::Pop(_) | Work::Peek(_) | Work::Receive(..) | Work::Lease(_) => Destination::Queue,
            _ => Destination::Lists,
        }
    }

    /// The sender or receiver whose quota includes the work; empty if there is none, so that the client's quota includes it.
    pub(crate) fn party(&self) -> &str {
        match self {
            Work::Send(send) => &send.sender,
            Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => &fetch.scope.receiver,
            Work::WaitingQueues(name, _) => name,
            _ => "",
        }
    }

    /// Whether the work takes messages out of a queue.
    pub(crate) fn takes_messages(&self) -> bool {
        matches!(self, Work::Pop(_) | Work::Receive(..))
    }

    /// Whether something may become due before the redelivery looks again.
    pub(crate) fn is_due_soon(&self) -> bool {
        match self {
            Work::Send(send) => send.messages.iter().any(|message| message.delay_ms > 0),
            Work::Receive(_, lease_ms) => (1..=SOON_MS).contains(lease_ms),
            Work::Lease(request) => match request.action {
                LeaseAction::Acknowledge => false,
                LeaseAction::Extend => request.time_ms <= SOON_MS,
                LeaseAction::Nack => true,
            },
            _ => false,
        }
    }

    /// Bytes of the bodies in the request.
    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Work::Send(send) => send.messages.iter().map(|message| message.body.len()).sum(),
            _ => 0,
        }
    }
}

impl Answer {
    /// How many messages were returned or stored; for leases, how many had not expired.
    pub(crate) fn hits(&self, requested: u16) -> u16 {
        let number = match self {
            Answer::Stored(ids) | Answer::Replayed(ids) => ids.len(),
            Answer::Messages(messages) => messages.len(),
            Answer::Returned(_) => 1,
            Answer::ExpiredLeases(expired) => usize::from(requested).saturating_sub(expired.len()),
            _ => 0,
        };
        u16::try_from(number).unwrap_or(u16::MAX)
    }
}

impl SendRequest {
    /// Whether there is no key, delay or expiry.
    pub(crate) fn is_plain(&self) -> bool {
        self.key.is_empty() && self.messages.iter().all(|message| message.delay_ms == 0 && message.expiry_ms == 0)
    }
}

impl Job {
    /// Whether the job is to be dropped, because its client has left. The check is a system call. For work that takes no messages, it is
    /// made only after a long wait: then the service is overloaded, and many clients may have left.
    pub(crate) fn is_abandoned(&self, now: Nanos) -> bool {
        let waited = now.after(self.measurements.clock.at(Stage::Enqueued));
        (self.work.takes_messages() || waited > CHECKED_AFTER) && self.caller.socket.has_left()
    }

    /// Answers the job. Its handler may be gone, if the client closed the connection.
    pub(crate) fn end(self, result: Result<Answer, Failure>) {
        let _ = self.back.send(JobResult { measurements: self.measurements, result, reservation: None });
    }

    /// Answers the job with messages and reserves memory for their bodies.
    pub(crate) fn end_with(self, messages: Vec<Message>, memory: &Arc<Memory>) {
        let bytes = messages.iter().map(|message| message.body.len()).sum();
        let reservation = (bytes > 0).then(|| memory.reserve_reply(&self.caller.share, bytes));
        let _ = self.back.send(JobResult {
            measurements: self.measurements,
            result: Ok(Answer::Messages(messages)),
            reservation,
        });
    }
}
