//! What a lane has taken, sorted into statements: sends into one, equal wishes into one wish, wishes that cannot share a statement
//! apart. Knows nothing of the database.

use crate::path::work::{Job, Message, Scope, Work};
use std::collections::HashMap;

/// Jobs by the statement that will do them. The order of arrival is kept within each.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) sends: Vec<Job>,
    /// With a key, a delay or an expiry.
    pub(crate) sends_with: Vec<Job>,
    /// By what is to be done, as in [`Settlement`].
    pub(crate) settles: [Vec<Job>; 3],
    /// Without a sender; by sender in a queue; by sender over all queues. The last two may want the same rows.
    pub(crate) pops: [Wishes; 3],
    /// Without a sender; by sender.
    pub(crate) receives: [Wishes; 2],
    /// Without a sender; by sender.
    pub(crate) peeks: [Wishes; 2],
    pub(crate) waiting: Vec<Job>,
    /// What is done one by one.
    pub(crate) others: Vec<Job>,
}

/// Jobs that wish for messages, equal scopes together.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    places: HashMap<Scope, usize>,
    jobs: Vec<Vec<Job>>,
}

impl Batch {
    /// Sorts jobs.
    pub(crate) fn of(jobs: Vec<Job>) -> Batch {
        let mut batch = Batch::default();
        for job in jobs {
            match &job.work {
                Work::Send(sending) if sending.is_plain() => batch.sends.push(job),
                Work::Send(_) => batch.sends_with.push(job),
                Work::Settle(settling) => batch.settles[settling.how as usize].push(job),
                Work::Pop(wish) => {
                    let index = match (wish.scope.sender.is_empty(), wish.scope.queue.is_empty()) {
                        (true, _) => 0,
                        (false, false) => 1,
                        (false, true) => 2,
                    };
                    batch.pops[index].push(job);
                }
                Work::Receive(wish, _) => batch.receives[usize::from(!wish.scope.sender.is_empty())].push(job),
                Work::Peek(wish) => batch.peeks[usize::from(!wish.scope.sender.is_empty())].push(job),
                Work::Waiting(_) => batch.waiting.push(job),
                Work::CreateQueue(..) | Work::DeleteQueue(_) | Work::ShowQueue(_) | Work::ListQueues | Work::Probe => {
                    batch.others.push(job);
                }
            }
        }
        batch
    }
}

impl Wishes {
    /// Adds a job that wishes for messages.
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

    /// Each scope once, with the number of messages that all its jobs want together, or the one that wants most.
    pub(crate) fn merged(&self, is_shared: bool) -> Vec<(&Scope, usize)> {
        let wish = |jobs: &'_ Vec<Job>| {
            let wanted = jobs.iter().map(|job| job.work.messages());
            if is_shared { wanted.max().unwrap_or(0) } else { wanted.sum() }
        };
        self.jobs.iter().filter_map(|jobs| Some((scope_of(jobs.first()?)?, wish(jobs)))).collect()
    }

    /// The time of each lease in milliseconds: for each wish in the order of [`Wishes::merged`], for each message it wants.
    pub(crate) fn leases_ms(&self) -> Vec<i64> {
        let of_job = |job: &Job| match &job.work {
            Work::Receive(wish, lease_ms) => std::iter::repeat_n(*lease_ms, wish.wanted),
            _ => std::iter::repeat_n(0, 0),
        };
        self.jobs.iter().flatten().flat_map(of_job).collect()
    }

    /// All jobs, scope by scope, in the order of [`Wishes::merged`].
    pub(crate) fn into_jobs(self) -> Vec<Vec<Job>> {
        self.jobs
    }
}

/// Hands messages out to those who want so many each, first come, first served.
pub(crate) fn hand_out(messages: Vec<Message>, wanted: impl Iterator<Item = usize>) -> Vec<Vec<Message>> {
    let mut messages = messages.into_iter();
    wanted.map(|number| messages.by_ref().take(number).collect()).collect()
}

fn scope_of(job: &Job) -> Option<&Scope> {
    match &job.work {
        Work::Pop(wish) | Work::Peek(wish) | Work::Receive(wish, _) => Some(&wish.scope),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::measurements::Journey;
    use crate::path::lease::{Settlement, Settling};
    use crate::path::work::{NewMessage, Sending, Wish};
    use tokio::sync::oneshot;

    fn pop(queue: &str, receiver: &str, sender: &str, wanted: usize) -> Job {
        let scope = Scope { queue: queue.into(), receiver: receiver.into(), sender: sender.into() };
        let (back, _) = oneshot::channel();
        Job { work: Work::Pop(Wish { scope, wanted }), journey: Journey::default(), _held: None, back }
    }

    #[test]
    fn equal_wishes_become_one_and_wishes_that_overlap_go_apart() {
        let jobs = vec![pop("q", "me", "", 1), pop("p", "", "", 1), pop("q", "me", "", 2), pop("q", "me", "s", 1)];
        let batch = Batch::of(jobs.into_iter().chain([pop("", "me", "s", 1)]).collect());
        let merged: Vec<(&str, usize)> =
            batch.pops[0].merged(false).into_iter().map(|(scope, wanted)| (scope.queue.as_str(), wanted)).collect();
        assert_eq!(merged, [("q", 3), ("p", 1)]);
        assert_eq!(batch.pops[0].merged(true)[0].1, 2, "those who only read can share");
        assert_eq!((batch.pops[1].merged(false).len(), batch.pops[2].merged(false).len()), (1, 1));
    }

    #[test]
    fn receives_keep_their_times_and_leases_are_settled_by_what_is_to_be_done() {
        let job = |work: Work| Job { work, ..pop("q", "me", "", 1) };
        let receive = |receiver: &str, wanted: usize, lease_ms: i64| {
            let scope = Scope { queue: "q".into(), receiver: receiver.into(), sender: String::new() };
            job(Work::Receive(Wish { scope, wanted }, lease_ms))
        };
        let settle = |how: Settlement| {
            job(Work::Settle(Settling { how, leases: Vec::new(), words: Vec::new(), time_ms: 0, is_single: true }))
        };
        let send = |key: &str, delay_ms: i64| {
            let message = NewMessage { receiver: String::new(), body: Vec::new(), delay_ms, expiry_ms: 0 };
            let (queue, sender, key) = ("q".into(), "s".into(), key.into());
            job(Work::Send(Sending { queue, sender, messages: vec![message], key }))
        };
        let receives = vec![receive("a", 1, 10), receive("b", 2, 20), receive("a", 2, 30), receive("b", 1, 0)];
        let others = vec![settle(Settlement::Return), settle(Settlement::Acknowledge), settle(Settlement::Return)];
        let sends = vec![send("", 0), send("key", 0), send("", 1)];
        let batch = Batch::of(receives.into_iter().chain(others).chain(sends).collect());
        assert_eq!(batch.receives[0].leases_ms(), [10, 30, 30, 20, 20, 0], "wish by wish, message by message");
        assert_eq!(batch.settles.each_ref().map(Vec::len), [1, 0, 2]);
        assert_eq!((batch.sends.len(), batch.sends_with.len()), (1, 2));
    }

    #[test]
    fn the_first_come_gets_the_oldest() {
        let message = |id| Message {
            id,
            queue: String::new(),
            sender: String::new(),
            receiver: String::new(),
            sent_unix_us: 0,
            body: Vec::new(),
            leased: None,
        };
        let handed = hand_out((1..=4).map(message).collect(), [1, 2, 2, 1].into_iter());
        let ids: Vec<Vec<i64>> = handed.iter().map(|all| all.iter().map(|message| message.id).collect()).collect();
        assert_eq!(ids, [vec![1], vec![2, 3], vec![4], vec![]]);
    }
}
