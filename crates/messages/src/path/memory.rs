//! Limits the bytes of bodies and replies in memory, as one sum over all clients. Bodies are read only as far as there is room. Messages
//! from the database are always accepted, because they are no longer in the database; but without room, no request fetches more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};

/// A request that finds no room fails after this time.
const WAITED_FOR: Duration = Duration::from_secs(2);

/// The sum of all reservations, and its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    reserved: AtomicUsize,
    /// Reservations wait in line, so that small bodies do not overtake a large one for ever. The first in line watches the sum.
    turn: Mutex<()>,
    changed: Notify,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    bytes: usize,
}

/// The bytes of a reply, which count as long as they are in memory.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Memory {
        Memory { limit, reserved: AtomicUsize::new(0), turn: Mutex::new(()), changed: Notify::new() }
    }

    /// Waits until there is room. False if there was none within the time limit.
    pub(crate) async fn wait_for_room(&self) -> bool {
        self.add(0).await
    }

    /// Whether there is room now.
    pub(crate) fn has_room(&self) -> bool {
        self.reserved_bytes() <= self.limit
    }

    /// An empty reservation, which can grow.
    pub(crate) fn reserve_none(self: &Arc<Memory>) -> Reservation {
        Reservation { memory: self.clone(), bytes: 0 }
    }

    /// Reserves bytes that are in memory already, even if they exceed the limit.
    pub(crate) fn reserve_over_limit(self: &Arc<Memory>, bytes: usize) -> Reservation {
        self.reserved.fetch_add(bytes, Ordering::SeqCst);
        Reservation { memory: self.clone(), bytes }
    }

    /// The sum of all reservations.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::SeqCst)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Adds these bytes as soon as there is room for them. False if there was none within the time limit. Bytes that exceed the whole limit
    /// are admitted when nothing else is reserved.
    async fn add(&self, bytes: usize) -> bool {
        if self.turn.try_lock().is_ok_and(|_turn| self.try_add(bytes)) {
            return true;
        }
        let added = async {
            let _turn = self.turn.lock().await;
            while !self.try_add(bytes) {
                // `Notify` remembers a wake-up that came since the attempt.
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(WAITED_FOR, added).await.is_ok()
    }

    fn try_add(&self, bytes: usize) -> bool {
        let fits = |reserved: usize| (reserved == 0 || reserved + bytes <= self.limit).then_some(reserved + bytes);
        self.reserved.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }
}

impl Reservation {
    /// Reserves more bytes as soon as there is room for them. False if there was none within the time limit.
    pub(crate) async fn grow(&mut self, bytes: usize) -> bool {
        let is_added = self.memory.add(bytes).await;
        self.bytes += if is_added { bytes } else { 0 };
        is_added
    }

    /// Replaces this reservation by one for exactly these bytes.
    pub(crate) fn of(self, bytes: Vec<u8>) -> ReservedBytes {
        let _reservation = self.memory.reserve_over_limit(bytes.len());
        ReservedBytes { bytes, _reservation }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
            self.memory.changed.notify_one();
        }
    }
}

impl AsRef<[u8]> for ReservedBytes {
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
        let (mut first, mut second) = (memory.reserve_none(), memory.reserve_none());
        assert!(first.grow(6).await);
        let reply = memory.reserve_over_limit(5).of(vec![1; 7]);
        assert_eq!((memory.reserved_bytes(), reply.as_ref().len(), memory.has_room()), (13, 7, false));
        let (has_room, ()) = tokio::join!(memory.wait_for_room(), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(first);
        });
        assert!(has_room, "released memory is available again");
        assert_eq!(memory.reserved_bytes(), 7);
        assert!(!second.grow(4).await, "nothing was released");
        drop(reply);
        assert!(second.grow(11).await, "a body that is too large is admitted if it is alone");
        drop(second);
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn waiting_requests_keep_their_order() {
        let memory = Arc::new(Memory::new(10));
        let mut first = memory.reserve_none();
        assert!(first.grow(9).await);
        let (order, size) = (std::sync::Mutex::new(Vec::new()), [10, 1]);
        let wait = async |bytes: usize| {
            let mut reservation = memory.reserve_none();
            assert!(reservation.grow(bytes).await);
            order.lock().unwrap().push(bytes);
        };
        // The second would fit at once if it could overtake the first.
        tokio::join!(wait(size[0]), wait(size[1]), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), size);
    }
}
