//! What a request asks for, once it has been read: the types that pass between the stations. Knows neither HTTP nor SQL.

use crate::failure::Failure;
use clock::StageClock;
use tokio::sync::oneshot;

/// A message that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewMessage {
    /// Empty: anyone.
    pub(crate) receiver: String,
    pub(crate) body: Vec<u8>,
}

/// Messages of one sender for one queue, stored together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) queue: String,
    pub(crate) sender: String,
    pub(crate) messages: Vec<NewMessage>,
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
    Peek(Wish),
    /// The queues in which messages wait for this receiver.
    Waiting(String),
    CreateQueue(String),
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
}

/// What the database says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Ids of the stored messages, in their order.
    Stored(Vec<i64>),
    /// The oldest first; possibly none.
    Messages(Vec<Message>),
    Queues(Vec<String>),
    /// Whether the queue is new.
    Created(bool),
    Deleted,
    /// The queue, or the database, is there.
    Shown,
}

/// What comes back from the dispatch.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) clock: StageClock,
    pub(crate) result: Result<Answer, Failure>,
}

/// A request inside the service, with its clock.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) clock: StageClock,
    pub(crate) back: oneshot::Sender<Outcome>,
}

impl Work {
    /// The text by which the lane is chosen: what has the same queue has the same lane.
    pub(crate) fn lane_key(&self) -> &str {
        match self {
            Work::Send(sending) => &sending.queue,
            Work::Pop(wish) | Work::Peek(wish) if wish.scope.queue.is_empty() => &wish.scope.sender,
            Work::Pop(wish) | Work::Peek(wish) => &wish.scope.queue,
            Work::Waiting(name) | Work::CreateQueue(name) | Work::DeleteQueue(name) | Work::ShowQueue(name) => name,
            Work::ListQueues | Work::Probe => "",
        }
    }

    /// How many messages it stores or may hand out; at least one.
    pub(crate) fn messages(&self) -> usize {
        match self {
            Work::Send(sending) => sending.messages.len(),
            Work::Pop(wish) | Work::Peek(wish) => wish.wanted,
            _ => 1,
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

impl Job {
    /// Ends the job. Whoever asked may have gone away.
    pub(crate) fn end(self, result: Result<Answer, Failure>) {
        let _ = self.back.send(Outcome { clock: self.clock, result });
    }
}
