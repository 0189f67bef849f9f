//! `waystage load --agent`: distributes a run over agents, and prints and writes the merged results.

use crate::command_line::command_line;
use crate::load_command::arguments::RunArguments;
use crate::load_command::control_arguments::{ControlArguments, not_for_agents, parse, remote};
use crate::load_command::output::OutputFiles;
use crate::load_command::{finish, show, stop_flag};
use clock::Clock;
use load::{AgentTask, DistributedRun, Progress, printable};
use records::report;
use std::io::{self, IsTerminal};
use std::net::ToSocketAddrs;
use std::process::ExitCode;

/// Runs the load on all agents. The exit code is 0 if the run is valid.
pub(super) fn run(arguments: RunArguments, control: ControlArguments) -> Result<ExitCode, String> {
    let shows_progress = !arguments.quiet && io::stderr().is_terminal();
    let output = arguments.output.clone();
    let offered_per_s = arguments.rate;
    let distributed = match distribute(arguments, control) {
        Ok(distributed) => distributed,
        Err(line) => {
            report(format_args!("waystage: {line}"));
            return Ok(ExitCode::from(2));
        }
    };
    let files = OutputFiles::create(&output)?;
    let stop = stop_flag()?;
    let mut watch = |progress: Progress<'_>| {
        if shows_progress {
            show(progress, offered_per_s);
        }
    };
    match load::coordinate(&distributed, &Clock::monotonic(), &stop, &mut watch) {
        Ok(summary) => finish(&summary, files),
        Err(error) => {
            files.discard();
            Err(printable(&error.to_string()))
        }
    }
}

/// Divides the run among the agents.
fn distribute(arguments: RunArguments, control: ControlArguments) -> Result<DistributedRun, String> {
    for (number, agent) in control.agents.iter().enumerate() {
        if control.agents[..number].contains(agent) {
            return Err(format!("--agent {agent} is given twice; an agent does one run at a time"));
        }
    }
    let secret = control.secret.secret()?;
    if secret.is_none() && !control.secret.insecure {
        check_loopback(&control.agents)?;
    }
    // Parse the command line again, to know which arguments were given.
    let given: Vec<String> = command_line().into_iter().skip_while(|word| word != "load").skip(1).collect();
    let (matches, _) = parse(&given)?;
    if let Some(flag) = not_for_agents(&matches) {
        return Err(format!("{flag} cannot be used with --agent, because each agent would need its own"));
    }
    let percentiles = arguments.output.print_percentiles.clone();
    let config = arguments.config();
    let shares = load::split(&config, control.agents.len(), control.measure_locally)?;
    for line in config.warnings() {
        report(format_args!("waystage: note: {line}"));
    }
    let task = |(agent, share)| AgentTask { agent, arguments: remote(&matches, &share), share };
    Ok(DistributedRun {
        agents: control.agents.into_iter().zip(shares.agents).map(task).collect(),
        measuring: shares.measuring,
        percentiles,
        arguments: command_line(),
        secret,
    })
}

/// Refuses agents beyond the loopback interface, whose results anyone on the way could forge. An agent that cannot be
/// resolved is reported when it is connected to.
fn check_loopback(agents: &[String]) -> Result<(), String> {
    let is_beyond = |agent: &&String| {
        agent.to_socket_addrs().is_ok_and(|mut addresses| addresses.any(|address| !address.ip().is_loopback()))
    };
    agents.iter().find(is_beyond).map_or(Ok(()), |agent| {
        Err(format!(
            "--agent {agent} is beyond the loopback interface; share a secret with it (--secret-file), or give --insecure"
        ))
    })
}
