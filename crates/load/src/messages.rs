//! The second thing that can be request for: messages, of a service with queues over HTTP (docs/load-messages.md).
//!
//! ```text
//! setup (queues, prefill) -> client -> conversation (what next) -> request -> lane -> http -> conversation -> ledger
//!                                                                                      drain -> account -> summary
//! ```
//!
//! Pace, counts, records, summary and verdict are those of every load; what is here knows no schedule and no sockets, but
//! for `plain`, which is for what comes before and after the run.

mod body;
mod context;
mod conversation;
mod drain;
mod http;
mod ledger;
mod mix;
mod request;
mod setup;
mod setup_connection;
mod stream;
mod summary;

pub use mix::{MessageOperation, Mix};
pub use summary::MessagesSummary;

pub(crate) use context::MessagesContext;
pub(crate) use conversation::Conversation;
pub(crate) use http::{ParsedResponse, parse};
pub(crate) use mix::OPERATIONS;
pub(crate) use setup::RunQueues;

/// The smallest body that says whose it is and proves that it is whole.
pub const VERIFIED_BYTES_MIN: usize = body::BYTES_MIN;
