//! Station 4. Which connection does which request. Fused: lanes chosen by the queue's name, each of which takes everything that waits
//! for it. Pool: one queue, any connection, one request at a time.

use crate::config::{Config, Dispatch};
use crate::database::connection::Database;
use crate::database::low_water::LowWaters;
use crate::database::low_water_reader;
use crate::observe::journal::Journal;
use crate::path::lane::Lane;
use crate::path::memory::Memory;
use crate::path::null_database::Null;
use crate::path::queue::{Bounds, JobQueue};
use crate::path::work::Job;
use clock::Clock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The queues, and the loops behind them.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    queues: Vec<Arc<JobQueue>>,
    /// In place of queues.
    null: Option<Null>,
}

impl Dispatcher {
    /// Starts the loops; each ends when its queue is closed and empty.
    pub(crate) fn start(
        config: &Config,
        database: &Database,
        memory: &Arc<Memory>,
        clock: &Clock,
        journal: &Arc<Journal>,
    ) -> (Dispatcher, Vec<JoinHandle<()>>) {
        let limits = &config.limits;
        let low_waters = LowWaters::new(config.low_water_worth);
        tokio::spawn(low_water_reader::run(low_waters.clone(), database.clone(), clock.clone(), journal.clone()));
        let (queues, workers, taken_requests) = match config.dispatch {
            Dispatch::Fused { lanes } => (lanes, 1, usize::MAX),
            Dispatch::Pool { connections } => (1, connections, 1),
            Dispatch::None { .. } => (0, 0, 0),
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
            low_waters: low_waters.clone(),
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

    /// Without a database.
    pub(crate) fn null(dispatch: Dispatch, memory: &Arc<Memory>, clock: &Clock) -> Dispatcher {
        let body_bytes = if let Dispatch::None { body_bytes } = dispatch { body_bytes } else { None };
        Dispatcher { queues: Vec::new(), null: Some(Null::new(body_bytes, memory.clone(), clock.clone())) }
    }

    /// Lets a job into its queue, or ends it.
    pub(crate) fn push(&self, job: Job) {
        if let Some(null) = &self.null {
            return null.end(job);
        }
        // A job that was refused has been told so.
        let _ = self.queues[lane_of(job.work.lane_key(), self.queues.len())].push(job);
    }

    /// Refuses what comes from now on; what waits is still done.
    pub(crate) fn close(&self) {
        self.queues.iter().for_each(|queue| queue.close());
    }

    /// How many requests wait, queue by queue.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.queues.iter().map(|queue| queue.len()).collect()
    }
}

/// The same for the same name as long as the process lives.
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
