//! The length of replications near saturation, and whether a finished run was long enough for intervals.
//!
//! A replication starts empty, so its first requests find shorter queues than later ones. With relaxation time tau, the mean
//! of T seconds after a warm-up of w seconds is low by about `min(1, tau / 4T) exp(-w / tau)` of itself: the integral of the
//! missing part of the mean of reflected Brownian motion is a quarter of the relaxation time (Abate and Whitt 1987). Its
//! standard error over n replications is about `1 / sqrt(n (1 + T / tau))` of the mean.

use crate::description::relaxation::Relaxation;
use crate::error::SimulateError;
use crate::model::Model;
use crate::settings::Settings;

/// Requests of a replication, unless relaxation needs more.
const USUAL_REQUESTS: u64 = 200_000;
/// More requests than this are simulated only if `--requests` gives the number.
const UNASKED_MAX: f64 = (1u64 << 27) as f64;
/// Relaxation times in each replication, and in all of them together.
const EACH: f64 = 10.0;
const TOGETHER: f64 = 400.0;
/// The fewest independent values for an interval. With fewer, the mean is too skewed.
const VALUES_LEAST: f64 = 100.0;
/// Relaxation times that the interval of a quantile needs, times the share of the requests beyond it.
const BEYOND_LEAST: f64 = 36.0;
/// Relaxation times of the warm-up.
const WARM_UP: f64 = 3.0;
/// The largest bias of a mean with an interval, in standard errors. It reduces the coverage by less than one percent.
const BIAS_MAX: f64 = 0.2;

/// The number of requests to measure in each replication.
///
/// # Errors If the settings give no number and too many requests would be needed.
pub(crate) fn requests(model: &Model, settings: &Settings) -> Result<u64, SimulateError> {
    let Some(relaxation) = &model.relaxation else { return Ok(settings.requests.unwrap_or(USUAL_REQUESTS)) };
    let needed = EACH.max(TOGETHER / settings.replications as f64) * relaxation.requests();
    match settings.requests {
        Some(requests) => Ok(requests),
        None if needed > UNASKED_MAX => Err(SimulateError::Slow {
            station: relaxation.station.clone(),
            utilisation: relaxation.utilisation,
            relaxation: relaxation.requests(),
            needed,
        }),
        None => Ok(USUAL_REQUESTS.max(needed.ceil() as u64)),
    }
}

/// The smallest number of requests to discard, because of the relaxation time.
pub(crate) fn least_warm_up(model: &Model, settings: &Settings, requests: u64) -> u64 {
    let Some(relaxation) = &model.relaxation else { return 0 };
    let most = if settings.precision.is_some() { settings.replications_max } else { settings.replications };
    let measured = requests as f64 / relaxation.requests();
    let times = (bias(0.0, measured) / (BIAS_MAX * error(most, measured))).ln();
    (times.max(WARM_UP) * relaxation.requests()).ceil() as u64
}

/// The reason why a run is too short for intervals; `None` if it is long enough.
pub(crate) fn shortfall(model: &Model, replications: usize, warm_up_s: f64, measured_s: f64) -> Option<String> {
    let relaxation = model.relaxation.as_ref()?;
    let (warm_up, measured) = (warm_up_s / relaxation.time_s, measured_s / relaxation.time_s);
    let missing = if bias(warm_up, measured) > BIAS_MAX * error(replications, measured) {
        "the start, when it was empty, still shows in the means"
    } else if (replications as f64) < (VALUES_LEAST / (1.0 + measured)).ceil() {
        "they have too few independent values"
    } else {
        return None;
    };
    let Relaxation { station, utilisation, .. } = relaxation;
    Some(format!(
        "no intervals, because {missing}: station '{station}' with utilisation {utilisation:.4} forgets its past in about \
         {forgets:.0} requests, and each of {replications} replications warms up for {warm_up:.2} such times and measures \
         {measured:.2}; leave out --warm-up and --requests, or give --warm-up {least:.0} --requests {requests:.0}",
        forgets = relaxation.requests(),
        least = WARM_UP * relaxation.requests(),
        requests = EACH.max(TOGETHER / replications as f64) * relaxation.requests(),
    ))
}

/// The smallest share of requests beyond a quantile that has an interval; `None` if no relaxation time is known.
///
/// Requests beyond a high quantile come in clusters, about one in many relaxation times. A decision by their measured
/// spread would favour runs with too few clusters.
pub(crate) fn least_tail(model: &Model, replications: usize, measured_s: f64) -> Option<f64> {
    let relaxation = model.relaxation.as_ref()?;
    let forgets_s = relaxation.time_s.max(1.0 / relaxation.arrivals_per_s);
    Some(BEYOND_LEAST * forgets_s / (replications as f64 * measured_s))
}

/// The replications that an interval needs.
pub(crate) fn replications_least(model: &Model, measured_s: f64) -> usize {
    let relaxation = model.relaxation.as_ref();
    relaxation.map_or(0, |relaxation| (VALUES_LEAST / (1.0 + measured_s / relaxation.time_s)).ceil() as usize)
}

/// The bias of a mean as a share of it; both lengths in relaxation times.
fn bias(warm_up: f64, measured: f64) -> f64 {
    (0.25 / measured).min(1.0) * (-warm_up).exp()
}

/// The standard error of a mean as a share of it.
fn error(replications: usize, measured: f64) -> f64 {
    1.0 / (replications as f64 * (1.0 + measured)).sqrt()
}
