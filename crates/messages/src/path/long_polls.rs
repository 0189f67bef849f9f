//! Requests that wait for a message in a queue, and their wake-up. They wait in memory and occupy no database connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// All waiting requests by queue.
#[derive(Debug)]
pub(crate) struct LongPolls {
    limit: usize,
    refused: AtomicU64,
    /// Waiting requests. Changes only under the lock of `state`; readers need no lock.
    polls: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<String, (Arc<Waiters>, usize)>,
}

/// What the requests that wait for one queue share.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(crate) notify: Notify,
    /// The queue that they wait for was deleted. Another one may have its name.
    is_deleted: AtomicBool,
}

/// A request that waits for a queue, until it is dropped.
#[derive(Debug)]
pub(crate) struct LongPoll {
    long_polls: Arc<LongPolls>,
    queue: String,
    pub(crate) waiters: Arc<Waiters>,
}

impl LongPolls {
    pub(crate) fn new(limit: usize) -> Arc<LongPolls> {
        Arc::new(LongPolls { limit, refused: AtomicU64::new(0), polls: AtomicUsize::new(0), state: Mutex::default() })
    }

    /// Adds a request that waits for this queue. None if the limit is reached.
    pub(crate) fn enter(self: &Arc<LongPolls>, queue: &str) -> Option<LongPoll> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.polls.load(Ordering::Relaxed) >= self.limit {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.polls.fetch_add(1, Ordering::Relaxed);
        let entry = state.queues.entry(queue.to_string()).or_default();
        entry.1 += 1;
        Some(LongPoll { long_polls: self.clone(), queue: queue.to_string(), waiters: entry.0.clone() })
    }

    /// The queue has changed. All requests that wait for it try again together, in one statement.
    pub(crate) fn wake(&self, queue: &str) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((waiters, _)) = state.queues.get(queue) {
            waiters.notify.notify_waiters();
        }
    }

    /// The queue was deleted. The requests that wait for it end; later ones wait for a new queue of this name.
    pub(crate) fn end(&self, queue: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((waiters, _)) = state.queues.remove(queue) {
            waiters.is_deleted.store(true, Ordering::Release);
            waiters.notify.notify_waiters();
        }
    }

    /// Queues with waiting requests.
    pub(crate) fn queues(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).queues.keys().cloned().collect()
    }

    /// How many requests were refused because of the limit.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The number of waiting requests. Takes no lock.
    pub(crate) fn len(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }

    /// The largest number of waiting requests.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

impl LongPoll {
    /// Whether the queue was deleted since the request began to wait.
    pub(crate) fn is_deleted(&self) -> bool {
        self.waiters.is_deleted.load(Ordering::Acquire)
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        let mut state = self.long_polls.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.long_polls.polls.fetch_sub(1, Ordering::Relaxed);
        let entry = state.queues.get_mut(&self.queue);
        if let Some(entry) = entry.filter(|(waiters, _)| Arc::ptr_eq(waiters, &self.waiters)) {
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
    async fn waiting_polls_are_woken_and_leave_nothing_behind() {
        let long_polls = LongPolls::new(2);
        let first = long_polls.enter("q").unwrap();
        let second = long_polls.enter("q").unwrap();
        assert!(long_polls.enter("p").is_none());
        let waiters = first.waiters.clone();
        let mut woken = std::pin::pin!(waiters.notify.notified());
        woken.as_mut().enable();
        long_polls.wake("p");
        long_polls.wake("q");
        woken.await;
        drop((second, long_polls.enter("q")));
        assert_eq!(long_polls.len(), 1);
        long_polls.end("q");
        let later = long_polls.enter("q").unwrap();
        assert!(first.is_deleted() && !later.is_deleted());
        drop(first);
        assert_eq!(long_polls.queues(), ["q"], "of the new queue");
        drop(later);
        assert_eq!((long_polls.len(), long_polls.state.lock().unwrap().queues.len()), (0, 0));
    }
    #[test]
    fn the_number_is_known_while_a_request_holds_the_lock() {
        let long_polls = LongPolls::new(2);
        let _poll = long_polls.enter("q").unwrap();
        let held = long_polls.state.lock().unwrap();
        let (sender, number) = std::sync::mpsc::channel();
        let scraped = long_polls.clone();
        let scrape = std::thread::spawn(move || sender.send(scraped.len()));
        let number = number.recv_timeout(std::time::Duration::from_secs(20));
        drop(held);
        assert_eq!(number, Ok(1));
        scrape.join().unwrap().unwrap();
    }
}
