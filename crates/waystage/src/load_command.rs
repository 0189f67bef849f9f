//! `waystage load`: arguments to configuration, a run, its summary on the terminal and in a file.

mod agent;
mod arguments;
mod control_arguments;
mod controller;
mod merge;
mod output;

pub(crate) use arguments::LoadArguments;

use arguments::LoadCommand;
use clock::Clock;
use load::{Progress, Summary};
use output::OutputFiles;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the load; the exit code says whether the run is valid.
pub(crate) fn run(mut arguments: LoadArguments) -> Result<ExitCode, String> {
    match arguments.command.take() {
        Some(LoadCommand::Merge(arguments)) => return merge::run(arguments),
        Some(LoadCommand::Agent(arguments)) => return agent::run(&arguments),
        None => {}
    }
    if arguments.control.is_given() {
        return controller::run(arguments);
    }
    let shows_progress = !arguments.quiet && io::stderr().is_terminal();
    let output = arguments.output.clone();
    let config = arguments.config();
    if let Err(line) = config.check() {
        eprintln!("waystage: {line}");
        return Ok(ExitCode::from(2));
    }
    for line in config.warnings() {
        eprintln!("waystage: note: {line}");
    }
    let files = OutputFiles::create(&output)?;
    let stop = stop_flag()?;
    let mut watch = |progress: Progress<'_>| {
        if shows_progress {
            show(progress);
        }
    };
    match load::run(&config, &Clock::monotonic(), &stop, &mut watch) {
        Ok(summary) => tell(&summary, files),
        Err(error) => {
            files.discard();
            Err(error.to_string())
        }
    }
}

/// Prints and writes a summary; the exit code says whether it is valid.
fn tell(summary: &Summary, files: OutputFiles) -> Result<ExitCode, String> {
    // Whoever reads our output may stop early; the files are written all the same.
    let _ = io::stdout().write_all(load::render(summary).as_bytes());
    files.write(summary)?;
    if !summary.valid {
        eprintln!("waystage: the run is not valid: {}", summary.reasons.join("; "));
    }
    Ok(if summary.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A flag that the first SIGINT or SIGTERM raises; the second ends the process.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .map_err(|error| format!("cannot take over signals: {error}"))?;
    }
    Ok(stop)
}

fn show(progress: Progress<'_>) {
    match progress {
        Progress::Prefill { keys, of } => eprintln!("prefill: {keys} of {of} keys"),
        Progress::Part(_) => {}
        Progress::Second(second) => eprintln!("{}", load::render_second(second)),
    }
}
