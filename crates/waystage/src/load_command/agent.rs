//! `waystage load agent`: waits for controllers and does what they ask, one run after another.

use crate::load_command::control_arguments::{not_from_controllers, parse};
use crate::load_command::stop_flag;
use crate::ready;
use clap::Args;
use clock::Clock;
use load::{Agent, Config};
use std::process::ExitCode;

/// Arguments of `waystage load agent`.
#[derive(Debug, Args)]
#[command(
    after_help = "Whoever can connect can have this machine load any server: there is no password. Listen on a network \
only where all who can reach it may do that.

The agent ends on SIGTERM or SIGINT, and a run with it."
)]
pub(crate) struct AgentArguments {
    /// Where to wait for controllers; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7411")]
    listen: String,
    /// Say nothing of each run.
    #[arg(long)]
    quiet: bool,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: &AgentArguments) -> Result<ExitCode, String> {
    let (stop, clock) = (stop_flag()?, Clock::monotonic());
    let log = |line: &str| {
        if !arguments.quiet {
            eprintln!("{line}");
        }
    };
    let agent = Agent::bind(&arguments.listen, &clock, &stop, &config, &log).map_err(|error| error.to_string())?;
    let address = agent.address().map_err(|error| error.to_string())?;
    ready::announce(&format!("waystage load agent ready on {address}"));
    agent.serve();
    Ok(ExitCode::SUCCESS)
}

/// What a controller asks for. Files, and agents of an agent, are not to be had.
fn config(arguments: &[String]) -> Result<Config, String> {
    let (matches, parsed) = parse(arguments)?;
    if let Some(flag) = not_from_controllers(&matches) {
        return Err(format!("{flag} is not for an agent: the controller does that"));
    }
    Ok(Config { arguments: arguments.to_vec(), ..parsed.config() })
}
