//! The queue of jobs before a lane or the pool, limited in requests and in bytes. A lane takes the waiting jobs at once and never waits for
//! more.

use crate::path::failure::Failure;
use crate::path::work::Job;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Limits of what waits, and of what a lane takes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiting_requests: usize,
    pub(crate) waiting_bytes: usize,
    pub(crate) taken_requests: usize,
    pub(crate) taken_messages: usize,
    pub(crate) taken_bytes: usize,
}

/// Jobs in their order of arrival.
#[derive(Debug)]
pub(crate) struct JobQueue {
    bounds: Bounds,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    is_closed: bool,
}

impl JobQueue {
    pub(crate) fn new(bounds: Bounds) -> JobQueue {
        JobQueue { bounds, state: Mutex::default(), arrived: Notify::new() }
    }

    /// Adds a job. A job that does not fit is answered, and the failure returned.
    pub(crate) fn push(&self, mut job: Job) -> Result<(), Failure> {
        let refuse = |job: Job, failure: Failure| {
            job.end(Err(failure.clone()));
            Err(failure)
        };
        let bytes = job.work.body_bytes();
        let mut state = self.lock();
        if state.is_closed {
            return refuse(job, Failure::ShuttingDown);
        }
        // A single job always fits: its body has a limit of its own.
        let is_full = state.jobs.len() >= self.bounds.waiting_requests
            || (!state.jobs.is_empty() && state.bytes + bytes > self.bounds.waiting_bytes);
        if is_full {
            return refuse(job, Failure::Overloaded);
        }
        job.measurements.queue_length = u32::try_from(state.jobs.len()).unwrap_or(u32::MAX);
        state.bytes += bytes;
        state.jobs.push_back(job);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes all waiting jobs up to the bounds, at least one. Waits only if there is none. None if the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<Vec<Job>> {
        loop {
            let is_over = {
                let mut state = self.lock();
                let jobs = self.take_from(&mut state);
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
    }

    /// The number of waiting jobs.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    fn take_from(&self, state: &mut State) -> Vec<Job> {
        let mut taken = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        while let Some(job) = state.jobs.front() {
            if job.back.is_closed() {
                // The client is gone, so no message must be removed from the database for it.
                state.bytes -= job.work.body_bytes();
                state.jobs.pop_front();
                continue;
            }
            messages += job.work.message_count();
            bytes += job.work.body_bytes();
            let is_enough = taken.len() >= self.bounds.taken_requests
                || messages > self.bounds.taken_messages
                || bytes > self.bounds.taken_bytes;
            if is_enough && !taken.is_empty() {
                break;
            }
            state.bytes -= job.work.body_bytes();
            taken.extend(state.jobs.pop_front());
        }
        taken
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic ends the process in release builds. In tests the state is consistent, because nothing here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::measurements::Measurements;
    use crate::path::client_socket::ClientSocket;
    use crate::path::work::{JobResult, NewMessage, SendRequest, Work};
    use tokio::sync::oneshot;

    const BOUNDS: Bounds =
        Bounds { waiting_requests: 4, waiting_bytes: 100, taken_requests: 3, taken_messages: 3, taken_bytes: 50 };

    fn job(bytes: usize) -> (Job, oneshot::Receiver<JobResult>) {
        let (back, receiver) = oneshot::channel();
        let messages = vec![NewMessage { receiver: String::new(), body: vec![0; bytes], delay_ms: 0, expiry_ms: 0 }];
        let work = Work::Send(SendRequest { queue: "q".into(), sender: "s".into(), messages, key: String::new() });
        (
            Job {
                work,
                measurements: Measurements::default(),
                client: ClientSocket::default(),
                _reservation: None,
                back,
            },
            receiver,
        )
    }

    fn sizes(jobs: Vec<Job>) -> Vec<usize> {
        jobs.iter().map(|job| job.work.body_bytes()).collect()
    }

    #[tokio::test]
    async fn a_lane_takes_queued_jobs_in_order_up_to_its_bounds() {
        let queue = JobQueue::new(BOUNDS);
        let mut receivers = Vec::new();
        for bytes in [20, 20, 20, 40] {
            let (job, receiver) = job(bytes);
            queue.push(job).unwrap();
            receivers.push(receiver);
        }
        assert_eq!(sizes(queue.take().await.unwrap()), [20, 20]);
        drop(receivers.remove(2));
        assert_eq!(sizes(queue.take().await.unwrap()), [40], "the third client has disconnected");
        queue.close();
        assert!(queue.take().await.is_none());
        assert!(queue.take().await.is_none());
    }

    #[tokio::test]
    async fn jobs_over_the_limits_are_refused() {
        let queue = JobQueue::new(BOUNDS);
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
    }
}
