//! The interface between the search and what runs a load, and the settings of the search. Knows no summary and no
//! socket.

use super::objective::Objective;
use super::observation::Observation;
use std::time::Duration;

/// Runs a load.
pub trait Probe {
    /// Loads the server at `rate_per_s` for `length` after a warm-up, and returns what was observed.
    ///
    /// # Errors
    /// The search cannot continue.
    fn run(&mut self, rate_per_s: f64, length: Duration) -> Result<Observation, ProbeError>;

    /// How long a run with a measured window of this length takes.
    fn lasts(&self, length: Duration) -> Duration {
        length
    }
}

/// Why a search ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// It was stopped.
    Stopped,
    /// A run could not start, or is invalid.
    Failed(String),
}

/// The settings of a search.
#[derive(Clone, Debug)]
pub struct SearchConfig {
    /// The objectives. All of them must be met.
    pub objectives: Vec<Objective>,
    /// The rate of the first run.
    pub start_per_s: f64,
    /// The highest rate that is tried.
    pub rate_max_per_s: f64,
    /// The search ends when the bracket is this narrow, as a share: 0.05 is 5 %.
    pub precision: f64,
    /// The length of the measured window of the first run at a rate.
    pub probe: Duration,
    /// The number of further runs at an undecided rate, each twice as long as the one before.
    pub extensions_max: u32,
    /// The confidence level of the intervals.
    pub confidence: f64,
}
