//! The second thing that can be asked for: messages, of a service with queues over HTTP (docs/load-messages.md).
//!
//! ```text
//! setup (queues, prefill) -> client -> conversation (what next) -> request -> lane -> http -> conversation -> ledger
//!                                                                                      drain -> account -> summary
//! ```
//!
//! Pace, counts, records, summary and verdict are those of every load; what is here knows no schedule and no sockets, but
//! for `plain`, which is for what comes before and after the run.

mod account;
mod body;
mod conversation;
mod drain;
mod http;
mod ledger;
mod mix;
mod plain;
mod request;
mod setup;
mod stream;
mod venue;

pub use account::MessagesSummary;
pub use mix::{MessageOperation, Mix};

pub(crate) use conversation::Conversation;
pub(crate) use http::{Parsed, parse};
pub(crate) use mix::KINDS;
pub(crate) use setup::Queues;
pub(crate) use venue::Venue;

/// The smallest body that says whose it is and proves that it is whole.
pub const VERIFIED_BYTES_MIN: usize = body::BYTES_MIN;
