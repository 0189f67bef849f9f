//! The message service. The modules stand in the order in which a request meets them:
//!
//! ```text
//!  client -> listen -> parse -> admit -> dispatch (fused or pool) -> statement -> PostgreSQL
//!  client <- listen <- reply <- answer <------------------------------------------ PostgreSQL
//!              `-> journal: counted, histograms
//! ```
//! PostgreSQL holds the truth: this process may be killed at any time. docs/messages.md has interface, promises and design.

mod listen;

mod names;
mod parse;
mod work;

mod admit;
mod waiting;

mod dispatch;
mod lane;
mod queue;

mod batch;
mod connection;
mod statement;

mod answer;
mod failure;
mod problem;
mod reply;

mod journal;
mod metrics;

mod schema;
mod sweep;

mod config;
mod embedded;
mod running;

pub use config::{Config, Dispatch, Limits};
pub use embedded::{Embedded, EmbeddedError};
pub use running::{MessagesError, Running, start};
