//! The rates examined so far, and the two between which the answer lies. Runs nothing and judges nothing.

use super::judge::ObjectiveOutcome;

/// The result for one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExaminedRate {
    pub(super) rate_per_s: f64,
    pub(super) outcome: ObjectiveOutcome,
    /// Whether the rate lies below the answer. If the longest run left it undecided, this is the best guess.
    pub(super) is_below: bool,
}

/// The results that have not been contradicted.
#[derive(Debug, Default)]
pub(super) struct Bracket {
    known: Vec<ExaminedRate>,
}

impl Bracket {
    pub(super) fn add(&mut self, known: ExaminedRate) {
        self.known.push(known);
    }

    /// The highest rate below the answer.
    pub(super) fn lower(&self) -> Option<f64> {
        let upper = self.upper().unwrap_or(f64::INFINITY);
        highest(self.known.iter().filter(|known| known.is_below && known.rate_per_s < upper))
    }

    /// The lowest rate above the answer.
    pub(super) fn upper(&self) -> Option<f64> {
        lowest(self.known.iter().filter(|known| !known.is_below))
    }

    /// The highest rate below the answer that met the objectives for certain.
    pub(super) fn surely_met(&self) -> Option<f64> {
        let upper = self.upper().unwrap_or(f64::INFINITY);
        highest(self.known.iter().filter(|known| known.outcome == ObjectiveOutcome::Met && known.rate_per_s < upper))
    }

    /// The lowest rate above the answer that missed them for certain.
    pub(super) fn surely_missed(&self) -> Option<f64> {
        let lower = self.lower().unwrap_or(0.0);
        lowest(self.known.iter().filter(|known| known.outcome == ObjectiveOutcome::Missed && known.rate_per_s > lower))
    }

    /// The rate at which the generator was the bottleneck, unless the server is one at a lower rate.
    pub(super) fn generator_limit(&self) -> Option<f64> {
        let limit = lowest(self.known.iter().filter(|known| known.outcome == ObjectiveOutcome::GeneratorLimited))?;
        self.surely_missed().is_none_or(|missed| limit < missed).then_some(limit)
    }

    /// Forgets that rates from this one on were met, because this rate was missed.
    pub(super) fn forget_met_from(&mut self, rate_per_s: f64) {
        self.known.retain(|known| !known.is_below || known.rate_per_s < rate_per_s);
    }

    /// Forgets that rates up to this one were missed, because this rate was met.
    pub(super) fn forget_not_met_up_to(&mut self, rate_per_s: f64) {
        self.known.retain(|known| known.is_below || known.rate_per_s > rate_per_s);
    }
}

fn highest<'a>(known: impl Iterator<Item = &'a ExaminedRate>) -> Option<f64> {
    known.map(|known| known.rate_per_s).reduce(f64::max)
}

fn lowest<'a>(known: impl Iterator<Item = &'a ExaminedRate>) -> Option<f64> {
    known.map(|known| known.rate_per_s).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bracket(known: &[(f64, ObjectiveOutcome, bool)]) -> Bracket {
        let mut bracket = Bracket::default();
        for &(rate_per_s, outcome, is_below) in known {
            bracket.add(ExaminedRate { rate_per_s, outcome, is_below });
        }
        bracket
    }

    #[test]
    fn the_answer_lies_between_guesses_and_the_interval_between_certain_results() {
        use ObjectiveOutcome::{Met, Missed, Undecided};
        let known = [(100.0, Met, true), (200.0, Missed, false), (150.0, Undecided, true), (160.0, Undecided, false)];
        let bracket = bracket(&known);
        assert_eq!((bracket.lower(), bracket.upper()), (Some(150.0), Some(160.0)));
        assert_eq!((bracket.surely_met(), bracket.surely_missed()), (Some(100.0), Some(200.0)));
        assert_eq!(bracket.generator_limit(), None);
    }

    #[test]
    fn contradicted_results_are_forgotten() {
        use ObjectiveOutcome::{Met, Missed};
        let mut bracket =
            bracket(&[(100.0, Met, true), (110.0, Missed, false), (50.0, Met, true), (200.0, Missed, false)]);
        bracket.forget_not_met_up_to(121.0);
        assert_eq!((bracket.lower(), bracket.upper()), (Some(100.0), Some(200.0)));
        bracket.forget_met_from(90.0);
        bracket.add(ExaminedRate { rate_per_s: 90.0, outcome: Missed, is_below: false });
        assert_eq!((bracket.lower(), bracket.upper()), (Some(50.0), Some(90.0)));
    }

    #[test]
    fn the_generator_is_the_limit_unless_the_server_is_one_at_less() {
        use ObjectiveOutcome::{GeneratorLimited, Met, Missed};
        let known = [(100.0, Met, true), (300.0, GeneratorLimited, false)];
        assert_eq!(bracket(&known).generator_limit(), Some(300.0));
        let mut bracket = bracket(&known);
        bracket.add(ExaminedRate { rate_per_s: 200.0, outcome: Missed, is_below: false });
        assert_eq!(bracket.generator_limit(), None);
    }
}
