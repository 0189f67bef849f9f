//! For experiments only: makes an event loop as slow as on a core of another machine.
//!
//! After each turn, the loop rests for `slow_down` - 1 times the CPU time of the turn. On a shared machine, the same work takes up to
//! half as much CPU time again while other programs use the same core, so CPU time is measured in units of a fixed computation that
//! runs in between on the same core. It is not counted itself.

use clock::{Clock, duration_ns, thread_cpu_ns};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

/// What the computation takes on a core of speed 1, in nanoseconds.
const REFERENCE_NS: f64 = 10_000.0;
/// The share of the newest measurement in the speed. Other programs come and go within some 10 ms, and turns follow each other within
/// less than one.
const NEWEST: f64 = 0.1;
/// One measurement counts at most as this speed, and at least as its inverse: an interrupt may fall into it.
const SPEED_MAX: f64 = 4.0;
/// The sleeps of the kernel are some 60 us too long, so shorter rests are added up.
const REST_MIN: Duration = Duration::from_micros(100);
/// A rest that took longer than due shortens the next ones by at most this.
const CREDIT_MAX: Duration = Duration::from_millis(2);
const MESSAGES: usize = 3;
const MESSAGE_BYTES: usize = 128;
const WORDS: usize = 512;

/// Slows down the thread that calls it.
#[derive(Debug)]
pub(super) struct Pace {
    slow_down: f64,
    probe: Probe,
    /// The CPU time of this thread that is accounted for, in nanoseconds.
    counted: u64,
    /// The speed of the core: 1 if the computation takes `REFERENCE_NS`.
    speed: f64,
    /// The rest that is due, in nanoseconds; below zero if earlier rests were too long.
    due: f64,
}

impl Pace {
    /// Makes the thread `slow_down` times as slow, at least 1.
    ///
    /// # Errors
    /// If no socket can be opened.
    pub(super) fn new(slow_down: f64) -> io::Result<Pace> {
        let mut probe = Probe::new()?;
        let speed = speed_of(probe.run());
        Ok(Pace { slow_down, probe, counted: thread_cpu_ns(), speed, due: 0.0 })
    }

    /// Rests as long as the work since the last call demands.
    pub(super) fn rest(&mut self, clock: &Clock) {
        let worked = thread_cpu_ns() - self.counted;
        self.speed += NEWEST * (speed_of(self.probe.run()) - self.speed);
        self.due += rest_for(worked as f64, self.slow_down, self.speed);
        if self.due >= duration_ns(REST_MIN) as f64 {
            let start = clock.now();
            sleep(Duration::from_nanos(self.due as u64));
            self.due = (self.due - clock.now().since(start) as f64).max(-(duration_ns(CREDIT_MAX) as f64));
        }
        self.counted = thread_cpu_ns();
    }
}

/// The rest after work of so much CPU time at a speed: a slower core has done less in that time.
fn rest_for(worked: f64, slow_down: f64, speed: f64) -> f64 {
    worked * (slow_down * speed - 1.0).max(0.0)
}

fn speed_of(took_ns: u64) -> f64 {
    (REFERENCE_NS / took_ns.max(1) as f64).clamp(1.0 / SPEED_MAX, SPEED_MAX)
}

/// A fixed computation, a mixture of what the loop does: system calls on a socket, and arithmetic on memory.
#[derive(Debug)]
struct Probe {
    ends: (UnixStream, UnixStream),
    words: Vec<u64>,
}

impl Probe {
    fn new() -> io::Result<Probe> {
        let ends = UnixStream::pair()?;
        ends.0.set_nonblocking(true)?;
        ends.1.set_nonblocking(true)?;
        Ok(Probe { ends, words: vec![1; WORDS] })
    }

    /// The CPU time of the computation in nanoseconds. After a rest, other programs have used the caches, which slows it down as it
    /// does the work.
    fn run(&mut self) -> u64 {
        let start = thread_cpu_ns();
        self.compute();
        thread_cpu_ns() - start
    }

    fn compute(&mut self) {
        let mut space = [0; MESSAGE_BYTES];
        for _ in 0..MESSAGES {
            // This can fail only if the kernel has no memory. Then the measurement is too short, and bounded.
            let _ = (&self.ends.0).write(&space);
            let _ = (&self.ends.1).read(&mut space);
        }
        let mut state = 7_u64;
        for word in &mut self.words {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(*word);
            *word ^= state >> 33;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_twice_as_slow_has_done_half_as_much() {
        assert_eq!(rest_for(1.0, 1.0, 1.0), 0.0);
        assert_eq!(rest_for(1.0, 20.0, 1.0), 19.0);
        assert_eq!(rest_for(2.0, 20.0, 0.5), 18.0);
        assert_eq!(rest_for(2.0, 1.0, 0.5), 0.0);
    }

    #[test]
    fn a_measurement_is_bounded() {
        assert_eq!(speed_of(10_000), 1.0);
        assert_eq!(speed_of(20_000), 0.5);
        assert_eq!(speed_of(1_000_000_000), 0.25);
        assert_eq!(speed_of(0), 4.0);
    }

    #[test]
    fn a_thread_rests_most_of_the_time() {
        let (mut pace, clock) = (Pace::new(20.0).unwrap(), Clock::monotonic());
        let (start, cpu) = (clock.now(), thread_cpu_ns());
        let mut words = vec![1_u64; 1 << 12];
        while clock.now().since(start) < 300_000_000 {
            words.iter_mut().for_each(|word| *word = word.wrapping_mul(3));
            pace.rest(&clock);
        }
        let used = (thread_cpu_ns() - cpu) as f64 / clock.now().since(start) as f64;
        // The speed of the core is not known, so the share is not a twentieth.
        assert!(used < 0.6, "{used}");
    }
}
