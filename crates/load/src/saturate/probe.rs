//! What a search needs: something that runs a load at a rate, and what is searched for. Knows no summary and no socket.

use super::objective::Objective;
use super::observation::Observation;
use std::time::Duration;

/// Runs a load.
pub trait Probe {
    /// Loads the server at `rate_per_s` for `length` after a warm-up, and says what was seen.
    ///
    /// # Errors
    /// When there is nothing to say, and no use in going on.
    fn run(&mut self, rate_per_s: f64, length: Duration) -> Result<Observation, ProbeError>;
}

/// Why a search ends before it has found anything out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// It was asked to.
    Stopped,
    /// A run could not begin, or is not to be believed.
    Failed(String),
}

/// What is searched for, and how closely.
#[derive(Clone, Debug)]
pub struct SearchConfig {
    /// All of them must be met.
    pub objectives: Vec<Objective>,
    /// The rate of the first probe.
    pub start_per_s: f64,
    /// No higher rate is tried.
    pub rate_max_per_s: f64,
    /// The search ends when the bracket is so narrow, as a share: 0.05 is 5 %.
    pub precision: f64,
    /// Length of the measured window of the first run at a rate.
    pub probe: Duration,
    /// How many further runs there may be at a rate that is still undecided, each twice as long as the one before.
    pub extensions_max: u32,
    /// The probability with which each interval is to hold the truth.
    pub confidence: f64,
}
