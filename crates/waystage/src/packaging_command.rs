//! `waystage completions` and the hidden `waystage manual`: what packages contain besides the binary. Both follow from the
//! arguments of all commands, so that they cannot differ from `--help`.

use clap::{Args, Command};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments of `waystage completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: clap_complete::Shell,
}

/// The arguments of `waystage manual`.
#[derive(Debug, Args)]
pub(crate) struct ManualArguments {
    /// The directory, which must exist.
    directory: PathBuf,
}

/// Prints the script of a shell.
pub(crate) fn print_completions(arguments: &CompletionsArguments, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "waystage", &mut script);
    // The reader of a pipe may exit early, as `head` does.
    let _ = io::Write::write_all(&mut io::stdout(), &script);
    ExitCode::SUCCESS
}

/// Writes a manual page for the program and for each of its commands: `waystage-proxy.1`, `waystage-proxy-route.1`.
pub(crate) fn write_manual(arguments: &ManualArguments, command: Command) -> Result<ExitCode, String> {
    clap_mangen::generate_to(command, &arguments.directory)
        .map_err(|error| format!("cannot write manual pages to {}: {error}", arguments.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
