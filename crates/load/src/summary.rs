//! What a run has shown: the JSON of docs/load-summary.md. Knows what the threads have counted, not how;
//! whether it is to be believed is for the verdict to say.

use crate::agents::Coordination;
use crate::config::Config;
use crate::messages::{MessageOperation, MessagesSummary};
use crate::part::{Counts, OperationTally};
use crate::seconds::Second;
use crate::settings::Settings;
use crate::tally::{Tally, Verified};
use crate::times::Times;
use crate::verdict;
use clock::{CpuTime, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the format.
pub const FORMAT: &str = "waystage-load/1";

/// Everything that is known of a run, or of several that were merged. docs/load-summary.md describes every key.
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

/// Sums over the window, and over the run where the name says so.
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

/// Per operation, and all together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Operations {
    pub get: OperationSummary,
    pub set: OperationSummary,
    pub all: OperationSummary,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub messages: BTreeMap<String, OperationSummary>,
}

/// One operation within the window. Requests answered by an error are in `errors` and nowhere else.
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

/// Processor time of the load generator over the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
    #[serde(default)]
    pub polled_s: f64,
    pub share: f64,
}

/// What became of every value that was returned, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-summary.md describes every key")]
pub struct Verification {
    pub checked: u64,
    pub wrong: u64,
    pub torn: u64,
    pub stale: u64,
    pub unexpected_reply: u64,
    pub keys_uncertain: u64,
}

/// One of the runs that a merged summary was made of.
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

/// When a run was measured, and what it cost.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) started_unix_ns: u64,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    pub(crate) cpu_from: CpuTime,
    pub(crate) cpu_to: CpuTime,
    pub(crate) start: Nanos,
    pub(crate) keys_uncertain: u64,
    /// Whether somebody ended the run before its time.
    pub(crate) stopped: bool,
    /// What went wrong with the servers, if it spoils the run.
    pub(crate) broken: Option<String>,
    /// What became of the messages, if it was about messages.
    pub(crate) messages: Option<MessagesSummary>,
}

impl Summary {
    /// Puts together what all threads have counted: `tally` of the whole run, `window` of the measured part of it.
    pub(crate) fn new(
        config: &Config,
        measured: &Measured,
        tally: &Tally,
        window: &Counts,
        mut seconds: Vec<Second>,
    ) -> Summary {
        let settings = Settings::new(config);
        let measured_ns = measured.to.since(measured.from);
        let measured_s = measured_ns as f64 / 1e9;
        for second in &mut seconds {
            let begins = measured.start.0 + second.second * 1_000_000_000;
            second.measured = begins >= measured.from.0 && begins + 1_000_000_000 <= measured.to.0;
            let intended = tally.intended_in.get(second.second as usize).copied();
            second.intended = settings.is_open().then_some(intended.unwrap_or(0));
        }
        let all = window.all();
        let operation = |tally: &OperationTally| OperationSummary::new(tally, &settings.percentiles);
        let mut summary = Summary {
            format: FORMAT.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            arguments: config.arguments.clone(),
            started_unix_ns: measured.started_unix_ns,
            started_clock_ns: measured.start.0,
            measure_from_clock_ns: measured.from.0,
            measure_to_clock_ns: measured.to.0,
            measured_s,
            partial: measured.stopped || measured.broken.is_some(),
            totals: Totals::new(tally, window, &all, &settings).rates(measured_s),
            throughput_per_s: per_second(tally.completed, measured_s),
            operations: Operations {
                get: operation(&window.get),
                set: operation(&window.set),
                all: operation(&all),
                messages: named(&window.messages).map(|(name, tally)| (name, operation(tally))).collect(),
            },
            lateness: settings.is_open().then(|| Times::new(&tally.lateness, &settings.percentiles)),
            seconds,
            cpu: Cpu::new(measured, tally.polled_ns, measured_s * config.threads as f64),
            verification: Verification::new(tally.verified, measured.keys_uncertain),
            errors: tally.errors.clone(),
            settings,
            valid: false,
            reasons: Vec::new(),
            notes: Vec::new(),
            parts: Vec::new(),
            coordination: None,
            messages: measured.messages.clone(),
        };
        summary.reasons = verdict::reasons(&summary, measured.broken.as_deref());
        summary.notes = verdict::notes(&summary);
        summary.valid = summary.reasons.is_empty();
        summary
    }

    /// Reads what [`Summary::to_json`] wrote.
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

/// The operations of a message service that occurred, by their names.
fn named(tallies: &[Option<Box<OperationTally>>]) -> impl Iterator<Item = (String, &OperationTally)> {
    let name = |number: usize| MessageOperation::name_of(number).to_owned();
    tallies.iter().enumerate().filter_map(move |(number, tally)| Some((name(number), tally.as_deref()?)))
}

/// A rate; nothing per second when no time has passed.
pub(crate) fn per_second(count: u64, measured_s: f64) -> f64 {
    if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 }
}

impl Totals {
    fn new(tally: &Tally, window: &Counts, all: &OperationTally, settings: &Settings) -> Totals {
        // Every request that is issued ends, so what has not ended was never sent. A number of requests is issued to the last.
        let ended = all.count() + all.errors;
        let intended = if settings.requests.is_some() { ended } else { tally.intended };
        let is_open = settings.is_open();
        Totals {
            requests: all.count(),
            completed: tally.completed,
            keys: window.keys,
            hits: all.hits,
            misses: all.misses,
            errors: all.errors,
            sent_bytes: all.sent_bytes,
            received_bytes: all.received_bytes,
            requests_sent: tally.requests_sent,
            requests_answered: tally.requests_answered,
            intended: is_open.then_some(intended),
            unsent: is_open.then(|| intended.saturating_sub(ended)),
            offered_per_s: None,
            achieved_share: None,
        }
    }

    /// Works out what is offered and achieved, from the counts.
    pub(crate) fn rates(self, measured_s: f64) -> Totals {
        let achieved = |intended| if intended == 0 { 0.0 } else { self.completed as f64 / intended as f64 };
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
    fn new(measured: &Measured, polled_ns: u64, thread_seconds: f64) -> Cpu {
        let user_s = (measured.cpu_to.user_s - measured.cpu_from.user_s).max(0.0);
        let system_s = (measured.cpu_to.system_s - measured.cpu_from.system_s).max(0.0);
        Cpu { user_s, system_s, polled_s: polled_ns as f64 / 1e9, share: 0.0 }.of(thread_seconds)
    }

    /// The same processor time, but for what went into waiting, as a share of what its threads could have used.
    pub(crate) fn of(self, thread_seconds: f64) -> Cpu {
        let busy_s = (self.user_s + self.system_s - self.polled_s).max(0.0);
        let share = if thread_seconds > 0.0 { busy_s / thread_seconds } else { 0.0 };
        Cpu { share, ..self }
    }
}

impl Verification {
    fn new(verified: Verified, keys_uncertain: u64) -> Verification {
        let Verified { checked, wrong, torn, stale, unexpected_reply } = verified;
        Verification { checked, wrong, torn, stale, unexpected_reply, keys_uncertain }
    }
}

#[cfg(test)]
mod tests;
