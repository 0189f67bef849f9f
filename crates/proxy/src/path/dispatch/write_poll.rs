//! Step 5. A published fault, for experiments: writers that notice a new write only when they have polled their sockets.
//!
//! Each backend has one such writer, for the writes whose first replica it is. The writer sends one write, then polls its sockets
//! until a reply to one of its writes arrives or the interval is over, and only then looks at its queue. More replicas mean more
//! replies, which end its polls earlier, so writes become faster with more replicas.

use crate::path::dispatch::queue::Queue;
use crate::path::job::{JobId, LegRef};
use crate::path::jobs::Jobs;
use clock::Nanos;
use std::time::Duration;

/// The writers of one loop.
#[derive(Debug)]
pub(crate) struct WritePoll {
    interval: Duration,
    /// By backend.
    writers: Vec<Writer>,
}

#[derive(Debug)]
struct Writer {
    queue: Queue<LegRef>,
    /// The writes that were sent, with the number of replies that are missing.
    in_flight: Vec<(JobId, usize)>,
    /// The end of the last poll. An idle writer polls again and again from there on.
    polled: Nanos,
    /// The end of the current poll, if the queue is not empty.
    due: Nanos,
}

impl WritePoll {
    /// A writer for each of the `backends`.
    pub(crate) fn new(interval: Duration, backends: usize, queue: impl Fn() -> Queue<LegRef>) -> WritePoll {
        let writer = || Writer { queue: queue(), in_flight: Vec::new(), polled: Nanos::UNSET, due: Nanos::NEVER };
        WritePoll { interval, writers: (0..backends).map(|_| writer()).collect() }
    }

    /// The queue of a writer.
    pub(crate) fn queue(&self, backend: usize) -> &Queue<LegRef> {
        &self.writers[backend].queue
    }

    /// Queues a leg until its writer has polled.
    pub(crate) fn push(&mut self, backend: usize, leg: LegRef, bytes: usize, now: Nanos) {
        let writer = &mut self.writers[backend];
        if writer.queue.is_empty() {
            writer.due = end_of_poll(writer.polled, self.interval, now);
        }
        writer.queue.push(leg, bytes);
    }

    /// The legs of the next write of a writer whose poll has ended; `legs` is empty otherwise.
    pub(crate) fn take(&mut self, backend: usize, jobs: &mut Jobs, now: Nanos, legs: &mut Vec<LegRef>) {
        let writer = &mut self.writers[backend];
        let mut is_reply = false;
        writer.in_flight.retain_mut(|(id, missing)| {
            let left = missing_replies(jobs, *id);
            is_reply |= left < *missing;
            *missing = left;
            left > 0
        });
        if is_reply {
            writer.polled = now;
            writer.due = now;
        }
        if writer.queue.is_empty() || writer.due > now {
            return;
        }
        while let Some(&leg) = writer.queue.head().filter(|head| legs.first().is_none_or(|first| first.job == head.job))
        {
            legs.push(leg);
            writer.queue.pop();
        }
        writer.in_flight.push((legs[0].job, missing_replies(jobs, legs[0].job)));
        writer.polled = now;
        writer.due = if writer.queue.is_empty() { Nanos::NEVER } else { now + self.interval };
    }

    /// Takes a queued leg, so that it can be refused.
    pub(crate) fn pop(&mut self) -> Option<LegRef> {
        self.writers.iter_mut().find_map(|writer| writer.queue.pop())
    }

    /// When the next poll of a writer with queued writes ends.
    pub(crate) fn deadline(&self) -> Nanos {
        let busy = self.writers.iter().filter(|writer| !writer.queue.is_empty());
        busy.map(|writer| writer.due).min().unwrap_or(Nanos::NEVER)
    }
}

/// How many replies to a write are missing. A write that failed may have left the table of jobs, even if its number is in use again.
fn missing_replies(jobs: &mut Jobs, id: JobId) -> usize {
    jobs.find(id).map_or(0, |job| job.legs().iter().filter(|leg| !leg.answered.is_set()).count())
}

/// The end of the poll that an idle writer is in, if it has polled again and again since then. Its first poll begins with its first
/// write.
fn end_of_poll(polled: Nanos, interval: Duration, now: Nanos) -> Nanos {
    if !polled.is_set() {
        return now;
    }
    let polls = now.after(polled).as_nanos() / interval.as_nanos() + 1;
    polled + Duration::from_nanos((interval.as_nanos() * polls).try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_writer_notices_a_write_at_the_end_of_its_poll() {
        let interval = Duration::from_millis(1);
        let start = Nanos::UNSET + Duration::from_secs(5);
        for (after_us, end_us) in [(0, 1000), (1, 1000), (999, 1000), (1000, 2000), (7300, 8000)] {
            let now = start + Duration::from_micros(after_us);
            assert_eq!(end_of_poll(start, interval, now), start + Duration::from_micros(end_us), "{after_us}");
        }
        assert_eq!(end_of_poll(Nanos::UNSET, interval, start), start);
    }
}
