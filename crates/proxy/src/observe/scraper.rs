//! Collects the histograms of all event loops for a scrape.

use crate::observe::counters::ScrapeCounters;
use crate::observe::histograms::{HistogramRequest, StageHistograms};
use crate::observe::metrics::{Snapshot, Subject};
use crate::observe::process_counts::ProcessCounts;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

/// Requests the histograms of one loop. Returns whether the request was sent.
pub(crate) type RequestHistograms = Box<dyn Fn(HistogramRequest) -> bool + Send>;

/// The state that is kept between scrapes.
pub(crate) struct Scraper {
    subject: Arc<Subject>,
    loops: Vec<LoopHistograms>,
}

/// One loop.
struct LoopHistograms {
    request: RequestHistograms,
    /// The answer to the last request, if it has not arrived. Until then, the loop gets no other request.
    answer: Option<Receiver<StageHistograms>>,
    /// Empty histograms for the next request.
    empty: Option<StageHistograms>,
}

impl Scraper {
    /// A scraper of these loops.
    pub(crate) fn new(subject: Subject, requests: Vec<RequestHistograms>) -> Scraper {
        let with_none = |request| LoopHistograms { request, answer: None, empty: None };
        let loops = requests.into_iter().map(with_none).collect();
        Scraper { subject: Arc::new(subject), loops }
    }

    /// The data of one scrape. A loop that does not answer within `patience` is shown as it was when it last answered.
    pub(crate) fn snapshot(&mut self, patience: Duration) -> Snapshot {
        self.collect(patience);
        let Subject { tally, counts, .. } = &*self.subject;
        tally.scrapes.scrapes.add(1);
        Snapshot { subject: self.subject.clone(), sums: counts.sums(tally), histograms: counts.times() }
    }

    /// The counters of the metrics server.
    pub(crate) fn counters(&self) -> &ScrapeCounters {
        &self.subject.tally.scrapes
    }

    /// Adds what the loops have recorded since the last scrape. All loops get the request before the first is waited for, so that they
    /// work in parallel.
    fn collect(&mut self, mut patience: Duration) {
        let Subject { tally, counts, .. } = &*self.subject;
        for one in &mut self.loops {
            one.take_late(counts);
            one.request();
        }
        for one in &mut self.loops {
            let answer = one.answer.as_ref().map(|answer| answer.recv_timeout(patience));
            match answer {
                Some(Ok(recorded)) => one.add(recorded, counts),
                Some(Err(RecvTimeoutError::Timeout)) => {
                    // The other loops have had the same time.
                    patience = Duration::ZERO;
                    tally.scrapes.stale_loops.add(1);
                }
                Some(Err(RecvTimeoutError::Disconnected)) | None => {
                    one.answer = None;
                    tally.scrapes.stale_loops.add(1);
                }
            }
        }
    }
}

impl Drop for Scraper {
    /// Leaves answers that have not arrived to the next configuration.
    fn drop(&mut self) {
        let answers = self.loops.iter_mut().filter_map(|one| one.answer.take());
        answers.for_each(|answer| self.subject.counts.add_late_times(answer));
    }
}

impl LoopHistograms {
    /// Adds an answer that came too late for the scrape that requested it.
    fn take_late(&mut self, counts: &ProcessCounts) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            Some(Ok(recorded)) => self.add(recorded, counts),
            Some(Err(TryRecvError::Disconnected)) => self.answer = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
    }

    /// Sends a request, unless an earlier one is not answered.
    fn request(&mut self) {
        if self.answer.is_none() {
            let (sender, receiver) = sync_channel(1);
            let empty = self.empty.take().unwrap_or_default();
            self.answer = (self.request)(HistogramRequest { empty, sender }).then_some(receiver);
        }
    }

    fn add(&mut self, mut recorded: StageHistograms, counts: &ProcessCounts) {
        counts.add_times(&recorded);
        recorded.clear();
        (self.answer, self.empty) = (None, Some(recorded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tally::{CountedNames, Tally};
    use clock::{Clock, Nanos, Stage, StageClock};
    use net::{Mailbox, Poller, Post, Token, mailbox};
    use wire::Verb;

    fn subject() -> Subject {
        let named = CountedNames { pools: Vec::new(), servers: Vec::new(), queues: Vec::new() };
        Subject {
            tally: Arc::new(Tally::new(Arc::new(named), 1)),
            counts: Arc::new(ProcessCounts::new(&Clock::monotonic())),
            invalidations_pending: Vec::new(),
            clients_max: 1,
            dispatch: "pipelined",
            hot_keys: None,
        }
    }

    /// Records one request that took 2 microseconds.
    fn record(histograms: &mut StageHistograms) {
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        histograms.record(Verb::Get, &clock);
    }

    /// How a loop reacts to a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Reaction {
        Answers,
        /// It answers after the scrape.
        AnswersLate,
        /// It drops the request, as a loop that ends.
        Drops,
    }

    #[test]
    fn a_loop_that_does_not_answer_keeps_its_last_histograms_and_is_counted() {
        use Reaction::{Answers, AnswersLate, Drops};
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        let (quick_post, mut quick) = mailbox(&pollers[0], Token(1)).unwrap();
        let (slow_post, mut slow) = mailbox(&pollers[1], Token(2)).unwrap();
        let mut scraper = Scraper::new(subject(), [slow_post, quick_post].map(request).into());
        let (mut quick_own, mut slow_own) = (StageHistograms::default(), StageHistograms::default());
        // Each loop has one more request at every scrape.
        let scrapes = [(Answers, 2, 0), (Drops, 3, 1), (Answers, 6, 1), (AnswersLate, 7, 2), (Answers, 10, 2)];
        for (reaction, requests, stale_loops) in scrapes {
            record(&mut quick_own);
            record(&mut slow_own);
            let patience = Duration::from_millis(if reaction == AnswersLate { 500 } else { 60_000 });
            let snapshot = std::thread::scope(|scope| {
                let (quick, slow, quick_own, slow_own) = (&mut quick, &mut slow, &mut quick_own, &mut slow_own);
                scope.spawn(move || {
                    quick_own.exchange(next(quick));
                    match reaction {
                        Answers => slow_own.exchange(next(slow)),
                        Drops => drop(next(slow)),
                        AnswersLate => {}
                    }
                });
                scraper.snapshot(patience)
            });
            if reaction == AnswersLate {
                slow_own.exchange(next(&mut slow));
            }
            let total = snapshot.histograms.series().find(|series| series.1 == "total").unwrap().2.count();
            let stale = snapshot.sums.of_scrapes(|scrapes| &scrapes.stale_loops);
            assert_eq!((total, stale), (requests, stale_loops), "{reaction:?}");
        }
        assert_eq!(scraper.counters().scrapes.get(), 5);
    }

    #[test]
    fn a_loop_that_does_not_answer_gets_one_request_only() {
        let poller = Poller::new().unwrap();
        let (post, mailbox) = mailbox(&poller, Token(1)).unwrap();
        let subject = subject();
        let counts = subject.counts.clone();
        let mut scraper = Scraper::new(subject, vec![request(post)]);
        (0..3).for_each(|_| _ = scraper.snapshot(Duration::ZERO));
        let (Some(request), None) = (mailbox.take(), mailbox.take()) else { panic!("not one request") };
        // The answer is not lost if it comes after the scraper's end.
        drop(scraper);
        let mut own = StageHistograms::default();
        record(&mut own);
        own.exchange(request);
        assert_eq!(counts.times().series().map(|series| series.2.count()).max(), Some(1));
    }

    fn request(post: Post<HistogramRequest>) -> RequestHistograms {
        Box::new(move |request| post.send(request).is_ok())
    }

    /// Waits for a request as a loop does.
    fn next(mailbox: &mut Mailbox<HistogramRequest>) -> HistogramRequest {
        loop {
            match mailbox.take() {
                Some(request) => return request,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
