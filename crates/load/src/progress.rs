//! The progress of a run, from its preparation to its end. Knows neither terminals nor agents: its readers print it or
//! pass it on.

use crate::measure::part::Part;
use crate::measure::seconds::Second;
use clock::{Clock, Nanos};
use std::time::Duration;

/// The time between two progress reports.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(2);

/// A progress event of a run.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The prefill of a memcached server.
    Prefill {
        /// Keys stored so far.
        keys: u64,
        /// Keys in total.
        of: u64,
    },
    /// A stage before or after a run with messages.
    Stage {
        /// The name of the stage.
        what: &'static str,
        /// Steps completed so far.
        done: u64,
        /// Steps in total.
        of: u64,
    },
    /// The counts that one thread handed over.
    Part(&'a Part),
    /// A one-line note about something unexpected.
    Note(&'a str),
    /// A second that has passed for all threads.
    Second(&'a Second),
}

/// Reports the progress of a stage at most every two seconds.
pub(crate) struct ProgressReporter<'t> {
    clock: &'t Clock,
    next: Nanos,
    report: &'t mut dyn FnMut(&'static str, u64, u64),
}

impl<'t> ProgressReporter<'t> {
    pub(crate) fn new(clock: &'t Clock, report: &'t mut dyn FnMut(&'static str, u64, u64)) -> ProgressReporter<'t> {
        ProgressReporter { next: clock.now() + REPORT_EVERY, clock, report }
    }

    pub(crate) fn report(&mut self, what: &'static str, done: u64, of: u64) {
        let now = self.clock.now();
        if now >= self.next {
            self.next = now + REPORT_EVERY;
            (self.report)(what, done, of);
        }
    }
}
