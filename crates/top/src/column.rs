//! The columns of a view: one for each target, or one for all targets that run the same program.

use crate::panel::{Panel, Tone};
use crate::programs::Program;
use crate::reading::Interval;
use crate::watch::{Health, State};
use clock::Nanos;

/// How several targets are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Apart,
    Sum,
}

/// One column.
#[derive(Debug, Default)]
pub(crate) struct Column {
    pub(crate) title: String,
    /// What is to be said of the targets, such as that one does not answer.
    pub(crate) notes: Vec<(String, Tone)>,
    /// The length of the interval of the rates. None: there are none yet.
    pub(crate) seconds: Option<f64>,
    pub(crate) panels: Vec<Panel>,
}

/// The columns of all targets.
pub(crate) fn columns(states: &[State], mode: Mode, now: Nanos) -> Vec<Column> {
    match mode {
        Mode::Apart => states.iter().map(|state| apart(state, now)).collect(),
        Mode::Sum => {
            let programs = Program::ALL.into_iter().map(Some).chain([None]);
            programs.filter_map(|program| sum(states, program, now)).collect()
        }
    }
}

fn apart(state: &State, now: Nanos) -> Column {
    let name = state.target.name();
    let mut column = Column { notes: note(state, now).into_iter().collect(), ..Column::default() };
    column.title = match (state.program, &state.interval) {
        (Some(program), Some(interval)) => {
            (column.seconds, column.panels) = (interval.seconds, program.panels(interval));
            format!("{} {name}  {}", program.name(), program.build(interval)).trim_end().to_owned()
        }
        (Some(program), None) => format!("{} {name}", program.name()),
        (None, _) => name,
    };
    column
}

/// The column of all targets that run a program. None if no target does.
fn sum(states: &[State], program: Option<Program>, now: Nanos) -> Option<Column> {
    let members: Vec<&State> = states.iter().filter(|state| state.program == program).collect();
    if members.is_empty() {
        return None;
    }
    let name = |state: &&State| state.target.name();
    let notes = members.iter().filter_map(|state| {
        let (text, tone) = note(state, now)?;
        Some((format!("{}: {text}", name(state)), tone))
    });
    let mut column = Column { notes: notes.collect(), ..Column::default() };
    let mut intervals = members.iter().filter_map(|state| state.interval.as_ref());
    let answering = intervals.clone().count();
    if let (Some(program), Some(first)) = (program, intervals.next()) {
        let mut total: Interval = first.clone();
        intervals.for_each(|other| total.add(other));
        (column.seconds, column.panels) = (total.seconds, program.panels(&total));
    }
    let kind = program.map_or("unknown", Program::name);
    column.title = match members.as_slice() {
        [only] => format!("{kind} {}", name(only)),
        all if answering == all.len() => format!("{kind}: sum of {answering}"),
        all => format!("{kind}: sum of {answering} of {}", all.len()),
    };
    Some(column)
}

/// What is to be said of a target; None if it has all its figures.
fn note(state: &State, now: Nanos) -> Option<(String, Tone)> {
    Some(match (&state.health, &state.interval) {
        (Health::Starting, _) => ("waiting for the first reading".into(), Tone::Plain),
        (Health::Silent { since, fault }, _) => {
            (format!("no figures for {} s: {fault}", now.since(*since) / 1_000_000_000), Tone::Down)
        }
        (Health::Restarted, _) => ("restarted; rates follow with the next reading".into(), Tone::Warning),
        (Health::Answers, _) if state.program.is_none() => {
            ("this is no page of a proxy, a message service or a load generator".into(), Tone::Warning)
        }
        (Health::Answers, Some(interval)) if interval.seconds.is_none() => {
            ("rates follow with the next reading".into(), Tone::Plain)
        }
        (Health::Answers, _) => return None,
    })
}
