//! The one binary: turns arguments into configurations, signals into stops, and outcomes into exit codes.
//! Each program is a feature of this crate, so that a binary can have the proxy alone.

#![allow(clippy::print_stdout, reason = "a program reports on standard output; the libraries do not")]

#[cfg(feature = "proxy")]
mod activation;
#[cfg(feature = "cache")]
mod cache_command;
mod command_line;
mod health_command;
#[cfg(feature = "keeper")]
mod keeper_command;
#[cfg(feature = "link")]
mod link_command;
#[cfg(feature = "load")]
mod load_command;
#[cfg(feature = "load")]
mod memory_command;
#[cfg(feature = "messages")]
mod messages_command;
mod packaging_command;
#[cfg(feature = "proxy")]
mod proxy_command;
#[cfg(any(feature = "proxy", feature = "load", feature = "cache", feature = "messages"))]
mod ready;
mod records_command;
#[cfg(feature = "proxy")]
mod service_manager;
#[cfg(feature = "simulate")]
mod simulate_command;
#[cfg(feature = "top")]
mod top_command;
#[cfg(feature = "proxy")]
mod transport_arguments;
#[cfg(feature = "load")]
mod variates_command;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use records::report;
use std::process::ExitCode;

/// A command that depends on a feature: its name, the feature, and whether this binary has it.
type OptionalCommand = (&'static str, &'static str, bool);

const OPTIONAL_COMMANDS: [OptionalCommand; 10] = [
    ("proxy", "proxy", cfg!(feature = "proxy")),
    ("load", "load", cfg!(feature = "load")),
    ("cache", "cache", cfg!(feature = "cache")),
    ("messages", "messages", cfg!(feature = "messages")),
    ("variates", "load", cfg!(feature = "load")),
    ("memory", "load", cfg!(feature = "load")),
    ("simulate", "simulate", cfg!(feature = "simulate")),
    ("link", "link", cfg!(feature = "link")),
    ("keeper", "keeper", cfg!(feature = "keeper")),
    ("top", "top", cfg!(feature = "top")),
];

/// The commands of `waylab`, the other program of the wheel.
const LAB_COMMANDS: [&str; 21] = [
    "demo",
    "run",
    "ab",
    "plan",
    "doctor",
    "calibrate",
    "study",
    "analyse",
    "show",
    "report",
    "stages",
    "compare",
    "campaign",
    "export",
    "import",
    "model",
    "fit",
    "predict",
    "explain",
    "capacity",
    "validate",
];

/// A memcached proxy that times every stage of every request, and the programs that measure it.
#[derive(Debug, Parser)]
#[command(name = "waystage", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What the standard library says about a text that is not a number, and what to do about it.
const NUMBERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "give a whole number, for example 4"),
    ("cannot parse integer from empty string", "give a whole number, for example 4"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "give a number, for example 0.5"),
];

/// The commands of this binary.
#[derive(Debug, Subcommand)]
enum Command {
    /// Forward requests to memcached servers, and time every stage of every request.
    #[cfg(feature = "proxy")]
    Proxy(Box<proxy_command::ProxyArguments>),
    /// Load memcached servers in an open or a closed loop, measure latency and verify every value.
    #[cfg(feature = "load")]
    Load(Box<load_command::LoadArguments>),
    /// Serve the memcached protocol from memory, with a configured service time.
    #[cfg(feature = "cache")]
    Cache(cache_command::CacheArguments),
    /// Serve message queues over HTTP; PostgreSQL stores the messages.
    #[cfg(feature = "messages")]
    Messages(Box<messages_command::MessagesArguments>),
    /// Print random variates or keys of a pattern, or describe them.
    #[cfg(feature = "load")]
    Variates(variates_command::VariatesArguments),
    /// Print the hit ratio that memcached would have with other amounts of memory, from a trace.
    #[cfg(feature = "load")]
    Memory(memory_command::MemoryArguments),
    /// Read record files.
    Records(records_command::RecordsArguments),
    /// Simulate a queueing network described in a file, with confidence intervals.
    #[cfg(feature = "simulate")]
    Simulate(simulate_command::SimulateArguments),
    /// Emulate a link between the devices that are its standard input and output; the lab starts it.
    #[cfg(feature = "link")]
    #[command(hide = true)]
    Link(link_command::LinkArguments),
    /// Run the programs of the lab on this host, and end them with the lab; the lab starts it through SSH.
    #[cfg(feature = "keeper")]
    #[command(hide = true)]
    Keeper(keeper_command::KeeperArguments),
    /// Show rates, times, backends and queues of running programs in the terminal.
    #[cfg(feature = "top")]
    Top(top_command::TopArguments),
    /// Check whether a running proxy or message service is ready.
    Health(health_command::HealthArguments),
    /// Print a script that completes commands and flags in a shell.
    Completions(packaging_command::CompletionsArguments),
    /// Write manual pages to a directory, for packages.
    #[command(hide = true)]
    Manual(packaging_command::ManualArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let outcome = match arguments.command {
        #[cfg(feature = "proxy")]
        Command::Proxy(arguments) => proxy_command::run(*arguments),
        #[cfg(feature = "load")]
        Command::Load(arguments) => load_command::run(*arguments),
        #[cfg(feature = "cache")]
        Command::Cache(arguments) => cache_command::run(&arguments),
        #[cfg(feature = "messages")]
        Command::Messages(arguments) => messages_command::run(&arguments),
        #[cfg(feature = "load")]
        Command::Variates(arguments) => variates_command::run(&arguments),
        #[cfg(feature = "load")]
        Command::Memory(arguments) => memory_command::run(&arguments),
        Command::Records(arguments) => records_command::run(&arguments),
        #[cfg(feature = "simulate")]
        Command::Simulate(arguments) => simulate_command::run(&arguments),
        #[cfg(feature = "link")]
        Command::Link(arguments) => link_command::run(&arguments),
        #[cfg(feature = "keeper")]
        Command::Keeper(arguments) => keeper_command::run(&arguments),
        #[cfg(feature = "top")]
        Command::Top(arguments) => top_command::run(&arguments),
        Command::Health(arguments) => health_command::run(&arguments),
        Command::Completions(arguments) => Ok(packaging_command::print_completions(&arguments, Arguments::command())),
        Command::Manual(arguments) => packaging_command::write_manual(&arguments, Arguments::command()),
    };
    match outcome {
        Ok(code) => code,
        Err(line) => {
            report(format_args!("waystage: {line}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints help in full, and a mistake as one line, like every other error.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // The reader of a pipe may exit early, as `head` does.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    match missing_command(error, &OPTIONAL_COMMANDS).or_else(|| lab_command(error)).or_else(|| memtier_hint(error)) {
        Some(line) => report(format_args!("waystage: {line}")),
        None => report(format_args!("waystage: {} (see --help)", one_line(error))),
    }
    ExitCode::from(2)
}

/// The line for flags of memtier_benchmark, which `waystage load` spells differently.
#[cfg(feature = "load")]
fn memtier_hint(error: &clap::Error) -> Option<String> {
    let mut arguments = command_line::command_line().into_iter().skip(1);
    (arguments.next()? == "load").then(|| load_command::memtier::hint(error, arguments)).flatten()
}

#[cfg(not(feature = "load"))]
fn memtier_hint(_: &clap::Error) -> Option<String> {
    None
}

/// The command that this binary does not have, if this is the mistake.
fn unknown_command(error: &clap::Error) -> Option<&String> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) => Some(name),
        _ => None,
    }
}

/// The line for a command of the lab.
fn lab_command(error: &clap::Error) -> Option<String> {
    let name = unknown_command(error).filter(|name| LAB_COMMANDS.contains(&name.as_str()))?;
    Some(format!("{name} is a command of the lab, which the wheel installs; run `waylab {name}`"))
}

/// The line for a command that exists but was not built in.
fn missing_command(error: &clap::Error, commands: &[OptionalCommand]) -> Option<String> {
    let name = unknown_command(error)?;
    let (name, feature, _) = commands.iter().find(|(command, _, is_built_in)| command == name && !is_built_in)?;
    Some(format!(
        "this binary was built without the command {name}; build it with `cargo build --release -p waystage --features {feature}`"
    ))
}

/// The mistake in the arguments, without the usage.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command is given; for example: waystage proxy --server 127.0.0.1:11211".into();
    }
    // The standard library's texts do not say what is right.
    let text = NUMBERS.iter().fold(error.render().to_string(), |text, (from, to)| text.replace(from, to));
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let line = lines.join(" ").replace("  ", " ");
    line.trim().trim_start_matches("error: ").trim_end_matches("For more information, try '--help'.").trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_not_built_in_names_its_feature() {
        let line = |name: &str| {
            let arguments = clap::Command::new("waystage").subcommand(clap::Command::new("records"));
            let error = arguments.try_get_matches_from(["waystage", name, "--help"]).unwrap_err();
            missing_command(&error, &[("variates", "load", false), ("proxy", "proxy", true)])
        };
        let variates = line("variates").unwrap();
        assert!(
            variates.contains("without the command variates") && variates.ends_with("--features load`"),
            "{variates}"
        );
        assert_eq!([line("proxy"), line("recrods")], [None, None]);
    }
}
