//! Queues and messages that cannot be redelivered now. The redelivery tries them again later, so that the others do not wait for them.

use std::time::Duration;
use tokio::time::Instant;

/// Another transaction has locked the queue, mostly for a moment.
const QUEUE_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The database refuses to move the message.
const MESSAGE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What is set aside, and until when.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    queues: Vec<(i32, Instant)>,
    messages: Vec<(i64, Instant)>,
}

impl SetAside {
    /// Sets a queue aside for a moment.
    pub(super) fn add_queue(&mut self, id: i32) {
        self.queues.push((id, Instant::now() + QUEUE_AGAIN_AFTER));
    }

    /// Sets a message aside.
    pub(super) fn add_message(&mut self, id: i64) {
        self.messages.push((id, Instant::now() + MESSAGE_AGAIN_AFTER));
    }

    /// The numbers of the queues and the ids of the messages that are set aside now.
    pub(super) fn current(&mut self) -> (Vec<i32>, Vec<i64>) {
        let now = Instant::now();
        self.queues.retain(|(_, until)| *until > now);
        self.messages.retain(|(_, until)| *until > now);
        (self.queues.iter().map(|(id, _)| *id).collect(), self.messages.iter().map(|(id, _)| *id).collect())
    }

    /// The longest pause until a queue can be tried again.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.queues.is_empty()).then_some(QUEUE_AGAIN_AFTER)
    }
}
