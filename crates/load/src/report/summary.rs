//! The types of the summary, the JSON of docs/load-summary.md. `summarise` fills it in, and `verdict` judges it.

use crate::agents::shares::Share;
use crate::measure::part::OperationTally;
use crate::measure::seconds::Second;
use crate::measure::times::Times;
use crate::messages::MessagesSummary;
use crate::report::settings::Settings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name and version of the format.
pub const FORMAT: &str = "waystage-load/1";

/// The results of a run, or of several merged runs. docs/load-summary.md describes every key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Summary {
    pub format: String,
    pub version: String,
    pub arguments: Vec<String>,
    pub settings: Settings,
    pub started_unix_ns: u64,
    pub started_clock_ns: u64,
    pub measure_from_clock_ns: u64,
    pub measure_to_clock_ns: u64,
    pub measured_s: f64,
    pub partial: bool,
    pub totals: Totals,
    pub throughput_per_s: f64,
    pub operations: Operations,
    pub lateness: Option<Times>,
    pub seconds: Vec<Second>,
    pub cpu: Cpu,
    pub verification: Verification,
    pub errors: BTreeMap<String, u64>,
    pub valid: bool,
    pub reasons: Vec<String>,
    pub notes: Vec<String>,
    pub parts: Vec<MergedPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<Coordination>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessagesSummary>,
}

/// Sums over the window, or over the whole run if the name indicates it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Totals {
    pub requests: u64,
    pub completed: u64,
    pub keys: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub requests_sent: u64,
    pub requests_answered: u64,
    pub intended: Option<u64>,
    pub unsent: Option<u64>,
    pub offered_per_s: Option<f64>,
    pub achieved_share: Option<f64>,
}

/// The operations, and all of them together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Operations {
    pub get: OperationSummary,
    pub set: OperationSummary,
    pub all: OperationSummary,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub messages: BTreeMap<String, OperationSummary>,
}

/// One operation within the window. Requests without an answer are counted in `errors`, and have no time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct OperationSummary {
    pub count: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub response: Times,
    pub service: Times,
    pub slip: Times,
}

/// CPU time of the load generator over the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
    #[serde(default)]
    pub polled_s: f64,
    pub share: f64,
}

/// The verification of every returned value, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Verification {
    pub checked: u64,
    pub wrong: u64,
    pub torn: u64,
    pub stale: u64,
    #[serde(default)]
    pub unjudged: u64,
    pub unexpected_reply: u64,
    pub keys_uncertain: u64,
}

/// One of the runs in a merged summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct MergedPart {
    pub name: String,
    pub version: String,
    pub arguments: Vec<String>,
    pub settings: Settings,
    pub started_unix_ns: u64,
    pub measured_s: f64,
    pub requests: u64,
    pub throughput_per_s: f64,
    pub response_mean_ns: f64,
    pub cpu: Cpu,
    pub valid: bool,
}

/// How a run was distributed over agents. Clock times are on the controller's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-agents.md describes every key")]
pub struct Coordination {
    pub start_clock_ns: u64,
    pub start_spread_ns: u64,
    pub agents: Vec<AgentReport>,
    pub measuring: Option<Box<Summary>>,
}

/// One agent: its share of the run and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-agents.md describes every key")]
pub struct AgentReport {
    pub agent: String,
    pub host: String,
    pub cores: usize,
    pub share: Share,
    pub clock_offset_ns: i64,
    pub clock_error_ns: u64,
    pub late_ns: Option<u64>,
    pub measure_from_clock_ns: Option<u64>,
    pub measure_to_clock_ns: Option<u64>,
    pub lost: Option<String>,
}

impl Summary {
    /// Parses the output of [`Summary::to_json`].
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn from_json(text: &str) -> Result<Summary, String> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        let not_ours = |error| format!("is not a summary of `waystage load`: {error}");
        let head: Head = serde_json::from_str(text).map_err(not_ours)?;
        if head.format != FORMAT {
            return Err(format!("the format is {:?}, not {FORMAT:?}", head.format));
        }
        serde_json::from_str(text).map_err(|error| format!("is damaged, or of another version of waystage: {error}"))
    }

    /// The summary as one JSON object.
    ///
    /// # Errors
    /// Never with the types used here.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}

/// A rate; 0 if no time has passed.
pub(crate) fn per_second(count: u64, measured_s: f64) -> f64 {
    if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 }
}

impl Totals {
    /// Computes the offered rate and the achieved share from the counts of an open loop.
    pub(crate) fn rates(self, measured_s: f64) -> Totals {
        let completed = self.completed;
        self.rates_of(completed, measured_s)
    }

    /// The same if only `completed` of the completed requests are those of open loops.
    pub(crate) fn rates_of(self, completed: u64, measured_s: f64) -> Totals {
        let achieved = |intended| if intended == 0 { 0.0 } else { completed as f64 / intended as f64 };
        Totals {
            offered_per_s: self.intended.map(|intended| per_second(intended, measured_s)),
            achieved_share: self.intended.map(achieved),
            ..self
        }
    }
}

impl OperationSummary {
    pub(crate) fn new(tally: &OperationTally, percentiles: &[f64]) -> OperationSummary {
        OperationSummary {
            count: tally.count(),
            hits: tally.hits,
            misses: tally.misses,
            errors: tally.errors,
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            response: Times::new(&tally.response, percentiles),
            service: Times::new(&tally.service, percentiles),
            slip: Times::new(&tally.slip, percentiles),
        }
    }
}

impl Cpu {
    /// The same CPU time with its share: the CPU time without polling, divided by the time of all threads.
    pub(crate) fn of(self, thread_seconds: f64) -> Cpu {
        let busy_s = (self.user_s + self.system_s - self.polled_s).max(0.0);
        let share = if thread_seconds > 0.0 { busy_s / thread_seconds } else { 0.0 };
        Cpu { share, ..self }
    }
}
