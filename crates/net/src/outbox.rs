//! The write side of a connection: small pieces are coalesced, large ones are moved in whole, and one call writes them all.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// A coalesced piece is closed when it has reached this size.
const PIECE_BYTES: usize = 64 * 1024;
/// A larger buffer of an idle connection is freed.
const RELEASED_BYTES: usize = 4096;
/// Maximum pieces in one vectored write.
const PIECES_PER_WRITE: usize = 32;

/// The write side of a connection. One that is idle, or has been, keeps at most a small buffer.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The first bytes that are not written. Empty, but perhaps with room, if all are written.
    first: Vec<u8>,
    more: Option<Box<More>>,
    queued_total: u64,
    written_total: u64,
}

/// What is needed only if not everything is written with one call.
#[derive(Debug, Default)]
struct More {
    /// Bytes of the first piece that have been written.
    first_written: usize,
    /// The pieces after the first one.
    pieces: VecDeque<Vec<u8>>,
    spare: Vec<u8>,
}

impl Outbox {
    /// Lets `write` append to the unwritten bytes.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let piece = self.last_piece();
        let before = piece.len();
        write(piece);
        let count = piece.len() - before;
        self.queued_total += count as u64;
    }

    /// The piece to append to.
    fn last_piece(&mut self) -> &mut Vec<u8> {
        let has_more = self.more.as_ref().is_some_and(|more| !more.pieces.is_empty());
        if !has_more && self.first.len() < PIECE_BYTES {
            return &mut self.first;
        }
        let More { pieces, spare, .. } = &mut **self.more.get_or_insert_default();
        if pieces.back().is_none_or(|piece| piece.len() >= PIECE_BYTES) {
            pieces.push_back(std::mem::take(spare));
        }
        pieces.back_mut().unwrap_or(&mut self.first)
    }

    /// Appends a large piece without copying it.
    pub fn append_owned(&mut self, piece: Vec<u8>) {
        let is_empty = self.is_empty();
        self.queued_total += piece.len() as u64;
        if is_empty {
            self.first = piece;
        } else {
            self.more.get_or_insert_default().pieces.push_back(piece);
        }
    }

    /// Bytes ever appended, which is the offset of the next appended byte.
    pub fn queued_total(&self) -> u64 {
        self.queued_total
    }

    /// Bytes ever written to the kernel.
    pub fn written_total(&self) -> u64 {
        self.written_total
    }

    /// Bytes not written yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.queued_total - self.written_total
    }

    /// A copy of the bytes from this offset on, none of which has been written.
    ///
    /// # Panics
    /// When bytes behind the offset have been written.
    pub fn unwritten_from(&self, offset: u64) -> Vec<u8> {
        assert!(offset >= self.written_total, "these bytes have been written");
        let mut skipped = (offset - self.written_total) as usize;
        let mut bytes = Vec::new();
        for unwritten in self.unwritten() {
            bytes.extend_from_slice(&unwritten[skipped.min(unwritten.len())..]);
            skipped = skipped.saturating_sub(unwritten.len());
        }
        bytes
    }

    /// The unwritten bytes of each piece.
    fn unwritten(&self) -> impl Iterator<Item = &[u8]> {
        let more = self.more.iter().flat_map(|more| more.pieces.iter().map(Vec::as_slice));
        std::iter::once(self.first_unwritten()).chain(more)
    }

    fn first_unwritten(&self) -> &[u8] {
        &self.first[self.more.as_ref().map_or(0, |more| more.first_written)..]
    }

    /// Whether everything has been written.
    pub fn is_empty(&self) -> bool {
        self.waiting_bytes() == 0
    }

    /// Writes until the outbox is empty or the kernel accepts no more; true if it is empty.
    pub fn flush(&mut self, stream: &mut impl Write) -> io::Result<bool> {
        while !self.is_empty() {
            match self.write_once(stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes once. A single piece, the usual case, needs no vectored write.
    pub(crate) fn write_once(&self, stream: &mut impl Write) -> io::Result<usize> {
        if self.more.as_ref().is_none_or(|more| more.pieces.is_empty()) {
            return stream.write(self.first_unwritten());
        }
        let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
        let mut used = 0;
        for (slice, unwritten) in slices.iter_mut().zip(self.unwritten()) {
            *slice = IoSlice::new(unwritten);
            used += 1;
        }
        stream.write_vectored(&slices[..used])
    }

    /// Discards `count` bytes that have been written.
    pub(crate) fn written(&mut self, mut count: usize) {
        self.written_total += count as u64;
        if self.more.is_none() && count == self.first.len() {
            return keep(&mut self.first);
        }
        let More { first_written, pieces, spare } = &mut **self.more.get_or_insert_default();
        loop {
            let left = self.first.len() - *first_written;
            if count < left {
                *first_written += count;
                return;
            }
            count -= left;
            *first_written = 0;
            let Some(next) = pieces.pop_front() else { return keep(&mut self.first) };
            let mut written = std::mem::replace(&mut self.first, next);
            keep(&mut written);
            *spare = written;
        }
    }

    /// Frees the large buffers of an idle connection.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.more = None;
            if self.first.capacity() > RELEASED_BYTES {
                self.first = Vec::new();
            }
        }
    }
}

/// Empties a piece, and frees it if it is large.
fn keep(piece: &mut Vec<u8>) {
    if piece.capacity() > 2 * PIECE_BYTES {
        *piece = Vec::new();
    }
    piece.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts at most this many bytes in a call, then blocks once.
    struct Narrow {
        taken: Vec<u8>,
        width: usize,
        blocked: bool,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.blocked = !self.blocked;
            if self.blocked {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.width);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pieces_are_sent_in_order_whatever_the_kernel_accepts() {
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for round in 0..200usize {
            let piece: Vec<u8> = (0..round * 13).map(|byte| (byte + round) as u8).collect();
            expected.extend_from_slice(&piece);
            if round % 3 == 0 {
                outbox.append_owned(piece);
            } else {
                outbox.append(|out| out.extend_from_slice(&piece));
            }
        }
        assert_eq!(outbox.queued_total(), expected.len() as u64);
        let mut stream = Narrow { taken: Vec::new(), width: 777, blocked: false };
        while !outbox.flush(&mut stream).unwrap() {
            let middle = (stream.taken.len() + expected.len()) / 2;
            assert!(outbox.unwritten_from(middle as u64) == expected[middle..]);
            assert_eq!(outbox.written_total(), stream.taken.len() as u64);
        }
        assert_eq!(stream.taken, expected);
        assert!(outbox.is_empty());
    }
}
