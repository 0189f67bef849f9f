//! The settings of a simulation: how long, how precise, on how many threads.

use crate::error::SimulateError;
use std::path::PathBuf;
use std::time::Duration;

/// The largest number of requests in one replication.
const REQUESTS_MAX: u64 = 1 << 40;

/// The settings of a simulation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// The minimum number of replications.
    pub replications: usize,
    /// The maximum number of replications, with a precision.
    pub replications_max: usize,
    /// Requests measured in each replication; `None` for 200 000, or more where a queue near saturation needs them.
    pub requests: Option<u64>,
    /// Requests discarded at the start of each replication; `None` lets a pilot replication find the number.
    pub warm_up: Option<u64>,
    /// The half-width of the mean response time of every class that is precise enough, as a share of the mean.
    pub precision: Option<f64>,
    /// Replications that run at the same time.
    pub threads: usize,
    /// Stop after this time and report the replications that are done.
    pub time_limit: Duration,
    /// The directory for records of the first replication, and the sampling interval.
    pub records: Option<(PathBuf, u32)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            replications: 20,
            replications_max: 1000,
            requests: None,
            warm_up: None,
            precision: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            time_limit: Duration::from_secs(600),
            records: None,
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), SimulateError> {
        let refuse = |name, rule: &str| Err(SimulateError::Setting(name, rule.into()));
        match self.precision {
            Some(share) if !(share > 0.0 && share < 1.0) => {
                return refuse("precision", "must lie between 0 and 1, such as 0.01");
            }
            _ => {}
        }
        if self.replications < 2 || self.replications > 1_000_000 {
            return refuse("replications", "must be from 2, for an interval, to 1000000");
        }
        if self.precision.is_some() && self.replications_max < self.replications {
            return refuse("replications-max", "must not be below replications");
        }
        let is_allowed = |requests: u64| (1..=REQUESTS_MAX).contains(&requests);
        if !self.requests.is_none_or(is_allowed) || self.warm_up > Some(REQUESTS_MAX) {
            return refuse("requests", "must be from 1 to 1000000000000, and so must the warm-up");
        }
        if self.threads < 1 || self.threads > 4096 {
            return refuse("threads", "must be from 1 to 4096");
        }
        Ok(())
    }
}

/// The half-width relative to the measured mean, not the true one: Law, Simulation Modeling and Analysis, 9.4.1.
pub(crate) fn target(precision: f64) -> f64 {
    precision / (1.0 + precision)
}
