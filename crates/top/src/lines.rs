//! A column as lines of a given width.

use crate::column::Column;
use crate::format::{UNKNOWN, number, quantile, time};
use crate::panel::{Number, Panel, Row, Tone};
use crate::reading::Times;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The width of a name with its number, and of the space after it.
const NUMBER_CELL: usize = 25;
const NUMBER_NAME: usize = 12;
/// The widths of the columns of times. The bar has the rest.
const TIMES_NAME: usize = 14;
const TIMES_NUMBER: usize = 9;
/// The smallest bar that is worth its space.
const BAR_MIN: usize = 8;
/// The widths that the first column of a table has if it can.
const TABLE_NAME_MIN: usize = 12;
const TABLE_NAME: usize = 22;
const GAP: usize = 2;

/// The styles of a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) has_colours: bool,
}

impl Theme {
    fn colour(self, style: Style, colour: Color) -> Style {
        if self.has_colours { style.fg(colour) } else { style }
    }

    /// The colours are Okabe and Ito's orange and vermilion, and sky blue for bars, in the palette of 256. Words say the same.
    fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Warning => self.colour(Style::new().add_modifier(Modifier::BOLD), Color::Indexed(214)),
            Tone::Down => self.colour(Style::new().add_modifier(Modifier::BOLD), Color::Indexed(202)),
        }
    }

    fn bar(self) -> Style {
        self.colour(Style::new(), Color::Indexed(74))
    }
}

pub(crate) const HEADING: Style = Style::new().add_modifier(Modifier::BOLD);
pub(crate) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// The lines of a column, each at most `width` wide. Panels have a line between them if `is_spaced`.
pub(crate) fn lines(column: &Column, width: usize, theme: Theme, is_spaced: bool) -> Vec<Line<'static>> {
    let mut lines = vec![styled(end_cut(&column.title, width), HEADING)];
    for (text, tone) in &column.notes {
        lines.extend(wrapped(text, width).into_iter().map(|line| styled(line, theme.tone(*tone))));
    }
    if let Some(seconds) = column.seconds {
        let text = format!("last {seconds:.1} s; p50 and p99 interpolated in buckets");
        lines.push(styled(end_cut(&text, width), FAINT));
    }
    for panel in &column.panels {
        if is_spaced {
            lines.push(Line::default());
        }
        match panel {
            Panel::Numbers(numbers) => lines.extend(number_lines(numbers, width, theme)),
            Panel::Times { title, rows } => lines.extend(times_lines(title, rows, width, theme)),
            Panel::Table { header, rows } => lines.extend(table_lines(header, rows, width, theme)),
        }
    }
    lines
}

fn styled(text: String, style: Style) -> Line<'static> {
    Line::from(Span::styled(text, style))
}

/// As many numbers in a line as there is room for.
fn number_lines(numbers: &[Number], width: usize, theme: Theme) -> Vec<Line<'static>> {
    let in_a_line = ((width + GAP) / NUMBER_CELL).max(1);
    let cell = |number: &Number| {
        // Half of a very narrow column.
        let name_width = NUMBER_NAME.min(width / 2);
        let room = (NUMBER_CELL - GAP).min(width) - name_width;
        let text = format!("{:>room$}{:GAP$}", end_cut(&number.text, room), "");
        let name = end_cut(number.name, name_width);
        [Span::styled(format!("{name:name_width$}"), FAINT), Span::styled(text, theme.tone(number.tone))]
    };
    numbers.chunks(in_a_line).map(|some| Line::from_iter(some.iter().flat_map(cell))).collect()
}

/// The quantiles of each row. In a bar, the full part ends at p50, and the light part at p99.
fn times_lines(title: &str, rows: &[(String, Option<Times>)], width: usize, theme: Theme) -> Vec<Line<'static>> {
    let longest = rows.iter().filter_map(|(_, times)| times.map(|times| times.p99.seconds)).fold(0.0, f64::max);
    let bar = width.saturating_sub(TIMES_NAME + 3 * TIMES_NUMBER + GAP);
    let bar = if bar < BAR_MIN { 0 } else { bar };
    let columns = |name: &str, numbers: [String; 3]| {
        // Without room for all, the rate goes first.
        let is_narrow = width < TIMES_NAME + 3 * TIMES_NUMBER;
        let [per_s, p50, p99] = numbers.map(|text| format!("{text:>TIMES_NUMBER$}"));
        let per_s = if is_narrow { String::new() } else { per_s };
        format!("{}{per_s}{p50}{p99}", padded(&end_cut(name, TIMES_NAME), TIMES_NAME))
    };
    let mut heading = columns(title, ["per s".into(), "p50".into(), "p99".into()]);
    if bar > 0 && longest > 0.0 {
        let to = format!("to {}", time(longest));
        heading += &format!("{:GAP$}0{to:>rest$}", "", rest = bar - 1);
    }
    let mut lines = vec![styled(end_cut(&heading, width), HEADING)];
    for (name, times) in rows {
        let Some(Times { per_s, p50, p99 }) = times else {
            let text = columns(name, [UNKNOWN.into(), UNKNOWN.into(), UNKNOWN.into()]);
            lines.push(styled(end_cut(&text, width), Style::new()));
            continue;
        };
        let text = columns(name, [number(*per_s), quantile(*p50), quantile(*p99)]);
        let length = |seconds: f64| ((seconds / longest * bar as f64).round() as usize).min(bar);
        let (full, all) = if longest > 0.0 { (length(p50.seconds), length(p99.seconds)) } else { (0, 0) };
        let shape = format!("{:GAP$}{}{}", "", "█".repeat(full), "░".repeat(all.saturating_sub(full)));
        let mut spans = vec![Span::raw(end_cut(&text, width))];
        if bar > 0 {
            spans.push(Span::styled(shape, theme.bar()));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// A table. Columns without room are left out, from the right.
fn table_lines(header: &[&'static str], rows: &[Row], width: usize, theme: Theme) -> Vec<Line<'static>> {
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| width_of(cell));
        cells.chain([width_of(header[column])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(widest).collect();
    let mut shown = header.len();
    let room = |shown: usize| width.saturating_sub(widths[1..shown].iter().map(|width| width + GAP).sum());
    while shown > 2 && room(shown) < widths[0].min(TABLE_NAME_MIN) {
        shown -= 1;
    }
    let name = widths[0].max(TABLE_NAME).min(room(shown));
    let line = |cells: &[&str]| {
        let mut text = padded(&start_cut(cells.first().copied().unwrap_or_default(), name), name);
        for column in 1..shown {
            let cell = cells.get(column).copied().unwrap_or_default();
            let space = " ".repeat(widths[column] - width_of(cell).min(widths[column]));
            let gap = " ".repeat(GAP);
            text += &if header[column] == "state" { gap + cell + &space } else { gap + &space + cell };
        }
        end_cut(&text, width)
    };
    let mut lines = vec![styled(line(header), HEADING)];
    lines.extend(rows.iter().map(|row| {
        let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
        styled(line(&cells), theme.tone(row.tone))
    }));
    lines
}

fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(width_of(text))))
}

/// The text without its end, if it is wider than `width`.
pub(crate) fn end_cut(text: &str, width: usize) -> String {
    match cut(text, width, text.chars()) {
        Some(kept) => kept.into_iter().collect(),
        None => text.to_owned(),
    }
}

/// The text without its beginning, if it is wider than `width`: ports, and the parts in which keys differ, are at the end.
fn start_cut(text: &str, width: usize) -> String {
    match cut(text, width, text.chars().rev()) {
        Some(kept) => kept.into_iter().rev().collect(),
        None => text.to_owned(),
    }
}

/// The characters that fit, and a sign for those that do not; None if all fit.
fn cut(text: &str, width: usize, characters: impl Iterator<Item = char>) -> Option<Vec<char>> {
    if width_of(text) <= width {
        return None;
    }
    let (mut kept, mut used) = (Vec::new(), 1);
    for character in characters {
        used += width_of(character.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        kept.push(character);
    }
    kept.extend((width > 0).then_some('…'));
    Some(kept)
}

/// The text in lines, broken between words where possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| width_of(line));
        match lines.last_mut() {
            Some(last) if line == 0 => last.push_str(word),
            Some(last) if line + 1 + width_of(word) <= width => *last += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| end_cut(&line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantile::Quantile;

    fn times(p50: f64, p99: f64) -> Option<Times> {
        let at = |seconds| Quantile { seconds, is_beyond: false };
        Some(Times { per_s: 1234.0, p50: at(p50), p99: at(p99) })
    }

    fn text(lines: Vec<Line<'static>>) -> Vec<String> {
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    const PLAIN: Theme = Theme { has_colours: false };

    #[test]
    fn bars_end_at_p50_and_p99() {
        let rows =
            [("queue".into(), times(0.002, 0.004)), ("backend".into(), times(0.0, 0.001)), ("send".into(), None)];
        assert_eq!(
            text(times_lines("stage", &rows, 63, PLAIN)),
            [
                "stage             per s      p50      p99  0         to 4.00 ms",
                "queue             1 234  2.00 ms  4.00 ms  ██████████░░░░░░░░░░",
                "backend           1 234      0 s  1.00 ms  ░░░░░",
                "send                  -        -        -",
            ]
        );
        assert_eq!(text(times_lines("stage", &rows[1..2], 44, PLAIN))[1], "backend           1 234      0 s  1.00 ms");
        assert_eq!(text(times_lines("stage", &rows[1..2], 34, PLAIN))[1], "backend             0 s  1.00 ms");
    }

    #[test]
    fn tables_leave_out_what_has_no_room() {
        let row = |name: &str| Row { cells: vec![name.into(), "up".into(), "12".into()], tone: Tone::Plain };
        let rows = [row("10.0.0.1:11211"), row("a-server-with-a-long-name.example:11211")];
        let table = |width| text(table_lines(&["backend", "state", "req/s"], &rows, width, PLAIN));
        assert_eq!(table(60)[2], "a-server-with-a-long-name.example:11211  up        12");
        assert_eq!(table(40)[2], "…a-long-name.example:11211  up        12");
        assert_eq!(table(22), ["backend          state", "10.0.0.1:11211   up", "….example:11211  up"]);
    }

    #[test]
    fn no_width_is_a_panic_or_too_wide() {
        let column = Column {
            title: "proxy 127.0.0.1:9150".into(),
            notes: vec![("no figures for 12 s: 接続 refused".into(), Tone::Down)],
            seconds: Some(1.0),
            panels: vec![
                Panel::Numbers(vec![
                    Number::plain("requests/s", "48 213".into()),
                    Number::plain("clients", "3/1 024".into()),
                ]),
                Panel::Times {
                    title: "stage".into(),
                    rows: vec![("接続接続接続接続".into(), times(1.0, 2.0)), ("b".into(), None)],
                },
                Panel::Table {
                    header: vec!["hot key", "req/s", "share"],
                    rows: vec![Row {
                        cells: vec!["ключ\u{301}接続".into(), "1".into(), "1 %".into()],
                        tone: Tone::Warning,
                    }],
                },
            ],
        };
        for width in 1..100 {
            for line in lines(&column, width, Theme { has_colours: true }, true) {
                assert!(line.to_string().trim_end().chars().count() <= width.max(1), "{width}: {line}");
            }
        }
        assert!(lines(&column, 0, PLAIN, false).len() > 3);
    }

    #[test]
    fn colours_are_optional() {
        let colours = |has_colours| Theme { has_colours }.tone(Tone::Down).fg;
        assert_eq!((colours(false), colours(true).is_some()), (None, true));
    }
}
