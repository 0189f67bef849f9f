//! The order of the runs: climb until an objective is missed, bisect, verify. If a later run contradicts an earlier
//! one, the search goes back.

use super::bracket::{Bracket, ExaminedRate};
use super::judge::{Judgement, ObjectiveOutcome, can_be_decided, is_met_on_the_whole, judge};
use super::observation::{Batch, Observation};
use super::outlook::{CLIMB, Outlook, SearchEvent};
use super::probe::{Probe, ProbeError, SearchConfig};
use super::report::{Finding, ProbeReport, Step};
use std::time::Duration;

/// The factor after a contradiction, when the answer must be near.
const CLIMB_AGAIN: f64 = 1.25;
/// The lowest rate that is tried.
const RATE_MIN_PER_S: f64 = 1.0;
/// The multiples of the answer that are verified.
const BELOW: f64 = 0.9;
const ABOVE: f64 = 1.1;
/// How often a contradiction sends the search back before it gives up.
const RESUMES_MAX: u32 = 2;
/// More runs than any successful search needs.
const PROBES_MAX: usize = 100;
/// A backlog of more than this share of the requests is growing.
const BACKLOG_SHARE_MAX: f64 = 0.05;

/// The result of verifying an answer with fresh runs.
enum Confirmation {
    Yes,
    /// The runs do not decide it.
    No(String),
    /// The answer is wrong, and the results behind it have been forgotten.
    Contradicted(String),
}

/// A search in progress.
struct Search<'a> {
    config: &'a SearchConfig,
    probe: &'a mut dyn Probe,
    watch: &'a mut dyn FnMut(SearchEvent<'_>),
    bracket: Bracket,
    probes: Vec<ProbeReport>,
}

/// Searches for the highest rate that meets all objectives. `watch` receives every run as it begins and as it ends.
///
/// Never fails: the finding contains what was found, and the reason if the search ended early.
pub fn search(
    config: &SearchConfig,
    probe: &mut dyn Probe,
    watch: &mut dyn FnMut(SearchEvent<'_>),
) -> (Finding, Vec<ProbeReport>) {
    let mut search = Search { config, probe, watch, bracket: Bracket::default(), probes: Vec::new() };
    let ended = search.whole();
    let mut finding = search.finding();
    match ended {
        Ok(end) => finding.reasons.extend(end),
        Err(ProbeError::Stopped) => finding.reasons.push("stopped before the end".into()),
        Err(ProbeError::Failed(reason)) => finding.reasons.push(reason),
    }
    finding.confirmed = finding.reasons.is_empty();
    (finding, search.probes)
}

impl Search<'_> {
    /// Climbs, bisects and verifies, and repeats this after a contradiction. Returns the reason if the answer is not
    /// confirmed.
    fn whole(&mut self) -> Result<Option<String>, ProbeError> {
        let mut from = self.config.start_per_s.min(self.config.rate_max_per_s);
        let mut factor = CLIMB;
        for resumes_left in (0..=RESUMES_MAX).rev() {
            if let Some(reason) = self.enclose(from, factor)? {
                return Ok(Some(reason));
            }
            self.bisect()?;
            let Some(answer) = self.bracket.lower() else {
                return Ok(Some("no rate met the objective".into()));
            };
            match self.verify(answer)? {
                Confirmation::Yes => return Ok(None),
                Confirmation::No(reason) => return Ok(Some(reason)),
                Confirmation::Contradicted(reason) if resumes_left == 0 => return Ok(Some(reason)),
                Confirmation::Contradicted(_) => {}
            }
            factor = CLIMB_AGAIN;
            from = self.bracket.lower().unwrap_or(answer) * factor;
        }
        Ok(None)
    }

    /// Climbs until a rate is missed, or descends until one is met. Returns the reason if there are no such two rates.
    fn enclose(&mut self, from: f64, factor: f64) -> Result<Option<String>, ProbeError> {
        let mut rate = from;
        while self.bracket.upper().is_none() {
            self.step(rate, Step::Climb)?;
            if self.bracket.upper().is_none() && rate >= self.config.rate_max_per_s {
                return Ok(Some(format!("met at {rate:.0}/s, and --rate-max permits no higher rate")));
            }
            rate = (rate * factor).min(self.config.rate_max_per_s);
        }
        while let (None, Some(upper)) = (self.bracket.lower(), self.bracket.upper()) {
            if upper / factor < RATE_MIN_PER_S {
                return Ok(Some(format!("not met at any rate down to {upper:.0}/s")));
            }
            self.step(upper / factor, Step::Descend)?;
        }
        Ok(None)
    }

    /// Tries the geometric mean of the bracket until the bracket is narrow enough.
    fn bisect(&mut self) -> Result<(), ProbeError> {
        while let (Some(lower), Some(upper)) = (self.bracket.lower(), self.bracket.upper())
            && upper > lower * (1.0 + self.config.precision)
        {
            self.step((lower * upper).sqrt(), Step::Bisect)?;
        }
        Ok(())
    }

    /// Verifies the answer with fresh runs around it.
    fn verify(&mut self, answer: f64) -> Result<Confirmation, ProbeError> {
        let below = self.step(answer * BELOW, Step::Verify(BELOW))?;
        if !below.is_below {
            self.bracket.forget_met_from(answer * BELOW);
            let reason = format!("the objective was met at {answer:.0}/s, but not again at {BELOW} times that");
            return Ok(Confirmation::Contradicted(reason));
        }
        // At the answer itself the best guess is a coin toss, so an undecided run changes nothing.
        let same = self.examine(answer, Step::Verify(1.0))?;
        if same.outcome != ObjectiveOutcome::Undecided {
            self.bracket.add(same);
        }
        if same.outcome == ObjectiveOutcome::Missed {
            self.bracket.forget_met_from(answer);
            return Ok(Confirmation::Contradicted(format!("the objective was met at {answer:.0}/s, but not again")));
        }
        if below.outcome != ObjectiveOutcome::Met {
            let reason = format!(
                "even the longest runs at {BELOW} times {answer:.0}/s are too short for a decision; give a longer --test-time"
            );
            return Ok(Confirmation::No(reason));
        }
        if self.bracket.generator_limit().is_some() {
            // The finding reports this limit.
            return Ok(Confirmation::Yes);
        }
        let above = self.step((answer * ABOVE).min(self.config.rate_max_per_s), Step::Verify(ABOVE))?;
        if above.is_below {
            self.bracket.forget_not_met_up_to(above.rate_per_s);
            let reason = format!("the objective was missed above {answer:.0}/s, but met at {ABOVE} times that");
            return Ok(Confirmation::Contradicted(reason));
        }
        Ok(match above.outcome {
            ObjectiveOutcome::Missed => Confirmation::Yes,
            _ => Confirmation::No(format!("the objective was not surely missed at {ABOVE} times {answer:.0}/s")),
        })
    }

    /// Examines a rate and updates the bracket.
    fn step(&mut self, rate_per_s: f64, step: Step) -> Result<ExaminedRate, ProbeError> {
        let known = self.examine(rate_per_s, step)?;
        self.bracket.add(known);
        Ok(known)
    }

    /// Runs at a rate until it is decided, or the longest run has been made.
    fn examine(&mut self, rate_per_s: f64, step: Step) -> Result<ExaminedRate, ProbeError> {
        let mut together: Option<Observation> = None;
        for extension in 0..=self.config.extensions_max {
            if self.probes.len() == PROBES_MAX {
                return Err(ProbeError::Failed(format!("no answer after {PROBES_MAX} runs")));
            }
            let length = self.config.probe * (1 << extension);
            self.begin(rate_per_s, step, length);
            let seen = self.probe.run(rate_per_s, length)?;
            let seen = match together.take() {
                Some(mut before) => {
                    before.join(seen);
                    before
                }
                None => seen,
            };
            let mut report = self.judge(rate_per_s, step, &seen);
            let may_be_decided = self.may_be_decided(&report, extension);
            if !may_be_decided {
                report.note = Some("too close to the bound for further runs".to_owned());
            }
            let is_below = report.leans_to_met();
            let known = ExaminedRate { rate_per_s, outcome: report.outcome, is_below };
            (self.watch)(SearchEvent::Ended(&report));
            self.probes.push(report);
            if let Some(reason) = seen.broken {
                return Err(ProbeError::Failed(format!("the run at {rate_per_s:.0}/s is not valid: {reason}")));
            }
            // While climbing, a good guess is enough: higher rates have more requests, and the answer will be verified.
            let is_good_guess = step == Step::Climb && is_below;
            let is_undecided = known.outcome == ObjectiveOutcome::Undecided && !is_good_guess;
            if !is_undecided || !may_be_decided || extension == self.config.extensions_max {
                return Ok(known);
            }
            together = Some(seen);
        }
        Err(ProbeError::Failed("the configuration permits no run".into()))
    }

    /// Reports that a run begins.
    fn begin(&mut self, rate_per_s: f64, step: Step, length: Duration) {
        let ratio = self.bracket.upper().zip(self.bracket.lower()).map(|(upper, lower)| upper / lower);
        let left = Outlook::from_step(step, ratio, self.config, &*self.probe);
        (self.watch)(SearchEvent::Begins { number: self.probes.len() + 1, step, rate_per_s, length, left });
    }

    /// Whether an undecided run is likely to be decided after all remaining extensions. This takes all undecided
    /// objectives, or one whose estimate misses its bound.
    fn may_be_decided(&self, report: &ProbeReport, extension: u32) -> bool {
        // Runs that confirm an answer always get all extensions.
        let confirms = matches!(report.step, Step::Verify(factor) if factor != 1.0);
        if report.outcome != ObjectiveOutcome::Undecided || confirms || extension == self.config.extensions_max {
            return true;
        }
        // Each run is twice as long as the one before.
        let length = |extensions: u32| f64::from((2 << extensions) - 1);
        let factor = length(self.config.extensions_max) / length(extension);
        let mut undecided =
            report.judgements.iter().filter(|judgement| judgement.outcome == ObjectiveOutcome::Undecided);
        let is_decidable = |judgement: &&Judgement| can_be_decided(judgement, factor, self.config.confidence);
        undecided.clone().all(|judgement| is_decidable(&judgement))
            || undecided.any(|judgement| judgement.estimate > judgement.bound && is_decidable(&judgement))
    }

    fn judge(&self, rate_per_s: f64, step: Step, seen: &Observation) -> ProbeReport {
        let config = self.config;
        let each = config.objectives.iter().enumerate();
        let judgements: Vec<Judgement> =
            each.map(|(at, objective)| judge(*objective, at, seen, config.confidence)).collect();
        let mut outcome = if judgements.iter().all(|judgement| judgement.outcome == ObjectiveOutcome::Met) {
            ObjectiveOutcome::Met
        } else if judgements.iter().any(|judgement| judgement.outcome == ObjectiveOutcome::Missed) {
            ObjectiveOutcome::Missed
        } else {
            ObjectiveOutcome::Undecided
        };
        let mut note = None;
        if self.has_growing_backlog(seen) {
            outcome = ObjectiveOutcome::Missed;
            note = Some("the backlog grows".to_owned());
        }
        if outcome == ObjectiveOutcome::Missed
            && let Some(limit) = self.generator_limit(seen)
        {
            outcome = ObjectiveOutcome::GeneratorLimited;
            note = Some(limit);
        }
        ProbeReport {
            step,
            rate_per_s,
            achieved_per_s: seen.achieved_per_s(),
            measured_s: seen.measured_s,
            requests: seen.total.requests(),
            failed: seen.total.failed,
            cpu_share: seen.cpu_share,
            judgements,
            outcome,
            note,
        }
    }

    /// Whether requests were due faster than they were answered, by more than a tolerable wait explains.
    fn has_growing_backlog(&self, seen: &Observation) -> bool {
        let backlog = seen.intended.saturating_sub(seen.answered_in_window) as f64;
        let patience_s =
            self.config.objectives.iter().map(|objective| objective.time_ns as f64 / 1e9).fold(0.0, f64::max);
        backlog > BACKLOG_SHARE_MAX * seen.intended as f64 && backlog > patience_s * seen.achieved_per_s()
    }

    /// The reason why a missed objective does not depend on the server, if so. The load of the generator's threads is
    /// no criterion, because a thread that polls for the next request is busy, too.
    fn generator_limit(&self, seen: &Observation) -> Option<String> {
        let is_met = |batch: &Batch| {
            let mut each = self.config.objectives.iter().enumerate();
            batch.requests() > 0 && each.all(|(at, objective)| is_met_on_the_whole(*objective, at, batch))
        };
        if seen.lateness.requests() > 0 && !is_met(&seen.lateness) {
            let percent = seen.cpu_share * 100.0;
            return Some(format!(
                "the generator sends too late, with its threads busy {percent:.0} % of the time; \
                 give it more --threads or a machine of its own"
            ));
        }
        is_met(&seen.service).then(|| {
            "requests wait for a free connection, and are answered in time once sent; give more --clients or --pipeline".into()
        })
    }

    fn finding(&self) -> Finding {
        let bracket = &self.bracket;
        let generator_limit_per_s = bracket.generator_limit();
        let limit =
            generator_limit_per_s.map(|limit| format!("the generator, not the server, is the limit at {limit:.0}/s"));
        Finding {
            rate_per_s: bracket.lower(),
            met_at_per_s: bracket.surely_met(),
            missed_at_per_s: bracket.surely_missed(),
            generator_limit_per_s,
            confirmed: false,
            reasons: limit.into_iter().collect(),
        }
    }
}
