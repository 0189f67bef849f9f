//! The search for the highest rate at which a server meets its latency objectives. It drives any probe that can run a
//! load at a rate, and knows neither sockets nor schedules; `load_probe` binds it to [`crate::run`].
//!
//! ```text
//! climb (or descend) -> bisect -> verify at 0.9, 1.0 and 1.1 times the answer
//!    each step: a run -> batches -> interval -> met, missed, or undecided: a longer run
//! ```
//!
//! Throughput has been found by bisection since RFC 2544 (S. Bradner, J. McQuaid, 1999, section 26.1). Noise breaks a
//! plain bisection, because one unlucky trial hides all higher rates. The Internet draft draft-ietf-bmwg-mlrsearch (M.
//! Konstantynowicz, V. Polak) therefore asks for how long there is evidence for a rate, instead of trusting each trial;
//! this search does the same. docs/saturation.md describes the method.

mod bracket;
mod judge;
mod load_probe;
mod objective;
mod observation;
mod outlook;
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
pub use outlook::{Outlook, SearchEvent, render_begin, render_outlook};
pub use probe::{Probe, ProbeError, SearchConfig};
pub use report::{FORMAT, Finding, ProbeReport, Saturation, Step, render, render_heading, render_probe};
pub use search::search;
