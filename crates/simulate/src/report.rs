//! The result, `waystage-simulation/1`. docs/model-format.md describes it.

pub(crate) mod cumulative;
pub(crate) mod print;
pub(crate) mod spread;
pub(crate) mod steadiness;
pub(crate) mod totals;

use crate::engine::histogram::Histogram;
use crate::length;
use crate::model::Model;
use crate::replication::recorder::RecordsWritten;
use crate::replication::{OfClass, OfStation};
use crate::report::cumulative::Cumulative;
use crate::report::spread::{Estimate, Student};
use crate::report::totals::{Totals, quantile_shares};
use crate::settings::{Settings, target};
use serde::Serialize;
use std::time::Duration;

/// Name and version of the format.
pub const FORMAT: &str = "waystage-simulation/1";
/// The largest number present that is listed.
const PRESENT_LISTED: usize = 10_001;

/// The result has a note if one of these quantiles has no interval.
const NOTED: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// The result of a simulation. Times in seconds, rates per second; intervals are 95 % confidence intervals.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct Simulation {
    pub format: &'static str,
    pub version: &'static str,
    pub model: String,
    pub seed: u64,
    pub replications: usize,
    pub requests: u64,
    pub warm_up: WarmUpUsed,
    pub measured_s: Option<f64>,
    pub precision: Option<f64>,
    pub relative_half_width: Option<f64>,
    pub notes: Vec<String>,
    pub classes: Vec<ClassResult>,
    pub stations: Vec<StationResult>,
    pub forks: Vec<ForkResult>,
    pub pools: Vec<PoolResult>,
    pub records: Option<RecordsWritten>,
    pub events: u64,
    pub threads: usize,
    pub elapsed_s: f64,
    pub cpu_s: f64,
    pub events_per_s: f64,
    pub events_per_cpu_s: f64,
}

/// Requests that were discarded at the start of each replication.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct WarmUpUsed {
    pub requests: u64,
    pub method: &'static str,
    pub mser_requests: Option<u64>,
    #[serde(skip)]
    pub(crate) pilot_events: u64,
}

/// Results for requests that began in a class.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct ClassResult {
    pub name: String,
    pub requests: u64,
    pub throughput_per_s: Estimate,
    pub response_s: Estimate,
    pub lost_per_s: Estimate,
    /// `None` if there was no request.
    pub quantiles: Option<Quantiles>,
}

/// Quantiles of the response time.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct Quantiles {
    pub share: Vec<f64>,
    pub response_s: Vec<f64>,
    pub low_s: Vec<Option<f64>>,
    pub high_s: Vec<Option<f64>>,
}

/// Results for a station.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct StationResult {
    pub name: String,
    pub classes: Vec<VisitResult>,
    pub present_probability: Vec<f64>,
    pub present_more: f64,
}

/// Results for a class at a station.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct VisitResult {
    pub name: String,
    pub throughput_per_s: Estimate,
    pub response_s: Estimate,
    pub waiting_s: Estimate,
    pub queue_length: Estimate,
    pub utilisation: Estimate,
}

/// Results for a fork.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct ForkResult {
    pub name: String,
    pub classes: Vec<ForkClassResult>,
}

/// Results for a class at a fork.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct ForkClassResult {
    pub name: String,
    pub response_s: Estimate,
}

/// Results for a pool.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct PoolResult {
    pub name: String,
    pub slots: u32,
    pub busy: Estimate,
    pub classes: Vec<PoolClassResult>,
}

/// Results for a class at a pool.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct PoolClassResult {
    pub name: String,
    pub waiting_s: Estimate,
}

impl Simulation {
    /// The result as JSON.
    ///
    /// # Errors
    /// If it cannot be written as JSON, which is a bug.
    pub fn to_json(&self) -> std::io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The facts about a run that the totals do not contain.
pub(crate) struct Conduct<'a> {
    pub(crate) model: &'a Model,
    pub(crate) settings: &'a Settings,
    /// Measured in each replication.
    pub(crate) requests: u64,
    pub(crate) warm_up: WarmUpUsed,
    /// The reason why the replications are too short for intervals.
    pub(crate) shortfall: Option<String>,
    pub(crate) timed_out: bool,
    pub(crate) elapsed: Duration,
    pub(crate) cpu_s: f64,
    pub(crate) records: Option<RecordsWritten>,
}

/// Assembles the result.
pub(crate) fn report(conduct: Conduct<'_>, totals: &Totals, student: &Student) -> Simulation {
    let Conduct { model, settings, requests, warm_up, shortfall, timed_out, elapsed, cpu_s, records } = conduct;
    let events = totals.events + warm_up.pilot_events;
    let elapsed_s = elapsed.as_secs_f64();
    let mut notes: Vec<String> = shortfall.into_iter().collect();
    let growth = totals.growth_notes(model);
    // The length of an open model follows from its relaxation time.
    if growth.is_empty() && (model.relaxation.is_none() || model.population > 0) {
        notes.extend(totals.drift_notes(model));
    }
    // An interval around a biased mean would only get narrower with more replications.
    let has_intervals = notes.is_empty() && growth.is_empty();
    let relative = has_intervals.then(|| totals.relative_half_width(model, student)).flatten();
    if timed_out {
        let limit_s = settings.time_limit.as_secs_f64();
        notes.push(format!("the time limit of {limit_s} s came after {} replications", totals.replications));
    }
    if let Some(precision) = settings.precision
        && relative.is_none_or(|relative| relative > target(precision))
    {
        notes.push(format!("the precision of {precision} was not reached in {} replications", totals.replications));
    }
    if warm_up.method != "given" && warm_up.mser_requests.is_none() && model.relaxation.is_none() {
        notes.push("no end of the warm-up was found: ask for more --requests".into());
    }
    notes.extend(growth);
    let measured_s = totals.measured_s.mean().unwrap_or(0.0);
    let least_tail = length::least_tail(model, totals.replications, measured_s);
    if has_intervals {
        notes.extend(length::tail_note(model, totals.replications, measured_s, &NOTED));
    }
    let of = Of { model, totals, student, has_intervals, least_tail };
    Simulation {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        model: model.name.clone(),
        seed: settings.seed,
        replications: totals.replications,
        requests,
        warm_up,
        measured_s: totals.measured_s.mean(),
        precision: settings.precision,
        relative_half_width: relative,
        notes,
        classes: (0..model.classes.len()).map(|class| of.class(class)).collect(),
        stations: (0..model.stations.len()).map(|station| of.station(station)).collect(),
        forks: (0..model.forks.len()).map(|fork| of.fork(fork)).collect(),
        pools: (0..model.pools.len()).map(|pool| of.pool(pool)).collect(),
        records,
        events,
        threads: settings.threads,
        elapsed_s,
        cpu_s,
        events_per_s: if elapsed_s > 0.0 { events as f64 / elapsed_s } else { 0.0 },
        events_per_cpu_s: if cpu_s > 0.0 { events as f64 / cpu_s } else { 0.0 },
    }
}

/// The sources of every part of a report.
struct Of<'a> {
    model: &'a Model,
    totals: &'a Totals,
    student: &'a Student,
    has_intervals: bool,
    least_tail: Option<f64>,
}

impl Of<'_> {
    fn number(&self, index: usize) -> Estimate {
        let estimate = self.totals.numbers[index].estimate(self.student);
        if self.has_intervals { estimate } else { Estimate { mean: estimate.mean, ..Estimate::default() } }
    }

    fn names(&self) -> impl Iterator<Item = (usize, String)> {
        self.model.classes.iter().map(|class| class.name.clone()).enumerate()
    }

    fn class(&self, class: usize) -> ClassResult {
        let number = |what| self.number(self.totals.layout.class(class, what));
        let times = &self.totals.responses[class];
        let quantiles = (times.count() > 0).then(|| self.quantiles(times, &self.totals.cumulative[class]));
        ClassResult {
            name: self.model.classes[class].name.clone(),
            requests: times.count(),
            throughput_per_s: number(OfClass::Throughput),
            response_s: number(OfClass::Response),
            lost_per_s: number(OfClass::Lost),
            quantiles,
        }
    }

    fn quantiles(&self, times: &Histogram, cumulative: &Cumulative) -> Quantiles {
        let share = quantile_shares();
        let response_s = times.quantiles_s(&share);
        let interval = |(share, quantile_s): (&f64, &f64)| {
            self.has_intervals
                .then(|| cumulative.interval_s(times, *share, *quantile_s, self.least_tail, self.student))
                .flatten()
        };
        let intervals = share.iter().zip(&response_s).map(interval);
        let (low_s, high_s) = intervals.map(Option::unzip).unzip();
        Quantiles { share, response_s, low_s, high_s }
    }

    fn station(&self, station: usize) -> StationResult {
        let visits = |(class, name)| {
            let number = |what| self.number(self.totals.layout.station(station, class, what));
            VisitResult {
                name,
                throughput_per_s: number(OfStation::Throughput),
                response_s: number(OfStation::Response),
                waiting_s: number(OfStation::Waiting),
                queue_length: number(OfStation::QueueLength),
                utilisation: number(OfStation::Utilisation),
            }
        };
        let count = self.totals.replications as f64;
        let shares: Vec<f64> = self.totals.present[station].iter().map(|sum| sum / count).collect();
        let listed = shares.len().min(PRESENT_LISTED);
        StationResult {
            name: self.model.stations[station].name.clone(),
            classes: self.names().map(visits).collect(),
            present_probability: shares[..listed].to_vec(),
            // An empty sum of floats is -0.0.
            present_more: shares[listed..].iter().sum::<f64>() + 0.0,
        }
    }

    fn fork(&self, fork: usize) -> ForkResult {
        let response_s = |class| self.number(self.totals.layout.fork(fork, class));
        ForkResult {
            name: self.model.forks[fork].name.clone(),
            classes: self
                .names()
                .map(|(class, name)| ForkClassResult { name, response_s: response_s(class) })
                .collect(),
        }
    }

    fn pool(&self, pool: usize) -> PoolResult {
        let waiting_s = |class| self.number(self.totals.layout.pool_waiting(pool, class));
        PoolResult {
            name: self.model.pools[pool].name.clone(),
            slots: self.model.pools[pool].slots,
            busy: self.number(self.totals.layout.pool_busy(pool)),
            classes: self.names().map(|(class, name)| PoolClassResult { name, waiting_s: waiting_s(class) }).collect(),
        }
    }
}
