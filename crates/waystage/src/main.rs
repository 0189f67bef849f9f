//! The one binary: turns arguments into configurations, signals into stops, and outcomes into exit codes.

#![allow(clippy::print_stdout, reason = "a program speaks on standard output; the libraries do not")]

mod cache_command;
mod load_command;
mod messages_command;
mod proxy_command;
mod ready;
mod records_command;
mod simulate_command;
mod transport_arguments;
mod variates_command;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A memcached proxy that times every stage of every request, and what is needed to measure it.
#[derive(Debug, Parser)]
#[command(name = "waystage", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Forward requests to memcached servers, and time every stage of every request.
    Proxy(Box<proxy_command::ProxyArguments>),
    /// Load memcached servers in an open or a closed loop, measure latency and verify every value.
    Load(Box<load_command::LoadArguments>),
    /// Serve memcached's protocol from memory, with a service time that can be dictated.
    Cache(cache_command::CacheArguments),
    /// Serve queues of messages that PostgreSQL holds, over HTTP.
    Messages(messages_command::MessagesArguments),
    /// Print random variates or keys of a pattern, or describe them.
    Variates(variates_command::VariatesArguments),
    /// Read record files.
    Records(records_command::RecordsArguments),
    /// Simulate a queueing network described in a file, with confidence intervals.
    Simulate(simulate_command::SimulateArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let outcome = match arguments.command {
        Command::Proxy(arguments) => proxy_command::run(*arguments),
        Command::Load(arguments) => load_command::run(*arguments),
        Command::Cache(arguments) => cache_command::run(&arguments),
        Command::Messages(arguments) => messages_command::run(&arguments),
        Command::Variates(arguments) => variates_command::run(&arguments),
        Command::Records(arguments) => records_command::run(&arguments),
        Command::Simulate(arguments) => simulate_command::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(line) => {
            eprintln!("waystage: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Help is printed whole; a mistake is one line, as every other error.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Whoever reads our output may stop early, as `head` does.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    eprintln!("waystage: {} (see --help)", one_line(error));
    ExitCode::from(2)
}

/// What is wrong with arguments, without the usage.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let line = lines.join(" ").replace("  ", " ");
    line.trim().trim_start_matches("error: ").trim_end_matches("For more information, try '--help'.").trim().into()
}
