//! Reads the pages of all targets, each on a thread of its own, so that a slow one delays no other.

use crate::fetch::{FetchError, fetch};
use crate::programs::Program;
use crate::reading::{Interval, Reading, has_restarted};
use crate::target::Target;
use crate::text::{TextError, parse};
use clock::{Clock, Nanos};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How much later than expected the next reading may be before the target counts as silent.
const SLACK: Duration = Duration::from_secs(1);

/// What is read, and how often. It cannot be printed, because of the token.
#[derive(Clone)]
pub struct Settings {
    /// The pages. At least one.
    pub targets: Vec<Target>,
    /// Sent as a bearer token with every request.
    pub token: Option<String>,
    /// The time between the starts of two readings of a target.
    pub interval: Duration,
    /// The time limit of one reading.
    pub timeout: Duration,
}

/// Why a target has no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Text(#[from] TextError),
}

/// The outcome of one reading.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The index of the target.
    pub(crate) index: usize,
    pub(crate) ended: Nanos,
    pub(crate) result: Result<Reading, Fault>,
}

/// Threads that read until this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    outcomes: Receiver<Outcome>,
    /// Dropped to stop the threads, which wait on the other ends.
    _stops: Vec<Sender<()>>,
}

/// What is known of a target.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) target: Target,
    pub(crate) health: Health,
    /// The program whose page was the last one; None if it was a page of another program.
    pub(crate) program: Option<Program>,
    last: Option<Reading>,
    /// None while the target does not answer.
    pub(crate) interval: Option<Interval>,
    /// The number of outcomes so far.
    pub(crate) outcomes: u32,
    heard: Nanos,
    patience: Duration,
}

/// Whether a target answers.
#[derive(Debug)]
pub(crate) enum Health {
    /// There has been no outcome yet.
    Starting,
    Answers,
    /// The process is another one than at the reading before.
    Restarted,
    Silent {
        since: Nanos,
        fault: String,
    },
}

impl Watch {
    /// Starts the threads.
    pub(crate) fn start(settings: &Settings, clock: &Clock) -> std::io::Result<Watch> {
        let (sender, outcomes) = channel();
        let mut stops = Vec::new();
        for index in 0..settings.targets.len() {
            let (stop, stopped) = channel();
            stops.push(stop);
            let (settings, sender, clock) = (settings.clone(), sender.clone(), clock.clone());
            let read = move || read_often(index, &settings, &clock, &sender, &stopped);
            std::thread::Builder::new().name(format!("target-{index}")).spawn(read)?;
        }
        Ok(Watch { outcomes, _stops: stops })
    }

    /// The next outcome, if there is one within `wait`.
    pub(crate) fn next(&self, wait: Duration) -> Option<Outcome> {
        self.outcomes.recv_timeout(wait).ok()
    }
}

fn read_often(index: usize, settings: &Settings, clock: &Clock, sender: &Sender<Outcome>, stopped: &Receiver<()>) {
    loop {
        let started = clock.now();
        let fetched = fetch(&settings.targets[index], settings.token.as_deref(), settings.timeout, clock);
        let result = fetched.map_err(Fault::from).and_then(|page| {
            let samples = parse(&page.text)?;
            Ok(Reading { at: page.at, samples })
        });
        if sender.send(Outcome { index, ended: clock.now(), result }).is_err() {
            return;
        }
        let wait = (started + settings.interval).after(clock.now());
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

impl State {
    /// The states of all targets before the first outcome.
    pub(crate) fn all(settings: &Settings, now: Nanos) -> Vec<State> {
        let state = |target: &Target| State {
            target: target.clone(),
            health: Health::Starting,
            program: None,
            last: None,
            interval: None,
            outcomes: 0,
            heard: now,
            patience: settings.interval + settings.timeout + SLACK,
        };
        settings.targets.iter().map(state).collect()
    }

    /// Takes over an outcome, into the state of its target.
    pub(crate) fn take(states: &mut [State], outcome: Outcome) {
        let Some(state) = states.get_mut(outcome.index) else { return };
        state.outcomes = state.outcomes.saturating_add(1);
        match outcome.result {
            Ok(reading) => {
                let restarted = state.last.as_ref().is_some_and(|last| has_restarted(last, &reading));
                let earlier = state.last.as_ref().filter(|_| !restarted);
                let interval = Interval::between(earlier, &reading);
                state.program = Program::of(&interval);
                state.interval = Some(interval);
                state.health = if restarted { Health::Restarted } else { Health::Answers };
                state.last = Some(reading);
            }
            Err(fault) => state.fall_silent(fault.to_string()),
        }
        state.heard = outcome.ended;
    }

    /// Marks targets of which there has been no outcome for too long, because the system resolves their name.
    pub(crate) fn check(states: &mut [State], now: Nanos) {
        for state in states {
            if now > state.heard + state.patience {
                state.fall_silent("the reading does not end".into());
            }
        }
    }

    fn fall_silent(&mut self, fault: String) {
        let since = match self.health {
            Health::Silent { since, .. } => since,
            Health::Starting | Health::Answers | Health::Restarted => self.heard,
        };
        self.health = Health::Silent { since, fault };
        self.interval = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn states() -> Vec<State> {
        let settings = Settings {
            targets: vec!["a:1".parse().unwrap()],
            token: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
        };
        State::all(&settings, Nanos(SECOND))
    }

    fn answer(second: u64, count: u32) -> Outcome {
        let at = Nanos(second * SECOND);
        let samples = parse(&format!("# TYPE a counter\na {count}\n")).unwrap();
        Outcome { index: 0, ended: at, result: Ok(Reading { at, samples }) }
    }

    fn failure(second: u64) -> Outcome {
        Outcome { index: 0, ended: Nanos(second * SECOND), result: Err(FetchError::NotHttp.into()) }
    }

    fn rate(states: &[State]) -> Option<f64> {
        states[0].interval.as_ref()?.per_s("a")
    }

    #[test]
    fn a_target_that_comes_back_has_the_rate_of_the_whole_gap() {
        let mut states = states();
        State::take(&mut states, answer(2, 100));
        assert_eq!(rate(&states), None);
        State::take(&mut states, answer(3, 110));
        assert_eq!(rate(&states), Some(10.0));
        for second in [4, 5] {
            State::take(&mut states, failure(second));
            assert!(states[0].interval.is_none());
            assert!(matches!(states[0].health, Health::Silent { since: Nanos(3_000_000_000), .. }), "{states:?}");
        }
        State::take(&mut states, answer(7, 150));
        assert_eq!(rate(&states), Some(10.0));
        assert!(matches!(states[0].health, Health::Answers));
    }

    #[test]
    fn a_restarted_target_has_no_rate_until_the_next_reading() {
        let mut states = states();
        State::take(&mut states, answer(2, 100));
        State::take(&mut states, answer(3, 40));
        assert!(matches!(states[0].health, Health::Restarted));
        assert_eq!(rate(&states), None);
        State::take(&mut states, answer(4, 50));
        assert_eq!(rate(&states), Some(10.0));
        assert!(matches!(states[0].health, Health::Answers));
    }

    #[test]
    fn a_reading_that_does_not_end_is_silence() {
        let mut states = states();
        State::take(&mut states, answer(2, 100));
        State::check(&mut states, Nanos(6 * SECOND));
        assert!(states[0].interval.is_some());
        State::check(&mut states, Nanos(6 * SECOND + 1));
        assert!(states[0].interval.is_none());
        assert!(matches!(states[0].health, Health::Silent { since: Nanos(2_000_000_000), .. }));
    }
}
