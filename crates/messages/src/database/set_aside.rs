//! Queues and messages that cannot be redelivered now. The redelivery tries them again later, so that the others do not wait for them.

use std::time::Duration;
use tokio::time::Instant;

/// Pause for a queue that another transaction has locked, which is mostly brief.
const QUEUE_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Pause for a message that the database refuses to move.
const MESSAGE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The skipped queues and messages, with the end of their pauses.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    queues: Vec<(i32, Instant)>,
    messages: Vec<(i64, Instant)>,
}

impl SetAside {
    /// Skips a queue for [`QUEUE_AGAIN_AFTER`].
    pub(super) fn add_queue(&mut self, id: i32) {
        self.queues.push((id, Instant::now() + QUEUE_AGAIN_AFTER));
    }

    /// Skips a message for [`MESSAGE_AGAIN_AFTER`].
    pub(super) fn add_message(&mut self, id: i64) {
        self.messages.push((id, Instant::now() + MESSAGE_AGAIN_AFTER));
    }

    /// The numbers of the queues and the ids of the messages that are skipped now.
    pub(super) fn current(&mut self) -> (Vec<i32>, Vec<i64>) {
        let now = Instant::now();
        self.queues.retain(|(_, until)| *until > now);
        self.messages.retain(|(_, until)| *until > now);
        (self.queues.iter().map(|(id, _)| *id).collect(), self.messages.iter().map(|(id, _)| *id).collect())
    }

    /// The longest pause until a skipped queue is tried again; none if no queue is skipped.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.queues.is_empty()).then_some(QUEUE_AGAIN_AFTER)
    }
}
