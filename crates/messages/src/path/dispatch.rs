//! Step 4. Chooses the queue of a job. Fused: the name of the message queue chooses a lane, which takes all its waiting jobs at once.
//! Pool: one queue, from which any connection takes one job at a time.

use crate::config::{Config, DispatchConfig};
use crate::database::connection::Database;
use crate::database::low_water::LowWaterMarks;
use crate::database::low_water_reader;
use crate::observe::journal::Journal;
use crate::path::health::Health;
use crate::path::lane::Lane;
use crate::path::memory::Memory;
use crate::path::null_database::NullDatabase;
use crate::path::queue::{Bounds, JobQueue};
use crate::path::work::Job;
use clock::Clock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The job queues, whose lanes run as tasks.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    queues: Vec<Arc<JobQueue>>,
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
        let low_water_marks = LowWaterMarks::new(config.low_water_refresh_after);
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
            taken_requests,
            taken_messages: limits.statement_messages,
            taken_bytes: limits.statement_bytes,
        };
        let queues: Vec<_> = (0..queues).map(|_| Arc::new(JobQueue::new(bounds))).collect();
        let lane = |(number, queue): (usize, &Arc<JobQueue>)| Lane {
            number: u16::try_from(number).unwrap_or(u16::MAX),
            queue: queue.clone(),
            database: database.clone(),
            low_water_marks: low_water_marks.clone(),
            memory: memory.clone(),
            clock: clock.clone(),
            journal: journal.clone(),
        };
        let handles = queues
            .iter()
            .flat_map(|queue| (0..workers).map(move |_| queue))
            .enumerate()
            .map(|numbered| tokio::spawn(lane(numbered).run()))
            .collect();
        (Dispatcher { queues, null: None }, handles)
    }

    /// A dispatcher without a database.
    pub(crate) fn null(dispatch: DispatchConfig, memory: &Arc<Memory>, clock: &Clock) -> Dispatcher {
        let body_bytes = if let DispatchConfig::None { body_bytes } = dispatch { body_bytes } else { None };
        Dispatcher { queues: Vec::new(), null: Some(NullDatabase::new(body_bytes, memory.clone(), clock.clone())) }
    }

    /// Puts a job into its queue, or answers it if the queue is full or closed.
    pub(crate) fn push(&self, job: Job) {
        if let Some(null) = &self.null {
            return null.end(job);
        }
        // A refused job has been answered.
        let _ = self.queues[lane_of(job.work.lane_key(), self.queues.len())].push(job);
    }

    /// Refuses new jobs. Jobs in the queues are still done.
    pub(crate) fn close(&self) {
        self.queues.iter().for_each(|queue| queue.close());
    }

    /// The length of each queue.
    pub(crate) fn queue_lengths(&self) -> Vec<usize> {
        self.queues.iter().map(|queue| queue.len()).collect()
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

    #[test]
    fn names_spread_over_lanes() {
        let mut counts = [0; 4];
        for number in 0..1000 {
            counts[lane_of(&format!("queue-{number}"), 4)] += 1;
        }
        assert!(counts.iter().all(|count| (150..350).contains(count)), "{counts:?}");
    }
}
