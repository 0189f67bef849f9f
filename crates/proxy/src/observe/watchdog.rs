//! Shows the service manager that every event loop turns. An event loop sends the signs itself, and only if the others have turned as
//! well. So the signs end if one of them hangs, however many other threads go on.

use clock::Nanos;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where the signs of life go, and how often. All configurations of a process share it.
#[derive(Clone)]
pub struct Watchdog {
    interval: Duration,
    send: Arc<dyn Fn() + Send + Sync>,
}

/// The part of one event loop.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    watchdog: Watchdog,
    /// By loop: when it last turned. `Nanos::NEVER` after its orderly end.
    turned: Arc<[AtomicU64]>,
    index: usize,
    due: Nanos,
}

impl Watchdog {
    /// Calls `send` once in each interval. It runs on an event loop, so it must not block.
    pub fn new(interval: Duration, send: impl Fn() + Send + Sync + 'static) -> Watchdog {
        Watchdog { interval, send: Arc::new(send) }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Watchdog every {:?}", self.interval)
    }
}

impl Heartbeat {
    /// One for each event loop of a configuration, if there is a watchdog.
    pub(crate) fn of_loops(watchdog: Option<&Watchdog>, loops: usize) -> Vec<Option<Heartbeat>> {
        let turned: Arc<[AtomicU64]> = (0..loops).map(|_| AtomicU64::new(0)).collect();
        let heartbeat = |index| {
            let watchdog = watchdog?.clone();
            Some(Heartbeat { watchdog, turned: turned.clone(), index, due: Nanos::UNSET })
        };
        (0..loops).map(heartbeat).collect()
    }

    /// When the loop must turn next.
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// Records that the loop has turned. The first loop that has not ended sends a sign, unless another one is late.
    pub(crate) fn beat(&mut self, now: Nanos) {
        if now < self.due {
            return;
        }
        self.due = now + self.watchdog.interval;
        self.turned[self.index].store(now.0, Ordering::Relaxed);
        let turned = |loops: &AtomicU64| Nanos(loops.load(Ordering::Relaxed));
        let is_sender = self.turned[..self.index].iter().all(|earlier| turned(earlier) == Nanos::NEVER);
        let is_in_time = |one: Nanos| one.is_set() && one + 2 * self.watchdog.interval > now;
        if is_sender && self.turned.iter().all(|one| is_in_time(turned(one))) {
            (self.watchdog.send)();
        }
    }

    /// Records that the loop ends, or that it only serves clients until they move to another configuration.
    pub(crate) fn end(&mut self) {
        self.turned[self.index].store(Nanos::NEVER.0, Ordering::Relaxed);
        self.due = Nanos::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn loops() -> (Vec<Heartbeat>, Arc<AtomicUsize>) {
        let signs = Arc::new(AtomicUsize::new(0));
        let count = signs.clone();
        let watchdog = Watchdog::new(INTERVAL, move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (Heartbeat::of_loops(Some(&watchdog), 3).into_iter().flatten().collect(), signs)
    }

    /// Lets these loops turn ten times in each of so many intervals; returns the number of signs.
    fn turn(loops: &mut [Heartbeat], from_s: u64, seconds: u64, which: &[usize], signs: &AtomicUsize) -> usize {
        let before = signs.load(Ordering::Relaxed);
        for tenth in from_s * 10..(from_s + seconds) * 10 {
            which.iter().for_each(|&index| loops[index].beat(Nanos(1) + INTERVAL / 10 * tenth as u32));
        }
        signs.load(Ordering::Relaxed) - before
    }

    #[test]
    fn signs_are_sent_as_long_as_all_loops_turn() {
        let (mut loops, signs) = loops();
        // In the first interval the other loops have not begun.
        assert_eq!(turn(&mut loops, 0, 10, &[0, 1, 2], &signs), 9);
        for hanging in 0..3 {
            let others: Vec<usize> = (0..3).filter(|&index| index != hanging).collect();
            let from_s = 10 + 20 * hanging as u64;
            let late = turn(&mut loops, from_s, 10, &others, &signs);
            assert!(late <= 2, "{late} signs while loop {hanging} hangs");
            assert!(turn(&mut loops, from_s + 10, 10, &[0, 1, 2], &signs) >= 8);
        }
    }

    #[test]
    fn a_loop_that_has_ended_is_not_missed() {
        let (mut loops, signs) = loops();
        turn(&mut loops, 0, 2, &[0, 1, 2], &signs);
        loops[0].end();
        assert_eq!(turn(&mut loops, 2, 5, &[1, 2], &signs), 5);
        loops[1].end();
        assert_eq!(turn(&mut loops, 7, 5, &[2], &signs), 5);
        loops[2].end();
        assert_eq!((turn(&mut loops, 12, 5, &[], &signs), loops[2].due()), (0, Nanos::NEVER));
        assert!(Heartbeat::of_loops(None, 2).iter().all(Option::is_none));
    }
}
