//! What a request asks for, once it has been read: the types that pass between the stations. Knows neither HTTP nor SQL.

use crate::failure::Failure;
use crate::journey::Journey;
use crate::lease::{Leased, Settlement, Settling};
use crate::memory::{Held, Memory};
use crate::settings::{QueueState, Settings};
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
