//! Sorts the jobs that a lane has taken into statements. Sends share one statement. Fetches with equal scopes share one fetch; fetches that
//! could lock the same rows are in separate statements. Knows nothing of the database.

use crate::path::work::{Job, Message, Scope, Work};
use std::collections::HashMap;

/// Jobs by the statement that runs them, each in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct JobBatch {
    pub(crate) sends: Vec<Job>,
    /// Sends with an idempotency key, a delay or an expiry.
    pub(crate) sends_with: Vec<Job>,
    /// Indexed by [`LeaseAction`].
    pub(crate) lease_actions: [Vec<Job>; 3],
    /// Without a sender; by sender in a queue; by sender over all queues. The last two could want the same rows.
    pub(crate) pops: [FetchJobs; 3],
    /// Without a sender; by sender.
    pub(crate) receives: [FetchJobs; 2],
    /// Without a sender; by sender.
    pub(crate) peeks: [FetchJobs; 2],
    /// Jobs about queues, grouped by statement. Equal jobs that only read share one, and so do pages for several receivers.
    pub(crate) about_queues: Vec<Vec<Job>>,
}

/// Jobs that fetch messages, grouped by scope.
#[derive(Debug, Default)]
pub(crate) struct FetchJobs {
    places: HashMap<Scope, usize>,
    jobs: Vec<Vec<Job>>,
}

impl JobBatch {
    pub(crate) fn of(jobs: Vec<Job>) -> JobBatch {
        let mut batch = JobBatch::default();
        for job in jobs {
            match &job.work {
                Work::Send(send) if send.is_plain() => batch.sends.push(job),
                Work::Send(_) => batch.sends_with.push(job),
                Work::Lease(request) => batch.lease_actions[request.action as usize].push(job),
                Work::Pop(fetch) => {
                    let index = match (fetch.scope.sender.is_empty(), fetch.scope.queue.is_empty()) {
                        (true, _) => 0,
                        (false, false) => 1,
                        (false, true) => 2,
                    };
                    batch.pops[index].push(job);
                }
                Work::Receive(fetch, _) => batch.receives[usize::from(!fetch.scope.sender.is_empty())].push(job),
                Work::Peek(fetch) => batch.peeks[usize::from(!fetch.scope.sender.is_empty())].push(job),
                Work::WaitingQueues(..) | Work::ListQueues(_) | Work::ShowQueue(_) => batch.push_equal(job),
                Work::CreateQueue(..) | Work::DeleteQueue(_) => batch.about_queues.push(vec![job]),
            }
        }
        batch
    }

    fn push_equal(&mut self, job: Job) {
        let is_alike = |first: &Job| match (&first.work, &job.work) {
            (Work::WaitingQueues(_, page), Work::WaitingQueues(_, other)) => page == other,
            (work, other) => work == other,
        };
        match self.about_queues.iter_mut().find(|jobs| jobs.first().is_some_and(is_alike)) {
            Some(jobs) => jobs.push(job),
            None => self.about_queues.push(vec![job]),
        }
    }
}

impl FetchJobs {
    /// These jobs, which fetch messages.
    pub(crate) fn of(jobs: Vec<Job>) -> FetchJobs {
        let mut fetches = FetchJobs::default();
        jobs.into_iter().for_each(|job| fetches.push(job));
        fetches
    }

    /// Adds a job that fetches messages.
    pub(crate) fn push(&mut self, job: Job) {
        let Some(scope) = scope_of(&job) else { return };
        let next = self.jobs.len();
        let place = *self.places.entry(scope.clone()).or_insert(next);
        if place == next {
            self.jobs.push(Vec::new());
        }
        self.jobs[place].push(job);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Each scope once, with the number of messages to fetch: the sum over its jobs, or the maximum if the jobs can share messages.
    pub(crate) fn merged(&self, is_shared: bool) -> Vec<(&Scope, usize)> {
        let fetch = |jobs: &'_ Vec<Job>| {
            let count = jobs.iter().map(|job| job.work.message_count());
            if is_shared { count.max().unwrap_or(0) } else { count.sum() }
        };
        self.jobs.iter().filter_map(|jobs| Some((scope_of(jobs.first()?)?, fetch(jobs)))).collect()
    }

    /// The visibility timeout of each lease in milliseconds: for each fetch in the order of [`FetchJobs::merged`], for each of its
    /// messages.
    pub(crate) fn leases_ms(&self) -> Vec<i64> {
        let of_job = |job: &Job| match &job.work {
            Work::Receive(fetch, lease_ms) => std::iter::repeat_n(*lease_ms, fetch.count),
            _ => std::iter::repeat_n(0, 0),
        };
        self.jobs.iter().flatten().flat_map(of_job).collect()
    }

    /// All jobs by scope, in the order of [`FetchJobs::merged`].
    pub(crate) fn into_jobs(self) -> Vec<Vec<Job>> {
        self.jobs
    }
}

/// Distributes messages: the first job gets as many as it wants, then the next.
pub(crate) fn distribute(messages: Vec<Message>, count: impl Iterator<Item = usize>) -> Vec<Vec<Message>> {
    let mut messages = messages.into_iter();
    count.map(|number| messages.by_ref().take(number).collect()).collect()
}

fn scope_of(job: &Job) -> Option<&Scope> {
    match &job.work {
        Work::Pop(fetch) | Work::Peek(fetch) | Work::Receive(fetch, _) => Some(&fetch.scope),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::measurements::Measurements;
    use crate::path::caller::Caller;
    use crate::path::lease::{LeaseAction, LeaseRequest};
    use crate::path::work::{FetchRequest, NewMessage, Page, SendRequest};
    use tokio::sync::oneshot;

    fn pop(queue: &str, receiver: &str, sender: &str, count: usize) -> Job {
        let scope = Scope { queue: queue.into(), receiver: receiver.into(), sender: sender.into() };
        let (back, _) = oneshot::channel();
        Job {
            work: Work::Pop(FetchRequest { scope, count }),
            measurements: Measurements::default(),
            caller: Caller::default(),
            _reservation: None,
            back,
        }
    }

    #[test]
    fn equal_fetches_are_merged_and_overlapping_ones_are_separate() {
        let jobs = vec![pop("q", "me", "", 1), pop("p", "", "", 1), pop("q", "me", "", 2), pop("q", "me", "s", 1)];
        let batch = JobBatch::of(jobs.into_iter().chain([pop("", "me", "s", 1)]).collect());
        let merged: Vec<(&str, usize)> =
            batch.pops[0].merged(false).into_iter().map(|(scope, count)| (scope.queue.as_str(), count)).collect();
        assert_eq!(merged, [("q", 3), ("p", 1)]);
        assert_eq!(batch.pops[0].merged(true)[0].1, 2, "peeks can share messages");
        assert_eq!((batch.pops[1].merged(false).len(), batch.pops[2].merged(false).len()), (1, 1));
    }

    #[test]
    fn receives_keep_their_visibility_timeouts_and_lease_actions_are_grouped() {
        let job = |work: Work| Job { work, ..pop("q", "me", "", 1) };
        let receive = |receiver: &str, count: usize, lease_ms: i64| {
            let scope = Scope { queue: "q".into(), receiver: receiver.into(), sender: String::new() };
            job(Work::Receive(FetchRequest { scope, count }, lease_ms))
        };
        let lease_action = |action: LeaseAction| {
            job(Work::Lease(LeaseRequest {
                action,
                tokens: Vec::new(),
                written: Vec::new(),
                time_ms: 0,
                is_single: true,
            }))
        };
        let send = |key: &str, delay_ms: i64| {
            let message = NewMessage { receiver: String::new(), body: Vec::new(), delay_ms, expiry_ms: 0 };
            let (queue, sender, key) = ("q".into(), "s".into(), key.into());
            job(Work::Send(SendRequest { queue, sender, messages: vec![message], key }))
        };
        let receives = vec![receive("a", 1, 10), receive("b", 2, 20), receive("a", 2, 30), receive("b", 1, 0)];
        let others = vec![
            lease_action(LeaseAction::Nack),
            lease_action(LeaseAction::Acknowledge),
            lease_action(LeaseAction::Nack),
        ];
        let sends = vec![send("", 0), send("key", 0), send("", 1)];
        let batch = JobBatch::of(receives.into_iter().chain(others).chain(sends).collect());
        assert_eq!(batch.receives[0].leases_ms(), [10, 30, 30, 20, 20, 0], "fetch by fetch, message by message");
        assert_eq!(batch.lease_actions.each_ref().map(Vec::len), [1, 0, 2]);
        assert_eq!((batch.sends.len(), batch.sends_with.len()), (1, 2));
    }

    #[test]
    fn equal_lists_share_a_statement() {
        let job = |work: Work| Job { work, ..pop("q", "me", "", 1) };
        let list = |after: &str| job(Work::ListQueues(Page { after: after.into(), max: 9, prefixes: None }));
        let create = || job(Work::CreateQueue("q".into(), None));
        let waiting = |receiver: &str| job(Work::WaitingQueues(receiver.into(), Page::default()));
        let jobs = vec![list(""), create(), list("a"), waiting("a"), list(""), create(), waiting("b"), waiting("a")];
        let numbers: Vec<usize> = JobBatch::of(jobs).about_queues.iter().map(Vec::len).collect();
        assert_eq!(numbers, [2, 1, 1, 3, 1]);
    }

    #[test]
    fn the_earliest_request_receives_the_oldest_message() {
        let message = |id| Message {
            id,
            queue: String::new(),
            sender: String::new(),
            receiver: String::new(),
            sent_unix_us: 0,
            body: Vec::new(),
            dead_letter: None,
            lease: None,
        };
        let distributed = distribute((1..=4).map(message).collect(), [1, 2, 2, 1].into_iter());
        let ids: Vec<Vec<i64>> = distributed.iter().map(|all| all.iter().map(|message| message.id).collect()).collect();
        assert_eq!(ids, [vec![1], vec![2, 3], vec![4], vec![]]);
    }
}
