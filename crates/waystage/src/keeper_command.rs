//! `waystage keeper`: runs the programs of the lab on a host that the lab reaches through SSH, and ends them with the lab.

use clap::Args;
use keeper::{Settings, become_program, keep};
use std::fs::File;
use std::io::{self, stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `waystage keeper`, which the lab gives.
#[derive(Debug, Args)]
pub(crate) struct KeeperArguments {
    /// The folder of the keeper, which it removes at the end.
    #[arg(long, value_name = "DIR", required_unless_present = "run_for")]
    folder: Option<PathBuf>,
    /// How many seconds the lab may be silent before the keeper ends everything.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    silence: u64,
    /// Become COMMAND, which the kernel kills together with this parent process.
    #[arg(long, value_name = "PID", requires = "command")]
    run_for: Option<u32>,
    /// A program and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Serves the lab, or becomes one of the programs that it started.
pub(crate) fn run(arguments: &KeeperArguments) -> Result<ExitCode, String> {
    if let Some(parent) = arguments.run_for {
        return Err(become_program(parent, &arguments.command));
    }
    let folder = arguments.folder.clone().ok_or("--folder is missing")?;
    let settings = Settings { folder, silence: Duration::from_secs(arguments.silence) };
    // Without the buffers of the standard library, because the keeper waits for the descriptor itself.
    let unbuffered = |stream: io::Result<_>| stream.map(File::from).map_err(|error| format!("keeper: {error}"));
    let from = unbuffered(stdin().as_fd().try_clone_to_owned())?;
    let to = unbuffered(stdout().as_fd().try_clone_to_owned())?;
    keep(&settings, from, to)?;
    Ok(ExitCode::SUCCESS)
}
