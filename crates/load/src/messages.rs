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
pub(crate) use setup::{Queues, Told};
pub(crate) use venue::Venue;

use crate::config::Config;
use std::time::Duration;

/// The smallest body that says whose it is and proves that it is whole.
pub const VERIFIED_BYTES_MIN: usize = body::BYTES_MIN;

/// What is asked of a message service.
#[derive(Clone, Debug)]
pub struct MessagesConfig {
    /// Which operations, how often.
    pub mix: Mix,
    /// Queues that the messages go through.
    pub queues: usize,
    /// What stands before the number in the name of a queue; without, a name of this run alone.
    pub queue_prefix: Option<String>,
    /// Messages sent before the run, to anyone, to each queue in turn.
    pub prefill: u64,
    /// Whether the queues are there after the run.
    pub keep: bool,
    /// Whether every message is followed from its send to its pop.
    pub verify: bool,
    /// Whether messages may come in any order: with one service, too.
    pub any_order: bool,
    /// How long what is left after the run may be read.
    pub drain: Duration,
    /// Bearer tokens; client i has the one with number i, counted around.
    pub tokens: Vec<String>,
}

/// Limits that only keep mistakes from taking all memory.
const QUEUES_MAX: usize = 1_000_000;
/// Behind the prefix stands a number, or a client's number and another; the service allows names of 80 bytes.
const PREFIX_BYTES_MAX: usize = 50;

impl MessagesConfig {
    /// Refuses what cannot be run, in one line that says what to change.
    ///
    /// # Errors
    /// The first contradiction found.
    pub(crate) fn check(&self, config: &Config) -> Result<(), String> {
        if self.queues == 0 || self.queues > QUEUES_MAX {
            return Err(format!("--queues must be 1 to {QUEUES_MAX}"));
        }
        if config.pipeline != 1 {
            return Err("--pipeline is 1 with --messages: one request is in flight on a connection".into());
        }
        let smallest = config.data_size.quantile(0.0);
        if self.verify && smallest < VERIFIED_BYTES_MIN as f64 {
            return Err(format!(
                "--data-size {}: a body of {smallest:.0} bytes cannot say whose it is; from {VERIFIED_BYTES_MIN} on it can, or use \
                 --no-verify",
                config.data_size
            ));
        }
        if let Some(prefix) = &self.queue_prefix {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            let begins_well = prefix.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_');
            if !begins_well || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(is_name) {
                return Err(format!(
                    "--queue-prefix {prefix:?}: 1 to {PREFIX_BYTES_MAX} letters, digits, '_', '-' and '.', not beginning with '-' or '.'"
                ));
            }
        }
        Ok(())
    }
}

impl Default for MessagesConfig {
    fn default() -> MessagesConfig {
        MessagesConfig {
            mix: Mix::default(),
            queues: 10,
            queue_prefix: None,
            prefill: 0,
            keep: false,
            verify: true,
            any_order: false,
            drain: Duration::from_secs(60),
            tokens: Vec::new(),
        }
    }
}
