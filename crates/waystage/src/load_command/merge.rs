//! `waystage load merge`: merges the summaries of several generators.

use crate::command_line::command_line;
use crate::load_command::finish;
use crate::load_command::output::{OutputArguments, OutputFiles};
use clap::Args;
use load::Summary;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `waystage load merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "The generators must have run at the same time. Counts and histograms are added up, and percentiles are \
those of the sum, never averages. Rates are over the time from the start of the first window to the end of the last.

Exit codes: 0 every run was valid, 1 a run was invalid or the runs cannot be merged, 2 the arguments are wrong."
)]
pub(crate) struct MergeArguments {
    /// Summaries written with --json-out-file.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Merges, prints and writes.
pub(crate) fn run(arguments: MergeArguments) -> Result<ExitCode, String> {
    let mut summaries = arguments.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, String>>()?;
    if !arguments.output.print_percentiles.is_empty() {
        for (_, summary) in &mut summaries {
            summary.settings.percentiles = arguments.output.print_percentiles.clone();
        }
    }
    let named: Vec<(&str, &Summary)> = summaries.iter().map(|(name, summary)| (name.as_str(), summary)).collect();
    let mut merged = load::merge_named(&named).map_err(|error| load::printable(&error.to_string()))?;
    merged.arguments = command_line();
    finish(&merged, OutputFiles::create(&arguments.output)?)
}

fn read(path: &Path) -> Result<(String, Summary), String> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let summary = Summary::from_json(&text).map_err(|line| load::printable(&format!("{name}: {line}")))?;
    Ok((name, summary))
}
