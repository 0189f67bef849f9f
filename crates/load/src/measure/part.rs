//! What one thread counted in one second, separately for inside and outside the measured window. Threads hand over
//! nothing smaller than such a part. Parts add up exactly to seconds and to the window.

use crate::measure::histogram::TimeHistogram;
use crate::measure::request::{EndedRequest, Operation};
use crate::messages::OPERATIONS;
use std::sync::mpsc::Sender;

/// What one thread counted in one second: requests inside and outside the measured window.
#[derive(Debug)]
pub struct Part {
    pub(crate) second: u64,
    pub(crate) inside: Counts,
    pub(crate) outside: Counts,
    free_parts: Sender<Box<Part>>,
}

/// The counts of the requests that ended in an interval.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) get: OperationTally,
    pub(crate) set: OperationTally,
    /// Keys of requests that were answered without an error.
    pub(crate) keys: u64,
    /// The operations of a message service, by number. Operations that did not occur are none.
    pub(crate) messages: [Option<Box<OperationTally>>; OPERATIONS],
}

/// The counts of one operation.
#[derive(Clone, Debug)]
pub(crate) struct OperationTally {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) errors: u64,
    /// Includes failed requests.
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) response: TimeHistogram,
    pub(crate) service: TimeHistogram,
    pub(crate) slip: TimeHistogram,
}

impl Part {
    /// An empty part that returns to `free_parts` when it is recycled.
    pub(crate) fn new(free_parts: Sender<Box<Part>>) -> Part {
        Part { second: 0, inside: Counts::new(), outside: Counts::new(), free_parts }
    }

    /// Whether no request ended in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_empty()
    }

    /// Empties the part and returns it to its thread. The thread may have ended.
    pub(crate) fn recycle(mut self: Box<Part>) {
        self.inside.clear();
        self.outside.clear();
        let free_parts = self.free_parts.clone();
        let _ = free_parts.send(self);
    }
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts { get: OperationTally::new(), set: OperationTally::new(), keys: 0, messages: Default::default() }
    }

    /// Counts a request. A failed request counts as an error, and as slower than any time.
    pub(crate) fn record(&mut self, ended: &EndedRequest) {
        if !ended.failed {
            self.keys += u64::from(ended.keys);
        }
        match ended.operation {
            Operation::Get => self.get.record(ended),
            Operation::Set => self.set.record(ended),
        }
        self.record_whole(ended);
    }

    /// Counts an operation made of several requests. Those are counted separately.
    pub(crate) fn record_whole(&mut self, ended: &EndedRequest) {
        if let Some(operation) = ended.message {
            self.messages[operation as usize].get_or_insert_with(|| Box::new(OperationTally::new())).record(ended);
        }
    }

    pub(crate) fn merge(&mut self, other: &Counts) {
        self.get.merge(&other.get);
        self.set.merge(&other.set);
        self.keys += other.keys;
        for (own, other) in self.messages.iter_mut().zip(&other.messages) {
            if let Some(other) = other {
                own.get_or_insert_with(|| Box::new(OperationTally::new())).merge(other);
            }
        }
    }

    /// Gets and sets together.
    pub(crate) fn all(&self) -> OperationTally {
        let mut all = self.get.clone();
        all.merge(&self.set);
        all
    }

    /// Whether no request has ended.
    pub(crate) fn is_empty(&self) -> bool {
        let operations = [&self.get, &self.set];
        operations.iter().all(|operation| operation.count() + operation.errors == 0)
    }

    fn clear(&mut self) {
        self.get.clear();
        self.set.clear();
        self.messages.iter_mut().flatten().for_each(|operation| operation.clear());
        self.keys = 0;
    }
}

impl OperationTally {
    pub(crate) fn new() -> OperationTally {
        OperationTally {
            hits: 0,
            misses: 0,
            errors: 0,
            sent_bytes: 0,
            received_bytes: 0,
            response: TimeHistogram::new(),
            service: TimeHistogram::new(),
            slip: TimeHistogram::new(),
        }
    }

    pub(crate) fn merge(&mut self, other: &OperationTally) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.errors += other.errors;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.slip.merge(&other.slip);
    }

    /// Requests that were answered without an error.
    pub(crate) fn count(&self) -> u64 {
        self.response.count()
    }

    fn record(&mut self, ended: &EndedRequest) {
        self.sent_bytes += ended.request_bytes;
        self.received_bytes += ended.reply_bytes;
        if ended.failed {
            self.errors += 1;
            self.response.record_unanswered(1);
            self.service.record_unanswered(1);
            return;
        }
        self.hits += ended.hits();
        self.misses += ended.misses();
        self.response.record(ended.response_ns());
        self.service.record(ended.completed.since(ended.sent));
        self.slip.record(ended.sent.since(ended.intended));
    }

    fn clear(&mut self) {
        (self.hits, self.misses, self.errors, self.sent_bytes, self.received_bytes) = (0, 0, 0, 0, 0);
        self.response.clear();
        self.service.clear();
        self.slip.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::Nanos;
    use proptest::prelude::*;

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
    fn errors_have_no_latency_and_are_slower_than_any() {
        let mut counts = Counts::new();
        assert!(counts.is_empty());
        counts.record(&ended(Operation::Get, 1000, false));
        counts.record(&ended(Operation::Get, 5, true));
        assert_eq!((counts.get.count(), counts.get.errors, counts.get.hits, counts.get.misses), (1, 1, 2, 1));
        assert_eq!((counts.keys, counts.get.sent_bytes, counts.get.received_bytes), (3, 20, 40));
        assert_eq!((counts.get.response.min_ns(), counts.get.response.max_ns()), (1000, 1000));
        assert_eq!((counts.get.slip.max_ns(), counts.get.service.max_ns()), (250, 750));
        let response = &counts.get.response;
        assert_eq!((response.percentile_ns(50.0), response.percentile_ns(51.0)), (Some(1000), None));
        assert_eq!((counts.get.service.unanswered(), counts.get.slip.unanswered()), (1, 0));
        assert!(!counts.is_empty());
        counts.clear();
        assert!(counts.is_empty() && counts.get.sent_bytes == 0 && counts.get.response.min_ns() == 0);
    }

    proptest! {
        #[test]
        fn merged_parts_equal_the_whole(times in proptest::collection::vec((0u64..100_000_000_000, any::<bool>(), 0usize..3), 0..300)) {
            let mut parts = [Counts::new(), Counts::new(), Counts::new()];
            let mut whole = Counts::new();
            for (response_ns, is_get, part) in times {
                let operation = if is_get { Operation::Get } else { Operation::Set };
                let ended = ended(operation, response_ns, response_ns % 7 == 0);
                parts[part].record(&ended);
                whole.record(&ended);
            }
            let mut merged = Counts::new();
            parts.iter().for_each(|part| merged.merge(part));
            for (merged, whole) in [(&merged.get, &whole.get), (&merged.set, &whole.set), (&merged.all(), &whole.all())] {
                prop_assert_eq!(&merged.response.histogram, &whole.response.histogram);
                prop_assert_eq!(merged.response.mean_ns(), whole.response.mean_ns());
                prop_assert_eq!(merged.service.std_ns(), whole.service.std_ns());
                prop_assert_eq!(merged.slip.max_ns(), whole.slip.max_ns());
                prop_assert_eq!(merged.errors, whole.errors);
            }
        }
    }
}
