//! The summary as a person reads it: what was done, a table, and what is wrong with it.
//! Computes nothing that the summary does not hold.

use crate::agents::coordination;
use crate::seconds::Second;
use crate::settings::Settings;
use crate::summary::{OperationSummary, Summary};
use std::fmt::Write;

/// Columns of the table. A percentile that too few values support is a dash.
const HEADINGS: [&str; 12] =
    ["operation", "count", "per second", "hits", "misses", "errors", "mean", "p50", "p90", "p99", "p99.9", "max"];
const WIDTHS: [usize; 12] = [9, 10, 10, 10, 8, 8, 8, 8, 8, 8, 8, 8];

/// The whole summary, many lines.
pub fn render(summary: &Summary) -> String {
    let mut text = heading(&summary.settings);
    let (totals, verification) = (&summary.totals, &summary.verification);
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "measured {:.3} s; times are responses, from the end of thinking to the last byte of the reply\n",
        summary.measured_s
    );
    text += &row(HEADINGS.map(String::from));
    let operations = &summary.operations;
    for (name, operation) in [("get", &operations.get), ("set", &operations.set), ("all", &operations.all)] {
        if operation.count + operation.errors > 0 || name == "all" {
            text += &row(cells(name, operation, summary.measured_s));
        }
    }
    if let Some(coordination) = &summary.coordination {
        text += &coordination::render(coordination);
    }
    let all = &operations.all;
    let _ = writeln!(
        text,
        "\nservice (sent to completed) mean {}, slip (intended to sent) mean {}, max {}",
        time(all.service.mean_ns),
        time(all.slip.mean_ns),
        time(all.slip.max_ns as f64)
    );
    let _ = writeln!(text, "whole run: {} requests sent, {} answered", totals.requests_sent, totals.requests_answered);
    for (line, count) in &summary.errors {
        let _ = writeln!(text, "error, {count} times: {line}");
    }
    let _ = writeln!(
        text,
        "verified {} values: {} wrong, {} torn, {} stale; {} unexpected replies, {} keys uncertain",
        verification.checked,
        verification.wrong,
        verification.torn,
        verification.stale,
        verification.unexpected_reply,
        verification.keys_uncertain
    );
    let cpu = &summary.cpu;
    let busy = if cpu.share > 0.8 { "; above 80 % it may be the bottleneck itself" } else { "" };
    let _ = writeln!(
        text,
        "load generator: {:.2} s user, {:.2} s system, {:.0} % of its {} thread(s){busy}",
        cpu.user_s,
        cpu.system_s,
        cpu.share * 100.0,
        summary.settings.threads
    );
    for reason in &summary.reasons {
        let _ = writeln!(text, "NOT VALID: {reason}");
    }
    text
}

/// What was run.
fn heading(settings: &Settings) -> String {
    let pipeline =
        if settings.pipeline > 1 { format!(", {} in flight each", settings.pipeline) } else { String::new() };
    let keys_per_get =
        if settings.multi_key_get > 1 { format!(", {} keys per get", settings.multi_key_get) } else { String::new() };
    format!(
        "closed loop, N={} clients on {} thread(s){pipeline}, Z={}, set:get {}:{}{keys_per_get}, values of {}, keys {} to {}, {}\n",
        settings.clients,
        settings.threads,
        settings.think_time,
        settings.ratio_set,
        settings.ratio_get,
        settings.data_size,
        settings.key_minimum,
        settings.key_maximum,
        settings.servers.join(" ")
    )
}

pub(crate) fn cells(name: &str, operation: &OperationSummary, measured_s: f64) -> [String; 12] {
    let response = &operation.response;
    let percentile = |name: &str| response.percentiles.get(name).map_or("-".into(), |&time_ns| time(time_ns as f64));
    let per_second = if measured_s > 0.0 { operation.count as f64 / measured_s } else { 0.0 };
    let [mean, max] = if operation.count == 0 {
        ["-".into(), "-".into()]
    } else {
        [time(response.mean_ns), time(response.max_ns as f64)]
    };
    [
        name.into(),
        operation.count.to_string(),
        format!("{per_second:.0}"),
        operation.hits.to_string(),
        operation.misses.to_string(),
        operation.errors.to_string(),
        mean,
        percentile("50"),
        percentile("90"),
        percentile("99"),
        percentile("99.9"),
        max,
    ]
}

/// One line of the table: the first column to the left, the others to the right.
pub(crate) fn row(cells: [String; 12]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        let _ = if index == 0 { write!(line, "{cell:<width$}") } else { write!(line, " {cell:>width$}") };
    }
    line + "\n"
}

/// A second of the run, on one line.
pub fn render_second(second: &Second) -> String {
    format!(
        "{:>4} s {:>9} requests  mean {:>8}  p50 {:>8}  p99 {:>8}  max {:>8}  errors {}",
        second.second + 1,
        second.requests,
        time(second.mean_ns),
        time(second.p50_ns as f64),
        time(second.p99_ns as f64),
        time(second.max_ns as f64),
        second.errors
    )
}

/// A time in a unit that leaves one to four digits before the point.
pub(crate) fn time(time_ns: f64) -> String {
    match time_ns {
        time_ns if time_ns < 1e3 => format!("{time_ns:.0}ns"),
        time_ns if time_ns < 1e6 => format!("{:.1}us", time_ns / 1e3),
        time_ns if time_ns < 1e9 => format!("{:.2}ms", time_ns / 1e6),
        time_ns => format!("{:.2}s", time_ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown = [0.0, 999.0, 1500.0, 2.5e6, 61e9].map(time);
        assert_eq!(shown, ["0ns", "999ns", "1.5us", "2.50ms", "61.00s"]);
    }

    #[test]
    fn columns_line_up() {
        let line = row(HEADINGS.map(String::from));
        assert_eq!(line.trim_end().len(), WIDTHS.iter().sum::<usize>() + WIDTHS.len() - 1);
    }
}
