//! A leg: what one backend does for a job.

use crate::jobs::JobId;
use clock::Nanos;
use records::Outcome;
use wire::Verb;

/// One leg of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegRef {
    pub(crate) job: JobId,
    pub(crate) leg: u8,
}

/// What a leg's backend is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What the client said, or its part of the keys.
    #[default]
    Client,
    /// To delete the key: its value, or what depends on it, has changed elsewhere.
    Delete,
    /// To give the key the client's new expiry time.
    Touch,
    /// What the client said, but what is stored lives at most so many seconds.
    Capped { seconds: u32 },
}

/// Where a leg stands among those that could be asked for the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// The key's own backends: so many steps from its primary, after so many others.
    #[default]
    Primary,
    Copy {
        step: u8,
        after: u8,
    },
    /// A backend of the pool that stands in.
    StandIn,
    /// A backend of the pool that missing values are fetched from.
    WarmUp,
}

/// What one backend does for a job.
#[derive(Debug, Default)]
pub(crate) struct Leg {
    pub(crate) backend: u16,
    pub(crate) backend_port: u16,
    pub(crate) backend_sequence: u32,
    pub(crate) queue_length: u32,
    pub(crate) request_bytes: u32,
    pub(crate) hits: u16,
    pub(crate) reply_bytes: usize,
    pub(crate) outcome: Outcome,
    /// When it left its queue; unset if it was in none.
    pub(crate) dispatched: Nanos,
    pub(crate) sent: Nanos,
    pub(crate) answered: Nanos,
    pub(crate) ask: Ask,
    pub(crate) candidate: Candidate,
    /// Its backend's outstanding legs have been counted with it.
    pub(crate) is_counted: bool,
    /// It is on a connection, or in the queue of a backend.
    pub(crate) is_placed: bool,
    /// It asks a second copy because the first was slow.
    pub(crate) is_hedge: bool,
    /// It must not be sent: its backend owes the key's deletion.
    pub(crate) is_fenced: bool,
    /// It does not count for the answer; it must only have come to its end.
    pub(crate) is_aside: bool,
    /// What its failure leaves behind has been seen to.
    pub(crate) is_settled: bool,
    /// What the backend is asked, while the leg waits in a queue.
    pub(crate) request: Vec<u8>,
    /// The command in it, which on a copy may be another than the client's.
    pub(crate) asked: Verb,
    pub(crate) reply: Vec<u8>,
}
