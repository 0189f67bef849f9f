//! `waystage load merge`: the summaries of several generators as one.

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
    after_help = "The generators must have been measured at the same time. Counts and histograms are added up, and \
percentiles are those of the sum, never an average. Rates are over the time from the first window's beginning to the last \
one's end.

Exit codes: 0 every run was valid, 1 one was not or they cannot be merged, 2 the arguments make no sense."
)]
pub(crate) struct MergeArguments {
    /// The summaries, as --json-out-file wrote them.
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
    let mut merged = load::merge_named(&named).map_err(|error| error.to_string())?;
    merged.arguments = std::env::args().collect();
    finish(&merged, OutputFiles::create(&arguments.output)?)
}

fn read(path: &Path) -> Result<(String, Summary), String> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let summary = Summary::from_json(&text).map_err(|line| format!("{name}: {line}"))?;
    Ok((name, summary))
}
