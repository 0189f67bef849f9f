//! The body of a message: its label, a fill, and a checksum over both.
//!
//! ```text
//! run u64 | sender u32 | queue u32 | receiver u32 | number u32 | fill | xxh3 of all before it, u64      (little-endian)
//! ```

use crate::workload::value::Fill;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the fill, and after it.
const HEAD_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
/// The smallest body that can be verified.
pub(crate) const BYTES_MIN: usize = HEAD_BYTES + CHECKSUM_BYTES;
/// The receiver of a message for any receiver.
pub(crate) const ANYONE: u32 = u32::MAX;

/// Identifies the message of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The run.
    pub(crate) run: u64,
    /// The number of the sending client.
    pub(crate) sender: u32,
    /// The number of the queue.
    pub(crate) queue: u32,
    /// The number of the receiving client, or [`ANYONE`].
    pub(crate) receiver: u32,
    /// Its number among the messages of this sender in this queue.
    pub(crate) number: u32,
}

/// Appends the body of a message. A body smaller than [`BYTES_MIN`] has no label.
pub(crate) fn make(label: &Label, size_bytes: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let end = start + size_bytes;
    let is_verified = size_bytes >= BYTES_MIN;
    if is_verified {
        out.extend_from_slice(&label.run.to_le_bytes());
        for part in [label.sender, label.queue, label.receiver, label.number] {
            out.extend_from_slice(&part.to_le_bytes());
        }
    }
    let stop = if is_verified { end - CHECKSUM_BYTES } else { end };
    let mut fill = Fill::new(u64::from(label.sender) << 32 | u64::from(label.queue), u64::from(label.number));
    while out.len() < stop {
        out.extend_from_slice(&fill.word());
    }
    out.truncate(stop);
    if is_verified {
        let checksum = xxh3_64(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }
}

/// The label of a body; none if the body is damaged.
pub(crate) fn read(body: &[u8]) -> Option<Label> {
    let covered = body.len().checked_sub(CHECKSUM_BYTES).filter(|&bytes| bytes >= HEAD_BYTES)?;
    if xxh3_64(&body[..covered]).to_le_bytes() != body[covered..] {
        return None;
    }
    let word = |at: usize| body.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    Some(Label {
        run: u64::from(word(0)?) | u64::from(word(4)?) << 32,
        sender: word(8)?,
        queue: word(12)?,
        receiver: word(16)?,
        number: word(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(label: &Label, size_bytes: usize) -> Vec<u8> {
        let mut body = Vec::new();
        make(label, size_bytes, &mut body);
        assert_eq!(body.len(), size_bytes);
        body
    }

    proptest! {
        #[test]
        fn bodies_are_parsed_back_and_any_damage_is_found(
            run: u64, sender: u32, queue: u32, receiver: u32, number: u32, size_bytes in BYTES_MIN..300,
            at: prop::sample::Index, change in 1u8..
        ) {
            let label = Label { run, sender, queue, receiver, number };
            let mut body = made(&label, size_bytes);
            prop_assert_eq!(read(&body), Some(label));
            prop_assert_eq!(read(&body[..size_bytes - 1]), None);
            body[at.index(size_bytes)] ^= change;
            prop_assert_eq!(read(&body), None);
        }

        #[test]
        fn a_body_that_is_too_small_has_no_label(size_bytes in 0..BYTES_MIN) {
            let label = Label { run: 1, sender: 2, queue: 3, receiver: ANYONE, number: 4 };
            prop_assert_eq!(read(&made(&label, size_bytes)), None);
        }
    }
}
