//! Estimates how long a search will take: the number of rates that remain, and the time for them. Starts no run.

use super::probe::{Probe, SearchConfig};
use super::report::{ProbeReport, Step};
use std::time::Duration;

/// The factor of each step up or down.
pub(super) const CLIMB: f64 = 2.0;
/// Rates of a climb to an answer that is 8 times as high as the first rate.
const CLIMBS_USUAL: u32 = 4;
/// Rates that verify an answer.
const VERIFICATIONS: u32 = 3;

/// What a search reports while it runs.
#[derive(Clone, Copy, Debug)]
pub enum SearchEvent<'a> {
    /// A run begins.
    Begins {
        /// The number of the run, from 1.
        number: usize,
        /// Why its rate is tried.
        step: Step,
        /// Its rate.
        rate_per_s: f64,
        /// The length of its measured window.
        length: Duration,
        /// The remaining rates and time, including this run, if nothing unexpected happens.
        left: Outlook,
    },
    /// A run has ended.
    Ended(&'a ProbeReport),
}

/// The rates that are left, and the time for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Rates to examine.
    pub rates: u32,
    /// The time if no run is extended.
    pub least: Duration,
    /// The time if every run is extended as often as possible.
    pub most: Duration,
}

impl Outlook {
    /// The outlook for this many rates.
    fn new(rates: u32, config: &SearchConfig, probe: &dyn Probe) -> Outlook {
        let runs = (0..=config.extensions_max).map(|extension| probe.lasts(config.probe * (1 << extension)));
        Outlook { rates, least: probe.lasts(config.probe) * rates, most: runs.sum::<Duration>() * rates }
    }

    /// A whole search whose answer is up to 8 times as high as the first rate.
    pub fn of_search(config: &SearchConfig, probe: &dyn Probe) -> Outlook {
        Outlook::new(CLIMBS_USUAL + bisections(CLIMB, config.precision) + VERIFICATIONS, config, probe)
    }

    /// The remaining rates and time from a step on, with the answer in a bracket of this ratio. A climb is assumed to
    /// end with this step.
    pub(super) fn from_step(step: Step, ratio: Option<f64>, config: &SearchConfig, probe: &dyn Probe) -> Outlook {
        let bisections = bisections(ratio.unwrap_or(CLIMB), config.precision);
        let rates = match step {
            Step::Climb | Step::Descend => 1 + bisections + VERIFICATIONS,
            Step::Bisect => bisections + VERIFICATIONS,
            Step::Verify(factor) if factor < 1.0 => VERIFICATIONS,
            Step::Verify(1.0) => VERIFICATIONS - 1,
            Step::Verify(_) => 1,
        };
        Outlook::new(rates, config, probe)
    }
}

/// How often a bracket of this ratio is bisected until it is narrower than the precision.
fn bisections(ratio: f64, precision: f64) -> u32 {
    // The ratio of a bracket that is just narrow enough may be rounded up.
    ((ratio.ln() / precision.ln_1p()).log2() - 1e-9).ceil().clamp(0.0, 64.0) as u32
}

/// The line before a search.
pub fn render_outlook(config: &SearchConfig, probe: &dyn Probe) -> String {
    let Outlook { rates, least, most } = Outlook::of_search(config, probe);
    format!(
        "a run takes {}; about {rates} rates are tried if the answer is at most 8 times the first: {}, or up to {} if every run \
         is extended",
        text(probe.lasts(config.probe)),
        text(least),
        text(most)
    )
}

/// The line before a run; none for other events.
pub fn render_begin(event: &SearchEvent<'_>) -> Option<String> {
    let SearchEvent::Begins { number, step, rate_per_s, length, left } = event else { return None };
    Some(format!(
        "run {number}, {step}: {rate_per_s:.0}/s for {}; {} rates left, {} to {}",
        text(*length),
        left.rates,
        text(left.least),
        text(left.most)
    ))
}

/// A time in seconds or minutes.
fn text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saturate::{Observation, ProbeError};

    struct WithWarmUp;

    impl Probe for WithWarmUp {
        fn run(&mut self, _: f64, _: Duration) -> Result<Observation, ProbeError> {
            Err(ProbeError::Stopped)
        }

        fn lasts(&self, length: Duration) -> Duration {
            length + Duration::from_secs(1)
        }
    }

    #[test]
    fn the_time_follows_from_the_rates_that_are_left() {
        assert_eq!([(2.0, 0.05), (1.05, 0.05), (1.2, 0.05)].map(|(ratio, share)| bisections(ratio, share)), [4, 0, 2]);
        let config = SearchConfig {
            objectives: Vec::new(),
            start_per_s: 1000.0,
            rate_max_per_s: 1e6,
            precision: 0.05,
            probe: Duration::from_secs(3),
            extensions_max: 2,
            confidence: 0.95,
        };
        let line = render_outlook(&config, &WithWarmUp);
        // A run takes 4 s, or 4 + 7 + 13 s with both extensions.
        assert!(
            line.starts_with("a run takes 4 s; about 11 rates") && line.contains(": 44 s, or up to 4 min"),
            "{line}"
        );
        let left = |step, ratio| Outlook::from_step(step, ratio, &config, &WithWarmUp).rates;
        assert_eq!((left(Step::Climb, None), left(Step::Bisect, Some(1.2)), left(Step::Verify(1.1), None)), (8, 5, 1));
        let outlook = Outlook::from_step(Step::Verify(1.0), None, &config, &WithWarmUp);
        let begins = SearchEvent::Begins {
            number: 9,
            step: Step::Verify(1.0),
            rate_per_s: 2e4,
            length: config.probe,
            left: outlook,
        };
        let line = render_begin(&begins).unwrap();
        assert_eq!(line, "run 9, verify 1.0: 20000/s for 3 s; 2 rates left, 8 s to 48 s");
    }
}
