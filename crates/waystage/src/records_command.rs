//! `waystage records dump`: prints a record file as comma-separated values.

use clap::{Args, Subcommand};
use records::report;
use records::{FIELDS, Reader};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage records`.
#[derive(Debug, Args)]
pub(crate) struct RecordsArguments {
    #[command(subcommand)]
    command: RecordsCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
enum RecordsCommand {
    /// Print a record file as comma-separated values, one row per line; times are nanoseconds of the monotonic clock.
    Dump {
        /// Record file (*.way).
        file: PathBuf,
        /// Read a file without a footer as far as it is complete, for example of a program that still runs.
        #[arg(long)]
        partial: bool,
        /// Print at most this many rows.
        #[arg(long, value_name = "ROWS")]
        limit: Option<usize>,
    },
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &RecordsArguments) -> Result<ExitCode, String> {
    let RecordsCommand::Dump { file, partial, limit } = &arguments.command;
    let reader = Reader::open(file, *partial).map_err(|error| error.to_string())?;
    if reader.lost > 0 {
        report(format_args!(
            "waystage: {}: {} jobs were lost, which is a bug in the program that wrote it",
            file.display(),
            reader.lost
        ));
    }
    match dump(&reader, limit.unwrap_or(usize::MAX), BufWriter::new(io::stdout().lock())) {
        // The reader of a pipe may exit early, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn dump(reader: &Reader, limit: usize, mut out: impl Write) -> io::Result<()> {
    let fields = FIELDS.iter().map(|(name, _)| *name);
    let names: Vec<&str> = fields.chain(reader.header.stamps.iter().map(String::as_str)).collect();
    writeln!(out, "{}", names.join(","))?;
    for (row, stamps) in reader.rows().take(limit) {
        let fields = row.values().into_iter().map(|value| value.to_string());
        let values: Vec<String> = fields.chain(stamps.iter().map(u64::to_string)).collect();
        writeln!(out, "{}", values.join(","))?;
    }
    out.flush()
}
