//! A whole frame: on a screen, or as plain text.

use crate::column::{Column, Mode, columns};
use crate::lines::{FAINT, HEADING, Theme, end_cut, lines};
use crate::watch::State;
use clock::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// The smallest width of a column beside another one.
const COLUMN_MIN: u16 = 42;
const GAP: u16 = 2;
const TITLE: &str = "waystage top";

/// What the keys have changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) mode: Mode,
    pub(crate) theme: Theme,
    /// The first column and the first line that are shown. Drawing limits both to what there is.
    pub(crate) first_column: usize,
    pub(crate) first_line: usize,
}

impl View {
    /// Draws a frame.
    pub(crate) fn draw(&mut self, states: &[State], now: Nanos, area: Rect, buffer: &mut Buffer) {
        if area.width == 0 || area.height == 0 {
            return;
        }
        let columns = columns(states, self.mode, now);
        let most = ((area.width + GAP) / (COLUMN_MIN + GAP)).max(1);
        let shown = usize::from(most).min(columns.len());
        self.first_column = self.first_column.min(columns.len() - shown);
        let first = self.first_column;
        let count = u16::try_from(shown).unwrap_or(1).max(1);
        let width = (area.width - GAP * (count - 1)) / count;
        // A line each for the title and for the keys, if there is room for more than these.
        let height = if area.height > 4 { area.height - 2 } else { area.height };
        let parts = columns.iter().skip(first).take(shown);
        let parts: Vec<Vec<Line<'_>>> =
            parts.map(|column| fitting(column, usize::from(width), self.theme, usize::from(height))).collect();
        let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
        self.first_line = self.first_line.min(longest.saturating_sub(usize::from(height)));
        let top = area.y + u16::from(area.height > 4);
        for (column, part) in (0..).zip(&parts) {
            let x = area.x + column * (width + GAP);
            for (y, line) in (top..top + height).zip(part.iter().skip(self.first_line)) {
                buffer.set_line(x, y, line, width);
            }
        }
        if area.height > 4 {
            let room = usize::from(area.width);
            let columns_shown = format!("{} to {} of {}", first + 1, first + shown, columns.len());
            let title = if shown < columns.len() { format!("{TITLE}  {columns_shown}") } else { TITLE.into() };
            buffer.set_stringn(area.x, area.y, title, room, HEADING);
            let rest = longest.saturating_sub(self.first_line + usize::from(height));
            let keys = self.keys(states.len() > 1, shown < columns.len(), rest);
            buffer.set_stringn(area.x, area.bottom() - 1, end_cut(&keys, room), room, FAINT);
        }
    }

    fn keys(&self, has_several: bool, has_more: bool, lines_below: usize) -> String {
        let mut keys = vec!["q quit".to_owned()];
        if has_several {
            keys.push(if self.mode == Mode::Apart { "s sum" } else { "s apart" }.into());
        }
        if has_more {
            keys.push("left, right".into());
        }
        if lines_below > 0 || self.first_line > 0 {
            keys.push(format!("up, down ({lines_below} more lines)"));
        }
        keys.join("   ")
    }
}

/// The lines of a column, with space between its panels if they fit nevertheless.
fn fitting(column: &Column, width: usize, theme: Theme, height: usize) -> Vec<Line<'static>> {
    let spaced = lines(column, width, theme, true);
    if spaced.len() <= height { spaced } else { lines(column, width, theme, false) }
}

/// A frame as text: all columns, one below the other.
pub(crate) fn plain(states: &[State], mode: Mode, now: Nanos, width: usize) -> String {
    let theme = Theme { has_colours: false };
    let columns = columns(states, mode, now);
    let columns = columns.iter().map(|column| {
        let lines = lines(column, width, theme, true);
        lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect::<String>()
    });
    columns.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
