//! What one direction has counted, and its form in the file that the lab reads.

/// The counts of one direction since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent.
    pub frames: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Frames that did not fit into the queue, or that the device at the other end did not take.
    pub dropped: u64,
    /// Frames lost on purpose.
    pub lost: u64,
    /// Frames that left later than allowed after their due time.
    pub late_frames: u64,
    /// The sum of the times between due time and departure, in nanoseconds.
    pub late_sum_ns: u64,
    /// The largest of these times, in nanoseconds.
    pub late_max_ns: u64,
}

impl Counters {
    const BYTES: usize = 7 * size_of::<u64>();

    /// Both directions as bytes: seven numbers each, of eight bytes in the order of this machine.
    pub fn both(up: &Counters, down: &Counters) -> [u8; 2 * Counters::BYTES] {
        let mut bytes = [0; 2 * Counters::BYTES];
        let numbers = [up, down].into_iter().flat_map(|counters| counters.numbers());
        for (place, number) in bytes.chunks_exact_mut(size_of::<u64>()).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn numbers(&self) -> [u64; 7] {
        [self.frames, self.bytes, self.dropped, self.lost, self.late_frames, self.late_sum_ns, self.late_max_ns]
    }
}
