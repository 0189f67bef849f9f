//! The load generator as a probe: runs at a rate, and what their summaries show about the objectives.

use super::objective::Objective;
use super::observation::{Batch, Observation};
use super::probe::{Probe, ProbeError};
use crate::config::{Arrivals, Config};
use crate::measure::times::decode;
use crate::report::summary::Summary;
use crate::{Progress, run};
use clock::Clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs the load generator for a search.
#[derive(Debug)]
pub struct LoadProbe<'a> {
    config: Config,
    objectives: Vec<Objective>,
    clock: &'a Clock,
    stop: &'a AtomicBool,
}

impl<'a> LoadProbe<'a> {
    /// Runs with this configuration, except for rate, length and seed, and a warm-up of whole seconds. `stop` ends the
    /// search.
    pub fn new(config: Config, objectives: &[Objective], clock: &'a Clock, stop: &'a AtomicBool) -> LoadProbe<'a> {
        // Only whole seconds of the run are judged, so the measured window begins with one.
        let warm_up = Duration::from_secs(config.warm_up.as_secs() + u64::from(config.warm_up.subsec_nanos() > 0));
        LoadProbe { config: Config { warm_up, ..config }, objectives: objectives.to_vec(), clock, stop }
    }

    /// Rejects settings that a search cannot use, in one line that says how to correct them.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(config: &Config) -> Result<(), String> {
        if config.requests.is_some() || config.trace.is_some() {
            return Err(
                "a search for saturation takes --test-time, the length of a run, not --requests or --trace".into()
            );
        }
        if config.test_time < Duration::from_secs(3) {
            return Err("--test-time must be at least 3s: runs are judged by how their seconds differ".into());
        }
        if config.records.is_some() {
            return Err("--records is for a single run, and not for a search".into());
        }
        config.check()
    }
}

impl Probe for LoadProbe<'_> {
    fn run(&mut self, rate_per_s: f64, length: Duration) -> Result<Observation, ProbeError> {
        let config =
            Config { arrivals: at_rate(&self.config.arrivals, rate_per_s), test_time: length, ..self.config.clone() };
        let outcome = run(&config, self.clock, self.stop, &mut |_: Progress<'_>| ());
        if self.stop.load(Ordering::Relaxed) {
            return Err(ProbeError::Stopped);
        }
        let summary = outcome.map_err(|error| ProbeError::Failed(error.to_string()))?;
        // The keys are stored now. Another seed makes the next run independent.
        self.config.prefill = false;
        self.config.seed = self.config.seed.wrapping_add(1);
        observe(&summary, &self.objectives).map_err(ProbeError::Failed)
    }

    fn lasts(&self, length: Duration) -> Duration {
        self.config.warm_up + length
    }
}

/// The same arrival process at another rate.
fn at_rate(arrivals: &Arrivals, per_s: f64) -> Arrivals {
    match arrivals {
        Arrivals::Closed | Arrivals::Poisson { .. } => Arrivals::Poisson { per_s },
        Arrivals::Constant { .. } => Arrivals::Constant { per_s },
        Arrivals::Gaps { shape, .. } => Arrivals::Gaps { per_s, shape: shape.clone() },
        Arrivals::Bursty { on, off, .. } => Arrivals::Bursty { per_s, on: *on, off: *off },
    }
}

/// What the summary of a run shows about the objectives.
fn observe(summary: &Summary, objectives: &[Objective]) -> Result<Observation, String> {
    let all = &summary.operations.all;
    let totals = &summary.totals;
    let whole = |histogram: &str, failed| -> Result<Batch, String> {
        Ok(Batch { failed, ..batch([histogram].into_iter(), objectives)? })
    };
    let measured = summary.seconds.iter().filter(|second| second.measured);
    let seconds = measured.map(|second| {
        let histograms = [second.histograms.get.as_str(), &second.histograms.set];
        Ok(Batch { failed: second.errors, ..batch(histograms.into_iter(), objectives)? })
    });
    Ok(Observation {
        measured_s: summary.measured_s,
        intended: totals.intended.unwrap_or_default(),
        answered_in_window: totals.completed,
        seconds: seconds.collect::<Result<_, String>>()?,
        total: whole(&all.response.histogram, totals.errors + totals.unsent.unwrap_or_default())?,
        service: whole(&all.service.histogram, totals.errors)?,
        lateness: whole(summary.lateness.as_ref().map_or("", |lateness| &lateness.histogram), 0)?,
        cpu_share: summary.cpu.share,
        broken: broken(summary),
    })
}

/// The requests in some histograms, which store each time to three digits.
fn batch<'a>(histograms: impl Iterator<Item = &'a str>, objectives: &[Objective]) -> Result<Batch, String> {
    let mut batch = Batch::new(objectives.len());
    for histogram in histograms {
        for value in decode(histogram)?.iter_recorded() {
            batch.record(objectives, value.value_iterated_to(), value.count_since_last_iteration());
        }
    }
    Ok(batch)
}

/// What makes a run useless at any rate. Overload does not, because the search is looking for it.
fn broken(summary: &Summary) -> Option<String> {
    let verification = summary.verification;
    let values = verification.wrong + verification.torn + verification.stale;
    if values > 0 {
        return Some(format!("{values} of {} values differ from what was set", verification.checked));
    }
    let unexpected = verification.unexpected_reply;
    if unexpected > 0 {
        return Some(format!("{unexpected} replies matched no request"));
    }
    // The stop flag is not set, so the servers have gone.
    summary.partial.then(|| summary.reasons.join("; "))
}
