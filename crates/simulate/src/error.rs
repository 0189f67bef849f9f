//! Errors: an invalid model, or a simulation that cannot end. Each is one line.

use std::path::PathBuf;

/// A rule that a description breaks, and the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {rule}")]
pub struct ModelError {
    /// The field, as the file has it.
    pub place: String,
    /// The rule.
    pub rule: String,
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum SimulateError {
    #[error("{}: {source}", path.display())]
    Model { path: PathBuf, source: ModelError },
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    #[error("{0}")]
    Stop(#[from] Stop),
    #[error(
        "the time limit of {limit_s} s came after {done} replications, and two are needed{}; ask for fewer --requests or a longer --time-limit", needed(*all_s)
    )]
    TimeLimit {
        limit_s: f64,
        done: usize,
        /// The estimated time of all replications.
        all_s: Option<f64>,
    },
    #[error(
        "station '{station}': at utilisation {utilisation:.6} it forgets its past in about {relaxation:.1e} requests, so each replication needs {needed:.1e}, which takes too long; lower the load, or give --requests for means without intervals"
    )]
    Slow { station: String, utilisation: f64, relaxation: f64, needed: f64 },
    #[error("{0}")]
    Records(#[from] std::io::Error),
}

/// The reason why a replication ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum Stop {
    #[error("stopped")]
    Asked,
    #[error("more than {limit} requests are present, most of them {place}: it grows without bound")]
    TooMany { limit: usize, place: String },
    #[error("stations {stations} are full and wait for room at each other: a deadlock")]
    Deadlock { stations: String },
    #[error("no event is left, because every request waits for another: a deadlock")]
    Stuck,
    #[error("time stands still: requests circulate in no time; give them a service time or a think time")]
    NoTime,
    #[error("the times are too large to be added up")]
    TooLate,
}

fn needed(all_s: Option<f64>) -> String {
    all_s.map_or(String::new(), |seconds| format!("; all of them take about {seconds:.0} s"))
}

impl ModelError {
    /// The error of a rule that `place` breaks.
    pub(crate) fn new(place: impl Into<String>, rule: impl Into<String>) -> ModelError {
        ModelError { place: place.into(), rule: rule.into() }
    }
}
