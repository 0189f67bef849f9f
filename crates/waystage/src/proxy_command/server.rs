//! `waystage proxy drain`, `undrain` and `weight`: change a server of a running proxy over its control socket.

use crate::ready::announce;
use clap::Args;
use proxy::{ChangedServer, ServerChange, change_server};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `waystage proxy drain` and `undrain`.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// The server: its address or its name, as in the configuration.
    #[arg(value_name = "SERVER")]
    server: String,
    /// The control socket of the proxy: its --control.
    #[arg(long, value_name = "PATH")]
    control: PathBuf,
    /// Only in this pool [default: in each pool that has the server].
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
}

/// Arguments of `waystage proxy weight`.
#[derive(Debug, Args)]
pub(crate) struct WeightArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The new weight, from 1 to 1000. Keys move to other servers, as after a reload with this weight.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    weight: u32,
}

/// Drains a server, or sends requests to it again.
pub(crate) fn drain(arguments: &ServerArguments, is_drained: bool) -> Result<ExitCode, String> {
    change(arguments, ServerChange::Drain(is_drained))
}

/// Changes the weight of a server.
pub(crate) fn weigh(arguments: &WeightArguments) -> Result<ExitCode, String> {
    change(&arguments.server, ServerChange::Weight(arguments.weight))
}

/// What the proxy replies when it has changed these servers. `has_moved_keys` is about a change of weights.
pub(super) fn sentence(change: ServerChange, servers: &[String], has_moved_keys: bool) -> String {
    let (names, verb) = (servers.join(" and "), if servers.len() == 1 { "is" } else { "are" });
    match change {
        ServerChange::Drain(true) => {
            format!("{names} {verb} drained: requests for the keys there are handled as if the server were down")
        }
        ServerChange::Drain(false) => format!("{names} {verb} used again"),
        ServerChange::Weight(weight) => {
            let consequence = match has_moved_keys {
                true => "keys have moved, and their former servers keep the old values",
                false => "no keys have moved",
            };
            format!("the weight of {names} is {weight}: {consequence}")
        }
    }
}

fn change(arguments: &ServerArguments, change: ServerChange) -> Result<ExitCode, String> {
    let ServerArguments { server, control, pool } = arguments;
    let changed = ChangedServer { pool: pool.clone(), server: server.clone(), change };
    let outcome = change_server(control, &changed).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => error.to_string(),
        _ => format!("cannot reach the proxy at {}: {error}; is its --control that path?", control.display()),
    })?;
    announce(&outcome?);
    Ok(ExitCode::SUCCESS)
}
