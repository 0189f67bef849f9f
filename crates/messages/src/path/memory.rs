//! Limits the bytes of bodies and replies in memory: of each client, and of all clients together. Bodies are read only as far as there is
//! room. Messages from the database are always accepted, because they are no longer in the database; but without room, no request fetches
//! more. Replies cannot use all of the memory, so that clients that read slowly do not stop sends.

use crate::path::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

/// A request that finds no room fails after this time. For a body, it is the sum of its waits.
pub(crate) const WAITED_FOR: Duration = Duration::from_secs(2);
/// The part of the memory that replies can occupy.
const REPLIES: (usize, usize) = (3, 4);

/// A limit, and the sum of the reservations.
#[derive(Debug)]
struct Account {
    limit: usize,
    reserved: AtomicUsize,
    /// Reservations wait in line, so that small bodies do not overtake a large one for ever. The first in line watches the sum.
    turn: Mutex<()>,
    changed: Notify,
}

/// The memory of all clients together.
#[derive(Debug)]
pub(crate) struct Memory {
    total: Account,
    /// The part of `total` that replies occupy.
    replies: Account,
    /// The most that fetches in progress can add to `replies`.
    expected: AtomicUsize,
    refused: AtomicU64,
    refused_of_client: AtomicU64,
}

/// The most that the fetches of a batch can bring. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct ExpectedReplies {
    memory: Arc<Memory>,
    bytes: usize,
    /// The part of each client.
    of_clients: Vec<(Arc<Share>, usize)>,
}

/// Whether there is room for the reply to a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// Other fetches of the same client could use it up.
    NoneOfClient,
    /// Other fetches could use it up.
    None,
}

/// The memory of one client: of a token's sender, or of an address if there are no tokens.
#[derive(Debug)]
pub(crate) struct Share {
    bodies: Account,
    replies: Account,
    /// The most that its fetches in progress can add to `replies`.
    expected: AtomicUsize,
}

/// The content of reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Body,
    Reply,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    share: Arc<Share>,
    content: Content,
    bytes: usize,
    /// How long a body has waited for room.
    waited: Duration,
}

/// Bytes of one account that are given back on drop.
struct Added<'a> {
    account: &'a Account,
    bytes: usize,
}

/// A part of a reply, which counts as long as it is in memory.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl Account {
    fn new(limit: usize) -> Account {
        Account { limit, reserved: AtomicUsize::new(0), turn: Mutex::new(()), changed: Notify::new() }
    }

    fn has_room(&self) -> bool {
        self.reserved.load(Ordering::SeqCst) <= self.limit
    }

    /// Adds these bytes as soon as there is room for them. False if there was none within the time limit. Bytes that exceed the whole limit
    /// are admitted when nothing else is reserved.
    async fn add(&self, bytes: usize) -> bool {
        let mut waited = Duration::ZERO;
        self.add_within(bytes, &mut waited).await
    }

    /// The same for a request that has waited before. Adds the time of this wait.
    async fn add_within(&self, bytes: usize, waited: &mut Duration) -> bool {
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
        let began = Instant::now();
        let is_added = tokio::time::timeout(WAITED_FOR.saturating_sub(*waited), added).await.is_ok();
        *waited += began.elapsed();
        is_added
    }

    fn try_add(&self, bytes: usize) -> bool {
        let fits = |reserved: usize| (reserved == 0 || reserved + bytes <= self.limit).then_some(reserved + bytes);
        self.reserved.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    fn add_over_limit(&self, bytes: usize) {
        self.reserved.fetch_add(bytes, Ordering::SeqCst);
    }

    fn remove(&self, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::SeqCst);
        self.changed.notify_one();
    }
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Memory {
        let (part, whole) = REPLIES;
        Memory {
            total: Account::new(limit),
            replies: Account::new(limit / whole * part),
            expected: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            refused_of_client: AtomicU64::new(0),
        }
    }

    /// Waits until there is room for more replies to this client.
    pub(crate) async fn wait_for_room(&self, share: &Share) -> Result<(), Failure> {
        if !share.replies.add(0).await {
            return Err(self.refuse_client());
        }
        if self.replies.add(0).await && self.total.add(0).await { Ok(()) } else { Err(self.refuse()) }
    }

    /// Checks whether there is room for more replies to this client. The error names the limit that was reached.
    pub(crate) fn check_room(&self, share: &Share) -> Result<(), Failure> {
        if !share.replies.has_room() {
            return Err(self.refuse_client());
        }
        if self.replies.has_room() && self.total.has_room() { Ok(()) } else { Err(self.refuse()) }
    }

    /// A batch without fetches.
    pub(crate) fn expect(self: &Arc<Memory>) -> ExpectedReplies {
        ExpectedReplies { memory: self.clone(), bytes: 0, of_clients: Vec::new() }
    }

    /// An empty reservation for a body, which can grow.
    pub(crate) fn reserve_body(self: &Arc<Memory>, share: &Arc<Share>) -> Reservation {
        self.reserve(share, Content::Body)
    }

    /// Reserves bytes of a reply, even beyond the limit, because fetched messages are in memory already.
    pub(crate) fn reserve_reply(self: &Arc<Memory>, share: &Arc<Share>, bytes: usize) -> Reservation {
        let mut reservation = self.reserve(share, Content::Reply);
        reservation.add_over_limit(bytes);
        reservation
    }

    fn reserve(self: &Arc<Memory>, share: &Arc<Share>, content: Content) -> Reservation {
        Reservation { memory: self.clone(), share: share.clone(), content, bytes: 0, waited: Duration::ZERO }
    }

    /// The sum of all reservations.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.total.reserved.load(Ordering::SeqCst)
    }

    pub(crate) fn limit(&self) -> usize {
        self.total.limit
    }

    /// How many requests were refused because of the limit of all clients, and of their own client.
    pub(crate) fn refused(&self) -> [u64; 2] {
        [self.refused.load(Ordering::Relaxed), self.refused_of_client.load(Ordering::Relaxed)]
    }

    fn refuse(&self) -> Failure {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Failure::OutOfMemory
    }

    fn refuse_client(&self) -> Failure {
        self.refused_of_client.fetch_add(1, Ordering::Relaxed);
        Failure::OutOfShare
    }
}

impl ExpectedReplies {
    /// Adds a fetch of this client that can bring this many bytes. If its client has no other fetch in progress, or if it is `urgent`, the
    /// fetch is within the client's share; otherwise many fetches of one client could occupy the memory of all. The first fetch of a
    /// batch is always within the memory of all, so that large messages can be fetched.
    pub(crate) fn add(&mut self, share: &Arc<Share>, bytes: usize, urgent: bool) -> Room {
        // Lists bring no bodies.
        if bytes == 0 {
            return Room::Enough;
        }
        let fits = |account: &Account, expected: usize| {
            account.reserved.load(Ordering::SeqCst).saturating_add(expected) <= account.limit
        };
        let add_of_client = |before: usize| {
            let all = before.saturating_add(bytes);
            (before == 0 || urgent || fits(&share.replies, all)).then_some(all)
        };
        if share.expected.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add_of_client).is_err() {
            return Room::NoneOfClient;
        }
        let Memory { total, replies, expected, .. } = &*self.memory;
        let is_first = self.bytes == 0;
        let add = |all: usize| {
            let all = all.saturating_add(bytes);
            (is_first || (fits(total, all) && fits(replies, all))).then_some(all)
        };
        if expected.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_err() {
            share.expected.fetch_sub(bytes, Ordering::SeqCst);
            return Room::None;
        }
        self.bytes += bytes;
        match self.of_clients.last_mut() {
            Some((last, sum)) if Arc::ptr_eq(last, share) => *sum += bytes,
            _ => self.of_clients.push((share.clone(), bytes)),
        }
        Room::Enough
    }
}

impl Drop for ExpectedReplies {
    fn drop(&mut self) {
        self.memory.expected.fetch_sub(self.bytes, Ordering::SeqCst);
        for (share, bytes) in &self.of_clients {
            share.expected.fetch_sub(*bytes, Ordering::SeqCst);
        }
    }
}

impl Share {
    pub(crate) fn new(limit: usize) -> Share {
        Share { bodies: Account::new(limit), replies: Account::new(limit), expected: AtomicUsize::new(0) }
    }
}

impl Default for Share {
    /// A share without a limit of its own.
    fn default() -> Share {
        Share::new(usize::MAX >> 1)
    }
}

impl Reservation {
    /// Reserves more bytes of a body as soon as there is room for them.
    pub(crate) async fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        if !self.share.bodies.add_within(bytes, &mut self.waited).await {
            return Err(self.memory.refuse_client());
        }
        // Given back if the wait fails, or is dropped because the body takes too long or the client leaves.
        let mut in_share = Added { account: &self.share.bodies, bytes };
        if !self.memory.total.add_within(bytes, &mut self.waited).await {
            return Err(self.memory.refuse());
        }
        in_share.bytes = 0;
        self.bytes += bytes;
        Ok(())
    }

    /// Reserves more bytes, even if they exceed the limit.
    fn add_over_limit(&mut self, bytes: usize) {
        self.memory.total.add_over_limit(bytes);
        self.account().add_over_limit(bytes);
        if self.content == Content::Reply {
            self.memory.replies.add_over_limit(bytes);
        }
        self.bytes += bytes;
    }

    /// Releases a part.
    fn shrink(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.memory.total.remove(bytes);
        self.account().remove(bytes);
        if self.content == Content::Reply {
            self.memory.replies.remove(bytes);
        }
    }

    /// Builds a part of the reply. Its bytes are reserved before it is built, and then replace `bytes` of this reservation.
    pub(crate) fn replace(&mut self, bytes: usize, made_bytes: usize, make: impl FnOnce() -> Vec<u8>) -> ReservedBytes {
        let reservation = self.memory.reserve_reply(&self.share, made_bytes);
        let made = make();
        self.shrink(bytes.min(self.bytes));
        ReservedBytes { bytes: made, _reservation: reservation }
    }

    fn account(&self) -> &Account {
        match self.content {
            Content::Body => &self.share.bodies,
            Content::Reply => &self.share.replies,
        }
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.remove(self.bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shrink(self.bytes);
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
        let memory = Arc::new(Memory::new(12));
        let share = Arc::new(Share::default());
        let (mut first, mut second) = (memory.reserve_body(&share), memory.reserve_body(&share));
        assert!(first.grow(6).await.is_ok());
        let reply = memory.reserve_reply(&share, 5).replace(5, 7, || vec![1; 7]);
        assert_eq!((memory.reserved_bytes(), reply.as_ref().len()), (13, 7));
        assert_eq!(memory.check_room(&share), Err(Failure::OutOfMemory));
        let (has_room, ()) = tokio::join!(memory.wait_for_room(&share), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(first);
        });
        assert_eq!(has_room, Ok(()), "released memory is available again");
        assert_eq!(memory.reserved_bytes(), 7);
        assert_eq!(second.grow(6).await, Err(Failure::OutOfMemory), "nothing was released");
        drop(reply);
        assert_eq!(second.grow(13).await, Ok(()), "a body that is too large is admitted if it is alone");
        drop(second);
        assert_eq!((memory.reserved_bytes(), memory.refused()), (0, [2, 0]));
    }

    #[tokio::test]
    async fn a_client_has_a_share_and_replies_leave_room_for_bodies() {
        let memory = Arc::new(Memory::new(100));
        let [greedy, other] = [50, 50].map(|limit| Arc::new(Share::new(limit)));
        let replies = memory.reserve_reply(&greedy, 60);
        assert_eq!(memory.check_room(&greedy), Err(Failure::OutOfShare));
        assert_eq!(memory.check_room(&other), Ok(()));
        let more = memory.reserve_reply(&other, 20);
        assert_eq!(memory.check_room(&other), Err(Failure::OutOfMemory), "a quarter is left for bodies");
        let mut body = memory.reserve_body(&greedy);
        assert_eq!(body.grow(20).await, Ok(()));
        drop((replies, more));
        assert_eq!(body.grow(31).await, Err(Failure::OutOfShare));
        assert_eq!((memory.reserved_bytes(), memory.refused()), (20, [1, 2]));
    }

    #[tokio::test]
    async fn a_body_that_is_abandoned_while_it_waits_does_not_occupy_its_share() {
        let memory = Arc::new(Memory::new(10));
        let [other, share] = [100, 10].map(|limit| Arc::new(Share::new(limit)));
        let replies = memory.reserve_reply(&other, 10);
        let mut body = memory.reserve_body(&share);
        assert!(tokio::time::timeout(Duration::from_millis(20), body.grow(8)).await.is_err(), "it waits");
        drop((replies, body));
        assert_eq!(memory.reserve_body(&share).grow(8).await, Ok(()));
    }

    #[test]
    fn fetches_of_a_batch_are_added_while_there_is_room_for_their_largest_replies() {
        use Room::{Enough, None};
        let memory = Arc::new(Memory::new(100));
        let share = Arc::new(Share::default());
        let replies = memory.reserve_reply(&share, 25);
        let (mut first, mut second) = (memory.expect(), memory.expect());
        let add = |batch: &mut ExpectedReplies, bytes| batch.add(&share, bytes, false);
        assert_eq!([20, 20, 20].map(|bytes| add(&mut first, bytes)), [Enough, Enough, None], "75 for all replies");
        assert_eq!([20, 20].map(|bytes| add(&mut second, bytes)), [Enough, None], "each batch can have one fetch");
        drop(first);
        assert_eq!([30, 1].map(|bytes| add(&mut second, bytes)), [Enough, None]);
        drop((second, replies));
        let expected = [&memory.expected, &share.expected].map(|expected| expected.load(Ordering::SeqCst));
        assert_eq!((expected, memory.reserved_bytes()), ([0, 0], 0));
        assert_eq!(add(&mut memory.expect(), 1000), Enough);
    }

    #[test]
    fn fetches_of_one_client_are_added_in_any_batch_while_there_is_room_in_its_share() {
        use Room::{Enough, NoneOfClient};
        let memory = Arc::new(Memory::new(1000));
        let (greedy, other) = (Arc::new(Share::new(50)), Arc::new(Share::new(50)));
        let (mut first, mut second) = (memory.expect(), memory.expect());
        assert_eq!([80, 1].map(|bytes| first.add(&greedy, bytes, false)), [Enough, NoneOfClient], "one always fits");
        assert_eq!(second.add(&greedy, 20, false), NoneOfClient, "another lane has one");
        assert_eq!(second.add(&greedy, 20, true), Enough, "it has waited for too long");
        assert_eq!([30, 30].map(|bytes| second.add(&other, bytes, false)), [Enough, NoneOfClient]);
        drop((first, second));
        let reply = memory.reserve_reply(&greedy, 30);
        let mut third = memory.expect();
        assert_eq!([15, 5, 1].map(|bytes| third.add(&greedy, bytes, false)), [Enough, Enough, NoneOfClient]);
        drop((third, reply));
        assert_eq!([&greedy, &other].map(|share| share.expected.load(Ordering::SeqCst)), [0, 0]);
    }

    /// Otherwise bodies that each get a bit of room before the end of a wait would hold it from each other for much longer.
    #[tokio::test(start_paused = true)]
    async fn the_waits_of_a_body_add_up() {
        let memory = Arc::new(Memory::new(10));
        let (share, began) = (Arc::new(Share::default()), Instant::now());
        let mut others: Vec<Reservation> = (0..5).map(|_| memory.reserve_body(&share)).collect();
        for other in &mut others {
            assert_eq!(other.grow(2).await, Ok(()));
        }
        let mut body = memory.reserve_body(&share);
        let read = async { while body.grow(2).await.is_ok() {} };
        let release = async {
            while others.pop().is_some() {
                tokio::time::sleep(Duration::from_millis(1500)).await;
            }
        };
        tokio::join!(
            async {
                read.await;
                assert_eq!(began.elapsed().as_secs(), WAITED_FOR.as_secs());
            },
            release
        );
        drop(body);
        assert_eq!((memory.reserved_bytes(), memory.refused()), (0, [1, 0]));
    }

    #[tokio::test]
    async fn waiting_requests_keep_their_order() {
        let memory = Arc::new(Memory::new(10));
        let share = Arc::new(Share::default());
        let mut first = memory.reserve_body(&share);
        assert!(first.grow(9).await.is_ok());
        let (order, size) = (std::sync::Mutex::new(Vec::new()), [10, 1]);
        let wait = async |bytes: usize| {
            let mut reservation = memory.reserve_body(&share);
            assert!(reservation.grow(bytes).await.is_ok());
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
