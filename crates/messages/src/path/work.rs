//! What a request asks for, once it has been read: the types that pass between the stations. Knows neither HTTP nor SQL.

use crate::observe::measurements::Journey;
use crate::path::failure::Failure;
use crate::path::lease::{Leased, Settlement, Settling};
use crate::path::memory::{Held, Memory};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What is due later than this is found in time by itself.
const SOON_MS: i64 = 1000;

/// A message that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewMessage {
    /// Empty: anyone.
    pub(crate) receiver: String,
    pub(crate) body: Vec<u8>,
    /// Nobody gets it before; 0: at once.
    pub(crate) delay_ms: i64,
    /// Nobody gets it afterwards; 0: as the queue says.
    pub(crate) expiry_ms: i64,
}

/// Messages of one sender for one queue, stored together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) queue: String,
    pub(crate) sender: String,
    pub(crate) messages: Vec<NewMessage>,
    /// With the same key they are stored once; empty: without.
    pub(crate) key: String,
}

/// Which messages somebody would like to have. Equal wishes can be served together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Empty: all queues, which needs a sender.
    pub(crate) queue: String,
    /// Messages for this receiver and those for anyone; empty: only those for anyone.
    pub(crate) receiver: String,
    /// Empty: whoever sent it.
    pub(crate) sender: String,
}

/// A wish for so many messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) scope: Scope,
    pub(crate) wanted: usize,
}

/// Where the counts of a queue end.
pub(crate) const COUNTED: i64 = 10_000;

/// Attempts of a queue that has a queue for dead letters and says no number.
pub(crate) const ATTEMPTS: i32 = 5;

/// A queue's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How often a message may be received before it is a dead letter; only together with `dead_letters`.
    pub(crate) attempts: Option<i32>,
    /// The queue for those that nobody acknowledged.
    pub(crate) dead_letters: Option<String>,
    /// How long a message lives that does not say it.
    pub(crate) expiry_ms: Option<i64>,
    /// How long a lease holds that does not say it.
    pub(crate) lease_ms: Option<i64>,
}

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// Messages that somebody may have; at most [`COUNTED`].
    pub(crate) waiting: i64,
    /// Messages under a lease, or delayed; at most [`COUNTED`].
    pub(crate) held: i64,
}

/// What a request asks of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Send(Sending),
    Pop(Wish),
    /// To take out under a lease of so many milliseconds; 0: as the queue says.
    Receive(Wish, i64),
    Settle(Settling),
    Peek(Wish),
    /// The queues in which messages wait for this receiver.
    Waiting(String),
    CreateQueue(String, Option<Settings>),
    DeleteQueue(String),
    ShowQueue(String),
    ListQueues,
    /// Nothing: is the database there?
    Probe,
}

/// A message as it is handed out.
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
    /// None when it was popped or only read.
    pub(crate) leased: Option<Leased>,
}

/// What the database says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Ids of the stored messages, in their order.
    Stored(Vec<i64>),
    /// The same, but they were stored before.
    Replayed(Vec<i64>),
    /// The oldest first; possibly none.
    Messages(Vec<Message>),
    Queues(Vec<String>),
    /// Whether the queue is new.
    Created(bool),
    Deleted,
    Queue(QueueState),
    /// The leases that did not hold, as the client wrote them.
    Settled(Vec<String>),
    /// The database is there.
    Present,
}

/// What comes back from the dispatch.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) journey: Journey,
    pub(crate) result: Result<Answer, Failure>,
    /// What its messages take.
    pub(crate) held: Option<Held>,
}

/// A request inside the service, with its clock and what it met.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) journey: Journey,
    /// What its bodies take.
    pub(crate) _held: Option<Held>,
    pub(crate) back: oneshot::Sender<Outcome>,
}

impl Work {
    /// The number of the operation in records; docs/record-format.md has them all.
    pub(crate) fn record_operation(&self) -> u8 {
        match self {
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

    /// The kind of an operation.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Work::Send(_) => "send",
            Work::Pop(_) => "pop",
            Work::Receive(..) => "receive",
            Work::Settle(_) => "lease",
            Work::Peek(_) => "peek",
            Work::Probe => "other",
            _ => "queues",
        }
    }

    /// The text by which the lane is chosen: what has the same queue has the same lane.
    pub(crate) fn lane_key(&self) -> &str {
        match self {
            Work::Send(sending) => &sending.queue,
            Work::Pop(wish) | Work::Peek(wish) if wish.scope.queue.is_empty() => &wish.scope.sender,
            Work::Pop(wish) | Work::Peek(wish) | Work::Receive(wish, _) => &wish.scope.queue,
            // It begins with the number of the queue.
            Work::Settle(settling) => settling.words.first().and_then(|word| word.get(..8)).unwrap_or_default(),
            Work::Waiting(name) | Work::CreateQueue(name, _) | Work::DeleteQueue(name) | Work::ShowQueue(name) => name,
            Work::ListQueues | Work::Probe => "",
        }
    }

    /// How many messages it stores or may hand out; at least one.
    pub(crate) fn messages(&self) -> usize {
        match self {
            Work::Send(sending) => sending.messages.len(),
            Work::Pop(wish) | Work::Peek(wish) | Work::Receive(wish, _) => wish.wanted,
            Work::Settle(settling) => settling.leases.len(),
            _ => 1,
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Work::Peek(_) | Work::Waiting(_) | Work::ShowQueue(_) | Work::ListQueues | Work::Probe)
    }

    /// Whether its answer may have messages in it.
    pub(crate) fn hands_out(&self) -> bool {
        matches!(self, Work::Pop(_) | Work::Receive(..) | Work::Peek(_))
    }

    /// Whether something becomes due by it that nobody knows of yet.
    pub(crate) fn is_due_soon(&self) -> bool {
        match self {
            Work::Send(sending) => sending.messages.iter().any(|message| message.delay_ms > 0),
            Work::Receive(_, lease_ms) => (1..=SOON_MS).contains(lease_ms),
            Work::Settle(settling) => match settling.how {
                Settlement::Acknowledge => false,
                Settlement::Extend => settling.time_ms <= SOON_MS,
                Settlement::Return => true,
            },
            _ => false,
        }
    }

    /// Bytes of the bodies it carries.
    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Work::Send(sending) => sending.messages.iter().map(|message| message.body.len()).sum(),
            _ => 0,
        }
    }
}

impl Answer {
    /// How many messages came back, or were stored; of so many leases, how many held.
    pub(crate) fn hits(&self, asked: u16) -> u16 {
        let number = match self {
            Answer::Stored(ids) | Answer::Replayed(ids) => ids.len(),
            Answer::Messages(messages) => messages.len(),
            Answer::Settled(lost) => usize::from(asked).saturating_sub(lost.len()),
            _ => 0,
        };
        u16::try_from(number).unwrap_or(u16::MAX)
    }
}

impl Sending {
    /// Whether it needs nothing but messages stored.
    pub(crate) fn is_plain(&self) -> bool {
        self.key.is_empty() && self.messages.iter().all(|message| message.delay_ms == 0 && message.expiry_ms == 0)
    }
}

impl Job {
    /// Ends the job. Whoever asked may have gone away.
    pub(crate) fn end(self, result: Result<Answer, Failure>) {
        let _ = self.back.send(Outcome { journey: self.journey, result, held: None });
    }

    /// The same with messages, which count as held from here on.
    pub(crate) fn end_with(self, messages: Vec<Message>, memory: &Arc<Memory>) {
        let bytes = messages.iter().map(|message| message.body.len()).sum();
        let held = (bytes > 0).then(|| memory.count(bytes));
        let _ = self.back.send(Outcome { journey: self.journey, result: Ok(Answer::Messages(messages)), held });
    }
}
