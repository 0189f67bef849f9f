//! `waystage link`: emulates the link of a host. Only the lab starts it, because it needs the devices of both ends.

use clap::Args;
use clock::Clock;
use link::{Direction, Way, forward};
use std::fs::File;
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage link`. Standard input is the device of the host, standard output that of the switch.
#[derive(Debug, Args)]
pub(crate) struct LinkArguments {
    /// The file for the counters.
    #[arg(long, value_name = "FILE")]
    counters: PathBuf,
    /// What happens to the frames that the host sends, as JSON.
    #[arg(long, value_name = "JSON", value_parser = direction)]
    up: Direction,
    /// What happens to the frames that the host receives, as JSON.
    #[arg(long, value_name = "JSON", value_parser = direction)]
    down: Direction,
}

fn direction(json: &str) -> Result<Direction, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// Forwards frames until a signal ends the program or a device fails.
pub(crate) fn run(arguments: &LinkArguments) -> Result<ExitCode, String> {
    let counters = File::options().write(true).create(true).truncate(false).open(&arguments.counters);
    let counters = counters.map_err(|error| format!("{}: {error}", arguments.counters.display()))?;
    let (host, switch) = (stdin(), stdout());
    let mut ways = [
        Way::new(&arguments.up, host.as_fd(), switch.as_fd(), 1),
        Way::new(&arguments.down, switch.as_fd(), host.as_fd(), 2),
    ];
    forward(&mut ways, &counters, &Clock::monotonic())
        .map(|never| match never {})
        .map_err(|error| format!("link: {error}"))
}
