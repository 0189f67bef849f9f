//! The summary as text: the settings, a table, the cost and the verdict. Shows only what the summary contains. The
//! summary can contain texts from other programs, so control characters are escaped in every line.

use crate::measure::seconds::Second;
use crate::measure::times::{PERCENTILES, Times, name};
use crate::report::printable::printable;
use crate::report::settings::{MIXED, Settings};
use crate::report::summary::{Coordination, OperationSummary, Summary};
use std::fmt::Write;

/// The default percentiles of the table. A percentile with too few values above it is shown as a dash.
const USUAL: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// The widths of the columns. All columns of times have the same width.
const NAME_WIDTH: usize = 9;
const COUNT_WIDTHS: [(&str, usize); 5] =
    [("count", 10), ("per second", 10), ("hits", 10), ("misses", 8), ("errors", 8)];
const TIME_WIDTH: usize = 8;

/// Adds a formatted line to a text.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {
        $text += &(printable(&format!($($format)*)) + "\n")
    };
}

/// The whole summary, several lines.
pub fn render(summary: &Summary) -> String {
    let settings = &summary.settings;
    let mut text = heading(settings);
    let from = match (settings.is_open(), settings.r#loop == MIXED) {
        (true, _) => "from when a request was due",
        (_, true) => "from when a request was due, or its client had thought,",
        (false, false) => "from the end of the think time",
    };
    line!(
        text,
        "measured {:.3} s after {:.1} s of warm-up; times are responses, {from} to the last byte of the reply",
        summary.measured_s,
        settings.warm_up_s
    );
    text.push('\n');
    text += &table(summary);
    text += &delays(summary);
    text += &summary.coordination.as_ref().map(agents).unwrap_or_default();
    text += &whole_run(summary);
    text.push('\n');
    for note in &summary.notes {
        line!(text, "note: {note}");
    }
    // The verdict comes last, because the last line is what people read.
    if summary.valid {
        text += "VALID\n";
    }
    for reason in &summary.reasons {
        line!(text, "INVALID: {reason}");
    }
    text
}

/// The settings of the run.
fn heading(settings: &Settings) -> String {
    let arrivals = settings.arrivals.as_deref().unwrap_or("no schedule");
    let clients = format!("N={} clients on {} thread(s)", settings.clients, settings.threads);
    let clients =
        if settings.pipeline > 1 { format!("{clients}, {} in flight each", settings.pipeline) } else { clients };
    let what = match (settings.is_open(), settings.r#loop == MIXED) {
        (true, _) => format!("open loop, {arrivals}, {clients}"),
        (_, true) => format!("open and closed loops, {arrivals}, {clients}, Z={}", settings.think_time),
        (false, false) if settings.trace.is_some() => format!("closed loop, {arrivals}, {clients}"),
        (false, false) => format!("closed loop, {clients}, Z={}", settings.think_time),
    };
    let at = format!("{} protocol, {}", settings.protocol, settings.servers.join(" "));
    if settings.trace.is_some() {
        return lines([what, at]);
    }
    if let Some(messages) = &settings.messages {
        let bodies = format!(
            "operations {}, {} queues, bodies of {}, {at}",
            messages.operations, messages.queues, settings.data_size
        );
        return lines([what, bodies]);
    }
    let keys_per_get =
        if settings.multi_key_get > 1 { format!(", {} keys per get", settings.multi_key_get) } else { String::new() };
    let mix = format!(
        "set:get {}:{}{keys_per_get}, values of {}, keys {} to {}, {at}",
        settings.ratio_set, settings.ratio_get, settings.data_size, settings.key_minimum, settings.key_maximum
    );
    lines([what, mix])
}

/// Two lines of text.
fn lines(texts: [String; 2]) -> String {
    texts.map(|text| printable(&text) + "\n").concat()
}

fn table(summary: &Summary) -> String {
    let requested = &summary.settings.percentiles;
    let percentiles: &[f64] = if requested.as_slice() == PERCENTILES { &USUAL } else { requested };
    let headings =
        ["mean".to_owned()].into_iter().chain(percentiles.iter().map(|&percent| format!("p{}", name(percent))));
    let mut text =
        row("operation", COUNT_WIDTHS.map(|(heading, _)| heading.to_owned()), headings.chain(["max".to_owned()]));
    let operations = &summary.operations;
    let named = operations.messages.iter().map(|(name, operation)| (name.as_str(), operation));
    let usual = [("get", &operations.get), ("set", &operations.set)];
    let usual = usual.into_iter().filter(|_| operations.messages.is_empty());
    for (title, operation) in named.chain(usual).chain([("all", &operations.all)]) {
        if operation.count + operation.errors > 0 || title == "all" {
            text += &row(
                title,
                counts(operation, summary.measured_s),
                times(&operation.response, operation.count, percentiles, summary.settings.reply_timeout_s),
            );
        }
    }
    if let Some(measuring) = summary.coordination.as_ref().and_then(|coordination| coordination.measuring.as_ref()) {
        let all = &measuring.operations.all;
        text += &row(
            "measuring",
            counts(all, measuring.measured_s),
            times(&all.response, all.count, percentiles, measuring.settings.reply_timeout_s),
        );
    }
    text
}

fn counts(operation: &OperationSummary, measured_s: f64) -> [String; 5] {
    let per_second = if measured_s > 0.0 { operation.count as f64 / measured_s } else { 0.0 };
    [
        operation.count.to_string(),
        format!("{per_second:.0}"),
        operation.hits.to_string(),
        operation.misses.to_string(),
        operation.errors.to_string(),
    ]
}

fn times(times: &Times, count: u64, percentiles: &[f64], timeout_s: f64) -> Vec<String> {
    let exact = |ns: f64| if count == 0 { "-".into() } else { time(ns) };
    let shown = percentiles.iter().map(|&percent| percentile(times, percent, timeout_s).unwrap_or("-".into()));
    [exact(times.mean_ns)].into_iter().chain(shown).chain([exact(times.max_ns as f64)]).collect()
}

/// A percentile as text, if enough requests support it. Among requests without an answer it is above the timeout, and
/// above every time that was measured.
fn percentile(times: &Times, percent: f64, timeout_s: f64) -> Option<String> {
    let above_ns = (timeout_s * 1e9).max(times.max_ns as f64);
    let shown = |time_ns: &Option<u64>| time_ns.map_or_else(|| above(above_ns), |time_ns| time(time_ns as f64));
    times.percentiles.get(&name(percent)).map(shown)
}

/// "> 1s", "> 250ms": longer than this time.
fn above(time_ns: f64) -> String {
    let text = time(time_ns);
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("> {number}{unit}")
}

/// One row of the table, with its first column aligned left and the others right.
fn row(title: &str, counts: [String; 5], times: impl IntoIterator<Item = String>) -> String {
    let mut line = format!("{:<NAME_WIDTH$}", printable(title));
    for (cell, (_, width)) in counts.iter().zip(COUNT_WIDTHS) {
        let _ = write!(line, " {cell:>width$}");
    }
    for cell in times {
        let _ = write!(line, " {cell:>TIME_WIDTH$}");
    }
    line + "\n"
}

/// The parts of the response time and, in an open loop, how the schedule was kept.
fn delays(summary: &Summary) -> String {
    let (all, totals) = (&summary.operations.all, &summary.totals);
    let mut text = String::from("\n");
    if let (Some(offered_per_s), Some(share), Some(unsent)) =
        (totals.offered_per_s, totals.achieved_share, totals.unsent)
    {
        line!(
            text,
            "{}offered {} per second, achieved {} ({:.2} %); {unsent} requests were due and never sent",
            if summary.settings.r#loop == MIXED { "open loops: " } else { "" },
            rate(offered_per_s),
            rate(share * offered_per_s),
            100.0 * share
        );
    }
    let line = |name: &str, what: &str, times: &Times| {
        let p99 = percentile(times, 99.0, summary.settings.reply_timeout_s).map(|text| format!(", p99 {text}"));
        let (mean, max) = (time(times.mean_ns), time(times.max_ns as f64));
        format!("{name:<8} ({what}) mean {mean}{}, max {max}\n", p99.unwrap_or_default())
    };
    if all.count > 0 {
        text += &line("service", "sent to completed", &all.service);
        text += &line("slip", "intended to sent", &all.slip);
    }
    if let Some(lateness) = summary.lateness.as_ref().filter(|lateness| lateness.max_ns > 0) {
        text += &line("lateness", "of the generator, part of slip", lateness);
    }
    text
}

/// The lines about the agents, below the table.
fn agents(coordination: &Coordination) -> String {
    let mut text = String::new();
    if let Some(measuring) = &coordination.measuring {
        line!(
            text,
            "measuring: a lightly loaded client on the controller, with {} requests per second to the same servers; not included in \
             the rows above",
            measuring.settings.offered_per_s.unwrap_or(0.0)
        );
    }
    line!(
        text,
        "{} agent(s), whose windows start within {} of each other",
        coordination.agents.len(),
        time(coordination.start_spread_ns as f64)
    );
    for report in &coordination.agents {
        let share = &report.share;
        let rate = share.rate_per_s.map_or(String::new(), |per_s| format!(", {per_s} requests/s"));
        let requests = share.requests.map_or(String::new(), |requests| format!(", {requests} requests"));
        let lost = report.lost.as_ref().map_or(String::new(), |why| format!(": LOST, {why}"));
        line!(
            text,
            "agent {} ({}, {} cores): {} clients{rate}{requests}, keys {} to {}{lost}",
            report.agent,
            report.host,
            report.cores,
            share.clients,
            share.key_minimum,
            share.key_maximum
        );
    }
    text
}

/// Requests per second, with a decimal if the number is small.
fn rate(per_s: f64) -> String {
    if per_s < 1_000.0 { format!("{per_s:.1}") } else { format!("{per_s:.0}") }
}

/// The lines about the whole run: requests, errors, verification and cost.
fn whole_run(summary: &Summary) -> String {
    let (totals, verification, cpu) = (&summary.totals, &summary.verification, &summary.cpu);
    let mut text = String::new();
    line!(text, "whole run: {} requests sent, {} answered", totals.requests_sent, totals.requests_answered);
    for (line, count) in &summary.errors {
        line!(text, "error, {count} times: {line}");
    }
    if let Some(messages) = &summary.messages {
        text += &messages.render();
    } else {
        line!(
            text,
            "verified {} values: {} wrong, {} torn, {} stale, {} not judged for staleness; {} unexpected replies, {} keys uncertain",
            verification.checked,
            verification.wrong,
            verification.torn,
            verification.stale,
            verification.unjudged,
            verification.unexpected_reply,
            verification.keys_uncertain
        );
    }
    line!(
        text,
        "load generator: {:.2} s user, {:.2} s system, {:.0} % of its {} thread(s)",
        cpu.user_s,
        cpu.system_s,
        cpu.share * 100.0,
        summary.settings.threads
    );
    for part in &summary.parts {
        line!(
            text,
            "of which {}: {} clients, {:.0} per second, mean {}, {:.0} % of its {} thread(s)",
            part.name,
            part.settings.clients,
            part.throughput_per_s,
            time(part.response_mean_ns),
            part.cpu.share * 100.0,
            part.settings.threads
        );
    }
    text
}

/// One second of the run on one line, with the offered rate in an open loop.
pub fn render_second(second: &Second, offered_per_s: Option<f64>) -> String {
    let requests = match offered_per_s {
        None => format!("{:>9} requests", second.requests),
        Some(offered_per_s) => format!("{:>9} of {offered_per_s:.0} offered", second.requests),
    };
    let slip = |second: &Second| {
        let mean_ns = if second.requests == 0 { 0.0 } else { second.slip_sum_ns as f64 / second.requests as f64 };
        format!("  slip {:>8} max {:>8}", time(mean_ns), time(second.slip_max_ns as f64))
    };
    format!(
        "{:>4} s {requests}  mean {:>8}  p50 {:>8}  p99 {:>8}  max {:>8}{}  errors {}",
        second.second + 1,
        time(second.mean_ns),
        percentile_of(second.p50_ns),
        percentile_of(second.p99_ns),
        time(second.max_ns as f64),
        offered_per_s.map(|_| slip(second)).unwrap_or_default(),
        second.errors
    )
}

/// A percentile of a second, in which failed requests are slower than any other.
fn percentile_of(time_ns: Option<u64>) -> String {
    time_ns.map_or_else(|| "no reply".into(), |time_ns| time(time_ns as f64))
}

/// A time in a unit that leaves one to four digits before the decimal point.
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
    use crate::config::{Arrivals, Config};
    use crate::measure::histogram::TimeHistogram;
    use crate::measure::part::Counts;
    use crate::measure::tally::Tally;
    use crate::report::summarise::{MeasuredRun, summarise};
    use clock::{CpuTime, Nanos};

    /// The summary of a run without a request.
    fn empty() -> Summary {
        let measured = MeasuredRun {
            started_unix_ns: 1,
            start: Nanos(0),
            from: Nanos(0),
            to: Nanos(1_000_000_000),
            cpu_from: CpuTime::default(),
            cpu_to: CpuTime::default(),
            keys_uncertain: 0,
            stopped: false,
            broken: None,
            messages: None,
        };
        summarise(&Config::default(), &measured, &Tally::new(), &Counts::new(), Vec::new())
    }

    #[test]
    fn times_are_printed_with_few_digits() {
        let shown = [0.0, 999.0, 1500.0, 2.5e6, 61e9].map(time);
        assert_eq!(shown, ["0ns", "999ns", "1.5us", "2.50ms", "61.00s"]);
    }

    #[test]
    fn the_first_line_describes_the_run() {
        let first = |config: &Config| heading(&Settings::new(config)).lines().next().unwrap().to_owned();
        let closed = Config { clients: 5, pipeline: 3, ..Config::default() };
        assert_eq!(first(&closed), "closed loop, N=5 clients on 1 thread(s), 3 in flight each, Z=none");
        let open = Config { arrivals: Arrivals::Poisson { per_s: 5000.0 }, clients: 5, ..Config::default() };
        assert_eq!(first(&open), "open loop, poisson 5000/s, N=5 clients on 1 thread(s)");
    }

    #[test]
    fn columns_line_up_and_percentiles_without_support_are_dashes() {
        let mut recorded = TimeHistogram::new();
        (0..100).for_each(|_| recorded.record(1_500));
        let cells = times(&Times::new(&recorded, &USUAL), 100, &USUAL, 1.0);
        assert_eq!(cells, ["1.5us", "1.5us", "1.5us", "-", "-", "1.5us"]);
        let line = row("all", ["100", "10", "0", "0", "0"].map(String::from), cells);
        let widths = NAME_WIDTH + COUNT_WIDTHS.iter().map(|(_, width)| width + 1).sum::<usize>() + 6 * (TIME_WIDTH + 1);
        assert_eq!(line.trim_end().len(), widths);
        assert_eq!(times(&Times::new(&TimeHistogram::new(), &USUAL), 0, &USUAL, 1.0), ["-"; 6]);
    }

    #[test]
    fn a_percentile_among_requests_without_an_answer_is_above_the_timeout() {
        let mut recorded = TimeHistogram::new();
        (0..900).for_each(|_| recorded.record(1_500));
        recorded.record_unanswered(100);
        let shown = |timeout_s| times(&Times::new(&recorded, &[90.0, 99.0]), 900, &[90.0, 99.0], timeout_s);
        assert_eq!(shown(1.0), ["1.5us", "1.5us", "> 1s", "1.5us"]);
        assert_eq!(shown(0.25)[2], "> 250ms");
        recorded.record(2_340_000_000);
        assert_eq!(times(&Times::new(&recorded, &[99.0]), 901, &[99.0], 1.0)[1], "> 2.34s");
    }

    #[test]
    fn texts_of_other_programs_cannot_change_the_terminal_or_add_lines() {
        const FORGED: &str = "x\u{1b}[2J\r\nVALID\u{202e}";
        let settings = Settings::new(&Config { servers: vec![FORGED.into()], ..Config::default() });
        assert_eq!(heading(&settings).lines().count(), 2);
        let mut summary = empty();
        summary.reasons = vec![FORGED.into()];
        summary.notes = vec![FORGED.into()];
        summary.errors.insert(FORGED.into(), 1);
        let clean = render(&empty()).lines().count();
        let text = heading(&settings) + &render(&summary);
        assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']) && !text.lines().any(|line| line.starts_with("VALID")));
        assert!(render(&summary).lines().count() <= clean + 3, "{text}");
    }

    #[test]
    fn an_open_loop_shows_what_it_offers_every_second() {
        let second = crate::measure::seconds::SecondsCollector::new(1).close(None, 1).1.remove(0);
        assert!(render_second(&second, None).starts_with("   1 s         0 requests  mean"));
        let line = render_second(&Second { requests: 4, slip_sum_ns: 6_000, slip_max_ns: 3_000, ..second }, Some(50.0));
        assert!(
            line.starts_with("   1 s         4 of 50 offered  mean") && line.contains("slip    1.5us max    3.0us"),
            "{line}"
        );
    }
}
