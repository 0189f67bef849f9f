//! `waystage load`: arguments to configuration, a run, its summary on the terminal and in a file.

mod arguments;

pub(crate) use arguments::LoadArguments;

use clock::Clock;
use load::{LoadError, Progress, Summary};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the load; the exit code says whether the run is valid.
pub(crate) fn run(arguments: LoadArguments) -> Result<ExitCode, String> {
    let json_path = arguments.json_out_file.clone();
    let shows_progress = !arguments.quiet && io::stderr().is_terminal();
    let config = arguments.config();
    if let Err(line) = config.check() {
        eprintln!("waystage: {line}");
        return Ok(ExitCode::from(2));
    }
    for line in config.warnings() {
        eprintln!("waystage: note: {line}");
    }
    // Before the run, so that a mistyped path does not cost a run.
    let json_file = json_path.as_deref().map(create).transpose()?;
    let stop = stop_flag()?;
    let mut watch = |progress: Progress<'_>| {
        if shows_progress {
            show(progress);
        }
    };
    let outcome = load::run(&config, &Clock::monotonic(), &stop, &mut watch);
    if let (Err(_), Some(path)) = (&outcome, &json_path) {
        // An empty file would look like a summary.
        let _ = fs::remove_file(path);
    }
    let summary = outcome.map_err(|error: LoadError| error.to_string())?;
    // Whoever reads our output may stop early; the file is written all the same.
    let _ = io::stdout().write_all(load::render(&summary).as_bytes());
    if let (Some(file), Some(path)) = (json_file, &json_path) {
        write_json(&summary, file).map_err(|error| format!("{}: {error}", path.display()))?;
    }
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

fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_json(summary: &Summary, mut file: File) -> io::Result<()> {
    file.write_all(summary.to_json()?.as_bytes())
}
