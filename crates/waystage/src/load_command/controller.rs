//! `waystage load --agent`: shares a run out to agents, and shows and writes what they have measured together.

use crate::load_command::arguments::RunArguments;
use crate::load_command::control_arguments::{ControlArguments, not_for_agents, parse, remote};
use crate::load_command::output::OutputFiles;
use crate::load_command::{finish, show, stop_flag};
use clock::Clock;
use load::{AgentTask, DistributedRun, Progress};
use std::env;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

/// Runs the load on all agents; the exit code says whether the run is valid.
pub(super) fn run(arguments: RunArguments, control: ControlArguments) -> Result<ExitCode, String> {
    let shows_progress = !arguments.quiet && io::stderr().is_terminal();
    let output = arguments.output.clone();
    let offered_per_s = arguments.rate;
    let tasks = match tasks(arguments, control) {
        Ok(tasks) => tasks,
        Err(line) => {
            eprintln!("waystage: {line}");
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
    match load::coordinate(&tasks, &Clock::monotonic(), &stop, &mut watch) {
        Ok(summary) => finish(&summary, files),
        Err(error) => {
            files.discard();
            Err(error.to_string())
        }
    }
}

/// Who does what.
fn tasks(arguments: RunArguments, control: ControlArguments) -> Result<DistributedRun, String> {
    for (number, agent) in control.agents.iter().enumerate() {
        if control.agents[..number].contains(agent) {
            return Err(format!("--agent {agent} is given twice: an agent does one run at a time"));
        }
    }
    // The same words once more, to know which of them were said.
    let words: Vec<String> = env::args().skip_while(|word| word != "load").skip(1).collect();
    let (matches, _) = parse(&words)?;
    if let Some(flag) = not_for_agents(&matches) {
        return Err(format!("{flag} cannot be used with --agent: each agent would have its own, on its machine"));
    }
    let percentiles = arguments.output.print_percentiles.clone();
    let config = arguments.config();
    let shares = load::split(&config, control.agents.len(), control.measure_locally)?;
    for line in config.warnings() {
        eprintln!("waystage: note: {line}");
    }
    let task = |(agent, share)| AgentTask { agent, arguments: remote(&matches, &share), share };
    Ok(DistributedRun {
        agents: control.agents.into_iter().zip(shares.agents).map(task).collect(),
        measuring: shares.measuring,
        percentiles,
        arguments: env::args().collect(),
    })
}
