//! How many bytes of bodies and replies the service holds at once: one sum over all clients. Bodies are read while there is room for them;
//! messages that come out of the database are always taken in, since they are out of it, but while there is no room nobody asks for more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};

/// Whoever finds no room is told so after this.
const WAITED_FOR: Duration = Duration::from_secs(2);

/// The sum, and its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    held: AtomicUsize,
    /// Those who wait stand in line here, so that a large body is not overtaken for ever by small ones; the first of them looks.
    turn: Mutex<()>,
    changed: Notify,
}

/// Bytes that count as held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Arc<Memory>,
    bytes: usize,
}

/// A reply's bytes, which count as long as somebody has them.
#[derive(Debug)]
pub(crate) struct Counted {
    bytes: Vec<u8>,
    _held: Held,
}

impl Memory {
    /// Nothing is held yet.
    pub(crate) fn new(limit: usize) -> Memory {
        Memory { limit, held: AtomicUsize::new(0), turn: Mutex::new(()), changed: Notify::new() }
    }

    /// Whether there is room, now or soon.
    pub(crate) async fn becomes_free(&self) -> bool {
        self.add(0).await
    }

    /// Whether there is room now.
    pub(crate) fn is_free(&self) -> bool {
        self.now() <= self.limit
    }

    /// Holds nothing, so far.
    pub(crate) fn none(self: &Arc<Memory>) -> Held {
        Held { memory: self.clone(), bytes: 0 }
    }

    /// Holds what is there already, even when there is no room for it.
    pub(crate) fn count(self: &Arc<Memory>, bytes: usize) -> Held {
        self.held.fetch_add(bytes, Ordering::SeqCst);
        Held { memory: self.clone(), bytes }
    }

    /// How many bytes are held.
    pub(crate) fn now(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// How many bytes may be held.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Adds so many bytes as soon as there is room for them; false when there was none for too long. What is larger than the limit is let in
    /// alone.
    async fn add(&self, bytes: usize) -> bool {
        if self.turn.try_lock().is_ok_and(|_turn| self.try_add(bytes)) {
            return true;
        }
        let added = async {
            let _turn = self.turn.lock().await;
            while !self.try_add(bytes) {
                // What was given back since the attempt is remembered.
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(WAITED_FOR, added).await.is_ok()
    }

    fn try_add(&self, bytes: usize) -> bool {
        let fits = |held: usize| (held == 0 || held + bytes <= self.limit).then_some(held + bytes);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }
}

impl Held {
    /// Holds so many bytes more, as soon as there is room for them; false when there was none for too long.
    pub(crate) async fn grow(&mut self, bytes: usize) -> bool {
        let is_added = self.memory.add(bytes).await;
        self.bytes += if is_added { bytes } else { 0 };
        is_added
    }

    /// These bytes, which count instead of what was held for them.
    pub(crate) fn of(self, bytes: Vec<u8>) -> Counted {
        let _held = self.memory.count(bytes.len());
        Counted { bytes, _held }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.held.fetch_sub(self.bytes, Ordering::SeqCst);
            self.memory.changed.notify_one();
        }
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_wait_for_room_and_replies_do_not() {
        let memory = Arc::new(Memory::new(10));
        let (mut first, mut second) = (memory.none(), memory.none());
        assert!(first.grow(6).await);
        let reply = memory.count(5).of(vec![1; 7]);
        assert_eq!((memory.now(), reply.as_ref().len(), memory.is_free()), (13, 7, false));
        let (is_free, ()) = tokio::join!(memory.becomes_free(), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(first);
        });
        assert!(is_free, "there was room again");
        assert_eq!(memory.now(), 7);
        assert!(!second.grow(4).await, "nobody gave anything back");
        drop(reply);
        assert!(second.grow(11).await, "alone, what is too large is let in");
        drop(second);
        assert_eq!(memory.now(), 0);
    }

    #[tokio::test]
    async fn those_who_wait_keep_their_order() {
        let memory = Arc::new(Memory::new(10));
        let mut first = memory.none();
        assert!(first.grow(9).await);
        let (order, size) = (std::sync::Mutex::new(Vec::new()), [10, 1]);
        let wait = async |bytes: usize| {
            let mut held = memory.none();
            assert!(held.grow(bytes).await);
            order.lock().unwrap().push(bytes);
        };
        // The second would fit at once, if it could pass by the first.
        tokio::join!(wait(size[0]), wait(size[1]), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), size);
    }
}
