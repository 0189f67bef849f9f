//! What can be watched while a run is prepared and goes on. Knows neither terminals nor agents, which show it or pass it on.

use crate::measure::part::Part;
use crate::measure::seconds::Second;
use clock::{Clock, Nanos};
use std::time::Duration;

/// Progress is reported when this has passed, and again each time it has.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(2);

/// What can be watched while a run goes on.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Keys set so far, and all keys.
    Prefill {
        /// Keys set so far.
        keys: u64,
        /// All keys.
        of: u64,
    },
    /// What comes before and after a run with messages.
    Stage {
        /// What is done.
        what: &'static str,
        /// How much of it is done.
        done: u64,
        /// All of it.
        of: u64,
    },
    /// What one thread has counted and handed over.
    Part(&'a Part),
    /// Something that may surprise, in one line.
    Note(&'a str),
    /// A second that is over.
    Second(&'a Second),
}

/// Progress that is told every two seconds: what, how many, of how many.
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
