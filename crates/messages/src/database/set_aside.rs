//! Queues and messages that cannot be redelivered now. The redelivery tries them again later, so that the others do not wait for them.

use std::time::Duration;
use tokio::time::Instant;

/// Pause for a queue that another transaction has locked, which is mostly brief.
const QUEUE_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Pause for a message that the database refuses to move.
const MESSAGE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Where the messages of a queue go when they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Back into their queue.
    Queue,
    /// Into the dead-letter queue, after the last attempt.
    DeadLetterQueue,
}

/// The messages of a queue for one target, which another transaction has locked.
#[derive(Debug)]
struct LockedTarget {
    /// The queue of the messages.
    queue: i32,
    target: Target,
    /// With this number of attempts or more, messages go to the dead-letter queue.
    attempts_max: i32,
    until: Instant,
}

/// The skipped queues and messages, with the end of their pauses.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    targets: Vec<LockedTarget>,
    messages: Vec<(i64, Instant)>,
}

/// What to skip now: for each target, the numbers of the queues and their limits of attempts; and the ids of messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Skipped {
    pub(super) returns: (Vec<i32>, Vec<i32>),
    pub(super) burials: (Vec<i32>, Vec<i32>),
    pub(super) messages: Vec<i64>,
}

impl SetAside {
    /// Skips the messages of a queue for one target for [`QUEUE_AGAIN_AFTER`]. Without a limit of attempts, all of them are skipped.
    pub(super) fn add_queue(&mut self, queue: i32, target: Target, attempts_max: Option<i32>) {
        let until = Instant::now() + QUEUE_AGAIN_AFTER;
        let attempts_max = attempts_max.unwrap_or(i32::MAX);
        self.targets.push(LockedTarget { queue, target, attempts_max, until });
    }

    /// Skips a message for [`MESSAGE_AGAIN_AFTER`].
    pub(super) fn add_message(&mut self, id: i64) {
        self.messages.push((id, Instant::now() + MESSAGE_AGAIN_AFTER));
    }

    /// Ends the pauses that are over.
    pub(super) fn end_pauses(&mut self) {
        let now = Instant::now();
        self.targets.retain(|locked| locked.until > now);
        self.messages.retain(|(_, until)| *until > now);
    }

    /// What is skipped now.
    pub(super) fn current(&self) -> Skipped {
        let of = |target| {
            let locked = self.targets.iter().filter(move |locked| locked.target == target);
            locked.map(|locked| (locked.queue, locked.attempts_max)).unzip()
        };
        let messages = self.messages.iter().map(|(id, _)| *id).collect();
        Skipped { returns: of(Target::Queue), burials: of(Target::DeadLetterQueue), messages }
    }

    /// The longest pause until a skipped queue is tried again; none if no queue is skipped.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.targets.is_empty()).then_some(QUEUE_AGAIN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_messages_for_a_locked_target_are_skipped_until_their_pause_is_over() {
        let mut aside = SetAside::default();
        aside.add_queue(1, Target::Queue, None);
        aside.add_queue(1, Target::DeadLetterQueue, Some(3));
        aside.add_message(7);
        tokio::time::advance(QUEUE_AGAIN_AFTER * 2).await;
        // Within one round, the pause of a queue does not end.
        let skipped = Skipped { returns: (vec![1], vec![i32::MAX]), burials: (vec![1], vec![3]), messages: vec![7] };
        assert_eq!((aside.current(), aside.pause()), (skipped, Some(QUEUE_AGAIN_AFTER)));
        aside.end_pauses();
        let skipped = Skipped { returns: Default::default(), burials: Default::default(), messages: vec![7] };
        assert_eq!((aside.current(), aside.pause()), (skipped, None));
        tokio::time::advance(MESSAGE_AGAIN_AFTER).await;
        aside.end_pauses();
        assert_eq!(aside.current().messages, Vec::<i64>::new());
    }
}
