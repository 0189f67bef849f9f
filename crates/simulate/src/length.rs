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
const VALUES_LEAST: f64 = 300.0;
/// Relaxation times that the interval of a quantile needs, times the share of the requests beyond it.
const BEYOND_LEAST: f64 = 36.0;
/// Relaxation times of the warm-up.
const WARM_UP: f64 = 3.0;
/// The largest bias of a mean with an interval, in standard errors. It reduces the coverage by less than half a percent.
const BIAS_MAX: f64 = 0.1;

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

/// A note on the quantiles without an interval, above which there are too few requests; `None` if all of `shares` have one.
pub(crate) fn tail_note(model: &Model, replications: usize, measured_s: f64, shares: &[f64]) -> Option<String> {
    let relaxation = model.relaxation.as_ref()?;
    let least = least_tail(model, replications, measured_s)?;
    let is_missing = |share: &&f64| share.min(1.0 - **share) < least;
    let missing: Vec<String> = shares.iter().filter(is_missing).map(|share| format!("p{}", 100.0 * share)).collect();
    let last = shares.iter().rfind(is_missing)?;
    Some(format!(
        "no interval for {names}, because too few slow requests were measured: station '{station}' with utilisation \
         {utilisation:.4} forgets its past in about {forgets:.0} requests; p{percent} needs --requests {requests:.0}",
        names = missing.join(", "),
        station = relaxation.station,
        utilisation = relaxation.utilisation,
        forgets = relaxation.requests(),
        percent = 100.0 * last,
        requests = (relaxation.requests().max(1.0) * BEYOND_LEAST / (1.0 - last) / replications as f64).ceil(),
    ))
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

/// The coverage of the intervals in the limit of saturation, where every queue is a reflected Brownian motion.
///
/// A campaign near saturation needs millions of requests. In the limit it needs a few thousand steps: with drift -1 and
/// variance 1, the motion's values at the ends of steps can be drawn exactly (Asmussen and Glynn, Stochastic Simulation,
/// 2007, X.2). The relaxation time is 2, and the stationary distribution is exponential with mean 1/2.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::histogram::Histogram;
    use crate::replication::random_of;
    use crate::report::cumulative::Cumulative;
    use crate::report::spread::{Spread, Student};
    use rand::Rng;
    use rand_distr::{Distribution, StandardNormal};

    const RELAXATION_S: f64 = 2.0;
    const MEAN_S: f64 = 0.5;
    const STEP_S: f64 = RELAXATION_S / 20.0;
    const SHARES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

    /// Replications, and their warm-up and measured time in relaxation times.
    #[derive(Clone, Copy, Debug)]
    struct Lengths {
        replications: usize,
        warm_up: f64,
        measured: f64,
    }

    /// The next value of the reflected motion, which depends on the lowest point within the step.
    fn step(level: f64, random: &mut impl Rng) -> f64 {
        let normal: f64 = StandardNormal.sample(random);
        let free = -STEP_S + STEP_S.sqrt() * normal;
        let uniform: f64 = 1.0 - random.random::<f64>();
        let lowest = (free - (free * free - 2.0 * STEP_S * uniform.ln()).sqrt()) / 2.0;
        free + level.max(-lowest)
    }

    /// Counts the campaigns whose interval of the mean covers the truth. For each share, counts the campaigns with an interval, and
    /// those whose interval covers the truth.
    fn coverage(lengths: Lengths, campaigns: usize) -> (usize, [(usize, usize); SHARES.len()]) {
        let steps = |times: f64| (times * RELAXATION_S / STEP_S).round() as usize;
        let least_tail = BEYOND_LEAST / (lengths.replications as f64 * lengths.measured);
        let (mut random, student) = (random_of(20, 0), Student::default());
        let (mut means, mut quantiles) = (0, [(0, 0); SHARES.len()]);
        for _ in 0..campaigns {
            let (mut spread, mut cumulative, mut all) =
                (Spread::default(), Cumulative::default(), Histogram::default());
            for _ in 0..lengths.replications {
                let mut level = (0..steps(lengths.warm_up)).fold(0.0, |level, _| step(level, &mut random));
                let (mut times, mut sum) = (Histogram::default(), 0.0);
                let count = steps(lengths.measured).max(1);
                for _ in 0..count {
                    level = step(level, &mut random);
                    times.record(level);
                    sum += level;
                }
                spread.add(sum / count as f64);
                cumulative.add(&times);
                all.merge(&times);
            }
            let (below, above) = spread.distances(&student).unwrap();
            let off = MEAN_S - spread.mean().unwrap();
            means += usize::from(-below <= off && off <= above);
            let values = all.quantiles_s(&SHARES);
            for ((share, value), (given, covered)) in SHARES.iter().zip(values).zip(&mut quantiles) {
                if let Some((low, high)) = cumulative.interval_s(&all, *share, value, Some(least_tail), &student) {
                    let truth = -MEAN_S * (1.0 - share).ln();
                    *given += 1;
                    *covered += usize::from(low <= truth && truth <= high);
                }
            }
        }
        (means, quantiles)
    }

    /// The lengths that the simulator chooses, and the shortest ones that it accepts.
    fn lengths() -> Vec<Lengths> {
        let chosen = |replications: usize| Lengths {
            replications,
            warm_up: WARM_UP,
            measured: EACH.max(TOGETHER / replications as f64),
        };
        let shortest = |replications: usize, measured: f64| Lengths {
            replications,
            warm_up: (bias(0.0, measured) / (BIAS_MAX * error(replications, measured))).ln().max(0.0),
            measured,
        };
        let least = |measured: f64| (VALUES_LEAST / (1.0 + measured)).ceil() as usize;
        vec![
            chosen(20),
            chosen(100),
            Lengths { measured: 180.0, ..chosen(20) },
            shortest(20, VALUES_LEAST / 20.0 - 1.0),
            shortest(least(0.5), 0.5),
            shortest(least(19.0), 19.0),
            shortest(least(49.0), 49.0),
        ]
    }

    /// The coverage must be 93 to 97 %, widened by two standard errors. `WAYSTAGE_HONESTY` is the number of campaigns.
    #[test]
    #[allow(clippy::print_stdout, reason = "tests/lab/honesty.py reads the counts")]
    fn intervals_cover_the_truth_in_the_limit_of_saturation() {
        let campaigns: usize = std::env::var("WAYSTAGE_HONESTY").map_or(400, |text| text.parse().unwrap());
        let chance = 2.0 * (0.95 * 0.05 / campaigns as f64).sqrt();
        let mut wrong = Vec::new();
        for lengths in lengths() {
            let (means, quantiles) = coverage(lengths, campaigns);
            let named = SHARES.iter().map(|share| format!("p{}", 100.0 * share)).zip(quantiles);
            for (what, (given, covered)) in std::iter::once(("mean".into(), (campaigns, means))).chain(named) {
                let Lengths { replications, warm_up, measured } = lengths;
                let line = format!(
                    "limit {replications} replications, {warm_up:.1} + {measured:.1} relaxation times, {what}: {given} of \
                     {campaigns} given, {covered} covered"
                );
                println!("{line}");
                let share = covered as f64 / given as f64;
                if given > 0 && !(0.93 - chance..=0.97 + chance).contains(&share) {
                    wrong.push(line);
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
