//! Frames of stored pages of a real proxy: `pages` has two, recorded four seconds apart, without their HELP lines. In between, one of
//! its two memcached servers was killed. The load was 200 requests per second.

use super::*;
use crate::fetch::FetchError;
use crate::reading::Reading;
use crate::text::parse;
use crate::watch::{Outcome, Settings};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

const PAGES: [&str; 2] = [include_str!("pages/proxy-1.txt"), include_str!("pages/proxy-2.txt")];
const SECOND: u64 = 1_000_000_000;

fn states(targets: &[&str]) -> Vec<State> {
    let settings = Settings {
        targets: targets.iter().map(|text| text.parse().unwrap()).collect(),
        token: None,
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(2),
    };
    State::all(&settings, Nanos(SECOND))
}

fn outcome(index: usize, second: u64, page: &str) -> Outcome {
    let at = Nanos(second * SECOND);
    let result = parse(page).map(|samples| Reading { at, samples }).map_err(Into::into);
    Outcome { index, ended: at, result }
}

/// A proxy at each target, read twice.
fn read_twice(targets: &[&str]) -> Vec<State> {
    let mut states = states(targets);
    for index in 0..targets.len() {
        State::take(&mut states, outcome(index, 2, PAGES[0]));
        State::take(&mut states, outcome(index, 6, PAGES[1]));
    }
    states
}

fn view(mode: Mode) -> View {
    View { mode, theme: Theme { has_colours: true }, first_column: 0, first_line: 0 }
}

/// The text of a frame in a terminal of this size.
fn frame(view: &mut View, states: &[State], width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| view.draw(states, Nanos(8 * SECOND), frame.area(), frame.buffer_mut());
    terminal.draw(draw).unwrap();
    let buffer = terminal.backend().buffer();
    let text = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(text).collect()
}

/// The number after a name in a frame.
fn number(frame: &[String], name: &str) -> f64 {
    let rest = frame.iter().find_map(|line| line.split_once(name)).unwrap_or_else(|| panic!("{name}: {frame:#?}")).1;
    let digits: String =
        rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '.' || *c == ' ').collect();
    digits.split("  ").next().unwrap().replace(' ', "").parse().unwrap_or_else(|_| panic!("{name}: {frame:#?}"))
}

fn has(frame: &[String], words: &[&str]) -> bool {
    frame.iter().any(|line| words.iter().all(|word| line.contains(word)))
}

#[test]
fn a_usual_terminal_shows_the_load_and_what_is_down() {
    let states = read_twice(&["127.0.0.1:9150"]);
    let frame = frame(&mut view(Mode::Apart), &states, 80, 24);
    assert!((number(&frame, "requests/s") - 200.0).abs() < 10.0, "{frame:#?}");
    assert!(number(&frame, "errors/s") > 10.0);
    assert!(has(&frame, &["proxy 127.0.0.1:9150", "per-backend"]), "{frame:#?}");
    assert!(has(&frame, &["last 4.0 s"]), "{frame:#?}");
    assert!(has(&frame, &["total time", "p50", "p99", "0 ", "to "]), "{frame:#?}");
    assert!(has(&frame, &["backend", "░"]), "{frame:#?}");
    assert!(has(&frame, &["q quit", "more lines"]), "{frame:#?}");
    assert!(!has(&frame, &["s sum"]), "{frame:#?}");
}

#[test]
fn a_tall_terminal_shows_everything() {
    let states = read_twice(&["127.0.0.1:9150"]);
    let frame = frame(&mut view(Mode::Apart), &states, 80, 80);
    for words in [
        &["127.0.0.1:21102", "down"][..],
        &["127.0.0.1:21101", "up"],
        &["backend_down"],
        &["queue", "waiting", "slots busy"],
        &["hot key", "req/s", "share"],
    ] {
        assert!(has(&frame, words), "{words:?}: {frame:#?}");
    }
    assert!(!has(&frame, &["more lines"]));
    let line = |text: &str| frame.iter().position(|line| line.contains(text)).unwrap();
    assert!(line("127.0.0.1:21102") < line("127.0.0.1:21101"), "a server that is down comes first");
}

#[test]
fn scrolling_stops_at_both_ends() {
    let states = read_twice(&["127.0.0.1:9150"]);
    let mut view = view(Mode::Apart);
    let top = frame(&mut view, &states, 80, 24);
    view.first_line = 1;
    let next = frame(&mut view, &states, 80, 24);
    assert_eq!(top[2..23], next[1..22]);
    view.first_line = 100_000;
    let end = frame(&mut view, &states, 80, 24);
    assert!(has(&end, &["hot key"]) && has(&end, &["0 more lines"]), "{end:#?}");
    view.first_line -= 1;
    assert_ne!(frame(&mut view, &states, 80, 24), end, "one line up is one line up");
}

#[test]
fn targets_are_side_by_side_or_added_up() {
    let mut states = read_twice(&["a:1", "b:2", "c:3"]);
    let mut view = view(Mode::Apart);
    let two = frame(&mut view, &states, 90, 24);
    assert!(
        has(&two, &["proxy a:1", "proxy b:2"]) && has(&two, &["1 to 2 of 3"]) && has(&two, &["s sum", "left, right"]),
        "{two:#?}"
    );
    view.first_column = 100;
    let last = frame(&mut view, &states, 90, 24);
    assert!(has(&last, &["proxy b:2", "proxy c:3"]) && has(&last, &["2 to 3 of 3"]), "{last:#?}");

    view.mode = Mode::Sum;
    let sum = frame(&mut view, &states, 90, 60);
    assert!(has(&sum, &["proxy: sum of 3"]) && has(&sum, &["s apart"]), "{sum:#?}");
    assert!((number(&sum, "requests/s") - 600.0).abs() < 30.0, "{sum:#?}");

    // One of them stops answering.
    State::take(&mut states, Outcome { index: 1, ended: Nanos(7 * SECOND), result: Err(FetchError::NotHttp.into()) });
    let sum = frame(&mut view, &states, 90, 60);
    assert!(has(&sum, &["proxy: sum of 2 of 3"]), "{sum:#?}");
    assert!(has(&sum, &["b:2: no figures for 2 s: the reply is not HTTP"]), "{sum:#?}");
    assert!((number(&sum, "requests/s") - 400.0).abs() < 20.0, "{sum:#?}");
    view.mode = Mode::Apart;
    let apart = frame(&mut view, &states, 150, 60);
    assert!(
        has(&apart, &["proxy a:1", "proxy b:2", "proxy c:3"]) && has(&apart, &["no figures for 2 s"]),
        "{apart:#?}"
    );
}

#[test]
fn a_server_that_is_down_for_one_of_two_proxies_is_shown_so() {
    let mut states = states(&["a:1", "b:2"]);
    State::take(&mut states, outcome(0, 2, PAGES[0]));
    State::take(&mut states, outcome(1, 2, PAGES[1]));
    let sum = frame(&mut view(Mode::Sum), &states, 90, 60);
    assert!(has(&sum, &["127.0.0.1:21102", "down at 1 of 2"]), "{sum:#?}");
}

#[test]
fn a_page_of_another_program_is_said_to_be_one() {
    let mut states = states(&["a:1", "b:2"]);
    State::take(&mut states, outcome(0, 2, "# TYPE go_goroutines gauge\ngo_goroutines 7\n"));
    State::take(&mut states, outcome(1, 2, "<!DOCTYPE html>\n<html>\u{1b}[2J</html>"));
    for mode in [Mode::Apart, Mode::Sum] {
        let shown = frame(&mut view(mode), &states, 250, 20).join(" ");
        assert!(shown.contains("this is no page of a proxy"), "{shown}");
        assert!(shown.contains("line 1 of the page is not a metric: \"<!DOCTYPE html>\""), "{shown}");
    }
}

#[test]
fn no_size_of_a_terminal_is_a_panic() {
    let mut states = read_twice(&["127.0.0.1:9150", "b:2"]);
    State::take(&mut states, Outcome { index: 1, ended: Nanos(7 * SECOND), result: Err(FetchError::Short.into()) });
    for mode in [Mode::Apart, Mode::Sum] {
        for (width, height) in (1..100).map(|width| (width, 24)).chain((1..40).map(|height| (80, height))) {
            let mut view = view(mode);
            (view.first_line, view.first_column) = (3, 1);
            let lines = frame(&mut view, &states, width, height);
            assert!(lines.iter().any(|line| !line.is_empty()), "{width} x {height}");
        }
    }
}

#[test]
fn text_has_every_column_and_no_escape_sequences() {
    let states = read_twice(&["a:1", "b:2"]);
    let text = plain(&states, Mode::Apart, Nanos(8 * SECOND), 80);
    assert!(text.contains("proxy a:1") && text.contains("\n\nproxy b:2"), "{text}");
    assert!(!text.contains('\u{1b}') && text.ends_with('\n'));
    assert!(text.lines().all(|line| line.chars().count() <= 80 && !line.ends_with(' ')), "{text}");
}
