//! The settings of a run that loads message services.

use crate::messages::{AfterReceive, Mix};
use std::time::Duration;

/// The requests to send to a message service.
#[derive(Clone, Debug)]
pub struct MessagesConfig {
    /// The operations and their weights.
    pub mix: Mix,
    /// The number of queues.
    pub queues: usize,
    /// The prefix of the queue names; none makes a unique one for this run.
    pub queue_prefix: Option<String>,
    /// Messages for any receiver that are sent before the run, to the queues in turn.
    pub prefill: u64,
    /// Whether to keep the queues after the run.
    pub keep: bool,
    /// Whether to follow every message from its send to its pop.
    pub verify: bool,
    /// Whether messages may arrive in any order even if there is only one service.
    pub any_order: bool,
    /// How long to read the messages that are left after the run.
    pub drain: Duration,
    /// The visibility timeout of receives and extensions.
    pub lease: Duration,
    /// What clients do with a received message.
    pub after_receive: AfterReceive,
    /// How long a message may stay invisible after its lease has ended, or after an outage.
    pub redelivery_time: Duration,
    /// The attempts after which messages move to a dead-letter queue.
    pub attempts: Option<u32>,
    /// Bearer tokens. Client i uses number i, modulo their count.
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
            lease: Duration::from_secs(30),
            after_receive: AfterReceive::default(),
            redelivery_time: Duration::from_secs(10),
            attempts: None,
            tokens: Vec::new(),
        }
    }
}
