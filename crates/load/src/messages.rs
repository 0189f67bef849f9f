//! The second kind of load: messages, sent to and read from a message service with queues over HTTP
//! (docs/load-messages.md).
//!
//! ```text
//! setup (queues, prefill) -> client -> conversation (what next) -> request -> lane -> http -> conversation -> ledger
//!                                                                                         drain -> summary
//! ```
//!
//! Pace, counts, records, summary and verdict are the same as for memcached. Nothing here knows a schedule or sockets,
//! except `setup_connection`, which is used before and after the run.

mod after_receive;
mod availability;
mod body;
mod context;
mod conversation;
mod drain;
mod http;
mod leases;
mod ledger;
mod mix;
mod request;
mod setup;
mod setup_connection;
mod stream;
mod summary;

pub use after_receive::AfterReceive;
pub use mix::{MessageOperation, Mix};
pub use summary::MessagesSummary;

pub(crate) use context::MessagesContext;
pub(crate) use conversation::Conversation;
pub(crate) use http::{ParsedResponse, parse};
pub(crate) use mix::OPERATIONS;
pub(crate) use setup::RunQueues;

/// The smallest body that identifies its message and can be verified.
pub const VERIFIED_BYTES_MIN: usize = body::BYTES_MIN;
