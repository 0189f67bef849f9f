//! Decides which requests of one event loop are logged as slow.

use crate::config::LogConfig;
use crate::observe::counters::LoopCounters;
use crate::observe::ended_request::EndedRequest;
use crate::observe::log::queue::{LogQueue, What};
use clock::{Nanos, duration_ns};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The slow requests of one loop.
#[derive(Debug)]
pub(crate) struct SlowLog {
    threshold_ns: u64,
    /// The most lines in one second, and those in the second that began then.
    most: u32,
    second: Nanos,
    lines: u32,
    queue: LogQueue,
    counters: Arc<LoopCounters>,
}

impl SlowLog {
    /// The slow log of one of so many loops, if slow requests are logged.
    pub(crate) fn new(
        config: &LogConfig,
        loops: usize,
        queue: Option<&LogQueue>,
        counters: &Arc<LoopCounters>,
    ) -> Option<SlowLog> {
        let most = (config.slow_requests_per_second as usize).div_ceil(loops) as u32;
        Some(SlowLog {
            threshold_ns: duration_ns(config.slow_requests?),
            most,
            second: Nanos::UNSET,
            lines: 0,
            queue: queue?.clone(),
            counters: counters.clone(),
        })
    }

    /// Counts a request. Returns whether a line about it is wanted.
    pub(crate) fn wants(&mut self, total_ns: u64, now: Nanos) -> bool {
        if total_ns < self.threshold_ns {
            return false;
        }
        self.counters.slow_requests.add(1);
        if now >= self.second + SECOND {
            (self.second, self.lines) = (now, 0);
        }
        let is_wanted = self.lines < self.most;
        self.lines += u32::from(is_wanted);
        self.counters.slow_requests_unlogged.add(u64::from(!is_wanted));
        is_wanted
    }

    /// Logs a request.
    pub(crate) fn log(&self, request: EndedRequest) {
        self.queue.add(What::Slow(Box::new(request)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_requests_are_wanted_and_so_many_in_a_second() {
        let config = LogConfig {
            slow_requests: Some(Duration::from_millis(1)),
            slow_requests_per_second: 5,
            ..LogConfig::default()
        };
        let (queue, _entries) = LogQueue::new(Arc::default());
        let counters = Arc::new(LoopCounters::new(1, 1, 0));
        let mut slow = SlowLog::new(&config, 2, Some(&queue), &counters).unwrap();
        let now = Nanos(5_000_000_000);
        assert!(!slow.wants(999_999, now));
        assert_eq!((0..10).filter(|_| slow.wants(1_000_000, now)).count(), 3);
        assert!(slow.wants(1_000_000, now + SECOND));
        assert_eq!((counters.slow_requests.get(), counters.slow_requests_unlogged.get()), (11, 7));
        assert!(SlowLog::new(&LogConfig::default(), 1, Some(&queue), &counters).is_none());
    }
}
