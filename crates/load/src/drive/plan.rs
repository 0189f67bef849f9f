//! The timeline of a run: when it starts, which part of it is measured and when it is over. All threads share it.

use crate::config::Config;
use clock::Nanos;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// An open loop that is behind its schedule at the end of the window continues for this long. It waits for the replies
/// of all requests intended within the window, and counts those not sent by then as never sent.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Whether a request may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Refused,
    Granted,
    /// The request may be issued, and counts towards the number of requests that limits the run.
    Charged,
}

/// The timeline of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Seconds are counted from here.
    pub(crate) start: Nanos,
    /// The end of the warm-up.
    pub(crate) measure_from: Nanos,
    /// The end of the measured window. Nothing is issued after it. It moves forward if the run is stopped early.
    measure_to: AtomicU64,
    /// Whether the loop is open. Only an open loop catches up after the end of the window.
    is_open: bool,
    /// Requests that may still be issued after the warm-up; none if the time alone limits the run.
    budget: Option<AtomicU64>,
    /// Connections that are up.
    connected: AtomicUsize,
    /// The number of the next connection that replaces a lost one.
    next_connection: AtomicUsize,
}

impl Plan {
    /// A run that starts at `start` with all clients connected.
    pub(crate) fn new(config: &Config, start: Nanos) -> Plan {
        let measure_from = start + config.warm_up;
        // A trace without a test time is replayed to its end.
        let has_no_end = config.requests.is_some() || config.test_time == Duration::MAX;
        let measure_to = if has_no_end { Nanos::NEVER } else { measure_from + config.test_time };
        Plan {
            start,
            measure_from,
            measure_to: AtomicU64::new(measure_to.0),
            budget: config.requests.map(AtomicU64::new),
            is_open: config.is_open(),
            connected: AtomicUsize::new(config.connections()),
            next_connection: AtomicUsize::new(config.connections()),
        }
    }

    /// The end of the measured window; never, if a number of requests limits the run.
    pub(crate) fn measure_to(&self) -> Nanos {
        Nanos(self.measure_to.load(Ordering::Relaxed))
    }

    /// The last instant of the measured window.
    pub(crate) fn last_instant(&self) -> Nanos {
        Nanos(self.measure_to().0.saturating_sub(1))
    }

    /// Ends the run at `end`, unless it ends before.
    pub(crate) fn stop_at(&self, end: Nanos) {
        self.measure_to.fetch_min(end.0, Ordering::Relaxed);
    }

    /// Whether a request that completed (in an open loop: was intended) at this time is counted. If a number of requests
    /// limits the run, exactly the charged requests are counted.
    pub(crate) fn counts(&self, is_charged: bool, at: Nanos) -> bool {
        if self.budget.is_some() { is_charged } else { self.in_window(at) }
    }

    /// Whether a time is in the measured window.
    pub(crate) fn in_window(&self, at: Nanos) -> bool {
        at >= self.measure_from && at < self.measure_to()
    }

    /// The time from which no request is issued.
    pub(crate) fn issue_until(&self) -> Nanos {
        if self.is_open {
            Nanos(self.measure_to().0.saturating_add(clock::duration_ns(CATCH_UP)))
        } else {
            self.measure_to()
        }
    }

    /// Whether the window, or the number of requests, is used up.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        now >= self.measure_to() || self.budget.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// Whether a request may be issued now. If so, it is subtracted from the budget, except during the warm-up.
    pub(crate) fn may_issue(&self, intended: Nanos, now: Nanos) -> Permit {
        if now >= self.issue_until() || intended >= self.measure_to() {
            return Permit::Refused;
        }
        match &self.budget {
            Some(left) if now >= self.measure_from => {
                match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
                    Ok(_) => Permit::Charged,
                    Err(_) => Permit::Refused,
                }
            }
            _ => Permit::Granted,
        }
    }

    /// The second of the run that contains `now`.
    pub(crate) fn second(&self, now: Nanos) -> u64 {
        now.since(self.start) / 1_000_000_000
    }

    /// Counts a connection that was lost.
    pub(crate) fn connection_lost(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection that was established again, and returns its number.
    pub(crate) fn connection_made(&self) -> u32 {
        self.connected.fetch_add(1, Ordering::Relaxed);
        self.next_connection.fetch_add(1, Ordering::Relaxed) as u32
    }

    /// How many connections are up.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(requests: Option<u64>) -> Plan {
        let config = Config {
            warm_up: Duration::from_nanos(10),
            test_time: Duration::from_nanos(100),
            requests,
            ..Config::default()
        };
        Plan::new(&config, Nanos(1000))
    }

    #[test]
    fn the_window_begins_after_the_warm_up_and_excludes_its_end() {
        let plan = plan(None);
        let counted: Vec<u64> = [1009, 1010, 1109, 1110].into_iter().filter(|&at| plan.in_window(Nanos(at))).collect();
        assert_eq!(counted, [1010, 1109]);
        assert!(
            [1000, 1109, 1110].map(|at| plan.may_issue(Nanos(at), Nanos(at)))
                == [Permit::Granted, Permit::Granted, Permit::Refused]
        );
        assert!(!plan.is_over(Nanos(1109)) && plan.is_over(Nanos(1110)));
        plan.stop_at(Nanos(1050));
        plan.stop_at(Nanos(1070));
        assert_eq!(plan.measure_to(), Nanos(1050));
    }

    #[test]
    fn the_budget_excludes_the_warm_up() {
        let plan = plan(Some(2));
        assert!((0..50).all(|_| plan.may_issue(Nanos(1005), Nanos(1005)) == Permit::Granted));
        assert_eq!(
            [1010, 1011, 1012].map(|at| plan.may_issue(Nanos(at), Nanos(at))),
            [Permit::Charged, Permit::Charged, Permit::Refused]
        );
        assert!(plan.counts(true, Nanos(1005)) && !plan.counts(false, Nanos(1011)), "only charged requests count");
        assert!(plan.is_over(Nanos(1012)));
        assert!(plan.in_window(Nanos(9999)));
    }
}
