//! What one thread has counted: totals of the measured window, distributions, errors and what verification found.
//! Tallies of several threads merge exactly: counts and histograms add up.

use crate::distribution::Distribution;
use crate::seconds::SecondTally;
use clock::Nanos;
use std::collections::BTreeMap;

/// Kinds of errors told apart.
const ERROR_KINDS_MAX: usize = 20;
/// Under which errors of further kinds are counted.
const OTHER_ERRORS: &str = "errors of further kinds";

/// The operations that a run is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A get of one or more keys.
    Get,
    /// A set of one key.
    Set,
}

/// A request that has ended, with everything that is to be counted of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) operation: Operation,
    pub(crate) intended: Nanos,
    pub(crate) sent: Nanos,
    pub(crate) completed: Nanos,
    pub(crate) keys: u32,
    pub(crate) hits: u32,
    pub(crate) request_bytes: u64,
    pub(crate) reply_bytes: u64,
    /// Whether its reply was an error, or it got none.
    pub(crate) failed: bool,
}

/// What was counted of one operation within the window.
#[derive(Clone, Debug)]
pub(crate) struct OperationTally {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) errors: u64,
    pub(crate) response: Distribution,
    pub(crate) service: Distribution,
    pub(crate) slip: Distribution,
}

/// What verification found, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    pub(crate) torn: u64,
    pub(crate) stale: u64,
    pub(crate) unexpected_reply: u64,
}

/// Everything that one thread counts.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) get: OperationTally,
    pub(crate) set: OperationTally,
    pub(crate) second: SecondTally,
    /// Requests whose intended time lies within the window, sent or not; counted in an open loop only.
    pub(crate) intended: u64,
    /// Requests answered other than by an error within the window, whenever they were intended.
    pub(crate) completed: u64,
    pub(crate) keys: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Of the whole run.
    pub(crate) requests_sent: u64,
    pub(crate) requests_answered: u64,
    pub(crate) verified: Verified,
    pub(crate) errors: BTreeMap<String, u64>,
    /// When the last request ended, however it ended.
    pub(crate) last_completed: Nanos,
}

impl OperationTally {
    /// Without requests.
    pub(crate) fn new() -> OperationTally {
        OperationTally {
            hits: 0,
            misses: 0,
            errors: 0,
            response: Distribution::new(),
            service: Distribution::new(),
            slip: Distribution::new(),
        }
    }

    pub(crate) fn merge(&mut self, other: &OperationTally) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.errors += other.errors;
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.slip.merge(&other.slip);
    }

    /// Requests that were answered other than by an error.
    pub(crate) fn count(&self) -> u64 {
        self.response.count()
    }

    fn record(&mut self, ended: &Ended) {
        if ended.failed {
            self.errors += 1;
            return;
        }
        self.hits += ended.hits();
        self.misses += ended.misses();
        self.response.record(ended.response_ns());
        self.service.record(ended.completed.since(ended.sent));
        self.slip.record(ended.sent.since(ended.intended));
    }
}

impl Ended {
    pub(crate) fn response_ns(&self) -> u64 {
        self.completed.since(self.intended)
    }

    /// Values returned; a set returns none.
    pub(crate) fn hits(&self) -> u64 {
        u64::from(self.hits)
    }

    /// Keys that a get named and that were not returned.
    pub(crate) fn misses(&self) -> u64 {
        match self.operation {
            Operation::Get => u64::from(self.keys - self.hits),
            Operation::Set => 0,
        }
    }
}

impl Tally {
    /// Of a thread that has done nothing yet.
    pub(crate) fn new() -> Tally {
        Tally {
            get: OperationTally::new(),
            set: OperationTally::new(),
            second: SecondTally::new(0),
            intended: 0,
            completed: 0,
            keys: 0,
            sent_bytes: 0,
            received_bytes: 0,
            requests_sent: 0,
            requests_answered: 0,
            verified: Verified::default(),
            errors: BTreeMap::new(),
            last_completed: Nanos::UNSET,
        }
    }

    /// Counts a request that has ended; in the totals only when it did so within the window.
    /// A request that failed is counted as an error and nowhere else: a fast refusal is not a fast answer.
    pub(crate) fn record(&mut self, ended: &Ended, in_window: bool) {
        self.last_completed = self.last_completed.max(ended.completed);
        self.second.record(ended);
        if !in_window {
            return;
        }
        self.sent_bytes += ended.request_bytes;
        self.received_bytes += ended.reply_bytes;
        if !ended.failed {
            self.keys += u64::from(ended.keys);
        }
        match ended.operation {
            Operation::Get => self.get.record(ended),
            Operation::Set => self.set.record(ended),
        }
    }

    /// Counts an error under its first line.
    pub(crate) fn error(&mut self, line: &str) {
        count_error(&mut self.errors, line, 1);
    }

    /// Takes in what another thread has counted, its current second excepted.
    pub(crate) fn merge(&mut self, other: &Tally) {
        self.get.merge(&other.get);
        self.set.merge(&other.set);
        self.intended += other.intended;
        self.completed += other.completed;
        self.keys += other.keys;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.requests_sent += other.requests_sent;
        self.requests_answered += other.requests_answered;
        self.verified.merge(other.verified);
        self.last_completed = self.last_completed.max(other.last_completed);
        for (line, count) in &other.errors {
            count_error(&mut self.errors, line, *count);
        }
    }
}

fn count_error(errors: &mut BTreeMap<String, u64>, line: &str, count: u64) {
    if let Some(known) = errors.get_mut(line) {
        *known += count;
    } else if errors.len() < ERROR_KINDS_MAX - 1 {
        errors.insert(line.to_owned(), count);
    } else {
        *errors.entry(OTHER_ERRORS.to_owned()).or_default() += count;
    }
}

impl Verified {
    fn merge(&mut self, other: Verified) {
        self.checked += other.checked;
        self.wrong += other.wrong;
        self.torn += other.torn;
        self.stale += other.stale;
        self.unexpected_reply += other.unexpected_reply;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ended(operation: Operation, response_ns: u64, failed: bool) -> Ended {
        Ended {
            operation,
            intended: Nanos(100),
            sent: Nanos(100 + response_ns / 4),
            completed: Nanos(100 + response_ns),
            keys: 3,
            hits: 2,
            request_bytes: 10,
            reply_bytes: 20,
            failed,
        }
    }

    #[test]
    fn only_the_window_counts_and_errors_have_no_latency() {
        let mut tally = Tally::new();
        tally.record(&ended(Operation::Get, 1000, false), true);
        tally.record(&ended(Operation::Get, 5, true), true);
        tally.record(&ended(Operation::Get, 9000, false), false);
        assert_eq!((tally.get.count(), tally.get.errors, tally.get.hits, tally.get.misses), (1, 1, 2, 1));
        assert_eq!((tally.keys, tally.sent_bytes, tally.received_bytes), (3, 20, 40));
        assert_eq!((tally.get.response.min_ns(), tally.get.response.max_ns()), (1000, 1000));
        assert_eq!((tally.get.slip.max_ns(), tally.get.service.max_ns()), (250, 750));
        assert_eq!(tally.second.requests, 2);
        assert_eq!(tally.last_completed, Nanos(9100));
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

    proptest! {
        #[test]
        fn merged_threads_equal_one(times in proptest::collection::vec((0u64..100_000_000_000, any::<bool>(), 0usize..3), 0..300)) {
            let mut parts = [Tally::new(), Tally::new(), Tally::new()];
            let mut whole = Tally::new();
            for (response_ns, is_get, part) in times {
                let ended = ended(if is_get { Operation::Get } else { Operation::Set }, response_ns, response_ns % 7 == 0);
                parts[part].record(&ended, true);
                whole.record(&ended, true);
            }
            let mut merged = Tally::new();
            parts.iter().for_each(|part| merged.merge(part));
            for (merged, whole) in [(&merged.get, &whole.get), (&merged.set, &whole.set)] {
                prop_assert_eq!(&merged.response.histogram, &whole.response.histogram);
                prop_assert_eq!(merged.response.mean_ns(), whole.response.mean_ns());
                prop_assert_eq!(merged.service.std_ns(), whole.service.std_ns());
                prop_assert_eq!(merged.slip.max_ns(), whole.slip.max_ns());
                prop_assert_eq!(merged.errors, whole.errors);
            }
        }
    }
}
