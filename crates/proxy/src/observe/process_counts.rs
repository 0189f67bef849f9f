//! What all configurations of this process have counted since its start: those that serve, and those that have ended.

use crate::observe::histograms::StageHistograms;
use crate::observe::tally::{Sums, Tally};
use clock::{Clock, Nanos, unix_now};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counts of the process. All its configurations share them. Requests that are counted take no lock; only readers do.
#[derive(Debug)]
pub(crate) struct ProcessCounts {
    /// When the first configuration was started.
    pub(crate) started: Nanos,
    pub(crate) started_unix_ns: u64,
    configurations: Mutex<Configurations>,
    times: Mutex<StageTimes>,
}

#[derive(Debug, Default)]
struct Configurations {
    /// Those that serve clients, the newest last.
    live: Vec<Arc<Tally>>,
    /// The sum of those that have ended, under the names of the newest. Counters of what the newest does not have are dropped.
    ended: Option<Tally>,
}

/// The times of requests in each stage.
#[derive(Debug, Default)]
struct StageTimes {
    total: StageHistograms,
    /// Histograms of loops that had not answered when their metrics server ended.
    late: Vec<Receiver<StageHistograms>>,
}

impl ProcessCounts {
    /// Nothing was counted.
    pub(crate) fn new(clock: &Clock) -> ProcessCounts {
        ProcessCounts {
            started: clock.now(),
            started_unix_ns: unix_now(),
            configurations: Mutex::default(),
            times: Mutex::default(),
        }
    }

    /// A configuration begins to serve. It is the newest.
    pub(crate) fn begin(&self, tally: &Arc<Tally>) {
        let mut configurations = lock(&self.configurations);
        configurations.live.push(tally.clone());
        if configurations.ended.is_some() {
            configurations.ended = configurations.ended_as_newest();
        }
    }

    /// All threads of a configuration have ended.
    pub(crate) fn end(&self, tally: &Arc<Tally>) {
        let mut configurations = lock(&self.configurations);
        configurations.live.retain(|live| !Arc::ptr_eq(live, tally));
        let ended = configurations.ended_as_newest();
        ended.iter().for_each(|ended| ended.add(tally));
        configurations.ended = ended;
    }

    /// The counters of a configuration, with those of all others under its names.
    pub(crate) fn sums(&self, own: &Arc<Tally>) -> Sums {
        let configurations = lock(&self.configurations);
        let others = configurations.live.iter().filter(|live| !Arc::ptr_eq(live, own)).map(|live| &**live);
        let mut others = others.chain(&configurations.ended).peekable();
        let sum = others.peek().is_some().then(|| own.zero());
        for other in others {
            sum.iter().for_each(|sum| sum.add(other));
        }
        Sums { own: own.clone(), others: sum }
    }

    /// Adds the times that a loop has recorded.
    pub(crate) fn add_times(&self, recorded: &StageHistograms) {
        lock(&self.times).total.add(recorded);
    }

    /// Adds the times of a loop as soon as they arrive.
    pub(crate) fn add_late_times(&self, receiver: Receiver<StageHistograms>) {
        lock(&self.times).late.push(receiver);
    }

    /// The times that the loops have sent.
    pub(crate) fn times(&self) -> StageHistograms {
        let mut times = lock(&self.times);
        let StageTimes { total, late } = &mut *times;
        late.retain(|receiver| match receiver.try_recv() {
            Ok(recorded) => {
                total.add(&recorded);
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => false,
        });
        total.clone()
    }
}

impl Configurations {
    /// The counters of ended configurations under the names of the newest.
    fn ended_as_newest(&self) -> Option<Tally> {
        let renamed = self.live.last()?.zero();
        self.ended.iter().for_each(|ended| renamed.add(ended));
        Some(renamed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tally::{CountedNames, ServerName};

    /// A configuration with one pool and these servers, each of which has counted ten requests on the last loop.
    fn tally(pool: &str, servers: &[&str], loops: usize) -> Arc<Tally> {
        let server = |address: &&str| ServerName { pool: pool.into(), address: (*address).into() };
        let named = CountedNames {
            pools: vec![pool.into()],
            servers: servers.iter().map(server).collect(),
            queues: servers.iter().map(ToString::to_string).collect(),
        };
        let tally = Tally::new(Arc::new(named), loops);
        let last = &tally.loops[loops - 1];
        for backend in &last.backends {
            backend.requests.add(10);
            backend.is_up.add(1);
        }
        last.keys_read.add(10);
        last.pools[0].reads.add(10);
        last.queues.iter().for_each(|queue| queue.full.add(10));
        tally.resolver.names.iter().for_each(|name| name.moves.add(10));
        tally.accept.pauses.add(10);
        tally.scrapes.scrapes.add(10);
        Arc::new(tally)
    }

    /// The requests of each backend, the keys, the reads of the pool, and the moves of each backend.
    fn shown(sums: &Sums) -> (Vec<u64>, u64, u64, Vec<u64>) {
        let backends = 0..sums.own.named.servers.len();
        (
            backends.clone().map(|backend| sums.of_loops(|loops| loops.backends[backend].requests.get())).collect(),
            sums.of_loops(|loops| loops.keys_read.get()),
            sums.of_loops(|loops| loops.pools[0].reads.get()),
            backends.map(|backend| sums.of_name(backend, |name| &name.moves)).collect(),
        )
    }

    #[test]
    fn counters_continue_under_the_same_name_while_the_earlier_configuration_serves_and_after_its_end() {
        let counts = ProcessCounts::new(&Clock::monotonic());
        let first = tally("main", &["a:1", "b:1", "c:1"], 3);
        counts.begin(&first);
        assert!(counts.sums(&first).others.is_none());
        // `a` has gone and `d` has come. The others have other numbers.
        let second = tally("main", &["d:1", "c:1", "b:1"], 2);
        counts.begin(&second);
        let expected = (vec![10, 20, 20], 20, 20, vec![10, 20, 20]);
        assert_eq!(shown(&counts.sums(&second)), expected);
        assert_eq!(shown(&counts.sums(&first)), (vec![10, 20, 20], 20, 20, vec![10, 20, 20]));
        // A client that has not moved is still counted.
        first.loops[0].backends[2].requests.add(5);
        assert_eq!(shown(&counts.sums(&second)).0, [10, 25, 20]);
        counts.end(&first);
        assert_eq!(shown(&counts.sums(&second)).0, [10, 25, 20]);
        let sums = counts.sums(&second);
        assert_eq!(sums.of_loops(|loops| loops.backends[1].is_up.get()), 1, "gauges are those of one configuration");
        assert_eq!((sums.of_accept(|accept| &accept.pauses), sums.of_scrapes(|scrapes| &scrapes.scrapes)), (20, 20));
        // The queues of the third loop have gone with it.
        assert_eq!([0, 1].map(|index| sums.of_queue(index, 2, |queue| &queue.full)), [0, 10]);
    }

    #[test]
    fn what_a_configuration_does_not_have_starts_again_when_it_comes_back() {
        let counts = ProcessCounts::new(&Clock::monotonic());
        let configurations: Vec<_> = [
            ("main", &["a:1", "b:1"][..]),
            ("other", &["b:1"][..]),
            ("main", &["a:1", "b:1"][..]),
            ("main", &["b:1", "a:1"][..]),
        ]
        .map(|(pool, servers)| tally(pool, servers, 2))
        .into();
        counts.begin(&configurations[0]);
        for pair in configurations.windows(2) {
            counts.begin(&pair[1]);
            counts.end(&pair[0]);
        }
        // The keys are those of all four. The pool `main` was away once.
        assert_eq!(shown(&counts.sums(&configurations[3])), (vec![20, 20], 40, 20, vec![20, 20]));
    }

    #[test]
    fn times_that_arrive_late_are_added() {
        use clock::{Stage, StageClock};
        use std::sync::mpsc::sync_channel;
        let counts = ProcessCounts::new(&Clock::monotonic());
        let mut recorded = StageHistograms::default();
        let mut clock = StageClock::started(Nanos(1000));
        clock.stamp(Stage::Replied, Nanos(3000));
        clock.finish();
        recorded.record(wire::Verb::Get, &clock);
        let number = || counts.times().series().map(|series| series.2.count()).max().unwrap();
        counts.add_times(&recorded);
        let (sender, receiver) = sync_channel(1);
        counts.add_late_times(receiver);
        counts.add_late_times(sync_channel(1).1);
        assert_eq!(number(), 1);
        sender.send(recorded).unwrap();
        assert_eq!((number(), number(), lock(&counts.times).late.len()), (2, 2, 0));
    }
}
