//! The settings of a simulation: how long, how precise, on how many threads.

use crate::error::SimulateError;
use std::path::PathBuf;
use std::time::Duration;

/// Requests that one replication can count.
const REQUESTS_MAX: u64 = 1 << 40;

/// How to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Decides everything that is drawn.
    pub seed: u64,
    /// At least so many replications.
    pub replications: usize,
    /// At most so many, when a precision is asked for.
    pub replications_max: usize,
    /// Requests that are measured in each.
    pub requests: u64,
    /// Requests that are thrown away at the beginning of each; found by a pilot replication when not given.
    pub warm_up: Option<u64>,
    /// Half-width of the mean response time of every class, as a share of the mean, that is good enough.
    pub precision: Option<f64>,
    /// Replications at the same time.
    pub threads: usize,
    /// Stop after this time with what there is.
    pub time_limit: Duration,
    /// Directory for records of the first replication, and one request in how many is kept.
    pub records: Option<(PathBuf, u32)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            replications: 20,
            replications_max: 1000,
            requests: 200_000,
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
        if self.requests < 1 || self.requests > REQUESTS_MAX || self.warm_up > Some(REQUESTS_MAX) {
            return refuse("requests", "must be from 1 to 1000000000000, and so must the warm-up");
        }
        if self.threads < 1 || self.threads > 4096 {
            return refuse("threads", "must be from 1 to 4096");
        }
        Ok(())
    }
}

/// The half-width is compared with the mean that was found, not the true one: Law, Simulation Modeling and Analysis, 9.4.1.
pub(crate) fn target(precision: f64) -> f64 {
    precision / (1.0 + precision)
}
