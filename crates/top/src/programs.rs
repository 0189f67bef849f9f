//! What each program of the project shows: its page of metrics as panels.

mod load;
mod messages;
mod proxy;

use crate::format::{bytes, maybe, number};
use crate::panel::{Number, Panel, Row, warning_if};
use crate::reading::{Interval, Times};

/// A program with metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Proxy,
    Messages,
    Load,
}

impl Program {
    pub(crate) const ALL: [Program; 3] = [Program::Proxy, Program::Messages, Program::Load];

    /// The program that has this page; None if it is none of ours.
    pub(crate) fn of(interval: &Interval) -> Option<Program> {
        Program::ALL.into_iter().find(|program| {
            interval.has(match program {
                Program::Proxy => proxy::REQUESTS,
                Program::Messages => "waystage_messages_build_info",
                Program::Load => load::REQUESTS,
            })
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Proxy => "proxy",
            Program::Messages => "message service",
            Program::Load => "load generator",
        }
    }

    /// The labels of the build: version and settings that a title shows.
    pub(crate) fn build(self, interval: &Interval) -> String {
        let labels = |name: &str| {
            let text =
                |series: &crate::reading::Series| format!("{} {}", series.label("version"), series.label("dispatch"));
            interval.all(name).next().map(text).unwrap_or_default().trim_end().to_owned()
        };
        match self {
            Program::Proxy => labels("waystage_build_info"),
            Program::Messages => labels("waystage_messages_build_info"),
            Program::Load => String::new(),
        }
    }

    pub(crate) fn panels(self, interval: &Interval) -> Vec<Panel> {
        let panels = match self {
            Program::Proxy => proxy::panels(interval),
            Program::Messages => messages::panels(interval),
            Program::Load => load::panels(interval),
        };
        panels.into_iter().filter(|panel| !is_empty(panel)).collect()
    }
}

fn is_empty(panel: &Panel) -> bool {
    match panel {
        Panel::Numbers(numbers) => numbers.is_empty(),
        Panel::Times { rows, .. } => rows.is_empty(),
        Panel::Table { rows, .. } => rows.is_empty(),
    }
}

/// The total time by operation, and the time in each stage of all operations together.
fn stage_panels(interval: &Interval, name: &str) -> [Panel; 2] {
    let buckets = format!("{name}_bucket");
    let is_total = |series: &crate::reading::Series| series.label("stage") == "total";
    let operations = interval.label_values(&buckets, "operation");
    let by_operation = operations.into_iter().map(|operation| {
        let times = interval.times(name, |series| is_total(series) && series.label("operation") == operation);
        (operation.to_owned(), times)
    });
    let stages = interval.label_values(&buckets, "stage");
    let by_stage = stages
        .into_iter()
        .filter(|stage| *stage != "total")
        .map(|stage| (stage.to_owned(), interval.times(name, |series| series.label("stage") == stage)));
    [times_panel("total time", by_operation.collect()), times_panel("stage", by_stage.collect())]
}

fn times_panel(title: &str, rows: Vec<(String, Option<Times>)>) -> Panel {
    Panel::Times { title: title.into(), rows }
}

/// CPU time and memory of the process.
fn process_numbers(interval: &Interval) -> Vec<Number> {
    let cpu = interval.per_s("process_cpu_seconds_total");
    let memory = interval.value("process_resident_memory_bytes");
    let mut numbers = vec![Number::plain("CPU", maybe(cpu, |cores| format!("{cores:.2} cores")))];
    numbers.extend(memory.map(|memory| Number::plain("memory", bytes(memory))));
    numbers
}

/// A gauge and its limit, such as clients and the largest number of clients.
fn with_limit(interval: &Interval, name: &str, limit: &str, text: impl Fn(f64) -> String) -> String {
    let limit = interval.value(limit).map_or_else(String::new, |limit| format!("/{}", text(limit)));
    format!("{}{limit}", maybe(interval.value(name), text))
}

/// Rows of a counter by the values of a label, those that have ever counted: the value, its rate, and its total.
fn counted(interval: &Interval, name: &str, label: &str, prefix: &str, is_shown: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for value in interval.label_values(name, label).into_iter().filter(|value| is_shown(value)) {
        let total: f64 =
            interval.all(name).filter(|series| series.label(label) == value).map(|series| series.value).sum();
        if total > 0.0 {
            let per_s = interval.per_s_of(name, |series| series.label(label) == value);
            rows.push(counted_row(format!("{prefix}{value}"), per_s, total));
        }
    }
    rows
}

/// The row of a counter without labels, if it has ever counted.
fn counted_once(interval: &Interval, name: &str, text: &str) -> Option<Row> {
    let total = interval.value(name).filter(|total| *total > 0.0)?;
    Some(counted_row(text.into(), interval.per_s(name), total))
}

fn counted_row(text: String, per_s: Option<f64>, total: f64) -> Row {
    let tone = warning_if(per_s.is_some_and(|per_s| per_s > 0.0));
    Row { cells: vec![text, maybe(per_s, number), number(total)], tone }
}
