//! Makes the summary of a run from the counts of its threads, and adds the verdict.

use crate::config::Config;
use crate::measure::part::{Counts, OperationTally};
use crate::measure::seconds::Second;
use crate::measure::tally::{Tally, VerificationCounts};
use crate::measure::times::Times;
use crate::messages::{MessageOperation, MessagesSummary};
use crate::report::settings::Settings;
use crate::report::summary::{Cpu, FORMAT, OperationSummary, Operations, Summary, Totals, Verification, per_second};
use crate::report::verdict;
use clock::{CpuTime, Nanos};

/// When a run was measured, and what it cost.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredRun {
    pub(crate) started_unix_ns: u64,
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    pub(crate) cpu_from: CpuTime,
    pub(crate) cpu_to: CpuTime,
    pub(crate) start: Nanos,
    pub(crate) keys_uncertain: u64,
    /// Whether the run was stopped before its end.
    pub(crate) stopped: bool,
    /// Why the servers made the run invalid, if they did.
    pub(crate) broken: Option<String>,
    /// The results of a run with messages.
    pub(crate) messages: Option<MessagesSummary>,
}

/// Combines the counts of all threads: `tally` of the whole run, and `window` of its measured part.
pub(crate) fn summarise(
    config: &Config,
    measured: &MeasuredRun,
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
    let totals = totals(tally, window, &all, &settings).rates(measured_s);
    let mut all = all;
    // Requests that were never sent have no operation yet.
    all.response.record_unanswered(totals.unsent.unwrap_or_default());
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
        totals,
        throughput_per_s: per_second(tally.completed, measured_s),
        operations: Operations {
            get: operation(&window.get),
            set: operation(&window.set),
            all: operation(&all),
            messages: named(&window.messages).map(|(name, tally)| (name, operation(tally))).collect(),
        },
        lateness: settings.is_open().then(|| Times::new(&tally.lateness, &settings.percentiles)),
        seconds,
        cpu: cpu(measured, tally.polled_ns, measured_s * config.threads as f64),
        verification: verification(tally.verified, measured.keys_uncertain),
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

/// The operations of a message service that occurred, by name.
fn named(tallies: &[Option<Box<OperationTally>>]) -> impl Iterator<Item = (String, &OperationTally)> {
    let name = |number: usize| MessageOperation::name_of(number).to_owned();
    tallies.iter().enumerate().filter_map(move |(number, tally)| Some((name(number), tally.as_deref()?)))
}

fn totals(tally: &Tally, window: &Counts, all: &OperationTally, settings: &Settings) -> Totals {
    // Every issued request ends, so any other intended request was never sent. A run limited by a number of requests
    // issues all of them.
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

fn cpu(measured: &MeasuredRun, polled_ns: u64, thread_seconds: f64) -> Cpu {
    let user_s = (measured.cpu_to.user_s - measured.cpu_from.user_s).max(0.0);
    let system_s = (measured.cpu_to.system_s - measured.cpu_from.system_s).max(0.0);
    Cpu { user_s, system_s, polled_s: polled_ns as f64 / 1e9, share: 0.0 }.of(thread_seconds)
}

fn verification(verified: VerificationCounts, keys_uncertain: u64) -> Verification {
    let VerificationCounts { checked, wrong, torn, stale, unjudged, unexpected_reply } = verified;
    Verification { checked, wrong, torn, stale, unjudged, unexpected_reply, keys_uncertain }
}

#[cfg(test)]
mod tests;
