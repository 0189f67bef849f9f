//! The message service. The modules stand in the order in which a request meets them:
//!
//! ```text
//!  client -> accept -> listen -> parse -> admit -> dispatch (fused or pool) -> statement -> PostgreSQL
//!  client <- stream <- listen <- reply <- answer <------------------------------------------ PostgreSQL
//!              `-> journal: counted, histograms, records
//! ```
//! PostgreSQL holds the truth: this process may be killed at any time. docs/messages.md has interface, promises and design.

mod accept;
mod client;
mod connections;
mod stream;

mod ended;
mod journey;
mod listen;
mod passage;
mod tokens;

mod interface;
mod kinds;
mod openapi;
mod page;

mod documents;
mod lease;
mod names;
mod parse;
mod settings;
mod work;

mod admit;
mod waiting;

mod dispatch;
mod lane;
mod neighbours;
mod null;
mod queue;

mod batch;
mod connection;
mod low_water;
mod statement;
mod tls;

mod answer;
mod failure;
mod problem;
mod reply;

mod journal;
mod memory;
mod metrics;
mod rows;

mod mover;
mod schema;
mod sweep;

mod config;
mod embedded;
mod running;

pub use config::{
    Clients, Config, ConfigError, Dispatch, DispatchKind, Document, FileError, IdentityFiles, Limits, Permission,
    Settings, TokenConfig, TokenSettings,
};
pub use embedded::{Embedded, EmbeddedError};
pub use rows::RecordsConfig;
pub use running::{MessagesError, Running, check, start};
