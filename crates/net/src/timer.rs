//! A timer that wakes a poller with the precision of the kernel's timers; the timeout of a poller is in whole milliseconds.
//! Knows no clock: its times are nanoseconds of CLOCK_MONOTONIC.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A timer that wakes the poller it was added to.
#[derive(Debug)]
pub struct Timer {
    timer: OwnedFd,
    /// The time it is set to.
    set_to_ns: Option<u64>,
}

impl Timer {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Timer { timer: timerfd_create(TimerfdClockId::Monotonic, flags)?, set_to_ns: None })
    }

    /// Wakes the poller once when CLOCK_MONOTONIC reaches `at_ns`, or immediately if it has passed. Replaces the previous time.
    /// Setting the same time again makes no system call.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&mut self, at_ns: u64) -> io::Result<()> {
        if self.set_to_ns == Some(at_ns) {
            return Ok(());
        }
        // A time of zero would disarm it.
        let at_ns = at_ns.max(1);
        let value = Timespec {
            tv_sec: (at_ns / NANOS_PER_SECOND).try_into().unwrap_or(i64::MAX),
            tv_nsec: (at_ns % NANOS_PER_SECOND) as _,
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let when = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &when)?;
        self.set_to_ns = Some(at_ns);
        Ok(())
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::{Poller, Token};
    use rustix::time::{ClockId, clock_gettime};
    use std::time::Duration;

    #[allow(clippy::disallowed_methods, reason = "this crate knows no clock, but its test needs one")]
    fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * NANOS_PER_SECOND + now.tv_nsec as u64
    }

    #[test]
    fn the_timer_fires_once_each_time_it_is_set() {
        let mut poller = Poller::new().unwrap();
        let mut timer = Timer::new().unwrap();
        poller.add_timer(&timer, Token(7)).unwrap();
        let mut ready = Vec::new();
        for wait_ns in [1_500_000, 0, 700_000] {
            let due_ns = now_ns() + wait_ns;
            timer.set(due_ns).unwrap();
            timer.set(due_ns).unwrap();
            poller.wait(Some(Duration::from_secs(60)), &mut ready).unwrap();
            assert_eq!(ready.iter().map(|event| event.token).collect::<Vec<_>>(), [Token(7)]);
            assert!(now_ns() >= due_ns, "{wait_ns}");
        }
    }

    #[test]
    fn the_timer_fires_at_the_last_time_it_was_set_to() {
        let mut poller = Poller::new().unwrap();
        let mut timer = Timer::new().unwrap();
        poller.add_timer(&timer, Token(0)).unwrap();
        timer.set(now_ns() + 1_000_000).unwrap();
        timer.set(now_ns() + 3_600_000_000_000).unwrap();
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_millis(20)), &mut ready).unwrap();
        assert!(ready.is_empty());
    }
}
