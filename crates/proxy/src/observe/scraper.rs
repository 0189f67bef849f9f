//! Collects the histograms of all event loops for a scrape.

use crate::observe::histograms::{HistogramRequest, StageHistograms};
use crate::observe::metrics::{ClosedConnections, Snapshot, Subject};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

/// Requests the histograms of one loop. Returns whether the request was sent.
pub(crate) type RequestHistograms = Box<dyn Fn(HistogramRequest) -> bool + Send>;

/// The state that is kept between scrapes.
pub(crate) struct Scraper {
    subject: Arc<Subject>,
    loops: Vec<LoopHistograms>,
    /// Everything that the loops have sent.
    total: StageHistograms,
    scrapes: u64,
    stale_loops: u64,
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
        Scraper { subject: Arc::new(subject), loops, total: StageHistograms::default(), scrapes: 0, stale_loops: 0 }
    }

    /// The data of one scrape. A loop that does not answer within `patience` is shown as it was when it last answered.
    pub(crate) fn snapshot(&mut self, patience: Duration, closed: ClosedConnections) -> Snapshot {
        self.collect(patience);
        self.scrapes += 1;
        let (subject, histograms) = (self.subject.clone(), self.total.clone());
        Snapshot { subject, histograms, scrapes: self.scrapes, stale_loops: self.stale_loops, closed }
    }

    /// Adds what the loops have recorded since the last scrape. All loops get the request before the first is waited for, so that they
    /// work in parallel.
    fn collect(&mut self, mut patience: Duration) {
        for one in &mut self.loops {
            one.take_late(&mut self.total);
            one.request();
        }
        for one in &mut self.loops {
            let answer = one.answer.as_ref().map(|answer| answer.recv_timeout(patience));
            match answer {
                Some(Ok(recorded)) => one.add(recorded, &mut self.total),
                Some(Err(RecvTimeoutError::Timeout)) => {
                    // The other loops have had the same time.
                    patience = Duration::ZERO;
                    self.stale_loops += 1;
                }
                Some(Err(RecvTimeoutError::Disconnected)) | None => {
                    one.answer = None;
                    self.stale_loops += 1;
                }
            }
        }
    }
}

impl LoopHistograms {
    /// Adds an answer that came too late for the scrape that requested it.
    fn take_late(&mut self, total: &mut StageHistograms) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            Some(Ok(recorded)) => self.add(recorded, total),
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

    fn add(&mut self, mut recorded: StageHistograms, total: &mut StageHistograms) {
        total.add(&recorded);
        recorded.clear();
        (self.answer, self.empty) = (None, Some(recorded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::counters::{LoopCounters, NameCounters};
    use clock::{Nanos, Stage, StageClock};
    use net::{Mailbox, Poller, Post, Token, mailbox};
    use wire::Verb;

    fn subject() -> Subject {
        Subject {
            loops: vec![Arc::new(LoopCounters::new(0, 0, 0))],
            accept: Arc::default(),
            log: Arc::default(),
            names: Arc::new(NameCounters::new(0)),
            pools: Vec::new(),
            servers: Vec::new(),
            invalidations_pending: Vec::new(),
            queues: Vec::new(),
            clients_max: 1,
            dispatch: "pipelined",
            started_unix_ns: 0,
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
                scraper.snapshot(patience, ClosedConnections::default())
            });
            if reaction == AnswersLate {
                slow_own.exchange(next(&mut slow));
            }
            let total = snapshot.histograms.series().find(|series| series.1 == "total").unwrap().2.len();
            assert_eq!((total, snapshot.stale_loops), (requests, stale_loops), "{reaction:?}");
        }
        assert_eq!(scraper.scrapes, 5);
    }

    #[test]
    fn a_loop_that_does_not_answer_gets_one_request_only() {
        let poller = Poller::new().unwrap();
        let (post, mailbox) = mailbox(&poller, Token(1)).unwrap();
        let mut scraper = Scraper::new(subject(), vec![request(post)]);
        (0..3).for_each(|_| _ = scraper.snapshot(Duration::ZERO, ClosedConnections::default()));
        assert!(mailbox.take().is_some() && mailbox.take().is_none());
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
