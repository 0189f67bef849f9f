//! One direction of a link: the frames on it, in the order in which they leave.

use crate::Counters;
use clock::Clock;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::io::{Errno, read, write};
use serde::Deserialize;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

const FRAME_BYTES_MAX: usize = 2048;
/// Frames that are read before due frames are sent.
const BATCH: usize = 32;

/// The settings of one direction.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// How long each frame is on the link.
    pub delay_ms: f64,
    /// How many bits may leave in a microsecond; 0 for no limit.
    pub rate_mbit: f64,
    /// The bytes that may wait for the rate. What does not fit is dropped.
    pub queue_bytes: u64,
    /// The share of the frames that are lost, from 0 to 1.
    pub loss: f64,
    /// Frames that leave later than this after their due time are counted as late.
    pub late_ms: f64,
}

/// A direction at work.
#[derive(Debug)]
pub struct Way<'d> {
    source: BorrowedFd<'d>,
    target: BorrowedFd<'d>,
    delay_ns: u64,
    ns_per_byte: f64,
    queue_ns: f64,
    loss: f64,
    late_ns: u64,
    random: Xoshiro256PlusPlus,
    /// When the last frame has left that the rate holds back.
    free_ns: f64,
    /// The due time of each frame.
    frames: VecDeque<(u64, Vec<u8>)>,
    /// Buffers of frames that have left.
    spare: Vec<Vec<u8>>,
    counters: Counters,
}

impl<'d> Way<'d> {
    /// A direction from one device to another; both must not block.
    pub fn new(settings: &Direction, source: BorrowedFd<'d>, target: BorrowedFd<'d>, seed: u64) -> Way<'d> {
        let ns_per_byte = if settings.rate_mbit > 0.0 { 8e3 / settings.rate_mbit } else { 0.0 };
        Way {
            source,
            target,
            delay_ns: (settings.delay_ms * 1e6).round() as u64,
            ns_per_byte,
            queue_ns: settings.queue_bytes as f64 * ns_per_byte,
            loss: settings.loss,
            late_ns: (settings.late_ms * 1e6) as u64,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            free_ns: 0.0,
            frames: VecDeque::new(),
            spare: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The device from which frames come.
    pub fn source(&self) -> BorrowedFd<'d> {
        self.source
    }

    /// The time after the due time from which a frame is late, in nanoseconds.
    pub(crate) fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// When the first frame is due, in nanoseconds of the clock.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.frames.front().map(|(due_ns, _)| *due_ns)
    }

    /// Reads a batch of frames, and gives each its due time. Returns whether there may be more.
    ///
    /// # Errors
    /// The error of the device.
    pub fn receive(&mut self, clock: &Clock) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.resize(FRAME_BYTES_MAX, 0);
            match read(self.source, &mut frame) {
                // A device has no empty frames. At the end of a file or a pipe, every later read would be empty, too.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => frame.truncate(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.spare.push(frame);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            match self.due_ns(clock.now().0, frame.len()) {
                Some(due_ns) => self.frames.push_back((due_ns, frame)),
                None => self.spare.push(frame),
            }
        }
        Ok(true)
    }

    /// When a frame leaves that arrives now; none if it never does.
    fn due_ns(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        if self.loss > 0.0 && self.random.random::<f64>() < self.loss {
            self.counters.lost += 1;
            return None;
        }
        let due_ns = now_ns.saturating_add(self.delay_ns);
        if self.ns_per_byte == 0.0 {
            return Some(due_ns);
        }
        if self.free_ns - due_ns as f64 > self.queue_ns {
            self.counters.dropped += 1;
            return None;
        }
        self.free_ns = self.free_ns.max(due_ns as f64) + bytes as f64 * self.ns_per_byte;
        Some(self.free_ns as u64)
    }

    /// Sends every frame that is due.
    pub fn send_due(&mut self, clock: &Clock) {
        while let Some(due_ns) = self.next_due_ns() {
            let now_ns = clock.now().0;
            if now_ns < due_ns {
                return;
            }
            let Some((_, frame)) = self.frames.pop_front() else { return };
            // The device at the other end may be down, or its queue may be full.
            if write(self.target, &frame).is_err() {
                self.counters.dropped += 1;
            } else {
                let late_ns = now_ns - due_ns;
                self.counters.frames += 1;
                self.counters.bytes += frame.len() as u64;
                self.counters.late_frames += u64::from(late_ns > self.late_ns);
                self.counters.late_sum_ns += late_ns;
                self.counters.late_max_ns = self.counters.late_max_ns.max(late_ns);
            }
            self.spare.push(frame);
        }
    }
}
