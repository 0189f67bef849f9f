//! What can be chosen about a run that loads message services.

use crate::messages::Mix;
use std::time::Duration;

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
