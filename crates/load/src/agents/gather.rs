//! Merges what the agents send: seconds during the run, and results at its end, all on the controller's clock. Knows no
//! connections.

use crate::LoadError;
use crate::agents::message::AgentHello;
use crate::agents::offset::Offset;
use crate::agents::shares::DistributedRun;
use crate::measure::seconds::Second;
use crate::report::merge::merge_named;
use crate::report::summary::{AgentReport, Coordination, Summary};
use clock::Nanos;
use std::collections::BTreeMap;

/// The seconds of all agents. Each is shown once every running agent has passed it.
#[derive(Debug)]
pub(crate) struct LiveSeconds {
    /// For each agent, the first second that it has not sent.
    next: Vec<u64>,
    open: BTreeMap<u64, Second>,
}

/// The outcome of one agent.
#[derive(Debug)]
pub(crate) struct AgentOutcome {
    pub(crate) hello: AgentHello,
    pub(crate) offset: Offset,
    /// By how much the run started late, and the summary.
    pub(crate) result: Option<(u64, Summary)>,
    /// Why there is no summary.
    pub(crate) lost: Option<String>,
}

/// The instant at which all agents were to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) clock: Nanos,
    pub(crate) unix_ns: u64,
}

impl LiveSeconds {
    pub(crate) fn new(agents: usize) -> LiveSeconds {
        LiveSeconds { next: vec![0; agents], open: BTreeMap::new() }
    }

    /// Adds a second of an agent. Returns the sums of the seconds that all agents have passed.
    pub(crate) fn take(&mut self, agent: usize, second: Second) -> Vec<Second> {
        // An agent sends the seconds in order. Storing any other number would let an agent fill the memory.
        if second.second != self.next[agent] {
            return Vec::new();
        }
        self.next[agent] += 1;
        match self.open.get_mut(&second.second) {
            // An unreadable second is missing from one progress line. The result of the agent will be rejected for the
            // same reason.
            Some(sum) => drop(sum.merge(&second)),
            None => drop(self.open.insert(second.second, second)),
        }
        self.past()
    }

    /// Notes that this agent sends no more seconds.
    pub(crate) fn end(&mut self, agent: usize) -> Vec<Second> {
        self.next[agent] = u64::MAX;
        self.past()
    }

    fn past(&mut self) -> Vec<Second> {
        let first_open = self.next.iter().min().copied().unwrap_or(0);
        let later = self.open.split_off(&first_open);
        std::mem::replace(&mut self.open, later).into_values().collect()
    }
}

/// Merges all results into one summary. A lost agent makes the run invalid; the results of the others are kept.
pub(crate) fn gather(
    run: &DistributedRun,
    start: Start,
    outcomes: Vec<AgentOutcome>,
    measuring: Option<Result<Box<Summary>, String>>,
) -> Result<Summary, LoadError> {
    let mut results: Vec<(&str, Summary)> = Vec::new();
    let (mut reports, mut reasons, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut lost = false;
    for (task, mut outcome) in run.agents.iter().zip(outcomes) {
        let result = outcome.result.take().map(|(late_ns, summary)| {
            lateness(&task.agent, late_ns, &summary, &mut reasons, &mut notes);
            (late_ns, on_our_clock(summary, outcome.offset, start, &run.percentiles))
        });
        if let Some(why) = &outcome.lost {
            lost = true;
            reasons.push(format!("agent {} was lost: {why}; the others were stopped", task.agent));
        }
        let summary = result.as_ref().map(|(_, summary)| summary);
        reports.push(AgentReport {
            agent: task.agent.clone(),
            host: outcome.hello.host,
            cores: outcome.hello.cores,
            share: task.share.clone(),
            clock_offset_ns: outcome.offset.ns,
            clock_error_ns: outcome.offset.error_ns,
            late_ns: result.as_ref().map(|(late_ns, _)| *late_ns),
            measure_from_clock_ns: summary.map(|summary| summary.measure_from_clock_ns),
            measure_to_clock_ns: summary.map(|summary| summary.measure_to_clock_ns),
            lost: outcome.lost,
        });
        results.extend(result.map(|(_, summary)| (task.agent.as_str(), summary)));
    }
    let named: Vec<(&str, &Summary)> = results.iter().map(|(name, summary)| (*name, summary)).collect();
    let nothing_left = |reports: &[AgentReport]| {
        let first = reports.iter().find_map(|report| Some((report.agent.clone(), report.lost.clone()?)));
        first.map(|(agent, line)| LoadError::Agent { agent, line })
    };
    let mut merged = merge_named(&named).map_err(|error| nothing_left(&reports).unwrap_or(LoadError::Merge(error)))?;
    let measuring = match measuring.transpose() {
        Ok(measuring) => {
            measuring.map(|summary| Box::new(on_our_clock(*summary, Offset::NONE, start, &run.percentiles)))
        }
        Err(line) => {
            reasons.push(format!("measuring client: {line}; the others were stopped"));
            None
        }
    };
    if let Some(summary) = &measuring {
        reasons.extend(summary.reasons.iter().map(|line| format!("measuring client: {line}")));
        notes.extend(summary.notes.iter().map(|line| format!("measuring client: {line}")));
    }
    merged.partial |= lost;
    merged.arguments = run.arguments.clone();
    merged.reasons.extend(reasons);
    merged.notes.extend(notes);
    merged.valid = merged.valid && merged.reasons.is_empty();
    merged.coordination = Some(Coordination {
        start_clock_ns: start.clock.0,
        start_spread_ns: spread_ns(&reports, &results),
        agents: reports,
        measuring,
    });
    Ok(merged)
}

/// An agent that received the start too late has missed part of its warm-up, or part of its window.
fn lateness(agent: &str, late_ns: u64, summary: &Summary, reasons: &mut Vec<String>, notes: &mut Vec<String>) {
    let late_s = late_ns as f64 / 1e9;
    if late_s > summary.settings.warm_up_s {
        reasons.push(format!(
            "agent {agent} started {late_s:.3} s late, within the measured window, because its machine or the network is too \
             slow; use a longer --warm-up"
        ));
    } else if late_ns > 0 {
        notes.push(format!("agent {agent} started {late_s:.3} s late, within the warm-up"));
    }
}

/// The same summary with its times on the controller's clocks, because an agent's clocks may be far off.
fn on_our_clock(summary: Summary, offset: Offset, start: Start, percentiles: &[f64]) -> Summary {
    let ours = |clock_ns| offset.to_controller(Nanos(clock_ns)).0;
    let mut summary = summary;
    if !percentiles.is_empty() {
        summary.settings.percentiles = percentiles.to_vec();
    }
    let started_clock_ns = ours(summary.started_clock_ns);
    let started_unix_ns = i128::from(start.unix_ns) + i128::from(started_clock_ns) - i128::from(start.clock.0);
    Summary {
        started_unix_ns: u64::try_from(started_unix_ns).unwrap_or(start.unix_ns),
        started_clock_ns,
        measure_from_clock_ns: ours(summary.measure_from_clock_ns),
        measure_to_clock_ns: ours(summary.measure_to_clock_ns),
        ..summary
    }
}

/// An upper bound on the difference between the starts of all windows: the measured difference plus the two largest
/// clock errors.
fn spread_ns(reports: &[AgentReport], results: &[(&str, Summary)]) -> u64 {
    let begins = || results.iter().map(|(_, summary)| summary.measure_from_clock_ns);
    let apart_ns = begins().max().unwrap_or(0) - begins().min().unwrap_or(0);
    let mut errors: Vec<u64> = reports.iter().map(|report| report.clock_error_ns).collect();
    errors.sort_unstable_by(|one, other| other.cmp(one));
    apart_ns + errors.iter().take(2).sum::<u64>()
}

#[cfg(test)]
mod tests;
