//! Chooses the requests of one event loop that are traced, and puts them into the queue when they have ended.

use crate::config::{LoggedKeys, TracesConfig};
use crate::observe::ended_request::EndedRequest;
use crate::observe::traces::counters::TraceCounters;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The queue of all event loops of one configuration.
#[derive(Clone, Debug)]
pub(crate) struct TraceQueue {
    sender: SyncSender<Box<EndedRequest>>,
    counters: Arc<TraceCounters>,
}

/// The sampler of one event loop.
#[derive(Debug)]
pub(crate) struct TraceSampler {
    /// One request in this many is traced.
    sample: u64,
    /// The requests until the next one that is traced.
    left: u64,
    /// The state of the random numbers.
    random: u64,
    shows_keys: bool,
    queue: TraceQueue,
}

impl TraceQueue {
    /// A queue for this many requests, with its other end.
    pub(crate) fn new(most: usize, counters: Arc<TraceCounters>) -> (TraceQueue, Receiver<Box<EndedRequest>>) {
        let (sender, receiver) = sync_channel(most);
        (TraceQueue { sender, counters }, receiver)
    }

    /// The counters of its requests.
    pub(crate) fn counters(&self) -> Arc<TraceCounters> {
        self.counters.clone()
    }
}

impl TraceSampler {
    /// The sampler of the loop with this index.
    pub(crate) fn new(config: &TracesConfig, queue: TraceQueue, index: usize) -> TraceSampler {
        let mut sampler = TraceSampler {
            sample: config.sample.into(),
            left: 0,
            // Another sequence after each reload: a constant first gap would favour the same request each time.
            random: RandomState::new().hash_one(index),
            shows_keys: config.keys != LoggedKeys::Hidden,
            queue,
        };
        sampler.left = sampler.gap();
        sampler
    }

    /// Counts a request. Returns whether it is traced.
    pub(crate) fn takes(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.gap();
        true
    }

    /// Whether spans have keys.
    pub(crate) fn shows_keys(&self) -> bool {
        self.shows_keys
    }

    /// Adds a request to the queue, or drops it. Never waits.
    pub(crate) fn add(&self, request: EndedRequest) {
        let TraceQueue { sender, counters } = &self.queue;
        let is_queued = sender.try_send(Box::new(request)).is_ok();
        let counter = if is_queued { &counters.queued } else { &counters.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests until the next one that is traced: from 1 to 2 N - 1 with equal probability, so N on average. With a
    /// constant number, a client that repeats its commands in a fixed order could have one of them traced every time, and the
    /// others never.
    fn gap(&mut self) -> u64 {
        // Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        1 + (mixed ^ (mixed >> 31)) % (2 * self.sample - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(sample: u32) -> TraceSampler {
        let config = TracesConfig { sample, ..TracesConfig::new("http://a:1/b") };
        TraceSampler::new(&config, TraceQueue::new(1, Arc::default()).0, 0)
    }

    #[test]
    fn one_request_in_n_is_traced_also_if_requests_repeat_in_a_fixed_order() {
        for (sample, period) in [(10, 10), (100, 4), (1000, 10)] {
            let mut sampler = sampler(sample);
            let requests = 2_000_000;
            let mut taken = vec![0u32; period];
            for request in 0..requests {
                taken[request % period] += u32::from(sampler.takes());
            }
            let expected = requests as f64 / f64::from(sample) / period as f64;
            for count in taken {
                assert!((f64::from(count) - expected).abs() < 6.0 * expected.sqrt(), "{count} of {expected}");
            }
        }
        let mut all = sampler(1);
        assert!((0..100).all(|_| all.takes()));
        let mut few = sampler(u32::MAX);
        assert!((0..100).all(|_| !few.takes()));
    }
}
