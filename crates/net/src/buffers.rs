//! Spare read buffers of one event loop, so that an idle connection holds none.

/// Bytes of a fresh read buffer.
pub(crate) const BUFFER_BYTES: usize = 32 * 1024;
/// Spare buffers kept; more than the connections that are read in one turn is of no use.
const SPARE_MAX: usize = 64;

/// Read buffers that no connection needs just now.
#[derive(Debug, Default)]
pub struct Buffers {
    spare: Vec<Vec<u8>>,
}

impl Buffers {
    /// A buffer of [`BUFFER_BYTES`] bytes with any content.
    pub fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// Gives a buffer back. One that has grown is freed: a single large value must not stay for ever.
    pub fn give(&mut self, buffer: Vec<u8>) {
        if buffer.len() == BUFFER_BYTES && self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }
}
