//! The run second by second. Threads hand over the parts of past seconds; the collector adds them up to seconds and to
//! the window, and keeps a few numbers and the histograms of each second.

use crate::measure::histogram::{TimeHistogram, add, rank, value_at_rank};
use crate::measure::part::{Counts, Part};
use crate::measure::times::{decode, encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One second in the summary. Times are response times unless the name indicates otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Second {
    pub second: u64,
    pub measured: bool,
    pub intended: Option<u64>,
    pub requests: u64,
    pub errors: u64,
    pub hits: u64,
    pub misses: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub mean_ns: f64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
    pub sum_ns: u128,
    pub service_sum_ns: u128,
    pub slip_sum_ns: u128,
    pub slip_max_ns: u64,
    pub histograms: SecondHistograms,
}

/// The response times of one second, per operation. The text is empty for an operation that did not occur.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct SecondHistograms {
    pub get: String,
    pub set: String,
}

/// A part that a thread hands over: everything that it counted before second `now_in`.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) thread: usize,
    pub(crate) now_in: u64,
    pub(crate) past: Box<Part>,
}

/// Merges the parts of all threads.
#[derive(Debug)]
pub(crate) struct SecondsCollector {
    /// For each thread, the second that it is in.
    threads: Vec<u64>,
    open: BTreeMap<u64, Counts>,
    finished: Vec<Second>,
    window: Counts,
}

impl SecondsCollector {
    pub(crate) fn new(threads: usize) -> SecondsCollector {
        SecondsCollector {
            threads: vec![0; threads],
            open: BTreeMap::new(),
            finished: Vec::new(),
            window: Counts::new(),
        }
    }

    /// Adds a part. Returns the seconds that every thread has now passed.
    pub(crate) fn take(&mut self, handover: Handover) -> &[Second] {
        self.threads[handover.thread] = handover.now_in;
        self.add(handover.past);
        let first_open = self.threads.iter().min().copied().unwrap_or(0);
        self.finish_up_to(first_open)
    }

    /// Adds the last parts of all threads. Returns the counts of the window, and at least `seconds_min` seconds.
    pub(crate) fn close(
        mut self,
        last: impl IntoIterator<Item = Box<Part>>,
        seconds_min: u64,
    ) -> (Counts, Vec<Second>) {
        for part in last {
            if !part.is_empty() {
                self.add(part);
            }
        }
        let end = self.open.keys().last().map_or(0, |last| last + 1);
        self.finish_up_to(end.max(seconds_min));
        (self.window, self.finished)
    }

    fn add(&mut self, part: Box<Part>) {
        self.window.merge(&part.inside);
        let second = self.open.entry(part.second).or_insert_with(Counts::new);
        second.merge(&part.inside);
        second.merge(&part.outside);
        part.recycle();
    }

    /// Finishes all seconds before `end`, including those without a request.
    fn finish_up_to(&mut self, end: u64) -> &[Second] {
        let before = self.finished.len();
        for index in before as u64..end {
            let counts = self.open.remove(&index).unwrap_or_else(Counts::new);
            self.finished.push(Second::new(index, &counts));
        }
        &self.finished[before..]
    }
}

impl Second {
    /// Second number `index`. Whether it was measured, and what was intended in it, is filled in at the end of the run.
    fn new(index: u64, counts: &Counts) -> Second {
        let all = counts.all();
        let response = &all.response;
        let text = |of: &TimeHistogram| if of.count() == 0 { String::new() } else { encode(&of.histogram) };
        Second {
            second: index,
            measured: false,
            intended: None,
            requests: all.count(),
            errors: all.errors,
            hits: all.hits,
            misses: all.misses,
            sent_bytes: all.sent_bytes,
            received_bytes: all.received_bytes,
            mean_ns: response.mean_ns(),
            p50_ns: response.percentile_ns(50.0),
            p99_ns: response.percentile_ns(99.0),
            max_ns: response.max_ns(),
            sum_ns: response.sum_ns(),
            service_sum_ns: all.service.sum_ns(),
            slip_sum_ns: all.slip.sum_ns(),
            slip_max_ns: all.slip.max_ns(),
            histograms: SecondHistograms { get: text(&counts.get.response), set: text(&counts.set.response) },
        }
    }

    /// Adds the same second of another generator.
    ///
    /// # Errors
    /// Why a histogram cannot be read.
    pub(crate) fn merge(&mut self, other: &Second) -> Result<(), String> {
        self.measured &= other.measured;
        self.intended = sum_of_known(self.intended, other.intended);
        self.requests += other.requests;
        self.errors += other.errors;
        self.hits += other.hits;
        self.misses += other.misses;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.service_sum_ns = self.service_sum_ns.saturating_add(other.service_sum_ns);
        self.slip_sum_ns = self.slip_sum_ns.saturating_add(other.slip_sum_ns);
        self.slip_max_ns = self.slip_max_ns.max(other.slip_max_ns);
        self.mean_ns = if self.requests == 0 { 0.0 } else { self.sum_ns as f64 / self.requests as f64 };
        let get = sum(&self.histograms.get, &other.histograms.get)?;
        let set = sum(&self.histograms.set, &other.histograms.set)?;
        self.histograms = SecondHistograms { get, set };
        let all = decode(&sum(&self.histograms.get, &self.histograms.set)?)?;
        let percentile_ns = |percent| {
            let rank = rank(all.len() + self.errors, percent);
            (rank <= all.len()).then(|| value_at_rank(&all, rank).min(self.max_ns))
        };
        (self.p50_ns, self.p99_ns) = (percentile_ns(50.0), percentile_ns(99.0));
        Ok(())
    }
}

/// The sum of the counts that are present.
pub(crate) fn sum_of_known(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

/// The sum of two histograms; empty if both are.
fn sum(one: &str, other: &str) -> Result<String, String> {
    if one.is_empty() || other.is_empty() {
        return Ok(format!("{one}{other}"));
    }
    let mut histogram = decode(one)?;
    add(&mut histogram, &decode(other)?);
    Ok(encode(&histogram))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::request::{EndedRequest, Operation};
    use clock::Nanos;
    use std::sync::mpsc::channel;

    fn with(index: u64, in_window: bool, responses_ns: &[u64]) -> Box<Part> {
        let mut part = Box::new(Part::new(channel().0));
        part.second = index;
        for &response_ns in responses_ns {
            let counts = if in_window { &mut part.inside } else { &mut part.outside };
            counts.record(&EndedRequest {
                operation: if response_ns % 2 == 0 { Operation::Get } else { Operation::Set },
                intended: Nanos(1),
                sent: Nanos(1),
                completed: Nanos(1 + response_ns),
                keys: 1,
                hits: 0,
                request_bytes: 1,
                reply_bytes: 1,
                failed: false,
                message: None,
            });
        }
        part
    }

    #[test]
    fn a_second_is_finished_when_every_thread_has_passed_it() {
        let mut seconds = SecondsCollector::new(2);
        assert!(seconds.take(Handover { thread: 0, now_in: 2, past: with(0, false, &[10, 30]) }).is_empty());
        let finished = seconds.take(Handover { thread: 1, now_in: 1, past: with(0, true, &[80]) });
        assert_eq!(finished.len(), 1);
        let first = &finished[0];
        assert_eq!((first.requests, first.mean_ns, first.p50_ns, first.max_ns), (3, 40.0, Some(30), 80));
        assert_eq!((first.sum_ns, first.intended, first.histograms.set.as_str()), (120, None, ""));
        let (window, all) = seconds.close([with(2, true, &[5]), with(1, true, &[])], 4);
        assert_eq!(
            all.iter().map(|second| (second.second, second.requests)).collect::<Vec<_>>(),
            [(0, 3), (1, 0), (2, 1), (3, 0)]
        );
        assert_eq!((window.get.count(), window.set.count(), window.all().response.sum_ns()), (1, 1, 85));
    }

    #[test]
    fn merged_seconds_equal_the_whole() {
        let of = |times: &[u64]| SecondsCollector::new(1).close([with(0, true, times)], 1).1.remove(0);
        let mut merged = of(&[10, 11, 5_000_000]);
        merged.merge(&of(&[20, 90, 1 << 40])).unwrap();
        assert_eq!(merged, of(&[10, 11, 20, 90, 5_000_000, 1 << 40]));
        merged.merge(&Second { intended: Some(3), ..of(&[]) }).unwrap();
        merged.merge(&Second { intended: Some(4), ..of(&[1]) }).unwrap();
        assert_eq!(merged.intended, Some(7));
        merged.histograms.get = "?".into();
        assert!(merged.merge(&of(&[10])).unwrap_err().contains("base64"));
    }
}
