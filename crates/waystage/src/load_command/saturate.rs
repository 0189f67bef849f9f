//! `waystage load saturate`: runs a search, prints its table and its answer, and writes them to a file.

use crate::load_command::arguments::RunArguments;
use crate::load_command::output::create;
use crate::load_command::stop_flag;
use crate::load_command::values::rate;
use clap::Args;
use clock::Clock;
use load::printable;
use load::saturate::{
    LoadProbe, Objective, Saturation, SearchConfig, SearchEvent, render, render_begin, render_heading, render_outlook,
    render_probe, search,
};
use quantity::duration;
use records::report;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

/// The default rate of the first run.
const START_PER_S: f64 = 1000.0;
/// The confidence level of the intervals.
const CONFIDENCE: f64 = 0.95;

/// Arguments of `waystage load saturate`.
#[derive(Debug, Args)]
#[command(
    about = "Search for the highest rate at which a server meets its latency objectives",
    after_help = "--rate is the rate of the first run [default: 1000], and --test-time the length of one run.
The loop is open. Use enough --clients: if a request waits for a connection, the generator delays it, not the server.
docs/saturation.md describes how runs are judged.

Exit codes: 0 the answer is confirmed, 1 it is not confirmed or the search failed, 2 the arguments are wrong."
)]
pub(crate) struct SaturateArguments {
    /// An objective for the response time: p99=2ms, p99.9=5ms or mean=500us. The flag can be repeated.
    #[arg(long = "objective", value_name = "pQ=TIME|mean=TIME", required = true, value_parser = objective,
        conflicts_with_all = ["requests", "think_time", "trace", "records", "metrics", "json_compat", "hdr_file_prefix",
            "seconds_file", "failed_max", "achieved_min"])]
    objectives: Vec<Objective>,
    /// Stop when the answer is known this closely: 0.5% to 10%.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = precision)]
    precision: f64,
    /// Further runs at an undecided rate, each twice as long as the one before.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=6))]
    extensions: u32,
    /// The highest rate to try.
    #[arg(long, value_name = "N", default_value = "10m", value_parser = rate)]
    rate_max: f64,
    #[command(flatten)]
    load: RunArguments,
}

/// Runs the search. The exit code is 0 if the answer is confirmed.
pub(super) fn run(mut arguments: SaturateArguments) -> Result<ExitCode, String> {
    let (quiet, json_path) = (arguments.load.quiet, arguments.load.output.json_out_file.clone());
    let start_per_s = *arguments.load.rate.get_or_insert(START_PER_S);
    let config = arguments.load.config();
    if let Err(line) = LoadProbe::check(&config) {
        report(format_args!("waystage: {line}"));
        return Ok(ExitCode::from(2));
    }
    for line in config.warnings() {
        report(format_args!("waystage: note: {line}"));
    }
    let json_file = json_path.as_deref().map(create).transpose()?;
    let stop = stop_flag()?;
    let search_config = SearchConfig {
        objectives: arguments.objectives,
        start_per_s,
        rate_max_per_s: arguments.rate_max,
        precision: arguments.precision,
        probe: config.test_time,
        extensions_max: arguments.extensions,
        confidence: CONFIDENCE,
    };
    let command_line = config.arguments.clone();
    let clock = Clock::monotonic();
    let mut probe = LoadProbe::new(config, &search_config.objectives, &clock, &stop);
    // The reader of the output may close it early; the file is still written.
    let print = |text: String| drop(io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()));
    let mut is_first = true;
    if !quiet {
        report(format_args!("waystage: {}", render_outlook(&search_config, &probe)));
    }
    let found = search(&search_config, &mut probe, &mut |event| {
        if quiet {
            return;
        }
        if let SearchEvent::Ended(probe) = event {
            let heading = if std::mem::take(&mut is_first) { render_heading() } else { String::new() };
            return print(heading + &render_probe(probe));
        }
        render_begin(&event).iter().for_each(|line| report(format_args!("{line}")));
    });
    if found.1.is_empty() {
        if let Some(path) = &json_path {
            // An empty file would look like a result.
            let _ = fs::remove_file(path);
        }
        return Err(printable(&found.0.reasons.join("; ")));
    }
    let saturation = Saturation::new(&search_config, command_line, found);
    print(render(&saturation));
    if let (Some(mut file), Some(path)) = (json_file, &json_path) {
        let json = saturation.to_json().map_err(io::Error::from);
        let written = json.and_then(|json| file.write_all(json.as_bytes()));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(if saturation.finding.confirmed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn objective(text: &str) -> Result<Objective, String> {
    Objective::parse(text, |time| duration(time).map(clock::duration_ns))
}

fn precision(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let share = percent.map(|percent| percent / 100.0).filter(|share| (0.005..=0.1).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a precision from 0.5% to 10%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_and_precisions_are_parsed() {
        assert_eq!(objective("p99=2ms").map(|objective| objective.to_string()), Ok("p99=2ms".into()));
        assert_eq!(objective("mean=500us").map(|objective| objective.time_ns), Ok(500_000));
        assert_eq!((precision("5%"), precision("0.5%")), (Ok(0.05), Ok(0.005)));
        for text in ["p99", "p99=2", "p101=2ms"] {
            assert!(objective(text).is_err(), "{text}");
        }
        for text in ["5", "0%", "11%", "%", "nan%"] {
            assert!(precision(text).is_err(), "{text}");
        }
    }
}
