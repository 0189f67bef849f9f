//! The output of a search: a line for each run as it ends, the answer, and everything as JSON (docs/saturation.md).
//! Computes nothing.

use super::judge::{Judgement, ObjectiveOutcome};
use super::objective::Objective;
use super::probe::SearchConfig;
use crate::report::printable::printable;
use serde::Serialize;
use std::fmt::{self, Write};

/// The name and version of the format.
pub const FORMAT: &str = "waystage-saturation/1";

/// Why a rate was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// To find a rate that misses an objective.
    Climb,
    /// To find a rate that meets all objectives.
    Descend,
    /// To narrow the bracket.
    Bisect,
    /// To verify the answer with a fresh run at this multiple of it.
    Verify(f64),
}

/// A run, combined with earlier runs at the same rate if those left it undecided.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "docs/saturation.md describes every key")]
pub struct ProbeReport {
    pub step: Step,
    pub rate_per_s: f64,
    pub achieved_per_s: f64,
    pub measured_s: f64,
    pub requests: u64,
    pub failed: u64,
    pub cpu_share: f64,
    pub judgements: Vec<Judgement>,
    pub outcome: ObjectiveOutcome,
    pub note: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "docs/saturation.md describes every key")]
pub struct Finding {
    pub rate_per_s: Option<f64>,
    pub met_at_per_s: Option<f64>,
    pub missed_at_per_s: Option<f64>,
    pub generator_limit_per_s: Option<f64>,
    pub confirmed: bool,
    pub reasons: Vec<String>,
}

/// A whole search.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/saturation.md describes every key")]
pub struct Saturation {
    pub format: &'static str,
    pub version: &'static str,
    pub arguments: Vec<String>,
    pub objectives: Vec<Objective>,
    pub precision: f64,
    pub confidence: f64,
    pub finding: Finding,
    pub probes: Vec<ProbeReport>,
}

impl Saturation {
    /// Combines the settings and the result of a search.
    pub fn new(
        config: &SearchConfig,
        arguments: Vec<String>,
        (finding, probes): (Finding, Vec<ProbeReport>),
    ) -> Saturation {
        Saturation {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            arguments,
            objectives: config.objectives.clone(),
            precision: config.precision,
            confidence: config.confidence,
            finding,
            probes,
        }
    }

    /// The search as one JSON object.
    ///
    /// # Errors
    /// Never with the types used here.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}

impl ProbeReport {
    /// Whether the best guess is that all objectives are met.
    pub(super) fn leans_to_met(&self) -> bool {
        match self.outcome {
            ObjectiveOutcome::Met => true,
            ObjectiveOutcome::Missed | ObjectiveOutcome::GeneratorLimited => false,
            // Without an estimate the comparison is false.
            ObjectiveOutcome::Undecided => {
                self.judgements.iter().all(|judgement| judgement.estimate <= judgement.bound)
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Climb => formatter.pad("climb"),
            Step::Descend => formatter.pad("descend"),
            Step::Bisect => formatter.pad("bisect"),
            Step::Verify(factor) => formatter.pad(&format!("verify {factor:.1}")),
        }
    }
}

impl fmt::Display for ObjectiveOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            ObjectiveOutcome::Met => "met",
            ObjectiveOutcome::Missed => "missed",
            ObjectiveOutcome::Undecided => "undecided",
            ObjectiveOutcome::GeneratorLimited => "generator",
        })
    }
}

/// The heading above the lines of the runs.
pub fn render_heading() -> String {
    format!("{:<10} {:>12} {:>12} {:>8}  {:<9}  why\n", "step", "rate/s", "achieved/s", "seconds", "outcome")
}

/// One run on one line.
pub fn render_probe(probe: &ProbeReport) -> String {
    let mut line = format!(
        "{:<10} {:>12.0} {:>12.0} {:>8.0}  {:<9} ",
        probe.step, probe.rate_per_s, probe.achieved_per_s, probe.measured_s, probe.outcome
    );
    // Writing to a String cannot fail, here and below.
    for judgement in &probe.judgements {
        let _ = write!(line, " {};", evidence(judgement));
    }
    if let Some(note) = &probe.note {
        let _ = write!(line, " {note};");
    }
    line.trim_end_matches(';').to_owned() + "\n"
}

/// What a run showed about an objective.
fn evidence(judgement: &Judgement) -> String {
    let Judgement { objective, estimate, low, high, bound, .. } = judgement;
    if estimate.is_nan() {
        return format!("{objective}: nothing was answered");
    }
    match objective.slow_share_max() {
        Some(_) => {
            let [estimate, low, high, bound] = [estimate, low, high, bound].map(|share| percent(*share));
            format!("{objective}: {estimate} % [{low}, {high}] slower, {bound} % may be")
        }
        None => {
            let [estimate, low, high] = [estimate, low, high].map(|time_ns| time_ns / 1e6);
            format!("{objective}: {estimate:.3} ms [{low:.3}, {high:.3}]")
        }
    }
}

/// A share in percent, with more digits for small shares and 100 for an unknown upper end.
fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 100.0 => "100".into(),
        percent if percent >= 10.0 => format!("{percent:.1}"),
        percent => format!("{percent:.3}"),
    }
}

/// The answer, several lines.
pub fn render(saturation: &Saturation) -> String {
    let Saturation { objectives, finding, .. } = saturation;
    let objectives = objectives.iter().map(Objective::to_string).collect::<Vec<_>>().join(" and ");
    let [met, missed] = [finding.met_at_per_s, finding.missed_at_per_s]
        .map(|rate| rate.map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0}/s")));
    let mut text = match finding.rate_per_s {
        Some(rate) => format!("{objectives}: up to {rate:.0}/s (surely met at {met}, surely missed at {missed})\n"),
        None => format!("{objectives}: no rate is known to be met (surely missed at {missed})\n"),
    };
    if finding.confirmed {
        text += "confirmed: fresh runs met it at 0.9 times this rate and missed it at 1.1 times\n";
    }
    for reason in &finding.reasons {
        let _ = writeln!(text, "NOT CONFIRMED: {}", printable(reason));
    }
    text
}
