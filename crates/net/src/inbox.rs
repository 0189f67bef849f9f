//! The read side of a connection: received bytes that have not been consumed, contiguous, so that a parser sees one slice.
//! Its buffer comes from a pool of the event loop and returns to it, so that an idle connection has none.

/// Bytes of a new read buffer.
pub(crate) const BUFFER_BYTES: usize = 32 * 1024;
/// Spare buffers kept. One turn of the event loop needs no more than it reads connections.
const SPARE_MAX: usize = 64;

/// A buffer of its own for a large message has room for this much more: the line behind a value.
const BEHIND_BYTES: usize = 64;

/// The pool of read buffers of one event loop.
#[derive(Debug, Default)]
pub struct Buffers {
    spare: Vec<Vec<u8>>,
}

/// The result of reading until the budget is used up or the socket is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The socket is empty; everything that had arrived is in the inbox.
    Drained,
    /// The budget is used up; the socket may have more.
    More,
    /// The peer has closed its side; everything it sent is in the inbox.
    Closed,
}

/// The read side of a connection.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Everything before `start` has been consumed. The kernel writes into the spare capacity, which is never zeroed.
    bytes: Vec<u8>,
    start: usize,
    /// The length of the first message, if that is known and the message is not complete.
    expected_bytes: usize,
}

impl Buffers {
    /// An empty buffer with room for [`BUFFER_BYTES`].
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Returns a buffer to the pool. A buffer that has grown is freed, so that one large value does not keep its memory.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == BUFFER_BYTES && self.spare.len() < SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

impl Inbox {
    /// The bytes that have been received and not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The size of the buffer.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Discards the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.filled().len(), "only bytes that are there can be consumed");
        self.start += count;
        self.expected_bytes = 0;
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
        }
    }

    /// Tells how long the first message is, which is not complete. A message that is larger than a buffer of the pool then gets one
    /// of its size at once, instead of one that grows with it.
    pub fn expect(&mut self, message_bytes: usize) {
        self.expected_bytes = message_bytes;
    }

    /// Takes out the first `count` bytes with their buffer, instead of copying them, if that buffer was made for them.
    pub fn detach(&mut self, count: usize) -> Option<Vec<u8>> {
        if count <= BUFFER_BYTES || self.start > 0 || self.bytes.capacity() > count + BEHIND_BYTES {
            return None;
        }
        let rest = self.bytes.split_off(count);
        self.expected_bytes = 0;
        Some(std::mem::replace(&mut self.bytes, rest))
    }

    /// The bytes with spare capacity to read into; grows if a message is larger than the buffer.
    pub(crate) fn room(&mut self, buffers: &mut Buffers) -> &mut Vec<u8> {
        let is_large = self.expected_bytes > BUFFER_BYTES;
        let needed = if is_large { self.expected_bytes + BEHIND_BYTES } else { BUFFER_BYTES };
        if self.bytes.capacity() < needed {
            let mut bytes = if is_large { Vec::with_capacity(needed) } else { buffers.take() };
            bytes.extend_from_slice(self.filled());
            buffers.give(std::mem::replace(&mut self.bytes, bytes));
            self.start = 0;
        }
        if self.bytes.len() == self.bytes.capacity() {
            if self.start > 0 {
                self.bytes.drain(..self.start);
                self.start = 0;
            } else {
                self.bytes.reserve_exact(self.bytes.capacity());
            }
        }
        &mut self.bytes
    }

    /// Returns the buffer to the pool if it is empty.
    pub fn release(&mut self, buffers: &mut Buffers) {
        if self.bytes.is_empty() && self.bytes.capacity() > 0 {
            buffers.give(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_through_growth_and_compaction() {
        let mut buffers = Buffers::default();
        let mut inbox = Inbox::default();
        let (mut next_in, mut next_out) = (0u64, 0u64);
        for round in 0..2000u64 {
            let room = inbox.room(&mut buffers);
            let count = (room.capacity() - room.len()).min(1 + (round * 37 % 5000) as usize);
            assert!(count > 0);
            for _ in 0..count {
                room.push(next_in as u8);
                next_in += 1;
            }
            // A wrong length changes the buffers only.
            if round % 7 == 0 {
                inbox.expect((round * 97 % 70_000) as usize);
            }
            let take = inbox.filled().len().min((round * 53 % 4800) as usize);
            for &byte in &inbox.filled()[..take] {
                assert_eq!(byte, next_out as u8);
                next_out += 1;
            }
            inbox.consume(take);
        }
        assert_eq!(inbox.filled().len() as u64, next_in - next_out);
    }

    #[test]
    fn an_empty_inbox_frees_its_buffer() {
        let mut buffers = Buffers::default();
        let mut inbox = Inbox::default();
        inbox.room(&mut buffers).extend_from_slice(&[1; 10]);
        inbox.release(&mut buffers);
        assert_eq!(inbox.filled().len(), 10);
        inbox.consume(10);
        inbox.release(&mut buffers);
        assert_eq!(inbox.held_bytes(), 0);
        assert_eq!((buffers.spare.len(), buffers.take()), (1, Vec::new()));
    }

    #[test]
    fn a_large_message_is_detached_without_a_copy() {
        let mut buffers = Buffers::default();
        let mut inbox = Inbox::default();
        let message = vec![7; 3 * BUFFER_BYTES];
        inbox.room(&mut buffers).extend_from_slice(b"before");
        inbox.room(&mut buffers).extend_from_slice(&message[..1000]);
        inbox.consume(b"before".len());
        inbox.expect(message.len());
        let room = inbox.room(&mut buffers);
        room.extend_from_slice(&message[1000..]);
        room.extend_from_slice(b"END");
        let place = inbox.filled().as_ptr();
        let detached = inbox.detach(message.len()).unwrap();
        assert_eq!((detached.as_ptr(), &detached), (place, &message));
        assert_eq!(inbox.filled(), b"END");
        // The message behind it has no buffer of its own.
        assert_eq!(inbox.detach(3), None);
    }
}
