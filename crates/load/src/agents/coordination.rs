//! What a summary says of the agents that a run was made by, and of the client that measured beside them.
//! Computes nothing.

use crate::agents::shares::Share;
use crate::print::time;
use crate::summary::Summary;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// How a run was shared out. Times on a clock are on the controller's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/load-agents.md describes every key")]
pub struct Coordination {
    pub start_clock_ns: u64,
    pub start_spread_ns: u64,
    pub agents: Vec<AgentReport>,
    pub measuring: Option<Box<Summary>>,
}

/// One agent: what it was told, and what it did.
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

/// What is said below the table of a run that was shared out: many lines.
pub(crate) fn render(coordination: &Coordination) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, here and below.
    if let Some(measuring) = &coordination.measuring {
        let _ = writeln!(
            text,
            "measuring: the same servers as a lightly loaded client sees them, {} requests per second from the controller; not in \
             the rows above",
            measuring.settings.offered_per_s.unwrap_or(0.0)
        );
    }
    let _ = writeln!(
        text,
        "{} agent(s), measured from the same instant to within {}",
        coordination.agents.len(),
        time(coordination.start_spread_ns as f64)
    );
    for report in &coordination.agents {
        let share = &report.share;
        let rate = share.rate_per_s.map_or(String::new(), |per_s| format!(", {per_s} requests/s"));
        let requests = share.requests.map_or(String::new(), |requests| format!(", {requests} requests"));
        let lost = report.lost.as_ref().map_or(String::new(), |why| format!(": LOST, {why}"));
        let _ = writeln!(
            text,
            "agent {} ({}, {} cores): {} clients{rate}{requests}, keys {} to {}{lost}",
            report.agent, report.host, report.cores, share.clients, share.key_minimum, share.key_maximum
        );
    }
    text
}
