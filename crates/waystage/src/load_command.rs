//! `waystage load`: parses arguments, runs a load, prints its summary and writes it to a file.

mod agent;
mod arguments;
mod control_arguments;
mod controller;
pub(crate) mod memtier;
mod merge;
mod messages;
mod output;
mod saturate;
mod seconds_file;
mod secret;
mod trace;
mod values;

use arguments::RunArguments;
use clap::{Args, Subcommand};
use clock::Clock;
use control_arguments::ControlArguments;
use load::{Metrics, Progress, Summary, printable};
use output::OutputFiles;
use records::report;
use seconds_file::SecondsFile;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Arguments of `waystage load`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    command: Option<LoadCommand>,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    control: ControlArguments,
}

/// Other commands of the load generator.
#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Merge the summaries of several generators that ran at the same time.
    Merge(merge::MergeArguments),
    /// Wait for controllers (a load with --agent), and run their loads one after the other.
    Agent(agent::AgentArguments),
    /// Search for the highest rate at which the servers meet latency objectives.
    Saturate(Box<saturate::SaturateArguments>),
}

/// Runs the load, or another command.
pub(crate) fn run(arguments: LoadArguments) -> Result<ExitCode, String> {
    match arguments.command {
        None if arguments.control.is_given() => controller::run(arguments.run, arguments.control),
        None => run_once(arguments.run),
        Some(LoadCommand::Agent(arguments)) => agent::run(&arguments),
        Some(LoadCommand::Merge(arguments)) => merge::run(arguments),
        Some(LoadCommand::Saturate(arguments)) => saturate::run(*arguments),
    }
}

/// Runs the load. The exit code is 0 if the run is valid.
fn run_once(mut arguments: RunArguments) -> Result<ExitCode, String> {
    let shows_progress = !arguments.quiet && io::stderr().is_terminal();
    let (output, metrics_address) = (arguments.output.clone(), arguments.metrics.take());
    let seconds_path = arguments.seconds_file.take();
    if let Err(line) = arguments.messages.check() {
        report(format_args!("waystage: {line}"));
        return Ok(ExitCode::from(2));
    }
    let tokens = arguments.messages.tokens()?;
    let mut config = arguments.config();
    if let Some(messages) = &mut config.messages {
        messages.tokens = tokens;
    }
    if let Err(line) = config.check() {
        report(format_args!("waystage: {line}"));
        return Ok(ExitCode::from(2));
    }
    for line in config.warnings() {
        report(format_args!("waystage: note: {line}"));
    }
    let metrics = metrics_address.map(|address| Metrics::start(&address, &config)).transpose()?;
    if let Some(address) = metrics.as_ref().and_then(Metrics::address) {
        report(format_args!("waystage: metrics at http://{address}/metrics"));
    }
    let files = OutputFiles::create(&output)?;
    let mut seconds = match seconds_path.map(SecondsFile::create).transpose() {
        Ok(seconds) => seconds,
        Err(line) => {
            files.discard();
            return Err(line);
        }
    };
    let stop = stop_flag()?;
    let offered_per_s = config.arrivals.per_s();
    let mut watch = |progress: Progress<'_>| {
        match (&metrics, progress) {
            (Some(metrics), Progress::Part(part)) => metrics.add(part),
            (Some(metrics), Progress::Second(second)) => metrics.second(second),
            _ => {}
        }
        if let (Some(seconds), Progress::Second(second)) = (&mut seconds, progress) {
            seconds.add(second);
        }
        match progress {
            Progress::Note(line) => report(format_args!("waystage: note: {}", printable(line))),
            progress if shows_progress => show(progress, offered_per_s),
            _ => {}
        }
    };
    match load::run(&config, &Clock::monotonic(), &stop, &mut watch) {
        Ok(summary) => {
            if let Some(seconds) = seconds {
                seconds.finish(&summary.seconds);
            }
            finish(&summary, files)
        }
        Err(error) => {
            files.discard();
            if let Some(seconds) = seconds {
                seconds.discard();
            }
            Err(printable(&error.to_string()))
        }
    }
}

/// Prints and writes a summary. The exit code is 0 if the run is valid.
fn finish(summary: &Summary, files: OutputFiles) -> Result<ExitCode, String> {
    // The reader of the output may close it early; the files are still written.
    let _ = io::stdout().write_all(load::render(summary).as_bytes());
    files.write(summary)?;
    // On a terminal the verdict is already the last line.
    if !summary.valid && !io::stdout().is_terminal() {
        report(format_args!("waystage: the run is not valid: {}", printable(&summary.reasons.join("; "))));
    }
    Ok(if summary.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A flag that the first SIGINT or SIGTERM sets. The second ends the process.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .map_err(|error| format!("cannot install a signal handler: {error}"))?;
    }
    Ok(stop)
}

fn show(progress: Progress<'_>, offered_per_s: Option<f64>) {
    match progress {
        Progress::Prefill { keys, of } => report(format_args!("prefill: {keys} of {of} keys")),
        Progress::Stage { what, done, of } => report(format_args!("{what}: {done} of {of}")),
        Progress::Part(_) | Progress::Note(_) => {}
        Progress::Second(second) => report(format_args!("{}", load::render_second(second, offered_per_s))),
    }
}
