//! The run second by second: each thread counts its current second and hands it over when it is past;
//! the collector merges the threads' parts and keeps only a few numbers of each second.

use crate::distribution::{add, histogram};
use crate::tally::Ended;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::mem;

/// One thread's part of one second.
#[derive(Debug)]
pub(crate) struct SecondTally {
    index: u64,
    pub(crate) requests: u64,
    errors: u64,
    hits: u64,
    misses: u64,
    sum_ns: u128,
    max_ns: u64,
    response: Histogram<u32>,
}

/// A second as the summary shows it. Times are response times.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Second {
    pub second: u64,
    pub measured: bool,
    pub requests: u64,
    pub errors: u64,
    pub hits: u64,
    pub misses: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// What a thread hands over: all it has counted up to (and without) second `now_in`.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) thread: usize,
    pub(crate) now_in: u64,
    pub(crate) past: SecondTally,
}

/// Merges what the threads hand over.
#[derive(Debug)]
pub(crate) struct SecondsCollector {
    /// Per thread, the second it is in.
    threads: Vec<u64>,
    open: BTreeMap<u64, SecondTally>,
    finished: Vec<Second>,
}

impl SecondTally {
    /// Second number `index`, without requests.
    pub(crate) fn new(index: u64) -> SecondTally {
        SecondTally { index, requests: 0, errors: 0, hits: 0, misses: 0, sum_ns: 0, max_ns: 0, response: histogram() }
    }

    pub(crate) fn record(&mut self, ended: &Ended) {
        if ended.failed {
            self.errors += 1;
            return;
        }
        let response_ns = ended.response_ns();
        self.requests += 1;
        self.hits += ended.hits();
        self.misses += ended.misses();
        self.sum_ns += u128::from(response_ns);
        self.max_ns = self.max_ns.max(response_ns);
        self.response.saturating_record(response_ns);
    }

    /// When second `now_in` has begun: the past second, to be handed over, and a new one is begun.
    pub(crate) fn roll(&mut self, now_in: u64) -> Option<SecondTally> {
        (now_in > self.index).then(|| mem::replace(self, SecondTally::new(now_in)))
    }

    fn merge(&mut self, other: &SecondTally) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.hits += other.hits;
        self.misses += other.misses;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        add(&mut self.response, &other.response);
    }

    fn finish(&self) -> Second {
        Second {
            second: self.index,
            measured: false,
            requests: self.requests,
            errors: self.errors,
            hits: self.hits,
            misses: self.misses,
            mean_ns: if self.requests == 0 { 0.0 } else { self.sum_ns as f64 / self.requests as f64 },
            p50_ns: self.response.value_at_quantile(0.5).min(self.max_ns),
            p99_ns: self.response.value_at_quantile(0.99).min(self.max_ns),
            max_ns: self.max_ns,
        }
    }
}

impl SecondsCollector {
    /// For so many threads.
    pub(crate) fn new(threads: usize) -> SecondsCollector {
        SecondsCollector { threads: vec![0; threads], open: BTreeMap::new(), finished: Vec::new() }
    }

    /// Takes a part; returns the seconds that every thread is now past.
    pub(crate) fn take(&mut self, handover: Handover) -> &[Second] {
        self.threads[handover.thread] = handover.now_in;
        self.add(handover.past);
        let first_open = self.threads.iter().min().copied().unwrap_or(0);
        self.finish_up_to(first_open)
    }

    /// Takes the parts that threads have begun when they ended, and returns all seconds.
    pub(crate) fn close(mut self, last: Vec<SecondTally>) -> Vec<Second> {
        for part in last {
            if part.requests + part.errors > 0 {
                self.add(part);
            }
        }
        let end = self.open.keys().last().map_or(0, |last| last + 1);
        self.finish_up_to(end);
        self.finished
    }

    fn add(&mut self, part: SecondTally) {
        match self.open.get_mut(&part.index) {
            Some(known) => known.merge(&part),
            None => drop(self.open.insert(part.index, part)),
        }
    }

    /// Finishes all seconds before `end`, also those in which nothing was counted.
    fn finish_up_to(&mut self, end: u64) -> &[Second] {
        let before = self.finished.len();
        for index in before as u64..end {
            let tally = self.open.remove(&index).unwrap_or_else(|| SecondTally::new(index));
            self.finished.push(tally.finish());
        }
        &self.finished[before..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Operation;
    use clock::Nanos;

    fn with(index: u64, responses_ns: &[u64]) -> SecondTally {
        let mut second = SecondTally::new(index);
        for &response_ns in responses_ns {
            second.record(&Ended {
                operation: Operation::Get,
                intended: Nanos(1),
                sent: Nanos(1),
                completed: Nanos(1 + response_ns),
                keys: 1,
                hits: 1,
                request_bytes: 1,
                reply_bytes: 1,
                failed: false,
            });
        }
        second
    }

    #[test]
    fn a_second_is_finished_when_every_thread_is_past_it() {
        let mut seconds = SecondsCollector::new(2);
        assert!(seconds.take(Handover { thread: 0, now_in: 2, past: with(0, &[10, 30]) }).is_empty());
        let finished = seconds.take(Handover { thread: 1, now_in: 1, past: with(0, &[80]) });
        assert_eq!(finished.len(), 1);
        assert_eq!(
            (finished[0].requests, finished[0].mean_ns, finished[0].p50_ns, finished[0].max_ns),
            (3, 40.0, 30, 80)
        );
        let all = seconds.close(vec![with(2, &[5]), with(1, &[])]);
        assert_eq!(
            all.iter().map(|second| (second.second, second.requests)).collect::<Vec<_>>(),
            [(0, 3), (1, 0), (2, 1)]
        );
    }

    #[test]
    fn rolling_hands_over_the_past() {
        let mut second = with(3, &[7]);
        assert!(second.roll(3).is_none());
        let past = second.roll(5).unwrap();
        assert_eq!((past.index, past.requests, second.index, second.requests), (3, 1, 5, 0));
    }
}
