//! One request that has ended, with everything that is counted. Knows no connections and no server.

use crate::messages::MessageOperation;
use crate::workload::trace::TraceOperation;
use clock::Nanos;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A get of one or more keys.
    Get,
    /// A set of one key.
    Set,
}

/// A request that has ended, with everything that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    pub(crate) operation: Operation,
    pub(crate) intended: Nanos,
    pub(crate) sent: Nanos,
    pub(crate) completed: Nanos,
    pub(crate) keys: u32,
    pub(crate) hits: u32,
    pub(crate) request_bytes: u64,
    pub(crate) reply_bytes: u64,
    /// Whether its reply was an error, or it got no reply.
    pub(crate) failed: bool,
    /// The operation, if it went to a message service.
    pub(crate) message: Option<MessageOperation>,
}

impl Operation {
    /// The operation under which a row of a trace is counted: reads are gets, and everything else is a set.
    pub(crate) fn of(operation: TraceOperation) -> Operation {
        match operation {
            TraceOperation::Get | TraceOperation::Gets => Operation::Get,
            _ => Operation::Set,
        }
    }
}

impl EndedRequest {
    pub(crate) fn response_ns(&self) -> u64 {
        self.completed.since(self.intended)
    }

    /// The number of values returned; 0 for a set.
    pub(crate) fn hits(&self) -> u64 {
        u64::from(self.hits)
    }

    /// Keys of a get that were not returned.
    pub(crate) fn misses(&self) -> u64 {
        match self.operation {
            Operation::Get => u64::from(self.keys - self.hits),
            Operation::Set => 0,
        }
    }
}
