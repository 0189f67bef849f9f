//! What a view shows of a program, without its place on the screen.

use crate::reading::Times;

/// How a text is emphasised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// Something fails or waits.
    Warning,
    /// Something is down.
    Down,
}

/// A part of a view.
#[derive(Debug)]
pub(crate) enum Panel {
    /// Names with numbers.
    Numbers(Vec<Number>),
    /// Times of requests, with bars from zero to the largest p99.
    Times { title: String, rows: Vec<(String, Option<Times>)> },
    /// Rows of cells. The first column is text, the others are numbers.
    Table { header: Vec<&'static str>, rows: Vec<Row> },
}

/// A name with a number.
#[derive(Debug)]
pub(crate) struct Number {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// A row of a table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    pub(crate) tone: Tone,
}

impl Number {
    pub(crate) fn plain(name: &'static str, text: String) -> Number {
        Number { name, text, tone: Tone::Plain }
    }

    /// A number that is a warning if it is not zero.
    pub(crate) fn warning(name: &'static str, text: String, value: Option<f64>) -> Number {
        Number { name, text, tone: warning_if(value.is_some_and(|value| value > 0.0)) }
    }
}

pub(crate) fn warning_if(is_warning: bool) -> Tone {
    if is_warning { Tone::Warning } else { Tone::Plain }
}
