//! The read side of a connection: received bytes that have not been consumed, contiguous, so that a parser sees one slice.
//! Its buffer comes from a pool of the event loop and returns to it, so that an idle connection has none.

/// Bytes of a new read buffer.
pub(crate) const BUFFER_BYTES: usize = 32 * 1024;
/// Spare buffers kept. One turn of the event loop needs no more than it reads connections.
const SPARE_MAX: usize = 64;

/// The pool of read buffers of one event loop.
#[derive(Debug, Default)]
pub struct Buffers {
    spare: Vec<Box<[u8]>>,
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
    /// Initialised over its whole length; the valid bytes are between `start` and `end`.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffers {
    /// A buffer of [`BUFFER_BYTES`] bytes with arbitrary content.
    pub fn take(&mut self) -> Box<[u8]> {
        self.spare.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES].into())
    }

    /// Returns a buffer to the pool. A buffer that has grown is freed, so that one large value does not keep its memory.
    pub fn give(&mut self, buffer: Box<[u8]>) {
        if buffer.len() == BUFFER_BYTES && self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }
}

impl Inbox {
    /// The bytes that have been received and not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The size of the buffer.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Discards the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.filled().len(), "only bytes that are there can be consumed");
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Free space to read into; grows if a message is larger than the buffer.
    pub(crate) fn room(&mut self, buffers: &mut Buffers) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = buffers.take();
        }
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                let mut bytes = std::mem::take(&mut self.bytes).into_vec();
                bytes.resize(bytes.len() * 2, 0);
                self.bytes = bytes.into();
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Marks `count` bytes of the free space as received.
    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end);
        self.end += count;
    }

    /// Returns the buffer to the pool if it is empty.
    pub fn release(&mut self, buffers: &mut Buffers) {
        if self.start == self.end && !self.bytes.is_empty() {
            buffers.give(std::mem::take(&mut self.bytes));
            self.start = 0;
            self.end = 0;
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
            let count = room.len().min(1 + (round * 37 % 5000) as usize);
            for byte in &mut room[..count] {
                *byte = next_in as u8;
                next_in += 1;
            }
            inbox.advance(count);
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
        inbox.room(&mut buffers);
        inbox.advance(10);
        inbox.release(&mut buffers);
        assert_eq!(inbox.filled().len(), 10);
        inbox.consume(10);
        inbox.release(&mut buffers);
        assert!(inbox.bytes.is_empty());
        assert_eq!(buffers.take().len(), BUFFER_BYTES);
    }
}
