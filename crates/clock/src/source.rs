//! The source of time: the monotonic clock of the host, or a manual clock for tests.

use crate::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of time. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual: Option<Arc<AtomicU64>>,
}

/// Moves a manual clock forward.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

/// CPU time used by this process since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Seconds in user mode.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
}

impl Clock {
    /// The host's CLOCK_MONOTONIC.
    pub fn monotonic() -> Clock {
        Clock { manual: None }
    }

    /// A clock that stays at `start` until its hand moves it.
    pub fn manual(start: Nanos) -> (Clock, ManualClock) {
        let time = Arc::new(AtomicU64::new(start.0));
        (Clock { manual: Some(time.clone()) }, ManualClock(time))
    }

    /// The time now.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn now(&self) -> Nanos {
        match &self.manual {
            None => {
                let time = clock_gettime(ClockId::Monotonic);
                Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
            }
            Some(manual) => Nanos(manual.load(Ordering::Relaxed)),
        }
    }
}

impl ManualClock {
    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(crate::duration_ns(by), Ordering::Relaxed);
    }
}

/// Wall-clock time in nanoseconds since 1970: for file headers, expiry dates and names; never for intervals.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn unix_now() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.max(0).cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// CPU time of the thread that asks, in nanoseconds.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// CPU time of this process, all threads together.
pub fn process_cpu() -> CpuTime {
    let usage = proc_usage();
    CpuTime { user_s: usage.0, system_s: usage.1 }
}

/// User and system seconds from /proc, where the kernel counts both in clock ticks.
fn proc_usage() -> (f64, f64) {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses, which may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let seconds =
        |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / ticks_per_s;
    (seconds(11), seconds(12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_does_not_go_back() {
        let clock = Clock::monotonic();
        let mut last = clock.now();
        assert!(last.is_set());
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let (clock, hand) = Clock::manual(Nanos(10));
        assert_eq!(clock.now(), Nanos(10));
        hand.advance(Duration::from_nanos(5));
        assert_eq!(clock.clone().now(), Nanos(15));
    }

    #[test]
    fn work_costs_cpu_time() {
        let before = process_cpu();
        let mut sum = 0u64;
        let clock = Clock::monotonic();
        let end = clock.now() + Duration::from_millis(60);
        while clock.now() < end {
            sum = sum.wrapping_add(1);
        }
        let after = process_cpu();
        assert!(sum > 0 && after.user_s + after.system_s > before.user_s + before.system_s);
    }
}
