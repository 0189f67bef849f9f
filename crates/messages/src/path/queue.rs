//! The queue of jobs before a lane or the pool, limited in requests and in bytes. A lane takes the waiting jobs at once and never waits for
//! more.

use crate::observe::limits::{Limit, LimitCounts};
use crate::path::failure::Failure;
use crate::path::work::Job;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Limits of what waits, and of what a lane takes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiting_requests: usize,
    pub(crate) waiting_bytes: usize,
    /// Waiting requests of one sender or receiver.
    pub(crate) waiting_of_party: usize,
    pub(crate) waiting_bytes_of_party: usize,
    pub(crate) taken_requests: usize,
    pub(crate) taken_messages: usize,
    pub(crate) taken_bytes: usize,
}

/// Jobs in their order of arrival.
#[derive(Debug)]
pub(crate) struct JobQueue {
    bounds: Bounds,
    state: Mutex<State>,
    /// The number of jobs in `state`, for readers that must not make requests wait.
    length: AtomicUsize,
    limits: Arc<LimitCounts>,
    arrived: Notify,
    closed: Notify,
    refused: AtomicU64,
    refused_of_party: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Waiting>,
    bytes: usize,
    is_closed: bool,
    /// Waiting requests and bytes of each sender, receiver or client, by its hash.
    parties: HashMap<u64, (usize, usize), BuildHasherDefault<KnownHash>>,
}

/// A job, and the hash of its party.
#[derive(Debug)]
struct Waiting {
    party: u64,
    job: Job,
}

/// The hash of a number that is a hash.
#[derive(Debug, Default)]
struct KnownHash(u64);

impl State {
    /// Counts a job that was counted before, whatever the limits are. Returns the hash of its party.
    fn count(&mut self, job: &Job) -> u64 {
        let (party, bytes) = (party_of(job), job.work.body_bytes());
        let (requests, party_bytes) = self.parties.entry(party).or_default();
        (*requests, *party_bytes) = (*requests + 1, *party_bytes + bytes);
        self.bytes += bytes;
        party
    }
}

impl Hasher for KnownHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl JobQueue {
    pub(crate) fn new(bounds: Bounds, limits: Arc<LimitCounts>) -> JobQueue {
        JobQueue {
            bounds,
            state: Mutex::default(),
            length: AtomicUsize::new(0),
            limits,
            arrived: Notify::new(),
            closed: Notify::new(),
            refused: AtomicU64::new(0),
            refused_of_party: AtomicU64::new(0),
        }
    }

    /// Adds a job. A job that does not fit is answered, and the failure returned.
    pub(crate) fn push(&self, mut job: Job) -> Result<(), Failure> {
        let refuse = |job: Job, failure: Failure| {
            job.end(Err(failure.clone()));
            Err(failure)
        };
        let (party, bytes) = (party_of(&job), job.work.body_bytes());
        let mut state = self.lock();
        if state.is_closed {
            return refuse(job, Failure::ShuttingDown);
        }
        // A single job always fits: its body has a limit of its own.
        let is_full = state.jobs.len() >= self.bounds.waiting_requests
            || (!state.jobs.is_empty() && state.bytes + bytes > self.bounds.waiting_bytes);
        if is_full {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return refuse(job, Failure::Overloaded);
        }
        let (requests, party_bytes) = state.parties.entry(party).or_default();
        let is_over_quota = *requests >= self.bounds.waiting_of_party
            || (*requests > 0 && *party_bytes + bytes > self.bounds.waiting_bytes_of_party);
        if is_over_quota {
            self.refused_of_party.fetch_add(1, Ordering::Relaxed);
            return refuse(job, Failure::OverQuota);
        }
        *requests += 1;
        *party_bytes += bytes;
        job.measurements.queue_length = u32::try_from(state.jobs.len()).unwrap_or(u32::MAX);
        state.bytes += bytes;
        state.jobs.push_back(Waiting { party, job });
        self.length.store(state.jobs.len(), Ordering::Relaxed);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Puts jobs that were taken back to the front, in their order. Their number is limited by the bounds of what is taken.
    pub(crate) fn put_back(&self, jobs: Vec<Job>) {
        let mut state = self.lock();
        for job in jobs.into_iter().rev() {
            let party = state.count(&job);
            state.jobs.push_front(Waiting { party, job });
        }
        self.length.store(state.jobs.len(), Ordering::Relaxed);
        drop(state);
        self.arrived.notify_one();
    }

    /// Puts jobs that were taken behind those that wait, in their order.
    pub(crate) fn put_at_end(&self, jobs: Vec<Job>) {
        let mut state = self.lock();
        for job in jobs {
            let party = state.count(&job);
            state.jobs.push_back(Waiting { party, job });
        }
        self.length.store(state.jobs.len(), Ordering::Relaxed);
        drop(state);
        self.arrived.notify_one();
    }

    /// Takes all waiting jobs up to the bounds, at least one. Waits only if there is none. None if the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<Vec<Job>> {
        loop {
            let is_over = {
                let mut state = self.lock();
                let jobs = self.take_from(&mut state);
                self.length.store(state.jobs.len(), Ordering::Relaxed);
                if !state.jobs.is_empty() || (jobs.is_empty() && state.is_closed) {
                    // One notification can stand for several jobs, so the next lane must be woken.
                    self.arrived.notify_one();
                }
                if !jobs.is_empty() {
                    return Some(jobs);
                }
                state.is_closed
            };
            if is_over {
                return None;
            }
            self.arrived.notified().await;
        }
    }

    /// Refuses new jobs.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
        self.closed.notify_waiters();
    }

    /// Waits until the queue is closed.
    pub(crate) async fn closed(&self) {
        // Registered before the check, so that it cannot be missed.
        let mut closed = pin!(self.closed.notified());
        closed.as_mut().enable();
        if !self.lock().is_closed {
            closed.await;
        }
    }

    /// The numbers of jobs refused because of the common limit, and because of the quota of their sender or receiver.
    pub(crate) fn refused(&self) -> [u64; 2] {
        [self.refused.load(Ordering::Relaxed), self.refused_of_party.load(Ordering::Relaxed)]
    }

    /// The number of waiting jobs. Takes no lock.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    fn take_from(&self, state: &mut State) -> Vec<Job> {
        let mut taken = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        while let Some(Waiting { job, .. }) = state.jobs.front() {
            // The client has left, so no message must be removed from the database for it.
            let is_over = job.back.is_closed();
            if !is_over {
                messages += job.work.message_count();
                bytes += job.work.body_bytes();
                if !taken.is_empty() {
                    if taken.len() >= self.bounds.taken_requests {
                        break;
                    }
                    if messages > self.bounds.taken_messages {
                        self.limits.reach(Limit::StatementMessages);
                        break;
                    }
                    if bytes > self.bounds.taken_bytes {
                        self.limits.reach(Limit::StatementBytes);
                        break;
                    }
                }
            }
            taken.extend(state.pop_front().filter(|_| !is_over));
        }
        taken
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic ends the process in release builds. In tests the state is consistent, because nothing here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pop_front(&mut self) -> Option<Job> {
        let Waiting { party, job } = self.jobs.pop_front()?;
        let bytes = job.work.body_bytes();
        self.bytes -= bytes;
        if let Entry::Occupied(mut entry) = self.parties.entry(party) {
            let (requests, party_bytes) = entry.get_mut();
            (*requests, *party_bytes) = (*requests - 1, *party_bytes - bytes);
            if *requests == 0 {
                entry.remove();
            }
        }
        Some(job)
    }
}

/// The sender or receiver of a job. A job without one counts for its client: the token's sender or the address, which has one share of the
/// memory. Equal hashes share a quota, which is rare and harmless.
fn party_of(job: &Job) -> u64 {
    let mut hasher = DefaultHasher::new();
    match job.work.party() {
        "" => Arc::as_ptr(&job.caller.share).hash(&mut hasher),
        party => party.hash(&mut hasher),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::measurements::Measurements;
    use crate::path::caller::Caller;
    use crate::path::work::{JobResult, NewMessage, SendRequest, Work};
    use tokio::sync::oneshot;

    const BOUNDS: Bounds = Bounds {
        waiting_requests: 4,
        waiting_bytes: 100,
        waiting_of_party: 4,
        waiting_bytes_of_party: 100,
        taken_requests: 3,
        taken_messages: 3,
        taken_bytes: 50,
    };

    fn job(bytes: usize) -> (Job, oneshot::Receiver<JobResult>) {
        let (back, receiver) = oneshot::channel();
        let messages = vec![NewMessage { receiver: String::new(), body: vec![0; bytes], delay_ms: 0, expiry_ms: 0 }];
        let work = Work::Send(SendRequest { queue: "q".into(), sender: "s".into(), messages, key: String::new() });
        (
            Job { work, measurements: Measurements::default(), caller: Caller::default(), _reservation: None, back },
            receiver,
        )
    }

    fn sizes(jobs: Vec<Job>) -> Vec<usize> {
        sizes_of(&jobs)
    }

    fn sizes_of(jobs: &[Job]) -> Vec<usize> {
        jobs.iter().map(|job| job.work.body_bytes()).collect()
    }

    #[tokio::test]
    async fn a_lane_takes_queued_jobs_in_order_up_to_its_bounds() {
        let queue = JobQueue::new(BOUNDS, Arc::default());
        let mut receivers = Vec::new();
        for bytes in [20, 20, 20, 40] {
            let (job, receiver) = job(bytes);
            queue.push(job).unwrap();
            receivers.push(receiver);
        }
        assert_eq!(sizes(queue.take().await.unwrap()), [20, 20]);
        let cut_by = |limit: Limit| queue.limits.reached()[limit as usize];
        assert_eq!([Limit::StatementMessages, Limit::StatementBytes].map(cut_by), [0, 1]);
        drop(receivers.remove(2));
        assert_eq!(sizes(queue.take().await.unwrap()), [40], "the third client has disconnected");
        queue.close();
        assert!(queue.take().await.is_none());
        assert!(queue.take().await.is_none());
    }

    #[tokio::test]
    async fn jobs_that_are_put_back_are_taken_first() {
        let queue = JobQueue::new(BOUNDS, Arc::default());
        let (jobs, _receivers): (Vec<Job>, Vec<_>) = [1, 2, 3].map(job).into_iter().unzip();
        jobs.into_iter().for_each(|job| queue.push(job).unwrap());
        let mut taken = queue.take().await.unwrap();
        let (last, _receiver) = job(4);
        queue.push(last).unwrap();
        queue.put_back(taken.split_off(1));
        assert_eq!(queue.len(), 3);
        let mut taken = queue.take().await.unwrap();
        assert_eq!(sizes_of(&taken), [2, 3, 4]);
        queue.put_back(taken.split_off(2));
        queue.put_at_end(taken);
        assert_eq!(queue.len(), 3);
        assert_eq!(sizes(queue.take().await.unwrap()), [4, 2, 3], "behind the one that waits");
        assert_eq!(queue.len(), 0);
        assert!(queue.lock().parties.is_empty() && queue.lock().bytes == 0);
    }

    #[tokio::test]
    async fn jobs_over_the_limits_are_refused() {
        let queue = JobQueue::new(BOUNDS, Arc::default());
        let (large, _first) = job(1000);
        queue.push(large).unwrap();
        let (small, _second) = job(1);
        assert_eq!(queue.push(small).unwrap_err(), Failure::Overloaded);
        assert_eq!(sizes(queue.take().await.unwrap()), [1000]);
        let mut receivers = Vec::new();
        for _ in 0..4 {
            let (job, receiver) = job(0);
            queue.push(job).unwrap();
            receivers.push(receiver);
        }
        assert_eq!(queue.push(job(0).0).unwrap_err(), Failure::Overloaded);
        queue.close();
        assert_eq!(queue.push(job(0).0).unwrap_err(), Failure::ShuttingDown);
        assert_eq!(queue.take().await.unwrap().len(), 3, "queued jobs are still done");
        let cut_by = |limit: Limit| queue.limits.reached()[limit as usize];
        assert_eq!([Limit::StatementMessages, Limit::StatementBytes].map(cut_by), [0, 0], "the number of requests");
    }

    #[test]
    fn the_length_is_known_while_a_request_holds_the_lock() {
        let queue = Arc::new(JobQueue::new(BOUNDS, Arc::default()));
        let (job, _receiver) = job(1);
        queue.push(job).unwrap();
        let held = queue.lock();
        let (sender, length) = std::sync::mpsc::channel();
        let scraped = queue.clone();
        let scrape = std::thread::spawn(move || sender.send(scraped.len()));
        let length = length.recv_timeout(std::time::Duration::from_secs(20));
        drop(held);
        assert_eq!(length, Ok(1));
        scrape.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_sender_over_its_quota_is_refused_and_others_are_not() {
        let queue = JobQueue::new(Bounds { waiting_of_party: 2, waiting_bytes_of_party: 50, ..BOUNDS }, Arc::default());
        let mut receivers = Vec::new();
        let mut push = |sender: &str, bytes: usize| {
            let (mut job, receiver) = job(bytes);
            receivers.push(receiver);
            if let Work::Send(send) = &mut job.work {
                send.sender = sender.into();
            }
            queue.push(job)
        };
        assert_eq!((push("greedy", 10), push("greedy", 10)), (Ok(()), Ok(())));
        assert_eq!(push("greedy", 1), Err(Failure::OverQuota));
        assert_eq!((push("large", 40), push("large", 20)), (Ok(()), Err(Failure::OverQuota)));
        assert_eq!((push("other", 1), push("other", 1)), (Ok(()), Err(Failure::Overloaded)));
        assert_eq!(queue.refused(), [1, 2]);
        assert_eq!(queue.take().await.unwrap().len(), 2);
        assert_eq!(queue.take().await.unwrap().len(), 2);
        assert!(queue.lock().parties.is_empty());
        assert_eq!(push("greedy", 1), Ok(()), "jobs that were taken no longer count");
    }
}
