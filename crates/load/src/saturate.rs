//! The search for the highest rate at which a server keeps its latency objectives. Drives anything that can run a load at a
//! rate and say what it saw, and knows neither sockets nor schedules; `run` binds it to [`crate::run`].
//!
//! ```text
//! climb (or descend) -> bisect -> verify at 0.9, 1.0 and 1.1 times the answer
//!    each step: a run -> batches -> interval -> met, missed, or undecided: a longer run
//! ```
//!
//! A bisection over rates is how throughput is found since RFC 2544 (S. Bradner, J. McQuaid, 1999, section 26.1); that noise
//! breaks it, because one unlucky trial hides everything above it, is the reason for the Internet draft
//! draft-ietf-bmwg-mlrsearch (M. Konstantynowicz, V. Polak), from which the idea is taken to ask how long the evidence
//! for a rate is instead of believing each trial. docs/saturation.md describes what is done here.

mod bracket;
mod judge;
mod load_probe;
mod objective;
mod observation;
mod probe;
mod report;
mod search;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;

pub use judge::{Judgement, ObjectiveOutcome};
pub use load_probe::LoadProbe;
pub use objective::{Objective, Quantity};
pub use observation::{Batch, Observation};
pub use probe::{Probe, ProbeError, SearchConfig};
pub use report::{FORMAT, Finding, ProbeReport, Saturation, Step, render, render_heading, render_probe};
pub use search::search;
