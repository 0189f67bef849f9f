//! Requests that poll for messages of a queue, and who wakes them. They wait here, in memory; no connection waits with them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// All polls, queue by queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    polls: usize,
    queues: HashMap<String, (Arc<Notify>, usize)>,
}

/// A place among those who wait for a queue; leaves when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    queue: String,
    pub(crate) notify: Arc<Notify>,
}

impl Waiting {
    /// Nobody waits.
    pub(crate) fn new(limit: usize) -> Arc<Waiting> {
        Arc::new(Waiting { limit, state: Mutex::default() })
    }

    /// A place for somebody who waits for this queue; none when there are too many.
    pub(crate) fn enter(self: &Arc<Waiting>, queue: &str) -> Option<Place> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.polls >= self.limit {
            return None;
        }
        state.polls += 1;
        let entry = state.queues.entry(queue.to_string()).or_default();
        entry.1 += 1;
        Some(Place { waiting: self.clone(), queue: queue.to_string(), notify: entry.0.clone() })
    }

    /// Something has changed in this queue. They look for it together, as one statement.
    pub(crate) fn wake(&self, queue: &str) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((notify, _)) = state.queues.get(queue) {
            notify.notify_waiters();
        }
    }

    /// Queues for which somebody waits.
    pub(crate) fn queues(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).queues.keys().cloned().collect()
    }

    /// How many wait.
    pub(crate) fn polls(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).polls
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.waiting.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.polls -= 1;
        if let Some(entry) = state.queues.get_mut(&self.queue) {
            entry.1 -= 1;
            if entry.1 == 0 {
                state.queues.remove(&self.queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_wait_are_woken_and_leave_nothing_behind() {
        let waiting = Waiting::new(2);
        let first = waiting.enter("q").unwrap();
        let second = waiting.enter("q").unwrap();
        assert!(waiting.enter("p").is_none());
        let notify = first.notify.clone();
        let mut woken = std::pin::pin!(notify.notified());
        woken.as_mut().enable();
        waiting.wake("p");
        waiting.wake("q");
        woken.await;
        drop((second, waiting.enter("q")));
        assert_eq!(waiting.polls(), 1);
        drop(first);
        assert_eq!((waiting.polls(), waiting.state.lock().unwrap().queues.len()), (0, 0));
    }
}
