//! Step 4. Chooses the queue of a job. Fused: the name of the message queue chooses a lane, which takes all its waiting jobs at once.
//! Pool: one queue, from which any connection takes one job at a time. Work that can take long or wait for others has lanes of its own.

use crate::config::{Config, DispatchConfig};
use crate::database::connection::Database;
use crate::database::low_water::LowWaterMarks;
use crate::database::low_water_reader;
use crate::observe::journal::Journal;
use crate::observe::limits::Limit;
use crate::path::health::Health;
use crate::path::lane::Lane;
use crate::path::lane_connections::LaneConnections;
use crate::path::memory::Memory;
use crate::path::null_database::NullDatabase;
use crate::path::queue::{Bounds, JobQueue};
use crate::path::work::{Destination, Job};
use clock::Clock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The labels of the lanes for work that could delay messages, and for sends with keys.
const LISTS: &str = "lists";
const KEYED: &str = "keyed";
/// A statement fails after this time if another transaction has locked its table or its rows.
const LOCK_TIMEOUT: (&str, Limit) = ("5s", Limit::LockTimeout);
/// The same for a send whose key is locked.
const KEY_LOCK_TIMEOUT: (&str, Limit) = ("500ms", Limit::KeyLockTimeout);

/// The job queues, whose lanes run as tasks.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// The job queues for work on message queues; the index is the lane, or 0 for the pool.
    queues: Vec<Arc<JobQueue>>,
    /// The job queue for work that could delay messages.
    lists: Arc<JobQueue>,
    keyed: Arc<JobQueue>,
    /// Replaces the queues if there is no database.
    null: Option<NullDatabase>,
}

impl Dispatcher {
    /// Starts the lanes. Each ends when its queue is closed and empty.
    pub(crate) fn start(
        config: &Config,
        database: &Database,
        memory: &Arc<Memory>,
        clock: &Clock,
        journal: &Arc<Journal>,
        health: &Arc<Health>,
    ) -> (Dispatcher, Vec<JoinHandle<()>>) {
        let limits = &config.limits;
        let low_water_marks =
            LowWaterMarks::new(config.low_water_refresh_after, limits.low_water_marks, journal.limits.clone());
        tokio::spawn(low_water_reader::run(
            low_water_marks.clone(),
            database.clone(),
            clock.clone(),
            journal.clone(),
            health.clone(),
        ));
        let (queues, workers, taken_requests) = match config.dispatch {
            DispatchConfig::Fused { lanes } => (lanes, 1, usize::MAX),
            DispatchConfig::Pool { connections } => (1, connections, 1),
            DispatchConfig::None { .. } => (0, 0, 0),
        };
        let bounds = Bounds {
            waiting_requests: limits.waiting_requests,
            waiting_bytes: limits.waiting_bytes,
            waiting_of_party: limits.waiting_requests_of_party,
            waiting_bytes_of_party: limits.waiting_bytes / 2,
            taken_requests,
            taken_messages: limits.statement_messages,
            taken_bytes: limits.statement_bytes,
        };
        let queues: Vec<_> = (0..queues).map(|_| Arc::new(JobQueue::new(bounds, journal.limits.clone()))).collect();
        // One connection each. A batch executes equal requests with one statement.
        let bounds = Bounds { taken_requests: usize::MAX, ..bounds };
        let [lists, keyed] = [(); 2].map(|()| Arc::new(JobQueue::new(bounds, journal.limits.clone())));
        let lane = |number: usize, label: &str, queue: &Arc<JobQueue>, connections: Arc<LaneConnections>| Lane {
            number: u16::try_from(number).unwrap_or(u16::MAX),
            queue: queue.clone(),
            connections,
            database: database.clone(),
            low_water_marks: low_water_marks.clone(),
            memory: memory.clone(),
            body_bytes: limits.body_bytes,
            clock: clock.clone(),
            journal: journal.clone(),
            lock_timeout: if label == KEYED { KEY_LOCK_TIMEOUT } else { LOCK_TIMEOUT },
            has_long_statements: label == LISTS,
        };
        let dispatcher = Dispatcher { queues, lists, keyed, null: None };
        let mut handles = Vec::new();
        for (label, queue) in dispatcher.all() {
            let connections = health.add_lanes(&label);
            let workers = if [LISTS, KEYED].contains(&label.as_str()) { 1 } else { workers };
            for _ in 0..workers {
                handles.push(tokio::spawn(lane(handles.len(), &label, queue, connections.clone()).run()));
            }
        }
        (dispatcher, handles)
    }

    /// A dispatcher without a database.
    pub(crate) fn null(dispatch: DispatchConfig, memory: &Arc<Memory>, clock: &Clock) -> Dispatcher {
        let body_bytes = if let DispatchConfig::None { body_bytes } = dispatch { body_bytes } else { None };
        let bounds = Bounds {
            waiting_requests: 0,
            waiting_bytes: 0,
            waiting_of_party: 0,
            waiting_bytes_of_party: 0,
            taken_requests: 0,
            taken_messages: 0,
            taken_bytes: 0,
        };
        let [lists, keyed] = [(); 2].map(|()| Arc::new(JobQueue::new(bounds, Arc::default())));
        let null = Some(NullDatabase::new(body_bytes, memory.clone(), clock.clone()));
        Dispatcher { queues: Vec::new(), lists, keyed, null }
    }

    /// Puts a job into its queue, or answers it if the queue is full or closed.
    pub(crate) fn push(&self, job: Job) {
        if let Some(null) = &self.null {
            return null.end(job);
        }
        // A refused job has been answered.
        let _ = match job.work.destination() {
            Destination::Queue => self.queues[lane_of(job.work.lane_key(), self.queues.len())].push(job),
            Destination::Lists => self.lists.push(job),
            Destination::Keyed => self.keyed.push(job),
        };
    }

    /// Refuses new jobs. Jobs in the queues are still done.
    pub(crate) fn close(&self) {
        self.all().for_each(|(_, queue)| queue.close());
    }

    /// The label and the length of each queue.
    pub(crate) fn queue_lengths(&self) -> Vec<(String, usize)> {
        self.all().map(|(label, queue)| (label, queue.len())).collect()
    }

    /// How many requests were refused because of the limit of a queue, and because of the quota of their sender or receiver.
    pub(crate) fn refused(&self) -> [u64; 2] {
        self.all().fold([0, 0], |[full, over_quota], (_, queue)| {
            let refused = queue.refused();
            [full + refused[0], over_quota + refused[1]]
        })
    }

    fn all(&self) -> impl Iterator<Item = (String, &Arc<JobQueue>)> {
        let lanes = self.queues.iter().enumerate().map(|(number, queue)| (number.to_string(), queue));
        lanes.chain([(LISTS.to_string(), &self.lists), (KEYED.to_string(), &self.keyed)])
    }
}

/// Equal for equal names during the life of the process.
fn lane_of(key: &str, lanes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % lanes as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::work::{FetchRequest, NewMessage, Page, Scope, SendRequest, Work};

    #[test]
    fn names_spread_over_lanes() {
        let mut counts = [0; 4];
        for number in 0..1000 {
            counts[lane_of(&format!("queue-{number}"), 4)] += 1;
        }
        assert!(counts.iter().all(|count| (150..350).contains(count)), "{counts:?}");
    }

    /// Lists, looks and changes of queues, and fetches by sender do not use the lanes of messages.
    #[test]
    fn work_that_can_be_slow_has_a_lane_of_its_own() {
        let fetch = |queue: &str, sender: &str| FetchRequest {
            scope: Scope { queue: queue.into(), receiver: "bob".into(), sender: sender.into() },
            count: 1,
        };
        let send = |key: &str| {
            let message = NewMessage { receiver: "bob".into(), body: Vec::new(), delay_ms: 0, expiry_ms: 0 };
            Work::Send(SendRequest {
                queue: "q".into(),
                sender: "alice".into(),
                messages: vec![message],
                key: key.into(),
            })
        };
        for (work, destination) in [
            (send(""), Destination::Queue),
            (send("key"), Destination::Keyed),
            (Work::Pop(fetch("q", "")), Destination::Queue),
            (Work::Peek(fetch("q", "")), Destination::Queue),
            (Work::Receive(fetch("q", ""), 0), Destination::Queue),
            (Work::Pop(fetch("", "alice")), Destination::Lists),
            (Work::Pop(fetch("q", "alice")), Destination::Lists),
            (Work::Peek(fetch("", "alice")), Destination::Lists),
            (Work::Receive(fetch("q", "alice"), 0), Destination::Lists),
            (Work::WaitingQueues("bob".into(), Page::default()), Destination::Lists),
            (Work::ListQueues(Page::default()), Destination::Lists),
            (Work::ShowQueue("q".into()), Destination::Lists),
            (Work::CreateQueue("q".into(), None), Destination::Lists),
            (Work::DeleteQueue("q".into()), Destination::Lists),
        ] {
            assert_eq!(work.destination(), destination, "{work:?}");
        }
    }
}
