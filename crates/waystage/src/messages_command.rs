//! `waystage messages`: queues of messages over PostgreSQL, behind HTTP.

use crate::ready;
use clap::Args;
use clock::Clock;
use messages::{Config, Dispatch, Embedded, Limits};
use std::path::Path;
use std::process::ExitCode;

/// Where a private PostgreSQL keeps its data.
const EMBEDDED: &str = ".waystage/postgres";

/// Arguments of `waystage messages`.
#[derive(Debug, Args)]
#[command(after_help = "docs/messages.md has the interface, what it promises and how it works.
Exit codes: 0 ended by a signal, 1 cannot serve (one line says why), 2 the arguments make no sense.")]
pub(crate) struct MessagesArguments {
    /// The database: postgres://USER:PASSWORD@HOST:PORT/NAME, or libpq's words such as host=/run/postgresql.
    #[arg(long, value_name = "URL", required_unless_present = "embedded")]
    database: Option<String>,
    /// Start a private PostgreSQL from an installed one; its data are in .waystage/postgres.
    #[arg(long, conflicts_with = "database")]
    embedded: bool,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    listen: String,
    /// How requests reach the database: fused sends what waits as one statement, pool one statement for each request.
    #[arg(long, value_name = "fused|pool", default_value = "fused", value_parser = ["fused", "pool"])]
    dispatch: String,
    /// With fused: connections, chosen by the queue's name.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    lanes: usize,
    /// With pool: connections.
    #[arg(long, value_name = "NUMBER", default_value_t = 40)]
    connections: usize,
    /// Bytes of a message's body.
    #[arg(long, value_name = "SIZE", default_value = "256k", value_parser = quantity::bytes)]
    body_limit: usize,
    /// Requests that may wait for a lane, or for the pool; more are refused.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    queue: usize,
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: &MessagesArguments) -> Result<ExitCode, String> {
    let mut signals = ready::signals()?;
    // It ends after the service, whatever happens in between.
    let embedded = match arguments.embedded {
        true => Some(Embedded::start(Path::new(EMBEDDED)).map_err(|error| error.to_string())?),
        false => None,
    };
    let config = Config {
        database: embedded.as_ref().map(Embedded::url).or(arguments.database.clone()).unwrap_or_default(),
        listen: arguments.listen.clone(),
        dispatch: match arguments.dispatch.as_str() {
            "pool" => Dispatch::Pool { connections: arguments.connections },
            _ => Dispatch::Fused { lanes: arguments.lanes },
        },
        limits: Limits { body_bytes: arguments.body_limit, waiting_requests: arguments.queue, ..Limits::default() },
        ..Config::default()
    };
    let running = messages::start(&config, Clock::monotonic()).map_err(|error| error.to_string())?;
    ready::announce(&format!("waystage messages ready on {} dispatch={}", running.address(), arguments.dispatch));
    ready::wait(&mut signals);
    running.stop();
    drop(embedded);
    Ok(ExitCode::SUCCESS)
}
