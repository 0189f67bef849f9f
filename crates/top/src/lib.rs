//! A view of running programs: it reads their pages of metrics again and again, and shows rates, times, and what is down.
//! docs/top.md describes it.

mod column;
mod fetch;
mod format;
mod keys;
mod lines;
mod panel;
mod programs;
mod quantile;
mod reading;
mod screen;
mod target;
mod text;
mod view;
mod watch;

pub use target::Target;
pub use watch::Settings;

use clock::Clock;
use column::Mode;
use std::io;
use std::time::Duration;
use watch::{Health, State, Watch};

/// How often `once` looks whether all readings have ended.
const WAIT: Duration = Duration::from_millis(100);
/// Rates need two readings.
const READINGS: u32 = 2;

/// Shows the targets in the terminal of standard output until a key or a signal ends the view: side by side, or added up.
///
/// # Errors
/// If the terminal cannot be used.
pub fn show(settings: &Settings, is_sum: bool, has_colours: bool) -> io::Result<()> {
    screen::show(settings, mode(is_sum), has_colours)
}

/// Reads every target twice. Returns one frame of plain text, `width` wide, and whether all targets have answered with a page of a
/// program of the project.
///
/// # Errors
/// If no thread can be started.
pub fn once(settings: &Settings, is_sum: bool, width: usize) -> io::Result<(String, bool)> {
    let clock = Clock::monotonic();
    let watch = Watch::start(settings, &clock)?;
    let mut states = State::all(settings, clock.now());
    let is_done = |state: &State| state.outcomes >= READINGS || (state.outcomes == 0 && is_silent(state));
    while !states.iter().all(is_done) {
        if let Some(outcome) = watch.next(WAIT) {
            State::take(&mut states, outcome);
        }
        State::check(&mut states, clock.now());
    }
    let is_whole = states.iter().all(|state| !is_silent(state) && state.program.is_some());
    Ok((view::plain(&states, mode(is_sum), clock.now(), width), is_whole))
}

fn is_silent(state: &State) -> bool {
    matches!(state.health, Health::Silent { .. })
}

fn mode(is_sum: bool) -> Mode {
    if is_sum { Mode::Sum } else { Mode::Apart }
}
