//! Collects the histograms of all event loops for a scrape.

use crate::observe::histograms::StageHistograms;
use crate::observe::metrics::{ClosedConnections, Snapshot, Subject};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Sends one loop a request for a copy of its histograms. Returns whether the request was sent.
pub(crate) type RequestHistograms = Box<dyn Fn(SyncSender<StageHistograms>) -> bool + Send>;

/// The state that is kept between scrapes.
pub(crate) struct Scraper {
    subject: Arc<Subject>,
    loops: Vec<LoopHistograms>,
    scrapes: u64,
    stale_loops: u64,
}

/// One loop, and the last copy of its histograms. Without the copy, the counts of a busy loop would drop to zero and rise again,
/// which looks like a restart.
struct LoopHistograms {
    request: RequestHistograms,
    last: StageHistograms,
}

impl Scraper {
    /// A scraper of these loops.
    pub(crate) fn new(subject: Subject, requests: Vec<RequestHistograms>) -> Scraper {
        let with_none = |request| LoopHistograms { request, last: StageHistograms::default() };
        let loops = requests.into_iter().map(with_none).collect();
        Scraper { subject: Arc::new(subject), loops, scrapes: 0, stale_loops: 0 }
    }

    /// The data of one scrape. A loop that does not answer within `patience` is shown as it was at the last scrape.
    pub(crate) fn snapshot(&mut self, patience: Duration, closed: ClosedConnections) -> Snapshot {
        let histograms = self.histograms(patience);
        self.scrapes += 1;
        let subject = self.subject.clone();
        Snapshot { subject, histograms, scrapes: self.scrapes, stale_loops: self.stale_loops, closed }
    }

    /// The sum of all loops' histograms. All loops get the request before the first is waited for, so that they work in parallel.
    fn histograms(&mut self, patience: Duration) -> StageHistograms {
        let ask = |one: &LoopHistograms| {
            let (sender, receiver) = sync_channel(1);
            (one.request)(sender).then_some(receiver)
        };
        let answers: Vec<_> = self.loops.iter().map(ask).collect();
        let (mut sum, mut patience) = (StageHistograms::default(), patience);
        for (one, answer) in self.loops.iter_mut().zip(answers) {
            let answer = answer.map_or(Err(RecvTimeoutError::Disconnected), |receiver| receiver.recv_timeout(patience));
            if matches!(answer, Err(RecvTimeoutError::Timeout)) {
                // The other loops have had the same time.
                patience = Duration::ZERO;
            }
            match answer {
                Ok(fresh) => one.last = fresh,
                Err(_) => self.stale_loops += 1,
            }
            sum.add(&one.last);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::counters::{LoopCounters, NameCounters};
    use clock::{Nanos, Stage, StageClock};
    use net::{Poller, Post, Token, mailbox};
    use wire::Verb;

    #[test]
    fn a_loop_that_does_not_answer_keeps_its_last_histograms_and_is_counted() {
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        let (quick_post, mut quick) = mailbox(&pollers[0], Token(1)).unwrap();
        let (slow_post, mut slow) = mailbox(&pollers[1], Token(2)).unwrap();
        let subject = Subject {
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
        };
        let mut scraper = Scraper::new(subject, [slow_post, quick_post].map(request).into());
        let mut histograms = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        // Each loop has one more request at every scrape. In the second scrape, the slow loop does not answer.
        for (slow_answers, requests, stale_loops) in [(true, 2, 0), (false, 3, 1), (true, 6, 1)] {
            histograms.record(Verb::Get, &clock);
            histograms.record_batch();
            let snapshot = std::thread::scope(|scope| {
                let (quick, slow, copy) = (&mut quick, &mut slow, &histograms);
                scope.spawn(move || {
                    answer(quick, Some(copy));
                    answer(slow, Some(copy).filter(|_| slow_answers));
                });
                scraper.snapshot(Duration::from_secs(60), ClosedConnections::default())
            });
            let total = snapshot.histograms.series().find(|series| series.1 == "total").unwrap().2.len();
            assert_eq!((total, snapshot.stale_loops), (requests, stale_loops));
        }
        assert_eq!(scraper.scrapes, 3);
    }

    fn request(post: Post<SyncSender<StageHistograms>>) -> RequestHistograms {
        Box::new(move |sender| post.send(sender).is_ok())
    }

    /// Sends a copy as a loop does, or without a copy drops the request.
    fn answer(mailbox: &mut net::Mailbox<SyncSender<StageHistograms>>, copy: Option<&StageHistograms>) {
        loop {
            match mailbox.take() {
                Some(sender) => {
                    return copy.into_iter().for_each(|copy| sender.try_send(copy.clone()).unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
