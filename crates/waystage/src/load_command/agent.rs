//! `waystage load agent`: waits for controllers and does one run after another for them.

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
    after_help = "There is no password: anyone who can connect can make this machine load any server. Listen only on \
addresses that trusted machines alone can reach.

The agent exits on SIGTERM or SIGINT, and ends its current run."
)]
pub(crate) struct AgentArguments {
    /// The address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7411")]
    listen: String,
    /// Print nothing about the runs.
    #[arg(long)]
    quiet: bool,
}

/// Serves until SIGTERM or SIGINT.
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

/// The configuration of a controller's run. Output files, and agents of an agent, are rejected.
fn config(arguments: &[String]) -> Result<Config, String> {
    let (matches, parsed) = parse(arguments)?;
    if let Some(flag) = not_from_controllers(&matches) {
        return Err(format!("{flag} is for the controller, not for an agent"));
    }
    Ok(Config { arguments: arguments.to_vec(), ..parsed.config() })
}
