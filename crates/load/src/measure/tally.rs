//! Step 10: what one thread counts. Each request is counted once, in the part of the second in which it ended. Other
//! counts are of the whole run. Tallies of several threads merge exactly.

use crate::measure::histogram::TimeHistogram;
use crate::measure::part::Part;
use crate::measure::request::EndedRequest;
use clock::Nanos;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Distinct error lines that are counted separately.
const ERROR_KINDS_MAX: usize = 20;
/// The line under which all further errors are counted.
const OTHER_ERRORS: &str = "errors of further kinds";

/// The results of verification, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerificationCounts {
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    pub(crate) torn: u64,
    pub(crate) stale: u64,
    /// Values whose staleness could not be judged, because a set of their key had failed.
    pub(crate) unjudged: u64,
    pub(crate) unexpected_reply: u64,
}

/// Everything that one thread counts.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The part of the current second.
    part: Box<Part>,
    /// Empty parts that have come back from the collector ...
    free_parts: Receiver<Box<Part>>,
    /// ... and the sender that each part takes along for its way back.
    return_parts: Sender<Box<Part>>,
    /// Requests of an open loop whose intended time lies within the window, sent or not.
    pub(crate) intended: u64,
    /// For the requests that were sent: how much later the thread issued them than it could have. The wait for a free
    /// client is not included.
    pub(crate) lateness: TimeHistogram,
    /// Requests of an open loop intended in each second of the run, sent or not.
    pub(crate) intended_in: Vec<u64>,
    /// Requests answered without an error within the window, whenever they were intended.
    pub(crate) completed: u64,
    /// Time within the window that a thread spent polling without sleeping.
    pub(crate) polled_ns: u64,
    /// Over the whole run.
    pub(crate) requests_sent: u64,
    pub(crate) requests_answered: u64,
    pub(crate) verified: VerificationCounts,
    pub(crate) errors: BTreeMap<String, u64>,
    /// When the last request ended, answered or not.
    pub(crate) last_completed: Nanos,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let (return_parts, free_parts) = channel();
        Tally {
            part: Box::new(Part::new(return_parts.clone())),
            free_parts,
            return_parts,
            intended: 0,
            lateness: TimeHistogram::new(),
            intended_in: Vec::new(),
            completed: 0,
            polled_ns: 0,
            requests_sent: 0,
            requests_answered: 0,
            verified: VerificationCounts::default(),
            errors: BTreeMap::new(),
            last_completed: Nanos::UNSET,
        }
    }

    /// Step 10: counts a request that has ended, inside or outside the window. A failed request counts as an error and
    /// as slower than any time, because a fast refusal is not a fast answer.
    pub(crate) fn record(&mut self, ended: &EndedRequest, in_window: bool) {
        self.last_completed = self.last_completed.max(ended.completed);
        let part = &mut self.part;
        if in_window { &mut part.inside } else { &mut part.outside }.record(ended);
    }

    /// Counts an operation made of several requests. Those are counted separately.
    pub(crate) fn record_whole(&mut self, ended: &EndedRequest, in_window: bool) {
        let part = &mut self.part;
        if in_window { &mut part.inside } else { &mut part.outside }.record_whole(ended);
    }

    /// Counts a request of an open loop that was intended in this second, and is issued `lateness_ns` later than it
    /// could have been.
    pub(crate) fn count_arrival(&mut self, second: u64, in_window: bool, lateness_ns: u64) {
        self.intend(second, in_window);
        if in_window {
            self.lateness.record(lateness_ns);
        }
    }

    /// Counts a request of an open loop that was intended and never sent.
    pub(crate) fn count_unsent(&mut self, second: u64, in_window: bool) {
        self.intend(second, in_window);
    }

    fn intend(&mut self, second: u64, in_window: bool) {
        let second = second as usize;
        if second >= self.intended_in.len() {
            self.intended_in.resize(second + 1, 0);
        }
        self.intended_in[second] += 1;
        self.intended += u64::from(in_window);
    }

    /// Starts another part when second `now_in` has begun. Returns the past part, to be handed over.
    pub(crate) fn roll(&mut self, now_in: u64) -> Option<Box<Part>> {
        if now_in <= self.part.second {
            return None;
        }
        // Reusing a part avoids zeroing its memory between two requests.
        let mut next = self.free_parts.try_recv().unwrap_or_else(|_| Box::new(Part::new(self.return_parts.clone())));
        next.second = now_in;
        Some(std::mem::replace(&mut self.part, next))
    }

    /// The part of the second in which the thread ended.
    pub(crate) fn into_part(self) -> Box<Part> {
        self.part
    }

    /// Counts an error by its line.
    pub(crate) fn error(&mut self, line: &str) {
        count_error(&mut self.errors, line, 1);
    }

    /// Adds the counts of another thread that are of the whole run. Parts are merged by the collector.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.intended += other.intended;
        self.lateness.merge(&other.lateness);
        self.intended_in.resize(self.intended_in.len().max(other.intended_in.len()), 0);
        self.intended_in.iter_mut().zip(&other.intended_in).for_each(|(own, other)| *own += other);
        self.completed += other.completed;
        self.polled_ns += other.polled_ns;
        self.requests_sent += other.requests_sent;
        self.requests_answered += other.requests_answered;
        self.verified.merge(other.verified);
        self.last_completed = self.last_completed.max(other.last_completed);
        for (line, count) in &other.errors {
            count_error(&mut self.errors, line, *count);
        }
    }
}

/// Adds to the count of an error line. When there are too many distinct lines, the rest are counted together.
pub(crate) fn count_error(errors: &mut BTreeMap<String, u64>, line: &str, count: u64) {
    if let Some(known) = errors.get_mut(line) {
        *known += count;
    } else if errors.len() < ERROR_KINDS_MAX - 1 {
        errors.insert(line.to_owned(), count);
    } else {
        *errors.entry(OTHER_ERRORS.to_owned()).or_default() += count;
    }
}

impl VerificationCounts {
    pub(crate) fn merge(&mut self, other: VerificationCounts) {
        self.checked += other.checked;
        self.wrong += other.wrong;
        self.torn += other.torn;
        self.stale += other.stale;
        self.unjudged += other.unjudged;
        self.unexpected_reply += other.unexpected_reply;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::request::Operation;

    fn ended(operation: Operation, response_ns: u64, failed: bool) -> EndedRequest {
        EndedRequest {
            operation,
            intended: Nanos(100),
            sent: Nanos(100 + response_ns / 4),
            completed: Nanos(100 + response_ns),
            keys: 3,
            hits: 2,
            request_bytes: 10,
            reply_bytes: 20,
            failed,
            message: None,
        }
    }

    #[test]
    fn a_part_ends_with_its_second_and_separates_the_window() {
        let mut tally = Tally::new();
        assert!(tally.roll(0).is_none());
        tally.record(&ended(Operation::Get, 1000, false), false);
        tally.record(&ended(Operation::Get, 9000, false), true);
        let past = tally.roll(2).unwrap();
        assert_eq!((past.second, past.inside.get.count(), past.outside.get.count()), (0, 1, 1));
        assert_eq!((past.inside.get.response.max_ns(), past.outside.get.response.max_ns()), (9000, 1000));
        // The second has passed, so the part cannot return to it.
        assert!(tally.roll(1).is_none());
        assert_eq!(tally.last_completed, Nanos(9100));
        assert_eq!(tally.into_part().second, 2);
    }

    #[test]
    fn recycled_parts_are_empty() {
        let mut tally = Tally::new();
        tally.record(&ended(Operation::Set, 1000, false), true);
        let past = tally.roll(1).unwrap();
        let address: *const Part = &raw const *past;
        past.recycle();
        assert_eq!(tally.roll(2).unwrap().second, 1);
        let part = tally.into_part();
        assert_eq!((&raw const *part, part.second, part.is_empty()), (address, 2, true));
    }

    #[test]
    fn arrivals_are_counted_whether_they_are_sent_or_not() {
        let mut tally = Tally::new();
        tally.count_arrival(0, false, 10);
        tally.count_arrival(2, true, 30);
        let mut sum = Tally::new();
        sum.merge(&tally);
        tally.count_unsent(2, true);
        tally.count_unsent(3, false);
        sum.merge(&tally);
        assert_eq!((sum.intended, sum.lateness.count(), sum.lateness.max_ns()), (3, 2, 30));
        assert_eq!(sum.intended_in, [2, 0, 3, 1]);
    }

    #[test]
    fn errors_are_counted_by_line_and_kinds_are_limited() {
        let mut tally = Tally::new();
        for kind in 0..100 {
            tally.error(&format!("SERVER_ERROR {kind:03}"));
            tally.error("SERVER_ERROR 000");
        }
        assert_eq!(tally.errors.len(), ERROR_KINDS_MAX);
        assert_eq!(tally.errors["SERVER_ERROR 000"], 101);
        assert_eq!(tally.errors.values().sum::<u64>(), 200);
    }
}
