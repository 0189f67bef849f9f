//! `waystage proxy`: a configuration from a file and arguments, and the life of the process.

mod changes;
mod convert;
mod events;
mod file_watch;
mod first_steps;
mod flags;
mod key_route;
mod list_watch;
mod lists;
mod names;
mod overrides;
mod policies;
mod route;
mod server;
mod serving;
mod source;
mod srv;
mod summary;

use crate::activation::activated;
use crate::ready::announce;
use crate::transport_arguments::TransportArguments;
use clap::{Args, Subcommand};
use file_watch::FileWatch;
use flags::{PoolFlags, ProxyFlags};
use lists::Lists;
use names::Names;
use proxy::{Config, Discipline, Lookup, ProxyFile};
use records::report;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serving::Given;
use source::Source;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage proxy`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Arguments override the file of --config; those for servers override its first pool.
See docs/proxy-configuration.md; examples/proxy/reference.toml describes every key of the file.

Exit codes: 0 after SIGTERM or SIGINT, 1 the proxy cannot run or lost a request, 2 the configuration is invalid."
)]
pub(crate) struct ProxyArguments {
    #[command(subcommand)]
    command: Option<ProxyCommand>,
    /// Read the configuration from this file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check and print the configuration, and exit: 0 if it is valid, 2 if it is not. Opens no socket.
    #[arg(long)]
    check: bool,
    /// Reload --config when the file changes, and not only on SIGHUP.
    #[arg(long, requires = "config")]
    watch: bool,
    #[command(flatten)]
    pool: PoolFlags,
    #[command(flatten)]
    proxy: ProxyFlags,
    #[command(flatten)]
    transport: TransportArguments,
}

/// Other commands for a configuration.
#[derive(Debug, Subcommand)]
enum ProxyCommand {
    /// Print which servers store each key, and why.
    Route(route::RouteArguments),
    /// Convert the configuration of twemproxy or mcrouter, and print the result.
    Convert(convert::ConvertArguments),
    /// Send no more requests to a server of a running proxy. The server keeps its keys.
    Drain(server::ServerArguments),
    /// Send requests to a drained server again.
    Undrain(server::ServerArguments),
    /// Change the weight of a server of a running proxy.
    Weight(server::WeightArguments),
}

/// Descriptors that belong to neither clients nor backends, such as those of up to sixteen name resolutions in progress.
const OTHER_DESCRIPTORS: usize = 64;

/// Raises the limit of open files to its maximum, and limits the clients so that descriptors remain for backends.
fn fit_into_descriptors(config: &mut Config) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(available) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    // Twice, since a connection to a backend may be replaced before the kernel has let go of the old one.
    let connections = config.backends().count() * config.connections_per_backend();
    // A listening socket is duplicated for a process that takes over.
    let metrics = config.operations.metrics_connections;
    let reserved = OTHER_DESCRIPTORS + metrics + 2 * config.listeners().count() + config.loops * (2 * connections + 4);
    let room = usize::try_from(available).unwrap_or(usize::MAX).saturating_sub(reserved);
    if room == 0 {
        return Err(format!(
            "connections to the servers take up to {reserved} open files, but only {available} are allowed: \
             raise the limit (ulimit -n) or use fewer slots"
        ));
    }
    if room < config.clients_max {
        announce(&format!(
            "waystage proxy admits {room} clients, not {}: open files are limited to {available}",
            config.clients_max
        ));
        config.clients_max = room;
    }
    Ok(())
}

/// Serves until SIGTERM or SIGINT, or until a new process has taken over; or runs --check or another command.
pub(crate) fn run(arguments: ProxyArguments) -> Result<ExitCode, String> {
    match &arguments.command {
        Some(ProxyCommand::Route(arguments)) => return route::run(arguments),
        Some(ProxyCommand::Convert(arguments)) => return convert::run(arguments),
        Some(ProxyCommand::Drain(arguments)) => return server::drain(arguments, true),
        Some(ProxyCommand::Undrain(arguments)) => return server::drain(arguments, false),
        Some(ProxyCommand::Weight(arguments)) => return server::weigh(arguments),
        None => {}
    }
    let activated = activated()?;
    let transport = arguments.transport.settings(&activated);
    let flags = arguments.proxy.settings().overridden_by(arguments.pool.settings()).overridden_by(transport);
    let source = Source { file: arguments.config, flags };
    let watch = source.file.clone().filter(|_| arguments.watch).map(FileWatch::new);
    if arguments.check {
        // No name is resolved.
        let read =
            source.document().and_then(|document| source.settings(document.as_ref(), &mut Lists::default(), |_| {}));
        return Ok(read.map_or_else(|line| invalid(&line), |(config, settings)| check(&config, &settings)));
    }
    let names = Names::new(Lookup::default());
    let mut lists = Lists::new(names.clone());
    let document = source.document();
    let read = document.and_then(|document| Ok((source.settings(document.as_ref(), &mut lists, |_| {})?, document)));
    match read {
        Ok(((mut config, settings), document)) => {
            config.transport.take_over = arguments.transport.take_over.clone();
            let given = Given { source, document, settings, lists, names };
            serving::serve(given, config, activated, watch)
        }
        Err(line) => Ok(invalid(&line)),
    }
}

/// Runs --check on a configuration that is valid in itself.
fn check(config: &Config, settings: &ProxyFile) -> ExitCode {
    match proxy::check_files(config) {
        Ok(()) => {
            announce(&summary::summary(config, settings));
            ExitCode::SUCCESS
        }
        Err(error) => invalid(&error.to_string()),
    }
}

/// Prints one line about an invalid configuration, as for invalid arguments.
fn invalid(line: &str) -> ExitCode {
    report(format_args!("waystage: {line}"));
    ExitCode::from(2)
}

/// The discipline with its slots, as in "shared, 8 workers".
fn discipline_text(discipline: Discipline) -> String {
    let slots = discipline.slots().map(|(name, count)| format!(", {count} {name}"));
    discipline.name().to_string() + &slots.collect::<String>()
}

/// A number with its noun, as in "1 server" and "2 servers".
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
