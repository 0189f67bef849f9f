//! The write side of a connection: small pieces are coalesced, large ones are moved in whole, and one call writes them all.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// A coalesced piece is closed when it has reached this size.
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum pieces in one vectored write.
const PIECES_PER_WRITE: usize = 32;

/// The write side of a connection.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that have been written.
    first_written: usize,
    queued_total: u64,
    written_total: u64,
    spare: Vec<u8>,
}

impl Outbox {
    /// Lets `write` append to the unwritten bytes.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.pieces.back().is_none_or(|piece| piece.len() >= PIECE_BYTES) {
            self.pieces.push_back(std::mem::take(&mut self.spare));
        }
        if let Some(piece) = self.pieces.back_mut() {
            let before = piece.len();
            write(piece);
            self.queued_total += (piece.len() - before) as u64;
        }
    }

    /// Appends a large piece without copying it.
    pub fn append_owned(&mut self, piece: Vec<u8>) {
        self.queued_total += piece.len() as u64;
        self.pieces.push_back(piece);
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
        for (index, piece) in self.pieces.iter().enumerate() {
            let unwritten = if index == 0 { &piece[self.first_written..] } else { piece };
            bytes.extend_from_slice(&unwritten[skipped.min(unwritten.len())..]);
            skipped = skipped.saturating_sub(unwritten.len());
        }
        bytes
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
        if self.pieces.len() == 1 {
            return stream.write(&self.pieces[0][self.first_written..]);
        }
        let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
        let mut used = 0;
        for (index, piece) in self.pieces.iter().take(PIECES_PER_WRITE).enumerate() {
            slices[index] = IoSlice::new(if index == 0 { &piece[self.first_written..] } else { piece });
            used = index + 1;
        }
        stream.write_vectored(&slices[..used])
    }

    /// Discards `count` bytes that have been written.
    pub(crate) fn written(&mut self, mut count: usize) {
        self.written_total += count as u64;
        while let Some(piece) = self.pieces.front() {
            let left = piece.len() - self.first_written;
            if count < left {
                self.first_written += count;
                return;
            }
            count -= left;
            self.first_written = 0;
            if let Some(mut piece) = self.pieces.pop_front()
                && piece.capacity() <= 2 * PIECE_BYTES
            {
                piece.clear();
                self.spare = piece;
            }
        }
    }

    /// Frees the spare piece of an idle connection.
    pub fn release(&mut self) {
        if self.is_empty() && self.spare.capacity() > 4096 {
            self.spare = Vec::new();
        }
    }
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
