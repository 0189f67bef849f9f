//! The jobs of one session, in the order of the requests. The first ones are delivered: their reply is in the output buffer, but
//! not yet written. An idle session has none, and its queue is small.

use crate::path::job::JobId;

/// An empty queue with more places than this is freed.
const KEPT_PLACES: usize = 64;

/// The jobs of one session.
#[derive(Debug, Default)]
pub(super) struct JobQueue {
    /// The places before `first` are free.
    jobs: Vec<JobId>,
    first: u32,
    /// The number of jobs that are delivered.
    delivered: u32,
}

impl JobQueue {
    /// The number of jobs.
    pub(super) fn len(&self) -> usize {
        self.jobs.len() - self.first as usize
    }

    /// Whether there is no job.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every job is delivered.
    pub(super) fn is_delivered(&self) -> bool {
        self.len() == self.delivered as usize
    }

    /// The number of jobs that are delivered.
    pub(super) fn delivered_len(&self) -> usize {
        self.delivered as usize
    }

    /// Adds the job of the newest request.
    pub(super) fn push(&mut self, id: JobId) {
        let free = self.first as usize;
        if free > 0 && self.jobs.len() == self.jobs.capacity() {
            // The jobs move only when half of the places are free, so the cost of a move is spread over many jobs.
            if free >= self.jobs.len() / 2 {
                self.jobs.drain(..free);
                self.first = 0;
            }
        }
        self.jobs.push(id);
    }

    /// Adds a job before the oldest one that is not delivered.
    pub(super) fn push_before(&mut self, id: JobId) {
        self.jobs.insert(self.delivered_end(), id);
    }

    /// The oldest job that is not delivered.
    pub(super) fn oldest_undelivered(&self) -> Option<JobId> {
        self.jobs.get(self.delivered_end()).copied()
    }

    /// The jobs that are not delivered, the newest first.
    pub(super) fn newest_undelivered(&self) -> impl Iterator<Item = JobId> {
        self.jobs[self.delivered_end()..].iter().rev().copied()
    }

    /// The reply of the oldest job that is not delivered is in the output buffer now.
    pub(super) fn deliver(&mut self) {
        assert!(!self.is_delivered(), "there is a job to deliver");
        self.delivered += 1;
    }

    /// The delivered jobs, the oldest first.
    pub(super) fn delivered(&self) -> &[JobId] {
        &self.jobs[self.first as usize..self.delivered_end()]
    }

    /// Removes the oldest delivered jobs, whose reply is written.
    pub(super) fn pop(&mut self, count: usize) {
        assert!(count <= self.delivered as usize, "only delivered jobs are written");
        self.first += count as u32;
        self.delivered -= count as u32;
        if self.first as usize == self.jobs.len() {
            self.jobs.clear();
            self.first = 0;
            if self.jobs.capacity() > KEPT_PLACES {
                self.jobs = Vec::new();
            }
        }
    }

    /// Removes all jobs: those that are delivered, and the others.
    pub(super) fn take(&mut self) -> (Vec<JobId>, Vec<JobId>) {
        let undelivered = self.jobs.split_off(self.delivered_end());
        let delivered = self.jobs.split_off(self.first as usize);
        *self = JobQueue::default();
        (delivered, undelivered)
    }

    fn delivered_end(&self) -> usize {
        (self.first + self.delivered) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_delivered_and_written_in_their_order() {
        let mut queue = JobQueue::default();
        let (mut next, mut next_written) = (0, 0);
        for round in 0..1000_u32 {
            for _ in 0..(round * 7 % 5) {
                queue.push(next);
                next += 1;
            }
            for _ in 0..(round * 3 % 4) {
                if let Some(id) = queue.oldest_undelivered() {
                    assert_eq!(id, next_written + queue.delivered_len() as u32);
                    queue.deliver();
                }
            }
            let count = queue.delivered_len().min(round as usize % 3);
            for &id in &queue.delivered()[..count] {
                assert_eq!(id, next_written);
                next_written += 1;
            }
            queue.pop(count);
            assert_eq!(queue.len() as u32, next - next_written);
        }
        let (delivered, undelivered) = queue.take();
        assert_eq!([delivered, undelivered].concat(), (next_written..next).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.is_delivered());
    }

    #[test]
    fn a_job_can_be_added_before_the_oldest_that_is_not_delivered() {
        let mut queue = JobQueue::default();
        (1..4).for_each(|id| queue.push(id));
        queue.deliver();
        queue.push_before(9);
        assert_eq!((queue.delivered(), queue.oldest_undelivered(), queue.len()), (&[1][..], Some(9), 4));
        queue.deliver();
        queue.deliver();
        assert_eq!(queue.delivered(), [1, 9, 2]);
        queue.pop(3);
        assert_eq!((queue.oldest_undelivered(), queue.is_delivered()), (Some(3), false));
    }

    #[test]
    fn a_queue_that_is_never_empty_stays_small() {
        let mut queue = JobQueue::default();
        queue.push(0);
        for id in 1..100_000 {
            queue.push(id);
            queue.deliver();
            queue.pop(1);
        }
        assert!(queue.jobs.capacity() <= 16, "{}", queue.jobs.capacity());
    }

    #[test]
    fn a_queue_that_was_long_is_freed_when_it_is_empty() {
        let mut queue = JobQueue::default();
        (0..1000).for_each(|id| queue.push(id));
        (0..1000).for_each(|_| queue.deliver());
        queue.pop(1000);
        assert_eq!(queue.jobs.capacity(), 0);
    }
}
