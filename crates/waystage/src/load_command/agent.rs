//! `waystage load agent`: waits for controllers and runs their loads one after the other.

use crate::command_line::host_port;
use crate::load_command::control_arguments::{not_from_controllers, parse};
use crate::load_command::secret::SecretArguments;
use crate::load_command::stop_flag;
use crate::ready;
use clap::Args;
use clock::Clock;
use load::{Agent, AgentLimits, Config, printable};
use quantity::bytes;
use records::report;
use std::process::ExitCode;

/// Arguments of `waystage load agent`.
#[derive(Debug, Args)]
#[command(
    after_help = "A controller can make this machine load any server. Beyond the loopback interface an agent therefore needs a \
secret that it shares with its controllers. Nothing is encrypted.

The agent exits on SIGTERM or SIGINT, and ends its current run."
)]
pub(crate) struct AgentArguments {
    /// The address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7411", value_parser = host_port)]
    listen: String,
    #[command(flatten)]
    secret: SecretArguments,
    /// Refuse runs that may need more memory than this.
    #[arg(long, value_name = "BYTES", default_value = "2g", value_parser = bytes)]
    memory: usize,
    /// Print nothing about the runs.
    #[arg(long)]
    quiet: bool,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &AgentArguments) -> Result<ExitCode, String> {
    let (stop, clock) = (stop_flag()?, Clock::monotonic());
    let log = |line: &str| {
        if !arguments.quiet {
            report(format_args!("{}", printable(line)));
        }
    };
    let limits = AgentLimits {
        secret: arguments.secret.secret()?,
        insecure: arguments.secret.insecure,
        memory_bytes: arguments.memory as u64,
    };
    let agent = Agent::bind(&arguments.listen, limits, &clock, &stop, &config, &log);
    let agent = agent.map_err(|error| error.to_string())?;
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
