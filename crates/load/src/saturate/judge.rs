//! Judges whether a rate meets an objective, by a confidence interval: met or missed only if the whole interval lies on
//! one side of the bound. Knows no rates and no search.
//!
//! Consecutive requests wait in the same queue, so their times are correlated, and a formula for independent times
//! would give intervals that are far too short. The method of batch means compares sums over whole seconds instead (R.
//! Jain, "The Art of Computer Systems Performance Analysis", 1991, section 25.5.2; A. M. Law, J. S. Carson, "A
//! sequential procedure for determining the length of a steady-state simulation", Operations Research 27(5), 1979).

use super::objective::Objective;
use super::observation::{Batch, Observation};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Batches are merged in pairs while their lag-one correlation is above this ...
const CORRELATION_MAX: f64 = 0.1;
/// ... and at least this many remain.
const BATCHES_MIN: usize = 20;
/// The correlation of fewer batches is not used.
const CORRELATED_BATCHES_MIN: usize = 8;
/// Fewer seconds are not enough to estimate a variance.
const SECONDS_MIN: usize = 3;
/// The largest correlation that the variance is corrected for.
const CORRELATION_COUNTED_MAX: f64 = 0.9;
/// If the distance from the estimate to the bound is below this share of the expected half-width, further data are unlikely
/// to decide.
const HOPELESS_SHARE: f64 = 0.25;
/// A mean does not include failed requests. A larger share of those misses the objective.
const FAILED_SHARE_MAX: f64 = 0.01;

/// The result for an objective at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveOutcome {
    /// The whole interval is at or below the bound.
    Met,
    /// The whole interval is above the bound.
    Missed,
    /// The bound lies inside the interval.
    Undecided,
    /// The generator, not the server, prevented the rate from being served in time.
    GeneratorLimited,
}

/// The result of a run for one objective. For a percentile, the share of slower requests is judged, because its
/// interval needs no assumption about the distribution of times. For a mean, the mean is judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The objective.
    pub objective: Objective,
    /// The share of requests slower than the bound, or the mean in nanoseconds.
    pub estimate: f64,
    /// The lower end of the confidence interval.
    pub low: f64,
    /// The upper end of the confidence interval.
    pub high: f64,
    /// The allowed share of slower requests, or the bound in nanoseconds.
    pub bound: f64,
    /// The effective number of independent batches.
    pub batches_effective: f64,
    /// The conclusion.
    pub outcome: ObjectiveOutcome,
}

/// Judges objective number `at` of a run, with intervals at this confidence level, such as 0.95.
pub(super) fn judge(objective: Objective, at: usize, seen: &Observation, confidence: f64) -> Judgement {
    let requests = match objective.slow_share_max() {
        Some(_) => seen.total.requests(),
        None => seen.total.answered,
    } as f64;
    let bound = objective.slow_share_max().unwrap_or(objective.time_ns as f64);
    let estimate = if requests > 0.0 { excess_free(objective, at, &seen.total) / requests } else { f64::NAN };
    let excesses: Vec<f64> = seen.seconds.iter().map(|second| excess(objective, at, second)).collect();
    let (deviation, batches_effective) = deviation(&excesses);
    let seconds_share = seen.seconds.iter().map(Batch::requests).sum::<u64>() as f64 / requests.max(1.0);
    let mut judgement = Judgement {
        objective,
        estimate,
        low: 0.0,
        high: f64::INFINITY,
        bound,
        batches_effective,
        outcome: ObjectiveOutcome::Undecided,
    };
    if excesses.len() < SECONDS_MIN || seconds_share < 0.5 || requests == 0.0 {
        return judgement;
    }
    // The deviation is that of the sum over the seconds, which grows with the square root of the requests.
    let mut spread = deviation * seconds_share.max(1e-9).recip().sqrt() / requests;
    if let Some(share) = objective.slow_share_max() {
        // Slow requests come in bursts, and a run may contain none, so that its seconds hardly differ. The interval is
        // therefore at least that of the effective number of independent requests.
        spread = spread.max((share * (1.0 - share) / requests_effective(seen)).sqrt());
    }
    let half = quantile(confidence, batches_effective) * spread;
    (judgement.low, judgement.high) = ((estimate - half).max(0.0), estimate + half);
    let loses_many = seen.total.failed as f64 > FAILED_SHARE_MAX * seen.total.requests() as f64;
    judgement.outcome = match objective.slow_share_max() {
        None if loses_many => ObjectiveOutcome::Missed,
        _ if judgement.high <= bound => ObjectiveOutcome::Met,
        _ if judgement.low > bound => ObjectiveOutcome::Missed,
        _ => ObjectiveOutcome::Undecided,
    };
    judgement
}

/// Whether a run of `factor` times the length is likely to decide an objective that is still undecided. It is not likely
/// if the estimate, should it not change, is much nearer to the bound than the half-width of the longer run's interval.
pub(super) fn can_be_decided(judgement: &Judgement, factor: f64, confidence: f64) -> bool {
    let half = judgement.high - judgement.estimate;
    if !half.is_finite() {
        return true;
    }
    let batches = judgement.batches_effective;
    let shrinks = quantile(confidence, batches * factor) / quantile(confidence, batches) / factor.sqrt();
    (judgement.estimate - judgement.bound).abs() >= HOPELESS_SHARE * half * shrinks
}

/// The effective number of independent requests: as many as would give the same standard error of the mean time.
fn requests_effective(seen: &Observation) -> f64 {
    let answered = seen.seconds.iter().map(|second| second.answered).sum::<u64>() as f64;
    let sum: f64 = seen.seconds.iter().map(|second| second.sum_ns).sum();
    let squares: f64 = seen.seconds.iter().map(|second| second.squares_ns).sum();
    let mean = sum / answered;
    let excesses: Vec<f64> = seen.seconds.iter().map(|second| second.sum_ns - mean * second.answered as f64).collect();
    let variance_of_sum = deviation(&excesses).0.powi(2);
    let variance_if_independent = squares - sum * mean;
    let requests = seen.total.requests() as f64;
    requests * (variance_if_independent / variance_of_sum).min(1.0)
}

/// Whether the whole run, taken as a point, meets the objective with the times of `batch`.
pub(super) fn is_met_on_the_whole(objective: Objective, at: usize, batch: &Batch) -> bool {
    excess(objective, at, batch) <= 0.0
}

/// By how much a batch exceeds the bound: slow requests above the allowed number, or nanoseconds above the bound times
/// the requests. It is linear in the requests, so batches of different sizes add up, unlike shares and means.
fn excess(objective: Objective, at: usize, batch: &Batch) -> f64 {
    let allowed = match objective.slow_share_max() {
        Some(share) => share * batch.requests() as f64,
        None => objective.time_ns as f64 * batch.answered as f64,
    };
    excess_free(objective, at, batch) - allowed
}

/// Slow requests including failed ones, or the sum of the times.
fn excess_free(objective: Objective, at: usize, batch: &Batch) -> f64 {
    match objective.slow_share_max() {
        Some(_) => (batch.slow.get(at).copied().unwrap_or_default() + batch.failed) as f64,
        None => batch.sum_ns,
    }
}

/// The standard deviation of the sum of a correlated series, and its effective number of independent batches.
fn deviation(series: &[f64]) -> (f64, f64) {
    let mut batches = series.to_vec();
    let mut correlation = lag_one(&batches);
    while correlation > CORRELATION_MAX && batches.len() >= 2 * BATCHES_MIN {
        batches = batches.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        correlation = lag_one(&batches);
    }
    let count = batches.len() as f64;
    if count < 2.0 {
        return (f64::INFINITY, count);
    }
    // The remaining correlation is treated as that of a first-order autoregression, which gives the effective number.
    // The estimate is too low by about 1/n. With few values it is mostly chance, and Student's quantile is wide anyway.
    let is_known = batches.len() >= CORRELATED_BATCHES_MIN;
    let correlation = if is_known { (correlation + 1.0 / count).clamp(0.0, CORRELATION_COUNTED_MAX) } else { 0.0 };
    let effective = (count * (1.0 - correlation) / (1.0 + correlation)).max(2.0);
    let mean = batches.iter().sum::<f64>() / count;
    let variance = batches.iter().map(|batch| (batch - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // The batches do not include an odd last second.
    let whole = series.len() as f64 / (count * (series.len() / batches.len()) as f64);
    (count * (variance * whole / effective).sqrt(), effective)
}

/// The lag-one correlation; 0 for a constant series.
fn lag_one(series: &[f64]) -> f64 {
    let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
    let square: f64 = series.iter().map(|value| (value - mean).powi(2)).sum();
    let product: f64 = series.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    // Differences due to rounding do not count.
    let rounding = 1e-20 * series.iter().map(|value| value * value).sum::<f64>();
    if square > rounding { product / square } else { 0.0 }
}

/// Student's quantile for a two-sided interval at this confidence level.
fn quantile(confidence: f64, batches: f64) -> f64 {
    let degrees = (batches - 1.0).max(1.0);
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |student| student.inverse_cdf((1.0 + confidence) / 2.0))
}
